package client

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// Strip gets the latest and the next scheduled times of a trigger, with what became of each: as many as the API gives if the
// query has 0 of both. The API knows what time it is.
func (c *Client) Strip(ctx context.Context, q view.StripQuery) (view.Strip, error) {
	query := ""
	if q.Past != 0 || q.Next != 0 {
		query = encoded(url.Values{"past": {strconv.Itoa(q.Past)}, "next": {strconv.Itoa(q.Next)}})
	}
	return get(ctx, c, path("apps", q.App, "jobs", q.Job, "triggers", q.Trigger, "strip")+query, func(s view.Strip) bool {
		return s.App == q.App && s.Job == q.Job && s.Trigger == q.Trigger
	})
}

// Timeline gets what happened to the jobs of an app between two times, and what is planned, one page of jobs at a time.
func (c *Client) Timeline(ctx context.Context, query view.TimelineQuery) (view.Timeline, error) {
	values := url.Values{}
	if query.Job != "" {
		values.Set("job", query.Job)
	}
	addPage(values, query.From, query.To, query.Page)
	return get(ctx, c, path("apps", query.App, "timeline")+encoded(values), func(t view.Timeline) bool { return t.Items != nil })
}

// Statistics gets what the runs of each day came to, of an app or, without one, of all that the token may see. Without times,
// these are the last 30 days.
func (c *Client) Statistics(ctx context.Context, app string, from, to time.Time) (view.Statistics, error) {
	values := url.Values{}
	if app != "" {
		values.Set("app", app)
	}
	addPage(values, from, to, input.Page{})
	return get(ctx, c, path("statistics")+encoded(values), func(s view.Statistics) bool { return s.Days != nil })
}

// RequestOfRun gets the request of a run as its job would send it now, with secrets masked.
func (c *Client) RequestOfRun(ctx context.Context, run string) (target.ShownRequest, error) {
	return get(ctx, c, path("runs", run, "request"), func(r target.ShownRequest) bool { return r.Run == run })
}
