package dispatcher

import (
	"context"
	"time"
)

// Work is a kind of work that is done in batches over rows of several jobs and apps. A row that makes its batch fail
// because of its content is set aside: the batch goes on without it, and tries it again after growing pauses.
type Work string

// The kinds of work.
const (
	WorkAdopt      Work = "adopt"      // a node takes a waiting run
	WorkRetry      Work = "retry"      // a node takes a run for a retry, or after a wait for its host
	WorkGiveUp     Work = "give_up"    // a run ends because its time for retries is over
	WorkLost       Work = "lost"       // a run that a dead node had begun ends
	WorkBegin      Work = "begin"      // a node begins an attempt, or hands it back
	WorkSlots      Work = "slots"      // slots are granted and released
	WorkRecord     Work = "record"     // the outcome of an attempt is stored
	WorkUnfold     Work = "unfold"     // the fires of a claim get rows of their own
	WorkBroadcast  Work = "broadcast"  // a run ends after its shards
	WorkFollow     Work = "follow"     // the followers of a finished run are queued
	WorkFire       Work = "fire"       // a fire is claimed, or a missed one settled: the trigger is quarantined
	WorkHost       Work = "host"       // runs that waited for a host go on
	WorkEndpoints  Work = "endpoints"  // an endpoint that did not register again is removed
	WorkStates     Work = "states"     // the state of a job is computed
	WorkAlerts     Work = "alerts"     // alerts are evaluated
	WorkObjectives Work = "objectives" // fires are counted for an objective
	WorkStatistics Work = "statistics" // runs are counted
	WorkPauses     Work = "pauses"     // pauses and switches take effect
	WorkZones      Work = "zones"      // fire times follow time zones, or a rollback
	WorkUsage      Work = "usage"      // bytes that an app keeps are counted
	WorkPurge      Work = "purge"      // history is removed
)

// Works are all kinds of work.
var Works = []Work{
	WorkAdopt, WorkRetry, WorkGiveUp, WorkLost, WorkBegin, WorkSlots, WorkRecord, WorkUnfold, WorkBroadcast, WorkFollow, WorkFire,
	WorkHost, WorkEndpoints, WorkStates, WorkAlerts, WorkObjectives, WorkStatistics, WorkPauses, WorkZones, WorkUsage, WorkPurge,
}

// SetAside is a row that its batch skips for now.
type SetAside struct {
	Work Work `json:"work"`
	// App and Job are empty if the row belongs to none, or if they were deleted.
	App string `json:"app,omitempty" schema:"Name"`
	// Left out if the row belongs to no job, or if the job was deleted.
	Job string `json:"job,omitempty" schema:"JobOrDelivery"`
	// Run is the id of the run; empty if the row is not a run, or the end of missed fires.
	Run string `json:"run,omitempty" schema:"RunID"`
	// Item names a row that is not a run, such as a claim, an alert state or a trigger.
	Item string `json:"item,omitempty"`
	// Problem is the error of the latest of Tries, and TryAt is when it is tried again.
	Problem string `json:"problem"`
	Tries   int    `json:"tries"`
	// When it is tried again.
	TryAt time.Time `json:"try_at"`
}

// Asides manage the rows that were set aside.
type Asides interface {
	// RetrySetAside makes at most limit runs visible again when their pause is over, ends those of deleted jobs, and
	// removes the entries of rows that have not failed again. It returns how many runs may be adopted or attempted
	// again. Any node may call it at any time.
	RetrySetAside(ctx context.Context, limit int, now time.Time) (int, error)
}
