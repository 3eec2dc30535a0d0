package store

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// begunRows are the rows among the live runs that a node has begun.
// $1 node
const begunRows = `SELECT ` + adoptedColumns + ` FROM live_runs AS r WHERE node = $1 AND ` + db.NotParked + ` AND state = 'running'`

// chooseBegun chooses those of the batch that their node has begun and still holds. How it compares the state keeps PostgreSQL
// from the index of all that nodes have.
func chooseBegun(f db.Flavor) string {
	return `SELECT` + chosenEnd(end{
		at: `b.now`, status: `0`, state: `'lost'`, class: `'other'`,
		message: `'the request may have been sent, its node does not make it any more, and the job wants it at most once'`,
	}) + `, r.node AS dead, COALESCE(r.started_at, r.claimed_at) AS since, 'the node does not make it any more' AS why, b.now
	FROM b JOIN live_runs AS r ON` + db.Fence(f) + ` AND (r.state = 'running') = b.yes`
}

// Begun returns the runs that a node has begun.
func (s *Store) Begun(ctx context.Context, node run.NodeID) ([]run.HeldRun, error) {
	begun, err := s.readHeld(ctx, db.ClaimTimeout, newAdoptedRow(), s.hot.begun, []any{int64(node)})
	if err != nil {
		return nil, fmt.Errorf("read begun runs: %w", err)
	}
	return begun, nil
}

// LoseRuns ends begun runs as lost that their node does not make any more, and returns how many.
func (s *Store) LoseRuns(ctx context.Context, runs []run.HeldRun, now time.Time) (int, error) {
	if len(runs) == 0 {
		return 0, nil
	}
	lost := 0
	err := inParts(ctx, s, runs, func(part []run.HeldRun) error {
		n, err := s.exec(ctx, s.hot.loseBegun, append([]any{db.OrZero(now)}, db.KeysIn(s.db.Flavor, part)...))
		lost += int(n)
		return err
	}, s.heldAside(ctx, dispatcher.WorkLost))
	if err == nil && lost > 0 {
		err = s.announceEnds(ctx)
	}
	if err != nil {
		return lost, fmt.Errorf("end %d begun runs as lost: %w", len(runs), err)
	}
	return lost, nil
}
