package client

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// Strip gets the latest and the next scheduled times of a trigger with their outcomes. If the query
// has 0 of both, the API chooses how many. The API's clock decides what is past.
func (c *Client) Strip(ctx context.Context, q view.StripQuery) (view.Strip, error) {
	query := ""
	if q.Past != 0 || q.Next != 0 {
		query = fmt.Sprintf("?next=%d&past=%d", q.Next, q.Past)
	}
	return get(ctx, c, path("apps", q.App, "jobs", q.Job, "triggers", q.Trigger, "strip")+query, func(s view.Strip) bool {
		return s.App == q.App && s.Job == q.Job && s.Trigger == q.Trigger
	})
}

// Timeline gets past and planned fires of an app's jobs between two times, one page of jobs at a time.
func (c *Client) Timeline(ctx context.Context, query view.TimelineQuery) (view.Timeline, error) {
	q := dispatcher.RunQuery{Job: query.Job, From: query.From, To: query.To, Page: query.Page}
	return get(ctx, c, path("apps", query.App, "timeline")+params(q), func(t view.Timeline) bool { return t.Items != nil })
}

// Statistics gets the outcomes of the runs of each day, of an app or, if it is empty, of all apps
// that the token may see. Without times, it covers the last 30 days.
func (c *Client) Statistics(ctx context.Context, app string, from, to time.Time) (view.Statistics, error) {
	query := parameters(map[string]string{"app": app}, from, to, input.Page{})
	return get(ctx, c, path("statistics")+query, func(s view.Statistics) bool { return s.Days != nil })
}

// JobStatistics gets how long the latest runs of a job waited and took, and what came of them by the hour.
func (c *Client) JobStatistics(ctx context.Context, app, job string, from, to time.Time) (view.JobStatistics, error) {
	query := parameters(nil, from, to, input.Page{})
	return get(ctx, c, path("apps", app, "jobs", job, "statistics")+query, func(s view.JobStatistics) bool { return s.Hours != nil })
}

// RequestOfRun gets the request that the job would send for the run now, with secrets masked.
func (c *Client) RequestOfRun(ctx context.Context, run string) (target.ShownRequest, error) {
	return get(ctx, c, path("runs", run, "request"), func(r target.ShownRequest) bool { return r.Run == run })
}

var errOneApp = errors.New("a request is about one app, or about all that the token may see")

// JobSummaries lists jobs, of query.Apps or else of all apps that the token may
// see. A page may be empty although more pages follow.
func (c *Client) JobSummaries(ctx context.Context, query dispatcher.JobQuery) (List[dispatcher.JobSummary], error) {
	if len(query.Apps) > 1 {
		return List[dispatcher.JobSummary]{}, errOneApp
	}
	filters := map[string]string{
		"app": strings.Join(query.Apps, ""), "state": string(query.State), "name": query.Name, "host": query.Host,
		"result": string(query.Result),
	}
	if query.ByNextFire {
		filters["order"] = "next_fire"
	}
	return list[dispatcher.JobSummary](ctx, c, path("jobs")+parameters(filters, time.Time{}, time.Time{}, query.Page))
}

// Attention gets what needs the attention of a person on call, in one app or in all that the token may see.
func (c *Client) Attention(ctx context.Context, app string) (view.Attention, error) {
	return get(ctx, c, path("attention")+ofApp(app), func(a view.Attention) bool { return !a.At.IsZero() })
}

// Upcoming counts the upcoming fires, in one app or in all that the token may see.
func (c *Client) Upcoming(ctx context.Context, app string) (view.UpcomingFires, error) {
	return get(ctx, c, path("upcoming")+ofApp(app), func(u view.UpcomingFires) bool { return u.Step > 0 })
}

// ofApp returns the query that selects an app, or "" for all.
func ofApp(app string) string {
	return parameters(map[string]string{"app": app}, time.Time{}, time.Time{}, input.Page{})
}

// Version gets the version of the server and of its time zone data. It needs no token.
func (c *Client) Version(ctx context.Context) (dispatcher.ServerVersion, error) {
	return get(ctx, c, "/version", func(v dispatcher.ServerVersion) bool { return v.Version != "" })
}

// CountBackfill counts the scheduled times that a backfill would run, and starts nothing.
func (c *Client) CountBackfill(
	ctx context.Context, app, job string, asked repeat.BackfillSpec,
) (repeat.BackfillCount, error) {
	counted := func(count repeat.BackfillCount) bool { return count.Total >= 0 }
	return post(ctx, c, path("apps", app, "jobs", job, "backfill"), repeat.BackfillRequest{BackfillSpec: asked, DryRun: true}, counted)
}

// CreateBackfill starts a backfill of a job. The client does not retry it.
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
	q := dispatcher.RunQuery{Job: query.Job, Page: query.Page}
	return list[repeat.Backfill](ctx, c, path("apps", query.App, "backfills")+params(q))
}

// ChangeBackfill pauses, resumes or cancels a backfill; ErrConflict if it has ended.
func (c *Client) ChangeBackfill(ctx context.Context, app, id string, action repeat.BackfillAction) (repeat.Backfill, error) {
	return post(ctx, c, path("apps", app, "backfills", id, string(action)), nil, isBackfill(id))
}

func isBackfill(id string) func(repeat.Backfill) bool {
	return func(b repeat.Backfill) bool { return b.ID == id }
}

// CountBulk counts the objects that a bulk action would change, and starts nothing.
func (c *Client) CountBulk(ctx context.Context, app string, spec repeat.BulkSpec) (repeat.BulkCount, error) {
	counted := func(count repeat.BulkCount) bool { return count.Total >= 0 }
	return post(ctx, c, path("apps", app, "bulk"), repeat.BulkRequest{BulkSpec: spec, DryRun: true}, counted)
}

// CreateBulkAction starts a bulk action; ErrConflict if the filter selects an unexpected number. It is not retried.
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

// Zones gets the time zone data of the installation, and the data that each node uses.
func (c *Client) Zones(ctx context.Context) (dispatcher.ZoneStatus, error) {
	return get(ctx, c, path("zones"), isZones)
}

// UseZones makes all nodes use an archive of time zone data, as schedule.PackZones makes it.
func (c *Client) UseZones(ctx context.Context, archive []byte) (dispatcher.ZoneStatus, error) {
	return post(ctx, c, path("zones", "use"), dispatcher.ZoneData{Archive: base64.StdEncoding.EncodeToString(archive)}, isZones)
}

// ResetZones makes each node use its own time zone data.
func (c *Client) ResetZones(ctx context.Context) (dispatcher.ZoneStatus, error) {
	return post(ctx, c, path("zones", "reset"), nil, isZones)
}

func isZones(zones dispatcher.ZoneStatus) bool { return zones.Nodes != nil }
