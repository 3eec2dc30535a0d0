package dispatcher

import (
	"context"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// AppPauses hold many jobs of an app at once. Each write adds its entry to the audit log in the same transaction.
type AppPauses interface {
	// PauseApp adds a pause, which holds the jobs that fit it from its commit on, some thousand triggers at once and the
	// others by FollowPauses. Each call adds another one. ErrNotFound: there is no such app. Problems: until has passed, or
	// the app has MaxAppPauses.
	PauseApp(ctx context.Context, app string, asked AppPauseRequest, change input.Change) (AppPause, error)
	// AppPauses lists the pauses that an app has now, oldest first. ErrNotFound: there is no such app.
	AppPauses(ctx context.Context, app string) ([]AppPause, error)
	// EndAppPause ends a pause. Jobs that no other one holds go on, in portions as PauseApp has them. ErrNotFound: the app
	// has no such pause now.
	EndAppPause(ctx context.Context, app, id string, change input.Change) error
	// FollowPauses lets jobs with about limit triggers follow the pauses of their app, and returns whether there are more.
	FollowPauses(ctx context.Context, app string, limit int) (more bool, err error)
}
