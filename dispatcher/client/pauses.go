package client

import (
	"context"

	"github.com/carillon-dev/carillon/dispatcher"
)

// AppPauses lists the pauses that an app has now, oldest first. Those of single jobs and triggers are shown with these.
func (c *Client) AppPauses(ctx context.Context, app string) (List[dispatcher.AppPause], error) {
	return list[dispatcher.AppPause](ctx, c, path("apps", app, "pauses"))
}

// PauseApp pauses an app, or its jobs with some labels, also those that come later. Each call adds another pause; the client
// does not repeat it.
func (c *Client) PauseApp(ctx context.Context, app string, asked dispatcher.AppPauseRequest) (dispatcher.AppPause, error) {
	added := func(pause dispatcher.AppPause) bool { return pause.App == app && pause.ID != "" }
	return post(ctx, c, path("apps", app, "pauses"), asked, added)
}

// EndAppPause ends a pause of an app; ErrNotFound if it has ended.
func (c *Client) EndAppPause(ctx context.Context, app, id string) error {
	return c.remove(ctx, path("apps", app, "pauses", id), Condition{})
}
