package api

import (
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// overviewApps returns the apps of a route over all apps: the one that the query names, or those of the token; empty: all.
func (a *API) overviewApps(r *request, problems *input.Problems) ([]string, error) {
	app := r.URL.Query().Get("app")
	if !r.URL.Query().Has("app") {
		return r.Token.Apps, nil
	}
	input.CheckName(problems, "/app", app)
	if err := problems.Err(); err != nil {
		return nil, err
	}
	if !r.MaySee(app) {
		return nil, r.NotBound(app)
	}
	_, err := a.store.App(r.Context(), app)
	return []string{app}, err
}

// listSummaries lists jobs over all apps.
func (a *API) listSummaries(r *request) (response, error) {
	query, err := r.jobQuery()
	if err != nil {
		return response{}, err
	}
	var problems input.Problems
	if query.Apps, err = a.overviewApps(r, &problems); err != nil {
		return response{}, err
	}
	summaries, next, err := a.store.JobSummaries(r.Context(), query)
	body := newList(summaries)
	body.Next = next
	return response{body: body}, err
}

// jobQuery reads the parameters of the list of summaries, but for the app.
func (r *request) jobQuery() (query dispatcher.JobQuery, err error) {
	var problems input.Problems
	values := r.URL.Query()
	query = dispatcher.JobQuery{
		State: dispatcher.JobState(values.Get("state")), Result: run.State(values.Get("result")),
		Name: values.Get("name"), Host: values.Get("host"), Page: r.page(&problems, isJobCursor),
	}
	query.Page.Bytes = gate.PageBytes
	if values.Has("state") {
		input.CheckEnum(&problems, "/state", "state", query.State, dispatcher.JobStates)
	}
	if values.Has("result") {
		input.CheckEnum(&problems, "/result", "result", query.Result, run.FinalStates)
	}
	for _, name := range []string{"name", "host"} {
		if text := values.Get(name); values.Has(name) && (text == "" || len(text) > maxFilter || !printable(text)) {
			problems.Add("/"+name, input.CodeTextInvalid, "%s is empty, longer than %d bytes or holds a control character, as none does",
				name, maxFilter)
		}
	}
	labels, err := r.labels()
	problems.AddError("", err)
	query.Page.Labels = labels
	return query, problems.Err()
}

// maxFilter is longer than any name of a host, function, group, queue or topic.
const maxFilter = 300

func isJobCursor(text string) bool {
	_, _, ok := dispatcher.ParseJobCursor(text)
	return ok
}

// attention shows what a person on call should look at.
func (a *API) attention(r *request) (response, error) {
	var problems input.Problems
	apps, err := a.overviewApps(r, &problems)
	if err != nil {
		return response{}, err
	}
	found, err := a.store.Attention(r.Context(), apps, time.Time{})
	return response{body: found}, err
}

// upcomingFires shows how many fires are to come. They are counted by Run, because that may take some seconds.
func (a *API) upcomingFires(r *request) (response, error) {
	var problems input.Problems
	hours := view.UpcomingHours
	if text := r.URL.Query().Get("hours"); r.URL.Query().Has("hours") {
		var err error
		if hours, err = strconv.Atoi(text); err != nil || hours < 1 || hours > view.MaxUpcomingHours {
			problems.Add("/hours", input.CodeCountRange, "hours %s is not a number from 1 to %d", input.Echo(text),
				view.MaxUpcomingHours)
		}
	}
	apps, err := a.overviewApps(r, &problems)
	if err == nil {
		err = problems.Err()
	}
	if err != nil {
		return response{}, err
	}
	fires := a.forecasts.latest(r.Context(), apps, r.Now)
	if steps := hours * int(time.Hour/view.UpcomingStep); len(fires.Counts) > steps {
		fires.Counts = fires.Counts[:steps]
	}
	return response{body: fires}, nil
}
