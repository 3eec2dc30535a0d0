package dispatcher

import (
	"context"
	"time"
)

// Rollback is that the database has lost what it had committed: it was restored from a backup, or
// failed over to a replica that had not received everything. What had fired since then, it would
// fire again. So all nodes are paused until an operator has chosen what is to become of it.
type Rollback struct {
	// At is when it was noticed or declared, by the database's clock.
	At time.Time `json:"at"`
	// Reason is by what it was noticed.
	Reason string `json:"reason"`
	// Choice is what the operator chose; empty: nothing yet.
	Choice RollbackChoice `json:"choice,omitempty"`
}

// RollbackChoice says what becomes of the fires that a rolled back database has before it once more.
type RollbackChoice string

// The choices.
const (
	// RollbackReplay goes on as the database has it: what it holds as due is fired or settled as a
	// misfire by the policy of its trigger, and what it holds as under way is attempted again, for
	// a second time perhaps, under the event ids of the first.
	RollbackReplay RollbackChoice = "replay"
	// RollbackSkip settles all instants up to the choice as skipped, and ends as lost what was under
	// way when the rollback was noticed: nothing is sent twice, and what had not been sent, never.
	RollbackSkip RollbackChoice = "skip"
)

// RollbackSkipped is what one call of SkipRolledBack did.
type RollbackSkipped struct {
	Triggers int   // whose instants were settled
	Runs     int   // that were ended
	Last     int64 // the id of the last trigger
	More     bool  // there is more to do
}

// Rollbacks are what becomes of a database that has lost what it had committed. Nodes notice it, as
// far as it can be noticed, when they register, with a heartbeat, and on each new connection.
type Rollbacks interface {
	// Rollback returns the rollback that is not settled yet, or nil.
	Rollback(ctx context.Context) (*Rollback, error)
	// DeclareRollback says that the database lost commits, and pauses all nodes that are active, and
	// those to come.
	DeclareRollback(ctx context.Context, reason string, change Change) (Rollback, error)
	// ResolveRollback notes what an operator chose. RollbackReplay settles it at once: nodes that it
	// had paused are active again. RollbackSkip leaves the work to a node's handler. ErrConflict:
	// there is no rollback, or it was chosen already.
	ResolveRollback(ctx context.Context, choice RollbackChoice, change Change) (Rollback, error)
	// SkipRolledBack carries RollbackSkip out, for the triggers after an id, limit at most in the order
	// of ids, then for runs; when there is no more, the rollback is settled. It is for the handler,
	// under LockRollback.
	SkipRolledBack(ctx context.Context, after int64, limit int, now time.Time) (RollbackSkipped, error)
}

// SkipDue returns a trigger of job, which is armed, with the next fire that it has after until,
// and what it passes over as a misfire. A fixed delay begins again, as if its run had ended then.
func SkipDue(job Job, name string, calendars Calendars, until time.Time, reason string) (Trigger, []Misfire) {
	t := job.Triggers[name]
	t.State = t.storedState()
	s, err := t.Parse(Identity(job.App, job.Name, name), t.AnchorAt, calendars)
	if err != nil {
		t.State, t.Error = TriggerError, err.Error()
		return t, nil
	}
	missed := dropDue(job, name, calendars, until, reason)
	if pause, delayed := s.FixedDelay(); delayed {
		t.fireAt(s, until.Add(pause))
	} else {
		t.arm(s, t.afterLast(until))
	}
	return t, missed
}
