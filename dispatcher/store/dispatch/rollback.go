package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// declaration is a rollback that somebody has noticed.
type declaration struct {
	reason string
	now    time.Time // by the clock of the database
	// age returns how long ago the latest of what is missing was known to be committed; nil: that may be now. It is asked for
	// once now is known: who waits for a connection in between would take what is missing for younger than it is.
	age func() time.Duration
	by  input.Change
}

// declareRollback notes a rollback, and pauses the active nodes. A rollback that is noted already, and
// about which no operator has decided, stays as it is. So does one whose choice is being carried out, if all that is missing was
// committed before it was noticed: it is the same one.
func declareRollback(ctx context.Context, do execute, d declaration) error {
	// $1 now, $2 reason, $3 when the latest of what is missing was committed
	const note = `UPDATE installation SET rolled_back_at = $1, rollback_reason = $2, rollback_choice = '', rollback_skip_to = 0
		WHERE rolled_back_at IS NULL OR rollback_choice <> '' AND rolled_back_at < $3`
	committed := d.now
	if d.age != nil {
		committed = committed.Add(-d.age())
	}
	noted, err := do(ctx, note, d.now.UnixMilli(), Storable(d.reason), committed.UnixMilli())
	if err == nil && noted > 0 {
		d.by.Now = d.now
		err = insertAuditEntry(ctx, do, drawAuditID(), d.by,
			AuditEntry{Action: "rolled_back", Subject: "rollback", After: map[string]string{"reason": d.reason}})
	}
	if err == nil {
		_, err = do(ctx, `UPDATE nodes SET state = 'paused', paused_by_rollback = TRUE WHERE state = 'active'`)
	}
	if err != nil {
		return fmt.Errorf("note that the database lost commits: %w", err)
	}
	return nil
}

// Rollback is a rollback, and up to when instants are to be skipped.
type Rollback struct {
	dispatcher.Rollback
	SkipTo time.Time
}

// Unsettled reads the rollback that is not settled yet.
func Unsettled(ctx context.Context, q db.Querier) (Rollback, bool, error) {
	const read = `SELECT rolled_back_at, rollback_reason, rollback_choice, rollback_skip_to FROM installation WHERE rolled_back_at IS NOT NULL`
	return db.First(ctx, q, func(row db.Scanner) (r Rollback, err error) {
		err = row.Scan(db.InstantColumn(&r.At), &r.Reason, &r.Choice, db.InstantColumn(&r.SkipTo))
		return r, err
	}, read)
}

// LockRollback is unsettled, and keeps others from declaring or settling a rollback until the
// transaction ends.
func LockRollback(ctx context.Context, t *Tx) (Rollback, bool, error) {
	if _, err := t.ExecContext(ctx, `UPDATE installation SET rolled_back_at = rolled_back_at WHERE rolled_back_at IS NOT NULL`); err != nil {
		return Rollback{}, false, err
	}
	return Unsettled(ctx, t)
}

// Rollback returns the rollback that is not settled yet, or nil.
func (s *Store) Rollback(ctx context.Context) (*dispatcher.Rollback, error) {
	r, found, err := Unsettled(ctx, s.db.Read)
	if err != nil || !found {
		return nil, err
	}
	return &r.Rollback, nil
}

// DeclareRollback notes that the database lost commits, and pauses all nodes.
func (s *Store) DeclareRollback(ctx context.Context, reason string, change input.Change) (done dispatcher.Rollback, err error) {
	return s.declareRollback(ctx, declaration{reason: reason, by: change})
}

// declareRollback is DeclareRollback of what somebody has noticed, at the time of its change.
func (s *Store) declareRollback(ctx context.Context, d declaration) (done dispatcher.Rollback, err error) {
	err = s.Change(ctx, d.by, func(ctx context.Context, t *Tx) error {
		d.now = t.At
		if err := declareRollback(ctx, t.Affect, d); err != nil {
			return err
		}
		t.Notify(dispatcher.Notification{Nodes: true})
		r, _, err := Unsettled(ctx, t)
		done = r.Rollback
		return err
	})
	return done, err
}

// ResolveRollback notes whether the lost fires are to be skipped or replayed.
func (s *Store) ResolveRollback(ctx context.Context, choice dispatcher.RollbackChoice,
	change input.Change) (done dispatcher.Rollback, err error) {
	identity, err := s.db.Identity(ctx)
	if err != nil {
		return done, err
	}
	err = s.Change(ctx, change, func(ctx context.Context, t *Tx) error {
		r, found, err := LockRollback(ctx, t)
		switch {
		case err != nil:
			return err
		case !found:
			return fmt.Errorf("the database was not rolled back, or it is settled already: %w", dispatcher.ErrConflict)
		case r.Choice != "":
			return fmt.Errorf("%s was chosen and is being carried out: %w", r.Choice, dispatcher.ErrConflict)
		}
		if err := t.Accept(ctx, t.Tx, identity); err != nil { // nodes that register after the choice find no other rollback
			return err
		}
		before := r.Rollback
		r.Choice = choice
		done = r.Rollback
		if err := t.AuditChange(ctx, AuditEntry{Action: string(choice), Subject: "rollback", Before: before, After: done}); err != nil {
			return err
		}
		if choice == dispatcher.RollbackReplay {
			return SettleRollback(ctx, t)
		}
		// $1 choice, $2 now
		_, err = t.ExecContext(ctx, `UPDATE installation SET rollback_choice = $1, rollback_skip_to = $2`, choice, t.At.UnixMilli())
		return err
	})
	return done, err
}

