package client

import (
	"context"
	"encoding/base64"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
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

// CountBackfill counts the instants that a backfill would run, and begins none.
func (c *Client) CountBackfill(
	ctx context.Context, app, job string, asked repeat.BackfillSpec,
) (repeat.BackfillCount, error) {
	counted := func(count repeat.BackfillCount) bool { return count.Total >= 0 }
	return post(ctx, c, path("apps", app, "jobs", job, "backfill"), repeat.BackfillRequest{BackfillSpec: asked, DryRun: true}, counted)
}

// CreateBackfill begins a backfill of a job. The client does not repeat it.
func (c *Client) CreateBackfill(ctx context.Context, app, job string, asked repeat.BackfillSpec) (repeat.Backfill, error) {
	created := func(b repeat.Backfill) bool { return b.App == app && b.Job == job && b.ID != "" }
	return post(ctx, c, path("apps", app, "jobs", job, "backfill"), repeat.BackfillRequest{BackfillSpec: asked}, created)
}

// Backfill gets a backfill with its progress.
func (c *Client) Backfill(ctx context.Context, app, id string) (repeat.Backfill, error) {
	return get(ctx, c, path("apps", app, "backfills", id), isBackfill(id))
}

// Backfills lists the backfills of an app, the latest first.
func (c *Client) Backfills(ctx context.Context, query repeat.BackfillQuery) (List[repeat.Backfill], error) {
	values := url.Values{}
	if query.Job != "" {
		values.Set("job", query.Job)
	}
	addPage(values, time.Time{}, time.Time{}, query.Page)
	return list[repeat.Backfill](ctx, c, path("apps", query.App, "backfills")+encoded(values))
}

// ChangeBackfill pauses, resumes or cancels a backfill; ErrConflict if it has ended.
func (c *Client) ChangeBackfill(ctx context.Context, app, id string, action repeat.BackfillAction) (repeat.Backfill, error) {
	return post(ctx, c, path("apps", app, "backfills", id, string(action)), nil, isBackfill(id))
}

func isBackfill(id string) func(repeat.Backfill) bool {
	return func(b repeat.Backfill) bool { return b.ID == id }
}

// CountBulk counts what a bulk action would act on, and begins none.
func (c *Client) CountBulk(ctx context.Context, app string, spec repeat.BulkSpec) (repeat.BulkCount, error) {
	counted := func(count repeat.BulkCount) bool { return count.Total >= 0 }
	return post(ctx, c, path("apps", app, "bulk"), repeat.BulkRequest{BulkSpec: spec, DryRun: true}, counted)
}

// CreateBulkAction begins a bulk action; ErrConflict if the filter selects another number than is expected. The client does not repeat it.
func (c *Client) CreateBulkAction(ctx context.Context, app string, asked repeat.BulkRequest) (repeat.BulkAction, error) {
	created := func(b repeat.BulkAction) bool { return b.App == app && b.ID != "" }
	return post(ctx, c, path("apps", app, "bulk"), asked, created)
}

// BulkAction gets a bulk action with its progress.
func (c *Client) BulkAction(ctx context.Context, app, id string) (repeat.BulkAction, error) {
	return get(ctx, c, path("apps", app, "bulk", id), isBulkAction(id))
}

// BulkActions lists the bulk actions of an app, the latest first.
func (c *Client) BulkActions(ctx context.Context, app string, page input.Page) (List[repeat.BulkAction], error) {
	return list[repeat.BulkAction](ctx, c, path("apps", app, "bulk")+params(dispatcher.RunQuery{Page: page}))
}

// CancelBulkAction cancels a bulk action; ErrConflict if it is complete.
func (c *Client) CancelBulkAction(ctx context.Context, app, id string) (repeat.BulkAction, error) {
	return post(ctx, c, path("apps", app, "bulk", id, "cancel"), nil, isBulkAction(id))
}

func isBulkAction(id string) func(repeat.BulkAction) bool {
	return func(b repeat.BulkAction) bool { return b.ID == id }
}

// Zones gets which time zone data the installation has for its nodes, and what these compute with.
func (c *Client) Zones(ctx context.Context) (dispatcher.ZoneStatus, error) {
	return get(ctx, c, path("zones"), isZones)
}

// UseZones makes all nodes compute with an archive of time zone data, as schedule.PackZones makes it.
func (c *Client) UseZones(ctx context.Context, archive []byte) (dispatcher.ZoneStatus, error) {
	return post(ctx, c, path("zones", "use"), dispatcher.ZoneData{Archive: base64.StdEncoding.EncodeToString(archive)}, isZones)
}

// ResetZones makes each node compute with its own time zone data.
func (c *Client) ResetZones(ctx context.Context) (dispatcher.ZoneStatus, error) {
	return post(ctx, c, path("zones", "reset"), nil, isZones)
}

func isZones(zones dispatcher.ZoneStatus) bool { return zones.Nodes != nil }
