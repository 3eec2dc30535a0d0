package console

import (
	"net/url"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

type jobsPage struct {
	// Refused means that the filter is invalid, so nothing is listed.
	Refused bool
	Filter  jobsFilter
	Jobs    []dispatcher.JobSummary
	Next    string // link to the following page; empty: none
	First   string // link to the first page; empty: this is it
	States  []dispatcher.JobState
	Results []run.State
	Sorting sorting
	// MayRun means that there is a column of buttons; some of its rows may have none.
	MayRun bool
	// Bulk links to a new bulk action on these jobs; empty: the filter names no app, or the token may begin none.
	Bulk string
}

// jobsFilter is the filter of jobs in the URL.
type jobsFilter struct {
	App, State, Result, Name, Host, Label string
}

func (f jobsFilter) Any() bool { return f != jobsFilter{} }

// pageOfJobs is how many jobs a page of the list has.
const pageOfJobs = 50

// showJobs lists jobs of all apps that the token may see.
func showJobs(v *visit) (content, error) {
	filter := jobsFilter{
		App: v.query("app"), State: v.query("state"), Result: v.query("result"), Name: v.query("name"), Host: v.query("host"),
		Label: v.query("label"),
	}
	query := dispatcher.JobQuery{
		State: dispatcher.JobState(filter.State), Result: run.State(filter.Result), Name: filter.Name, Host: filter.Host,
		Page: input.Page{Limit: pageOfJobs, Cursor: v.query("cursor"), Labels: input.ParseLabels(filter.Label)},
	}
	if filter.App != "" {
		query.Apps = []string{filter.App}
	}
	order := sorting{By: "job", Links: map[string]string{"job": v.sorted("job"), "next": v.sorted("next")}}
	if query.ByNextFire = v.query("sort") == "next"; query.ByNextFire {
		order.By = "next"
	}
	found, err := v.client.JobSummaries(v.Context(), query)
	page := jobsPage{
		Refused: err != nil, Filter: filter, Jobs: found.Items, Next: v.more(found.Next), First: v.first(),
		States: []dispatcher.JobState{
			dispatcher.JobError, dispatcher.JobExecuting, dispatcher.JobPaused, dispatcher.JobComplete, dispatcher.JobInit,
		},
		Results: kit.FinalStates(), Sorting: order, MayRun: v.token.May(access.ScopeRun),
	}
	if filter.App != "" && v.mayBulk(filter.App) == nil {
		form := url.Values{}
		for name, text := range map[string]string{
			"state": filter.State, "result": filter.Result, "name": filter.Name, "host": filter.Host, "labels": filter.Label,
		} {
			if text != "" {
				form.Set(name, text)
			}
		}
		page.Bulk = v.linkQuery(form, "apps", filter.App, "new-bulk")
	}
	return v.filtered(content{Data: page, Refresh: true}, err)
}

// first returns a link to the first page of a list; empty: this is it.
func (v *visit) first() string {
	q := v.URL.Query()
	if q.Get("cursor") == "" {
		return ""
	}
	q.Del("cursor")
	return v.sameWith(q)
}

// sorting is the order of a list, as sort=COLUMN or sort=-COLUMN in the URL chooses it. A list of several pages has the
// orders of the store only; one that is complete can be sorted by any column.
type sorting struct {
	// By is the column, with - in front from the largest down; empty: the order of the list.
	By string
	// Links are the links of the columns by which the list can be sorted.
	Links map[string]string
}

// State is the value of aria-sort of a column; empty: the list is not sorted by it.
func (s sorting) State(column string) string {
	switch s.By {
	case column:
		return "ascending"
	case "-" + column:
		return "descending"
	}
	return ""
}

// sorted sorts the rows of a complete list by the column in the URL.
func sorted[T any](v *visit, rows []T, columns map[string]func(a, b T) int) sorting {
	s := sorting{By: v.query("sort"), Links: map[string]string{}}
	column, down := strings.CutPrefix(s.By, "-")
	if compare := columns[column]; compare == nil {
		s.By = ""
	} else {
		slices.SortStableFunc(rows, func(a, b T) int {
			if down {
				a, b = b, a
			}
			return compare(a, b)
		})
	}
	for name := range columns {
		by := name
		if s.By == name {
			by = "-" + name
		}
		s.Links[name] = v.sorted(by)
	}
	return s
}

// sorted returns the URL of the first page of this list in another order.
func (v *visit) sorted(by string) string {
	q := v.URL.Query()
	q.Del("cursor")
	q.Set("sort", by)
	return v.sameWith(q)
}
