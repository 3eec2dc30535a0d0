package dispatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// declaration is a detected rollback.
type declaration struct {
	reason string
	now    time.Time // by the clock of the database
	// age returns how long ago the latest of the missing commits was known; nil: possibly just now. It is called once
	// now is known: otherwise waiting for a connection in between would make the missing commits look younger.
	age func() time.Duration
	by  input.Change
}

// declareRollback notes a rollback, and pauses the active nodes. A noted rollback that awaits a decision stays as it
// is. So does one whose decision is being carried out, if all missing commits are from before it was noticed: it is the
// same rollback.
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

// Rollback is a rollback with the time up to which instants are skipped.
type Rollback struct {
	dispatcher.Rollback
	SkipTo time.Time
}

// Unsettled reads the rollback that is not settled yet.
func Unsettled(ctx context.Context, q db.Querier) (r Rollback, found bool, err error) {
	const read = `SELECT rolled_back_at, rollback_reason, rollback_choice, rollback_skip_to FROM installation WHERE rolled_back_at IS NOT NULL`
	found, err = db.ReadRow(ctx, q, []any{db.InstantColumn(&r.At), &r.Reason, &r.Choice, db.InstantColumn(&r.SkipTo)}, read)
	return r, found, err
}

// LockRollback is Unsettled, and keeps others from declaring or settling a rollback until the transaction ends.
func LockRollback(ctx context.Context, t *Tx) (Rollback, bool, error) {
	if err := t.Exec(ctx, `UPDATE installation SET rolled_back_at = rolled_back_at WHERE rolled_back_at IS NOT NULL`); err != nil {
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

// declareRollback is DeclareRollback for a detected rollback, at the time of its change.
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
		if err := t.Accept(ctx, t.Tx, identity); err != nil { // nodes that register afterwards find no other rollback
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
		return t.Exec(ctx, `UPDATE installation SET rollback_choice = $1, rollback_skip_to = $2`, choice, t.At.UnixMilli())
	})
	return done, err
}

// SettleRollback resumes the nodes that the rollback had paused.
func SettleRollback(ctx context.Context, t *Tx) error {
	// $1 now
	const settle = `UPDATE installation SET rolled_back_at = NULL, rollback_reason = '', rollback_choice = '', rollback_skip_to = 0,
		rollback_settled_at = CASE WHEN $1 > rollback_settled_at THEN $1 ELSE rollback_settled_at + 1 END`
	if err := t.Exec(ctx, settle, t.At.UnixMilli()); err != nil {
		return fmt.Errorf("settle the rollback: %w", err)
	}
	for _, statement := range []string{
		`UPDATE nodes SET state = 'active' WHERE paused_by_rollback AND state = 'paused'`,
		`UPDATE nodes SET paused_by_rollback = FALSE WHERE paused_by_rollback`,
	} {
		if err := t.Exec(ctx, statement); err != nil {
			return fmt.Errorf("settle the rollback: %w", err)
		}
	}
	t.Notify(dispatcher.Notification{Nodes: true})
	return nil
}

// DropRolledBack drops work that would repeat requests possibly sent after the lost commits: followers of old ends or
// skipped fires, and the rest of backfills and bulk actions.
func DropRolledBack(ctx context.Context, t *Tx, r Rollback, reason string) error {
	// $1 when it was noticed
	if err := t.Exec(ctx, `DELETE FROM pending_ends WHERE ended_at <= $1 OR kind = 0`, r.At.UnixMilli()); err != nil {
		return fmt.Errorf("drop what follows ends from before the rollback: %w", err)
	}
	// $1 why, $2 when it was noticed
	const cancel = `UPDATE backfills SET state = 'cancelling', error = $1 WHERE ended_at IS NULL AND created_at <= $2`
	if err := t.Exec(ctx, cancel, reason, r.At.UnixMilli()); err != nil {
		return fmt.Errorf("cancel backfills from before the rollback: %w", err)
	}
	t.Notify(dispatcher.Notification{Backfill: true})
	// $1 why, $2 when it was noticed, $3 now
	const end = `UPDATE bulk_actions SET state = 'cancelled', problem = $1, waits = '', ended_at = $3
		WHERE ended_at IS NULL AND created_at <= $2`
	if err := t.Exec(ctx, end, reason, r.At.UnixMilli(), t.At.UnixMilli()); err != nil {
		return fmt.Errorf("cancel bulk actions from before the rollback: %w", err)
	}
	return nil
}

