package api

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
)

// list is one page. Next is the cursor of the following one, left out after the last.
type list[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty" schema:"Next"`
}

// newList returns a list whose JSON is "items": [] rather than null for no items.
func newList[T any](items []T) list[T] {
	if items == nil {
		items = []T{}
	}
	return list[T]{Items: items}
}

// page reads limit and cursor. isKey reports whether a text can be a cursor of this list.
func (r *request) page(problems *input.Problems, isKey func(string) bool) input.Page {
	page := input.Page{Limit: defaultLimit}
	query := r.URL.Query()
	if query.Has("limit") {
		limit, err := strconv.Atoi(query.Get("limit"))
		if err != nil || limit < 1 || limit > maxLimit || strconv.Itoa(limit) != query.Get("limit") {
			problems.Add("/limit", input.CodePageLimit, "limit %s is not a number from 1 to %d",
				input.Echo(query.Get("limit")), maxLimit)
		}
		page.Limit = limit
	}
	if query.Has("cursor") {
		if page.Cursor = query.Get("cursor"); !isKey(page.Cursor) {
			problems.Add("/cursor", input.CodePageCursor,
				"cursor %s is not from this list; leave it out for the first page", input.Echo(page.Cursor))
		}
	}
	return page
}

// paged reads one page of a list, and one item more to know whether there is a following page.
func paged[T any](page input.Page, key func(T) string, read func(input.Page) ([]T, error)) (response, error) {
	wanted := page.Limit
	page.Limit++
	page.Bytes = gate.PageBytes
	items, err := read(page)
	early := errors.Is(err, dispatcher.ErrPageBytes) && len(items) > 0
	if err != nil && !early {
		return response{}, err
	}
	body := newList(items)
	if early && len(items) <= wanted {
		body.Next = key(items[len(items)-1])
	}
	if len(items) > wanted {
		body.Items = items[:wanted]
		body.Next = key(items[wanted-1])
	}
	return response{body: body}, nil
}

// pagedByName is paged for a list in the order of names.
func pagedByName[T any](r *request, name func(T) string, read func(input.Page) ([]T, error)) (response, error) {
	var problems input.Problems
	page := r.page(&problems, input.IsName)
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	return paged(page, name, read)
}

// labels reads the labels that select the jobs of a list.
func (r *request) labels() (input.Labels, error) {
	labels := input.Labels{}
	for _, pair := range r.URL.Query()["label"] {
		name, value, is := strings.Cut(pair, "=")
		if before, twice := labels[name]; !is || twice && before != value {
			return nil, &input.Problem{Path: "/label", Code: input.CodeLabelFormat,
				Message: "label " + input.Echo(pair) + " is not NAME=VALUE, or has another value than before; a job has one value of each"}
		}
		labels[name] = value
	}
	var problems input.Problems
	problems.AddError("/label", labels.Validate())
	return labels, problems.Err()
}

// runQuery reads the parameters of the lists of runs and misfires.
func (r *request) runQuery() (dispatcher.RunQuery, error) {
	var problems input.Problems
	values := r.URL.Query()
	query := dispatcher.RunQuery{
		App: r.PathValue("app"), Job: values.Get("job"), Trigger: values.Get("trigger"),
		State: run.State(values.Get("state")), Page: r.page(&problems, run.IsID),
	}
	if values.Has("job") {
		repeat.CheckJobOrDelivery(&problems, "/job", query.Job)
	}
	if values.Has("trigger") {
		input.CheckName(&problems, "/trigger", query.Trigger)
	}
	if query.Trigger != "" && query.Job == "" {
		problems.Add("/job", input.CodeRequired, "trigger is given without job; give both")
	}
	if values.Has("state") {
		input.CheckEnum(&problems, "/state", "state", query.State, run.States)
	}
	query.From, query.To = r.instant(&problems, "from"), r.instant(&problems, "to")
	checkOrder(&problems, query.From, query.To)
	return query, problems.Err()
}

// instant reads a query parameter that is a point in time, zero if it is not given.
func (r *request) instant(problems *input.Problems, name string) time.Time {
	values := r.URL.Query()
	if !values.Has(name) {
		return time.Time{}
	}
	at, err := input.ParseInstant(values.Get(name))
	problems.AddError("/"+name, err)
	return at
}

// checkOrder reports a range that ends before it begins.
func checkOrder(problems *input.Problems, from, to time.Time) {
	if !from.IsZero() && !to.IsZero() && from.After(to) {
		problems.Add("/from", input.CodeWindowOrder, "from is after to, so nothing is selected; swap them")
	}
}
