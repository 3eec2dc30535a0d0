package dispatcher

import (
	"context"
	"time"
)

// Work is a kind of work that is done in batches over rows of several jobs and apps. A row that makes its batch fail because of
// what is stored in it is set aside: the batch goes on without it, and tries it again after pauses that grow.
type Work string

// The kinds of work.
const (
	WorkAdopt      Work = "adopt"      // a node takes a run that waits
	WorkRetry      Work = "retry"      // a node takes a run that is attempted again, or that waited for its host
	WorkGiveUp     Work = "give_up"    // a run ends whose time for retries is over
	WorkLost       Work = "lost"       // a run ends that a dead node had begun
	WorkBegin      Work = "begin"      // a node begins an attempt, or hands it back
	WorkSlots      Work = "slots"      // slots are granted and released
	WorkRecord     Work = "record"     // the outcome of an attempt is stored
	WorkUnfold     Work = "unfold"     // the fires of a claim get rows of their own
	WorkBroadcast  Work = "broadcast"  // a run ends whose shards have ended
	WorkFollow     Work = "follow"     // what follows the end of a run is queued
	WorkFire       Work = "fire"       // a fire is claimed, or a missed one settled: the trigger is quarantined
	WorkHost       Work = "host"       // runs that wait for a host go on
	WorkEndpoints  Work = "endpoints"  // an endpoint is removed that did not register again
	WorkStates     Work = "states"     // the state of a job is worked out
	WorkAlerts     Work = "alerts"     // alerts are looked at
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

// SetAside is a row that its work goes on without.
type SetAside struct {
	Work Work `json:"work"`
	// App and Job are empty if the row belongs to none, or to one that is gone.
	App string `json:"app,omitempty" schema:"Name"`
	// Left out if the row belongs to none, or to one that is gone.
	Job string `json:"job,omitempty" schema:"JobOrDelivery"`
	// Run is the id of the run; empty: the row is none. The end of missed fires has none, either.
	Run string `json:"run,omitempty" schema:"RunID"`
	// Item names a row that is no run, such as a claim, an alert state or a trigger.
	Item string `json:"item,omitempty"`
	// Problem is why it failed at the latest of Tries, and TryAt when it is tried again.
	Problem string `json:"problem"`
	Tries   int    `json:"tries"`
	// When it is tried again.
	TryAt time.Time `json:"try_at"`
}

// Asides are the rows that were set aside.
type Asides interface {
	// RetrySetAside lets the runs whose pause is over be found again, at most limit, ends those whose job was deleted, and
	// forgets rows that have not failed again. It returns how many runs may be adopted or attempted again. Any node may call it
	// at any time.
	RetrySetAside(ctx context.Context, limit int, now time.Time) (int, error)
}