// NoRollback is the condition that no rollback awaits a decision or is being skipped. Until then no followers of
// database rows are queued: they may have been queued and sent before.
const NoRollback = `NOT EXISTS (SELECT 1 FROM installation WHERE rolled_back_at IS NOT NULL)`

// UnfoldRolledBack makes live runs of the fires in claims from before a rollback.
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

const noWaitingAlert = `NOT (r.kind = 6 AND r.state IN ('queued', 'retrying'))`

// SkippableRuns chooses the runs in progress when the rollback was noticed, but not the waiting notifications of alerts: a
// second one is harmless, and a lost one leaves people without word of a condition that holds.
// $2 limit
var SkippableRuns = ` SELECT` + ChosenEnd(End{State: `'lost'`, Class: `'other'`,
	Message: `'the database lost commits, and an operator chose to skip what was under way'`}) + `,
		r.node AS dead, COALESCE(r.started_at, ` + claimedAt + `) AS since, 'the database lost commits' AS why, n.now
	FROM n CROSS JOIN installation AS i JOIN live_runs AS r ON r.scheduled_at <= i.rolled_back_at
	WHERE i.rollback_choice = 'skip' AND r.node <> -3 AND ` + noWaitingAlert + ` ORDER BY r.scheduled_at + 0, r.trigger_id LIMIT $2`

// rollbackDetector notices that the database lost commits, as after a restore or a failover. It compares the database
// with a high-water mark: the latest commits that this process knows. A database that lost commits lost all from some
// moment on, so the latest is enough: its presence proves that all earlier ones are there.
//
// A node registers (identify, check, registered), sends heartbeats (heartbeat, unknownNode),
// claims runs (claimed) and hands some back (handedBack); on PostgreSQL each new connection is
// checked before it is used (whole).
type rollbackDetector struct {
	mu   sync.Mutex
	high highWater
}

// highWater is the latest that this process knows to be committed.
type highWater struct {
	node       run.NodeID // 0: none has registered
	heartbeats int64      // of node
	heartbeat  time.Time  // when the latest heartbeat was known
	claim      claimedRun
	// settled is when the latest rollback had been settled at that time. A rollback settled since then accounts for
	// missing commits.
	settled int64 // in milliseconds of the database
}

// claimedRun is one of the runs won by a claim.
type claimedRun struct {
	run  run.HeldRun
	node run.NodeID
	at   time.Time // zero: no claim
}

const (
	// The row of a node is kept at least this long, whatever happens to the node; see purgeNodeAfter.
	nodeKept = purgeNodeAfter / 2
	// A claim counts for this long; after that, heartbeats replace it. Retention may have removed an older claim, and
	// even a new one for a caught-up instant more than claimReaches ago: an app keeps its history for at least a day.
	claimKept    = 10 * time.Minute
	claimReaches = 12 * time.Hour
)

// registration is a node that registers.
type registration struct {
	identity string // of the database
	settled  int64
}

// check returns, in the transaction in which a node registers, whether the node must wait because the database lost
// commits. It declares a rollback that it finds.
func (d *rollbackDetector) check(ctx context.Context, t *Tx, r *registration) (rolledBack bool, err error) {
	r.settled, _, err = db.First(ctx, t, db.ScanInt, `SELECT rollback_settled_at FROM installation`)
	if err != nil {
		return false, err
	}
	awaited, rolledBack, err := Unsettled(ctx, t)
	if err == nil && rolledBack && awaited.Choice == "" { // it accounts for this identity, too
		return true, t.Accept(ctx, t.Tx, r.identity)
	}
	if err != nil {
		return false, err
	}
	reason, err := t.Mismatch(ctx, t.Tx, t.At, r.identity)
	if err != nil || reason == "" {
		return rolledBack, err
	}
	return true, declareRollback(ctx, t.Affect, declaration{reason: reason, now: t.At, by: input.Change{Actor: "system"}})
}

