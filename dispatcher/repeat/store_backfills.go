package repeat

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// BackfillQuery selects backfills of an app, the latest first. An empty job selects those of all.
type BackfillQuery struct {
	App, Job string
	Page     input.Page // the cursor is a backfill's id
}

// BackfillAction is what an operator does with a backfill.
type BackfillAction string

// The actions.
const (
	PauseBackfill  BackfillAction = "pause"
	ResumeBackfill BackfillAction = "resume"
	CancelBackfill BackfillAction = "cancel"
)

// Backfills run the instants of ranges.
type Backfills interface {
	// CreateBackfill begins a backfill of a job. ErrConflict: another one of the job has not ended.
	CreateBackfill(ctx context.Context, app, job string, plan BackfillPlan, change input.Change) (Backfill, error)
	// Backfill returns a backfill, or ErrNotFound.
	Backfill(ctx context.Context, app, id string) (Backfill, error)
	// BackfillSkips counts the instants that a backfill by plan would leave out now, because of the runs that the ledger has.
	BackfillSkips(ctx context.Context, plan BackfillPlan) (int, error)
	Backfills(ctx context.Context, query BackfillQuery) ([]Backfill, error)
	// ChangeBackfill pauses, resumes or cancels a backfill. To cancel ends its runs that wait, and leaves those in flight
	// to end. Repeated, it changes nothing. ErrConflict: the backfill has ended.
	ChangeBackfill(ctx context.Context, app, id string, action BackfillAction, change input.Change) (Backfill, error)
	// Backfilled counts the runs of backfills of a job between two instants, both inclusive, by trigger.
	Backfilled(ctx context.Context, job int64, from, to time.Time) (map[int64]int, error)
}

// FedBackfill is what one call of FeedBackfill did.
type FedBackfill struct {
	Queued, Ended int
	// More tells that the next call goes on at once. NextAt is when the pace lets it go on; zero: when runs end.
	More   bool
	NextAt time.Time
}

// BackfillFeed keeps the runs of backfills going.
type BackfillFeed interface {
	// OpenBackfills returns those that have not ended, those first whose steps fail least; none while a rollback awaits its choice.
	OpenBackfills(ctx context.Context) ([]dispatcher.OpenSteps, error)
	// FeedBackfill counts the runs of a backfill that have ended, and queues as many of the next instants as it may. It is one
	// transaction that moves the backfill on, so any node may call it at any time and however often: each instant is
	// queued once. If it fails for what is stored of the backfill, it does nothing until a time that is further away after each
	// failure, NextAt.
	FeedBackfill(ctx context.Context, id int64, now time.Time) (FedBackfill, error)
}
