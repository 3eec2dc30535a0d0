package dispatcher

import (
	"context"
	"time"
)

// Rewind is that the database has lost what it had committed: it was restored from a backup, or
// failed over to a replica that had not received everything. What had fired since then, it would
// fire again. So all nodes are paused until an operator has chosen what is to become of it.
type Rewind struct {
	// At is when it was noticed or declared, by the database's clock.
	At time.Time `json:"at"`
	// Reason is by what it was noticed.
	Reason string `json:"reason"`
	// Choice is what the operator chose; empty: nothing yet.
	Choice RewindChoice `json:"choice,omitempty"`
}

// RewindChoice says what becomes of the fires that a rewound database has before it once more.
type RewindChoice string

// The choices.
const (
	// RewindReplay goes on as the database has it: what it holds as due is fired or settled as a
	// misfire by the policy of its trigger, and what it holds as under way is attempted again, for
	// a second time perhaps, under the event ids of the first.
	RewindReplay RewindChoice = "replay"
	// RewindSkip settles all instants up to the choice as skipped, and ends as lost what was under
	// way when the rewind was noticed: nothing is sent twice, and what had not been sent, never.
	RewindSkip RewindChoice = "skip"
)

// RewindSkipped is what one call of SkipRewound did.
type RewindSkipped struct {
	Triggers int   // whose instants were settled
	Runs     int   // that were ended
	Last     int64 // the id of the last trigger
	More     bool  // there is more to do
}

// Rewinds are what becomes of a database that has lost what it had committed. Nodes notice it, as
// far as it can be noticed, when they register, with a heartbeat, and on each new connection.
type Rewinds interface {
	// Rewind returns the rewind that is not settled yet, or nil.
	Rewind(ctx context.Context) (*Rewind, error)
	// DeclareRewind says that the database was rewound, and pauses all nodes that are active, and
	// those to come.
	DeclareRewind(ctx context.Context, reason string, change Change) (Rewind, error)
	// ResolveRewind notes what an operator chose. RewindReplay settles it at once: nodes that it
	// had paused are active again. RewindSkip leaves the work to a node's handler. ErrConflict:
	// there is no rewind, or it was chosen already.
	ResolveRewind(ctx context.Context, choice RewindChoice, change Change) (Rewind, error)
	// SkipRewound carries RewindSkip out, for the triggers after an id, limit at most in the order
	// of ids, then for runs; when there is no more, the rewind is settled. It is for the handler,
	// under LockRewind.
	SkipRewound(ctx context.Context, after int64, limit int, now time.Time) (RewindSkipped, error)
}

// SkipDue returns a trigger of job, which is armed, with the next fire that it has after until,
// and what it passes over as a misfire. A fixed delay begins anew, as if its run had ended then.
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
