package api

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// timelineAround is how much of the past and of the future a timeline has that names no time.
const timelineAround = 6 * time.Hour

// timeline shows what happened to the jobs of an app between two times, and what is planned.
func (a *API) timeline(r *request) (response, error) {
	var problems input.Problems
	values := r.URL.Query()
	query := view.TimelineQuery{
		App: r.PathValue("app"), Job: values.Get("job"), From: r.instant(&problems, "from"), To: r.instant(&problems, "to"),
		Page: r.page(&problems, input.IsName),
	}
	if !values.Has("limit") {
		query.Page.Limit = view.MostTimelineRows
	}
	if query.Page.Limit > view.MostTimelineRows {
		problems.Add("/limit", input.CodePageLimit, "limit %d is not a number from 1 to %d", query.Page.Limit, view.MostTimelineRows)
	}
	if values.Has("job") {
		input.CheckName(&problems, "/job", query.Job)
	}
	switch from, to := values.Has("from"), values.Has("to"); {
	case from && !to:
		query.To = query.From.Add(2 * timelineAround)
	case to && !from:
		query.From = query.To.Add(-2 * timelineAround)
	case !from:
		query.From, query.To = r.Now.Add(-timelineAround), r.Now.Add(timelineAround)
	}
	query.From, query.To = query.From.UTC().Truncate(time.Millisecond), query.To.UTC().Truncate(time.Millisecond)
	checkOrder(&problems, query.From, query.To)
	if span := query.To.Sub(query.From); span > view.MostTimeline {
		problems.Add("/to", input.CodeDurationMax, "to is %s after from; the maximum is %s, so ask for a shorter time", span,
			view.MostTimeline)
	}
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	ctx, done, err := a.gate.Evaluate(r.Request, gate.EvaluationTimeout)
	if err != nil {
		return response{}, err
	}
	defer done()
	page, err := a.store.Timeline(ctx, query)
	return response{body: page}, err
}

// statistics returns what the runs of each day came to: of one app or of all that the token may see.
func (a *API) statistics(r *request) (response, error) {
	var problems input.Problems
	values := r.URL.Query()
	query := view.StatisticsQuery{From: r.instant(&problems, "from"), To: r.instant(&problems, "to")}
	if values.Has("app") {
		query.Apps = []string{values.Get("app")}
		input.CheckName(&problems, "/app", values.Get("app"))
	}
	checkOrder(&problems, query.From, query.To)
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	switch {
	case len(r.Token.Apps) == 0:
	case query.Apps == nil:
		query.Apps = r.Token.Apps
	case !r.MaySee(query.Apps[0]):
		return response{}, r.NotBound(query.Apps[0])
	}
	if values.Has("app") {
		if _, err := a.store.App(r.Context(), query.Apps[0]); err != nil {
			return response{}, err
		}
	}
	found, err := a.store.Statistics(r.Context(), query)
	return response{body: found}, err
}
