package engine

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/chores"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Store is what the engine asks of a store. Package dispatcher says what each method does.
type Store interface {
	dispatcher.Dispatch   // due triggers, claims, attempts
	dispatcher.Retries    // runs that are attempted again
	dispatcher.Broadcasts // runs that are spread over the endpoints of a group
	dispatcher.Revisions  // for the fires before and after one, in templates
	dispatcher.Follows    // what follows the ends of runs
	repeat.BackfillFeed
	repeat.BulkFeed
	plan.GroupReader // for jobs whose target is a group
	// CarriedStatesByID returns the states that jobs carry.
	CarriedStatesByID(ctx context.Context, jobs []int64) (map[int64]run.CarriedState, error)
	// Run returns one run, for the range of fires that a catch-up run stands for.
	Run(ctx context.Context, id string) (run.Run, error)

	membership
	chores.Store
	WaitingRuns(ctx context.Context, given map[string]dispatcher.GivenPlaces, now time.Time) (waiting map[string]int64, err error)
	Purge(ctx context.Context, node run.NodeID, now time.Time) (dispatcher.Purged, error)
}

// membership is how a node joins the fleet, shows that it is alive, and leaves.
type membership interface {
	Installation(ctx context.Context) (string, error)
	Clock(ctx context.Context) (time.Time, error)
	Register(ctx context.Context, node dispatcher.Node, now time.Time) error
	Heartbeat(ctx context.Context, id run.NodeID, report dispatcher.NodeReport, now time.Time) (dispatcher.HeartbeatReply, error)
	SetNodeState(ctx context.Context, id run.NodeID, state dispatcher.NodeState, change input.Change) (dispatcher.Node, error)
	Deregister(ctx context.Context, id run.NodeID) error
}
