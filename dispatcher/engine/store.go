package engine

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// Store is what the engine asks of a store. Package dispatcher says what each method does.
type Store interface {
	dispatcher.Dispatch   // due triggers, claims, attempts
	dispatcher.Retries    // runs that are attempted again
	dispatcher.Broadcasts // runs that are spread over the endpoints of a group
	dispatcher.Locks      // of the handler's steps
	dispatcher.Revisions  // for the fires before and after one, in templates
	dispatcher.Follows    // what follows the ends of runs
	alert.AlertWatch      // conditions that time decides about
	repeat.BackfillFeed
	repeat.BulkFeed
	groupReader // for jobs whose target is a group
	// CarriedStatesByID returns the states that jobs carry.
	CarriedStatesByID(ctx context.Context, jobs []int64) (map[int64]run.CarriedState, error)
	// Run returns one run, for the range of fires that a catch-up run stands for.
	Run(ctx context.Context, id string) (run.Run, error)

	membership
	upkeep
}

// membership is how a node joins the fleet, shows that it is alive, and leaves.
type membership interface {
	Installation(ctx context.Context) (string, error)
	Clock(ctx context.Context) (time.Time, error)
	Register(ctx context.Context, node dispatcher.Node, now time.Time) error
	Heartbeat(ctx context.Context, id run.NodeID, report dispatcher.NodeReport, now time.Time) (dispatcher.HeartbeatReply, error)
	SetNodeState(ctx context.Context, id run.NodeID, state dispatcher.NodeState, change input.Change) (dispatcher.Node, error)
	Deregister(ctx context.Context, id run.NodeID) error
	MarkDead(ctx context.Context, id run.NodeID, heartbeat time.Time, after time.Duration, now time.Time) (int, error)
}

// upkeep is the rest of the handler's steps, and retention.
type upkeep interface {
	Rollback(ctx context.Context) (*dispatcher.Rollback, error)
	SkipRolledBack(ctx context.Context, after int64, limit int, now time.Time) (dispatcher.RollbackSkipped, error)
	ZoneSetting(ctx context.Context) (dispatcher.ZoneSetting, error)
	ZoneArchive(ctx context.Context, sum string) ([]byte, error)
	NoteZones(ctx context.Context, id run.NodeID, release string) error
	ZonesChanged(ctx context.Context) (bool, error)
	RescheduleForZones(ctx context.Context, after int64, limit int, now time.Time) (dispatcher.Rescheduled, error)
	ExpirePauses(ctx context.Context, limit int, now time.Time) (int, error)
	RemoveCutOffImports(ctx context.Context, now time.Time) (int, error)
	FollowSwitches(ctx context.Context, limit int) (followed int, more bool, err error)
	ExpireEndpoints(ctx context.Context, limit int, now time.Time) (int, error)
	MendLeaks(ctx context.Context, limit int, now time.Time) ([]dispatcher.Leak, error)
	dispatcher.Asides
	RollUp(ctx context.Context, limit int) (dispatcher.RolledUp, error)
	RollUpObjectives(ctx context.Context, limit int, now time.Time) (dispatcher.ObjectivesRolled, error)
	RollUpStatistics(ctx context.Context, now time.Time) (view.StatisticsRolled, error)
	Upcoming(ctx context.Context, apps []string, until time.Time, limit int) (int, error)
	AwaitedCallbacks(ctx context.Context, apps []string, limit int) (int, error)
	Census(ctx context.Context, overdue time.Time, limit int) (dispatcher.Census, error)
	KeepBytes(ctx context.Context, added map[string]int64, now time.Time) (kept map[string]int64, err error)
	WaitingRuns(ctx context.Context, given map[string]dispatcher.GivenPlaces, now time.Time) (waiting map[string]int64, err error)
	Purge(ctx context.Context, node run.NodeID, now time.Time) (dispatcher.Purged, error)
}