// registered begins a new high-water mark after a node has registered.
func (d *rollbackDetector) registered(node run.NodeID, r registration) {
	d.mu.Lock()
	d.high = highWater{node: node, heartbeat: db.WallClock(), settled: r.settled}
	d.mu.Unlock()
}

// heartbeat notes the heartbeats of a node in the database, and reports whether there are fewer than before. Then it
// declares a rollback.
func (d *rollbackDetector) heartbeat(ctx context.Context, s *Store, node renewedNode, now time.Time) (lost bool, err error) {
	before := d.latest()
	if lost = d.repeated(node.ID, node.heartbeats, node.settled); lost {
		// Connections are checked, too. This one belongs to a pooler, which has switched to another server meanwhile.
		_, err = s.declareRollback(ctx, declaration{reason: fmt.Sprintf("node %s has sent more heartbeats than the database knows of", node.ID),
			age: before.age, by: input.Change{Actor: "system", Now: now}})
	}
	if err == nil {
		s.db.Mark(node.ID, node.heartbeats)
	}
	return lost, err
}

// repeated raises the mark to a heartbeat, and reports whether the database had it before.
func (d *rollbackDetector) repeated(node run.NodeID, heartbeats, settled int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if node != d.high.node {
		return false
	}
	repeated := settled < d.high.settled || settled == d.high.settled && heartbeats <= d.high.heartbeats
	if settled != d.high.settled {
		d.high.claim = claimedRun{}
	}
	d.high.heartbeats, d.high.heartbeat, d.high.settled = heartbeats, db.WallClock(), settled
	return repeated
}

// unknownNode declares a rollback if a node is missing that the database must know.
func (d *rollbackDetector) unknownNode(ctx context.Context, s *Store, node run.NodeID, now time.Time) error {
	// $1 id
	const settledAt = `SELECT rollback_settled_at FROM installation WHERE NOT EXISTS (SELECT 1 FROM nodes WHERE id = $1)`
	settled, unknown, err := db.First(ctx, s.db.Heartbeats, db.ScanInt, settledAt, node)
	high := d.latest()
	if err != nil || !unknown || node != high.node || !high.holds() || settled > high.settled {
		return err
	}
	_, err = s.declareRollback(ctx, declaration{reason: fmt.Sprintf("node %s has registered, and the database does not know it", node),
		age: high.age, by: input.Change{Actor: "system", Now: now}})
	return err
}

