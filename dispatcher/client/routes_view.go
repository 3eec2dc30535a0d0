package client

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
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

// JobSummaries lists jobs by app and name: those of all apps that the token may see, or of the one in query.Apps. A page may
// be empty although there are further ones.
func (c *Client) JobSummaries(ctx context.Context, query dispatcher.JobQuery) (List[dispatcher.JobSummary], error) {
	if len(query.Apps) > 1 {
		return List[dispatcher.JobSummary]{}, errors.New("a request asks for the jobs of one app, or of all that the token may see")
	}
	values := url.Values{}
	for key, value := range map[string]string{
		"app": strings.Join(query.Apps, ""), "state": string(query.State), "name": query.Name, "host": query.Host,
		"result": string(query.Result),
	} {
		if value != "" {
			values.Set(key, value)
		}
	}
	addPage(values, time.Time{}, time.Time{}, query.Page)
	return list[dispatcher.JobSummary](ctx, c, path("jobs")+encoded(values))
}

// Attention gets what a person on call should look at: in one app, or in all that the token may see.
func (c *Client) Attention(ctx context.Context, app string) (view.Attention, error) {
	return get(ctx, c, path("attention")+ofApp(app), func(a view.Attention) bool { return !a.At.IsZero() })
}

// Upcoming gets how many fires are to come: in one app, or in all that the token may see.
func (c *Client) Upcoming(ctx context.Context, app string) (view.UpcomingFires, error) {
	return get(ctx, c, path("upcoming")+ofApp(app), func(u view.UpcomingFires) bool { return u.Step > 0 })
}

// ofApp is the query that selects an app; empty for all.
func ofApp(app string) string {
	if app == "" {
		return ""
	}
	return encoded(url.Values{"app": {app}})
}

// Version gets the version of the server and of its time zone data. It needs no token.
func (c *Client) Version(ctx context.Context) (dispatcher.ServerVersion, error) {
	return get(ctx, c, "/version", func(v dispatcher.ServerVersion) bool { return v.Version != "" })
}
