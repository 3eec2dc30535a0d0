package repeat

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// BulkActions act on all that a filter selects.
type BulkActions interface {
	// CountBulk counts what a bulk action would act on.
	CountBulk(ctx context.Context, app string, spec BulkSpec) (BulkCount, error)
	// CreateBulkAction begins a bulk action on what was counted. What it does is done by change's actor.
	CreateBulkAction(ctx context.Context, app string, spec BulkSpec, count BulkCount, change input.Change) (BulkAction, error)
	// BulkAction returns one, or ErrNotFound.
	BulkAction(ctx context.Context, app, id string) (BulkAction, error)
	// BulkActions lists those of an app, the latest first. The cursor is the id of one.
	BulkActions(ctx context.Context, app string, page input.Page) ([]BulkAction, error)
	// CancelBulkAction ends one. What is done stays done. Repeated, it changes nothing. ErrConflict: it is complete.
	CancelBulkAction(ctx context.Context, app, id string, change input.Change) (BulkAction, error)
}

// BulkStep is what one call of StepBulkAction did.
type BulkStep struct {
	// Reached is how many jobs or runs it looked at.
	Reached int
	// Adopt tells that runs wait to be adopted.
	Adopt bool
	// More tells that the next call goes on at once. Waits is after how long a quota may let it go on; 0: none keeps it.
	More  bool
	Waits time.Duration
	// TryAt is when a step that failed is tried again; zero: the database failed.
	TryAt time.Time
}

// BulkFeed keeps bulk actions going.
type BulkFeed interface {
	// OpenBulkActions returns those that have not ended, those first whose steps fail least; none while a rollback awaits its choice.
	OpenBulkActions(ctx context.Context) ([]dispatcher.OpenSteps, error)
	// StepBulkAction acts on the next jobs or runs of a bulk action. Each is one transaction that moves the action on, so any
	// node may call it at any time and however often: nothing is done twice. If it fails for what is stored of the action, it waits
	// longer after each failure; a job or run that fails again and again is skipped.
	StepBulkAction(ctx context.Context, id int64, now time.Time) (BulkStep, error)
}
