package client

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

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
