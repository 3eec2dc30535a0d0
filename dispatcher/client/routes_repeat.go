package client

import (
	"context"
	"net/url"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
)

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