// claimed raises the mark to the runs that a claim of a node has won.
func (d *rollbackDetector) claimed(node run.NodeID, held []run.HeldRun) {
	if len(held) == 0 {
		return
	}
	latest, now := held[len(held)-1], db.WallClock() // in the order of their instants
	if now.Sub(latest.ScheduledAt) > claimReaches {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.high.claim = claimedRun{run: latest, node: node, at: now}
}

// handedBack forgets a claim that may be given back without an attempt, or with an attempt that its target accepted.
// Another node then makes the attempt, or records its end, under the same number, which does not indicate a rollback.
func (d *rollbackDetector) handedBack(run run.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.high.claim.run.Key == run {
		d.high.claim = claimedRun{}
	}
}

// latest returns the high-water mark.
func (d *rollbackDetector) latest() highWater {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.high
}

// holds reports whether the row of the node must still be in the database: it was there not long ago.
func (h highWater) holds() bool {
	return h.node != 0 && db.WallClock().Sub(h.heartbeat) < nodeKept
}

// age returns how long ago the latest of the mark was known to be committed.
func (h highWater) age() time.Duration {
	latest := h.heartbeat
	if h.claim.at.After(latest) {
		latest = h.claim.at
	}
	return max(db.WallClock().Sub(latest), 0)
}

// Lost describes the known commits that a server lacks; empty: none.
func (d *rollbackDetector) Lost(ctx context.Context, conn *pgx.Conn) (string, error) {
	high := d.latest()
	if !high.holds() {
		return "", nil
	}
	claimLost, err := high.claim.lost(ctx, conn)
	if err != nil {
		return "", err
	}
	// After the claim: a node that is dead now may have been frozen when its run was given to another.
	var settled, stored int64
	var state dispatcher.NodeState
	// $1 id
	const there = `SELECT i.rollback_settled_at, COALESCE(n.heartbeats, 0), COALESCE(n.state, '') FROM installation AS i LEFT
		JOIN nodes AS n ON n.id = $1`
	err = conn.QueryRow(ctx, there, pgx.QueryExecModeExec, int64(high.node)).Scan(&settled, &stored, &state)
	switch {
	case err != nil || settled > high.settled:
		return "", err
	case settled < high.settled:
		return fmt.Sprintf("an earlier rollback was settled at %s, and the database does not know that",
			db.Instant(high.settled).Format(time.RFC3339)), nil
	case state == "":
		return fmt.Sprintf("node %s has registered, and the database does not know it", high.node), nil
	case stored < high.heartbeats:
		return fmt.Sprintf("node %s has sent %d heartbeats, and the database knows of %d", high.node, high.heartbeats, stored), nil
	case claimLost && state != dispatcher.NodeDead && d.latest().claim == high.claim: // which was not handed back meanwhile
		return fmt.Sprintf("node %s has claimed run %s, and the database does not know that", high.node, high.claim.run.Key), nil
	}
	return "", nil
}

// lost reports whether a server lacks a claim.
func (c claimedRun) lost(ctx context.Context, conn *pgx.Conn) (bool, error) {
	if db.WallClock().Sub(c.at) > claimKept {
		return false, nil
	}
	// The claim that won it is there, or its row: with that attempt or a later one, or without a node.
	// $1 scheduled instant, $2 trigger, $3 kind, $4 token, $5 attempt, $6 node
	const (
		is    = ` WHERE r.scheduled_at = $1 AND r.trigger_id = $2 AND r.kind = $3`
		there = `SELECT (SELECT count(*) FROM claims WHERE token = $4)
			+ (SELECT count(*) FROM live_runs AS r` + is + ` AND (r.token = $4 OR r.token = 0 OR r.attempt > $5 OR r.node <= 0))
			+ (SELECT count(*) FROM runs AS r` + is + ` AND (r.node = $6 OR r.attempt > $5 OR r.node <= 0))`
	)
	var found int
	err := conn.QueryRow(ctx, there, pgx.QueryExecModeExec, c.run.ScheduledAt.UnixMilli(), c.run.TriggerID,
		int64(c.run.Code()), int64(c.run.Token), int64(c.run.Attempt), int64(c.node)).Scan(&found)
	return found == 0, err
}

// whole checks, on a new connection before its use, whether the server has all known commits: after a failover all
// connections are new. It declares a rollback if commits are missing. It returns whether this process has a node in the
// database, which then is the same database, even on another server.
func (d *rollbackDetector) whole(ctx context.Context, conn *pgx.Conn) (inUse bool, err error) {
	high := d.latest()
	reason, err := d.Lost(ctx, conn)
	if err != nil {
		return false, fmt.Errorf("look for what was committed: %w", err)
	}
	if reason != "" {
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			var now time.Time
			if err := tx.QueryRow(ctx, `SELECT clock_timestamp()`, pgx.QueryExecModeExec).Scan(&now); err != nil {
				return err
			}
			return declareRollback(ctx, func(ctx context.Context, statement string, args ...any) (int64, error) {
				done, err := tx.Exec(ctx, statement, append([]any{pgx.QueryExecModeExec}, args...)...)
				return done.RowsAffected(), err
			}, declaration{reason: reason, now: now, age: high.age, by: input.Change{Actor: "system"}})
		})
	}
	return d.latest().holds(), err
}
