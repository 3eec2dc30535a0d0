package store

import (
	"context"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
)

// beginnable chooses the runs of the batch that are still held. The update looks at the token
// again: a run may have been cancelled meanwhile.
const beginnable = ` SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.token AS of_token, b.now
	FROM b JOIN runs AS r ON` + fence

const beginRuns = ` UPDATE runs AS r SET state = 'running', started_at = COALESCE(r.started_at, c.now)
	FROM c WHERE r.scheduled_at = c.of_at AND r.trigger_id = c.of_trigger AND r.kind = c.of_kind AND r.token = c.of_token` + within + `
	RETURNING ` + heldColumns

// Begin commits that the requests of runs are about to be sent, and returns the runs still held.
func (s *store) Begin(ctx context.Context, runs []dispatcher.HeldRun) ([]dispatcher.HeldRun, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	begun, err := s.heldRuns(ctx, claimTimeout, s.hot.begin, s.keysOf(runs))
	if err != nil {
		return nil, fmt.Errorf("begin %d runs: %w", len(runs), err)
	}
	return begun, nil
}

const releaseRuns = ` UPDATE runs AS r SET state = 'queued', node = 0, token = 0, claimed_at = NULL, started_at = NULL,
	attempt = r.attempt - 1
	FROM b WHERE` + fence

// Release hands back runs that were not begun, for any node to adopt.
func (s *store) Release(ctx context.Context, runs []dispatcher.HeldRun) error {
	if len(runs) == 0 {
		return nil
	}
	for _, run := range runs {
		s.rollbacks.handedBack(run.RunKey)
	}
	if _, err := s.exec(ctx, s.hot.release, s.keysOf(runs)); err != nil {
		return fmt.Errorf("release %d runs: %w", len(runs), err)
	}
	// Other nodes may adopt them now.
	return s.change(ctx, dispatcher.Change{}, func(_ context.Context, t *tx) error {
		t.notify("")
		return nil
	})
}
