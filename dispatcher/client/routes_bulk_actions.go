package client

import (
	"context"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
)

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
