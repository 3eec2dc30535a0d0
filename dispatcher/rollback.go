package dispatcher

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Rollback is a loss of committed data: the database was restored from a backup, or failed over to a replica that had
// not received everything. Fires that ran since then would run again. So all nodes pause until an operator chooses
// what happens to those fires.
type Rollback struct {
	// At is when it was detected or declared, by the database's clock.
	At time.Time `json:"at"`
	// Reason says how it was detected.
	Reason string `json:"reason"`
	// Choice is the operator's choice; empty if there is none yet.
	Choice RollbackChoice `json:"choice,omitempty"`
	// Effect is what the choice decides about, as of now. It is set when the rollback is read before a choice.
	Effect *RollbackEffect `json:"effect,omitempty"`
}

// RollbackEffect is what the choice about a rollback decides about.
type RollbackEffect struct {
	// LatestRunAt is the scheduled time of the latest run that the restored database has: it lost what was committed
	// after about that time. Nil if it has no run.
	LatestRunAt *time.Time `json:"latest_run_at,omitempty"`
	// Apps are the apps with due fires or live runs, by their names.
	Apps []RollbackApp `json:"apps"`
	// More means that there are further ones: only the first MostRollbackCounted triggers and live runs are counted.
	More bool `json:"more,omitempty"`
}

// RollbackApp is the part of a RollbackEffect that concerns one app.
type RollbackApp struct {
	App string `json:"app" schema:"Name"`
	// Triggers is how many triggers have due fires, and Fires how many these are. RollbackSkip skips them all. With
	// RollbackReplay they run, or are misfires by the policy of their trigger.
	Triggers int `json:"triggers"`
	// How many fires are due.
	Fires int `json:"fires"`
	// Runs is how many runs were live when the rollback was detected. RollbackSkip ends them as lost, and with
	// RollbackReplay they are attempted again.
	Runs int `json:"runs"`
}

// MostRollbackCounted is how many triggers, and how many runs, a RollbackEffect counts.
const MostRollbackCounted = 2000

// RollbackChoice decides about fires that are due once more after a rollback.
type RollbackChoice string

// The choices.
const (
	// RollbackReplay continues from the state of the database. Due fires run, or are misfires by the
	// policy of their trigger. Live runs are attempted again, perhaps a second time, under the same
	// event ids.
	RollbackReplay RollbackChoice = "replay"
	// RollbackSkip skips all fires up to the choice, and ends the runs that were live when the rollback
	// was detected as lost. Nothing is sent twice; a request that had not been sent is never sent.
	RollbackSkip RollbackChoice = "skip"
)

// RollbackSkipped is the result of one call of SkipRolledBack.
type RollbackSkipped struct {
	Triggers int   // triggers with skipped fires
	Runs     int   // runs that ended as lost
	Last     int64 // the id of the last trigger
	More     bool  // more is to be done
}

// Rollbacks handle a database that lost commits. Nodes detect it, as far as it can be detected, when
// they register, with a heartbeat, and on each new connection.
type Rollbacks interface {
	// Rollback returns the unresolved rollback, or nil.
	Rollback(ctx context.Context) (*Rollback, error)
	// RollbackEffect returns what the choice about the unresolved rollback decides about at now; the zero value if there
	// is no rollback.
	RollbackEffect(ctx context.Context, now time.Time) (RollbackEffect, error)
	// DeclareRollback declares that the database lost commits. It pauses all active nodes, and nodes
	// that register later.
	DeclareRollback(ctx context.Context, reason string, change input.Change) (Rollback, error)
	// ResolveRollback stores the operator's choice. RollbackReplay takes effect at once: the nodes that the rollback
	// paused are active again. RollbackSkip leaves the work to a node's handler. ErrConflict: there is no rollback,
	// or a choice was already made.
	ResolveRollback(ctx context.Context, choice RollbackChoice, change input.Change) (Rollback, error)
	// SkipRolledBack carries out RollbackSkip: first for triggers, in the order of their ids, for at most limit
	// triggers after an id, then for runs. When all are done, the rollback is resolved. The handler calls it under
	// LockRollback.
	SkipRolledBack(ctx context.Context, after int64, limit int, now time.Time) (RollbackSkipped, error)
}

// SkipDue returns a trigger of job that has a next fire, with its next fire after until, and the
// fires that it skips as a misfire. A fixed delay starts again, as if its run had ended at until.
func SkipDue(job Job, name string, calendars Calendars, until time.Time, reason string) (Trigger, []Misfire) {
	t := job.Triggers[name]
	t.State = t.State.Stored()
	s, err := t.Parse(job.Identity(name), t.AnchorAt, calendars)
	if err != nil {
		t.State, t.Error = TriggerError, err.Error()
		return t, nil
	}
	missed := dropping{calendars, until, newMissedBudget()}.due(job, name, reason)
	if pause, delayed := s.FixedDelay(); delayed {
		t.fireAt(s, until.Add(pause))
	} else {
		_ = t.scheduleNext(s, t.afterLast(until)) // the error is kept in the trigger
	}
	return t, missed
}
