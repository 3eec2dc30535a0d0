package console

import (
	"errors"
	"regexp"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// searchPage is what the search on every page has found.
type searchPage struct {
	runTable
	Query    string
	Jobs     []dispatcher.JobSummary
	MoreJobs bool
	Runs     []run.Run
	// Next leads to earlier runs; empty: there are none.
	Next string
}

// Limited reports whether the search reached the amount of work of a page before the page was full.
func (p *searchPage) Limited() bool {
	return p.Next != "" && len(p.Runs) < pageOfSearch || p.MoreJobs && len(p.Jobs) < pageOfSearch
}

// pageOfSearch is how many jobs, and how many runs, a search shows.
const pageOfSearch = 20

// The forms of ids. A trace may be given as the header traceparent of its requests.
var (
	runInText   = regexp.MustCompile(`[0-9a-v]{24}(-[0-9]+)?$`)
	eventInText = regexp.MustCompile(`^evt_[0-9a-v-]+$`)
	traceInText = regexp.MustCompile(`^(?:00-)?([0-9a-f]{32})(?:-[0-9a-f]{16}-[0-9a-f]{2})?$`)
)

// showSearch finds a run by its id, its webhook-id or its trace, and jobs by their names and runs by their errors. It goes
// to the only result.
func showSearch(v *visit) (content, error) {
	page := searchPage{Query: strings.TrimSpace(v.query("q"))}
	result := content{Data: &page}
	if page.Query == "" {
		return result, nil
	}
	query := dispatcher.RunSearch{Page: input.Page{Limit: pageOfSearch, Cursor: v.query("cursor")}}
	switch trace := traceInText.FindStringSubmatch(page.Query); {
	case run.IsID(runInText.FindString(page.Query)): // also at the end of a URL
		found, err := v.client.Run(v.Context(), runInText.FindString(page.Query))
		if err == nil {
			result.To = v.link("runs", found.ID)
		}
		if errors.Is(err, dispatcher.ErrNotFound) {
			err = nil
		}
		return result, err
	case trace != nil:
		query.ID = trace[1]
	case eventInText.MatchString(page.Query):
		query.ID = page.Query
	default:
		query.Error = page.Query
		if err := page.findJobs(v); err != nil {
			return v.filtered(result, err)
		}
	}
	found, err := v.client.SearchRuns(v.Context(), query)
	page.Runs, page.Next = found.Items, v.more(found.Next)
	switch {
	case len(page.Runs) == 1 && len(page.Jobs) == 0 && (query.ID != "" || found.Next == ""):
		result.To = v.link("runs", page.Runs[0].ID)
	case len(page.Jobs) == 1 && len(page.Runs) == 0 && !page.MoreJobs:
		result.To = v.link("apps", page.Jobs[0].App, "jobs", page.Jobs[0].Name)
	}
	return v.filtered(result, err)
}

// findJobs finds jobs by a part of their names, or by APP/NAME. Earlier runs are shown without them.
func (p *searchPage) findJobs(v *visit) error {
	app, name, both := strings.Cut(p.Query, "/")
	if !both {
		name = app
	}
	if v.query("cursor") != "" || strings.ContainsAny(name, " \t") {
		return nil
	}
	query := dispatcher.JobQuery{Name: name, Page: input.Page{Limit: pageOfSearch}}
	if both {
		query.Apps = []string{app}
	}
	found, err := v.client.JobSummaries(v.Context(), query)
	if both && errors.Is(err, dispatcher.ErrNotFound) {
		return nil // it is no name of a job
	}
	p.Jobs, p.MoreJobs = found.Items, found.Next != ""
	return err
}
