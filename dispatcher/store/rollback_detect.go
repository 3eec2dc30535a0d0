package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
)

// witness is what this process knows to be committed. A database that lost something lost all of
// it from some moment on, so the latest is enough: what is there proves all that was before.
type witness struct {
	mu         sync.Mutex
	node       dispatcher.NodeID // 0: none has registered
	heartbeats int64             // of node
	heartbeat  time.Time         // when the latest of them was known
	claim      claimed
	// settled is when the latest rollback had been settled as all this was learnt. Another that was
	// settled since has answered for what is missing.
	settled int64 // in milliseconds of the database
}

// claimed is one of the runs that were won by a claim.
type claimed struct {
	run dispatcher.HeldRun
	at  time.Time // zero: there is none
}

const (
	// A row of a node is kept this long at least, whatever becomes of the node; see forgetAfter.
	nodeKept = forgetAfter / 2
	// What was claimed longer ago, heartbeats stand for; retention may have removed it. So it may, at once, what
	// was due this long ago, and was caught up: an app keeps its history for a day at least.
	claimKept    = 10 * time.Minute
	claimReaches = 12 * time.Hour
)

func (w *witness) registered(node dispatcher.NodeID, settled int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.node, w.heartbeats, w.heartbeat, w.claim, w.settled = node, 0, wallClock(), claimed{}, settled
}

// beaten notes a heartbeat, and tells whether it is one that was there already.
func (w *witness) beaten(node dispatcher.NodeID, heartbeats, settled int64) (again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if node != w.node {
		return false
	}
	again = settled < w.settled || settled == w.settled && heartbeats <= w.heartbeats
	if settled != w.settled {
		w.claim = claimed{}
	}
	w.heartbeats, w.heartbeat, w.settled = heartbeats, wallClock(), settled
	return again
}

// won notes what a claim has won.
func (w *witness) won(held []dispatcher.HeldRun) {
	if len(held) == 0 {
		return
	}
	latest, now := held[len(held)-1], wallClock() // they are in the order of their instants
	if now.Sub(latest.ScheduledAt) > claimReaches {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claim = claimed{run: latest, at: now}
}

// returning notes that a run may be given back without an attempt. Another node then makes that under
// the same number, which is no sign of a rollback.
func (w *witness) returning(run dispatcher.RunKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.claim.run.RunKey == run {
		w.claim = claimed{}
	}
}

// knows tells whether the node must be in the database: it was not long ago.
func (w *witness) knows(node dispatcher.NodeID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return node != 0 && node == w.node && wallClock().Sub(w.heartbeat) < nodeKept
}

// answered tells whether a rollback was settled after all this was learnt.
func (w *witness) answered(settled int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return settled > w.settled
}

// wallClock is this process's, without its monotonic part, which stands still while a machine
// is suspended.
func wallClock() time.Time { return time.Now().Round(0) } //nolint:forbidigo // measures how long something was kept

// missing tells what of all this a server does not have; empty: nothing.
func (w *witness) missing(ctx context.Context, conn *pgx.Conn) (string, error) {
	w.mu.Lock()
	node, heartbeats, claim, known := w.node, w.heartbeats, w.claim, w.settled
	w.mu.Unlock()
	if !w.knows(node) {
		return "", nil
	}
	lost, err := claim.missing(ctx, conn)
	if err != nil {
		return "", err
	}
	// After that: who is dead now may have been frozen when its run was given to another.
	var settled, stored int64
	var state dispatcher.NodeState
	// $1 id
	const there = `SELECT i.rollback_settled_at, COALESCE(n.heartbeats, 0), COALESCE(n.state, '') FROM installation AS i LEFT JOIN nodes AS n ON n.id = $1`
	err = conn.QueryRow(ctx, there, pgx.QueryExecModeExec, int64(node)).Scan(&settled, &stored, &state)
	switch {
	case err != nil || settled > known:
		return "", err
	case settled < known:
		return fmt.Sprintf("an earlier rollback was settled at %s, and the database does not know that", instant(known).Format(time.RFC3339)), nil
	case state == "":
		return fmt.Sprintf("node %s has registered, and the database does not know it", node), nil
	case stored < heartbeats:
		return fmt.Sprintf("node %s has sent %d heartbeats, and the database knows of %d", node, heartbeats, stored), nil
	case lost && state != dispatcher.NodeDead && w.still(claim):
		return fmt.Sprintf("node %s has claimed run %s, and the database does not know that", node, claim.run.RunKey), nil
	}
	return "", nil
}

// missing tells whether a server does not have a claim.
func (c claimed) missing(ctx context.Context, conn *pgx.Conn) (bool, error) {
	if wallClock().Sub(c.at) > claimKept {
		return false, nil
	}
	// Whatever has become of it, an attempt of it is that one, or a later one, or nobody's.
	// $1 scheduled instant, $2 trigger, $3 kind, $4 token, $5 attempt
	const there = `SELECT count(*) FROM runs WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3
		AND (token = $4 OR token = 0 OR attempt > $5 OR node <= 0)`
	var found int
	err := conn.QueryRow(ctx, there, pgx.QueryExecModeExec,
		c.run.ScheduledAt.UnixMilli(), c.run.TriggerID, int64(c.run.Kind.Code()), int64(c.run.Token), int64(c.run.Attempt)).Scan(&found)
	return found == 0, err
}

// still tells whether a claim is the latest that the node has not given back.
func (w *witness) still(claim claimed) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.claim == claim
}

// check looks, on a new connection and before it is used, whether the server has all that this
// process knows to be committed: after a failover a connection is always a new one. What is
// missing is noted as a rollback. Else, wherever the server may be, this is the database that it was.
func (p *postgres) check(ctx context.Context, conn *pgx.Conn) error {
	reason, err := p.seen.missing(ctx, conn)
	if err != nil {
		return fmt.Errorf("look for what was committed: %w", err)
	}
	if reason != "" {
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			var now time.Time
			if err := tx.QueryRow(ctx, `SELECT clock_timestamp()`, pgx.QueryExecModeExec).Scan(&now); err != nil {
				return err
			}
			return declare(ctx, func(ctx context.Context, statement string, args ...any) (int64, error) {
				done, err := tx.Exec(ctx, statement, append([]any{pgx.QueryExecModeExec}, args...)...)
				return done.RowsAffected(), err
			}, now, reason, "system")
		})
	}
	if err != nil || !p.seen.knows(p.seen.id()) {
		return err
	}
	return p.follow(ctx, conn)
}

func (w *witness) id() dispatcher.NodeID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.node
}