// SettleRollback resumes the nodes that the rollback had paused.
func SettleRollback(ctx context.Context, t *Tx) error {
	// $1 now
	const settle = `UPDATE installation SET rolled_back_at = NULL, rollback_reason = '', rollback_choice = '', rollback_skip_to = 0,
		rollback_settled_at = CASE WHEN $1 > rollback_settled_at THEN $1 ELSE rollback_settled_at + 1 END`
	if _, err := t.ExecContext(ctx, settle, t.At.UnixMilli()); err != nil {
		return fmt.Errorf("settle the rollback: %w", err)
	}
	for _, statement := range []string{
		`UPDATE nodes SET state = 'active' WHERE paused_by_rollback AND state = 'paused'`,
		`UPDATE nodes SET paused_by_rollback = FALSE WHERE paused_by_rollback`,
	} {
		if _, err := t.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("settle the rollback: %w", err)
		}
	}
	t.Notify(dispatcher.Notification{Nodes: true})
	return nil
}

// DropRolledBack drops what would ask for requests that may have been sent after the commits that were lost: what follows ends
// from before, or fires that were skipped, and the rest of backfills and bulk
// actions.
func DropRolledBack(ctx context.Context, t *Tx, r Rollback, reason string) error {
	// $1 when it was noticed
	if _, err := t.ExecContext(ctx, `DELETE FROM pending_ends WHERE ended_at <= $1 OR kind = 0`, r.At.UnixMilli()); err != nil {
		return fmt.Errorf("drop what follows ends from before the rollback: %w", err)
	}
	// $1 why, $2 when it was noticed
	const cancel = `UPDATE backfills SET state = 'cancelling', error = $1 WHERE ended_at IS NULL AND created_at <= $2`
	if _, err := t.ExecContext(ctx, cancel, reason, r.At.UnixMilli()); err != nil {
		return fmt.Errorf("cancel backfills from before the rollback: %w", err)
	}
	t.Notify(dispatcher.Notification{Backfill: true})
	// $1 why, $2 when it was noticed, $3 now
	const end = `UPDATE bulk_actions SET state = 'cancelled', problem = $1, waits = '', ended_at = $3
		WHERE ended_at IS NULL AND created_at <= $2`
	if _, err := t.ExecContext(ctx, end, reason, r.At.UnixMilli(), t.At.UnixMilli()); err != nil {
		return fmt.Errorf("cancel bulk actions from before the rollback: %w", err)
	}
	return nil
}

// NoRollback tells that no rollback awaits its choice, or is being skipped. Until then nothing is queued that follows what the
// database has: it may have been queued and sent before.
const NoRollback = `NOT EXISTS (SELECT 1 FROM installation WHERE rolled_back_at IS NOT NULL)`

// UnfoldRolledBack makes live runs of what claims from before a rollback hold.
func (s *Store) UnfoldRolledBack(ctx context.Context) error {
	// $1 limit
	const from = `SELECT c.token FROM claims AS c JOIN installation AS i ON c.claimed_at <= i.rolled_back_at
		WHERE i.rollback_choice = 'skip' ORDER BY c.token LIMIT $1`
	for {
		tokens, err := s.findClaims(ctx, ClaimsAtOnce, from)
		if err != nil || len(tokens) == 0 {
			return err
		}
		if _, _, err := s.unfold(ctx, tokens, false); err != nil {
			return err
		}
	}
}

// SkippableRuns chooses the runs that were under way when the rollback was noticed.
// $2 limit
var SkippableRuns = ` SELECT` + ChosenEnd(End{State: `'lost'`, Class: `'other'`,
	Message: `'the database lost commits, and an operator chose to skip what was under way'`}) + `,
		r.node AS dead, COALESCE(r.started_at, r.claimed_at, r.scheduled_at) AS since, 'the database lost commits' AS why, n.now
	FROM n CROSS JOIN installation AS i JOIN live_runs AS r ON r.scheduled_at <= i.rolled_back_at
	WHERE i.rollback_choice = 'skip' AND r.node <> -3 ORDER BY r.scheduled_at + 0, r.trigger_id LIMIT $2`
