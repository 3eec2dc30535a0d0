package store

import (
	"context"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
)

// beginRuns begins the runs of the batch that are still held. The fence is part of the update: a run may be
// cancelled meanwhile.
func beginRuns(f flavor) string {
	return chosen(`SELECT b.scheduled_at AS of_at, b.trigger_id AS of_trigger, b.kind AS of_kind, b.token AS of_token,
		b.attempt AS over, b.now FROM b`) + `
	UPDATE live_runs AS r SET state = 'running', started_at = COALESCE(r.started_at, c.now)
	FROM c WHERE` + ofChosen(f) + ` AND r.token = c.of_token AND r.attempt = c.over RETURNING ` + heldColumns
}

// Begin commits that the requests of runs are about to be sent, and returns the runs still held.
func (s *store) Begin(ctx context.Context, runs []dispatcher.HeldRun) ([]dispatcher.HeldRun, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	if err := s.unfoldRuns(ctx, runs); err != nil {
		return nil, err
	}
	begun, err := s.heldRuns(ctx, claimTimeout, len(runs), s.hot.begin, s.keysOf(runs))
	if err != nil {
		return nil, fmt.Errorf("begin %d runs: %w", len(runs), err)
	}
	return begun, nil
}

const releaseRuns = ` UPDATE live_runs AS r SET state = 'queued', node = 0, token = 0, claimed_at = NULL, started_at = NULL,
	attempt = r.attempt - 1
	FROM b WHERE`

// Release hands back runs that were not begun, for any node to adopt.
func (s *store) Release(ctx context.Context, runs []dispatcher.HeldRun) error {
	if len(runs) == 0 {
		return nil
	}
	for _, run := range runs {
		s.rollbacks.handedBack(run.RunKey)
	}
	err := s.unfoldRuns(ctx, runs)
	if err == nil {
		_, err = s.exec(ctx, s.hot.release, s.keysOf(runs))
	}
	if err != nil {
		return fmt.Errorf("release %d runs: %w", len(runs), err)
	}
	// Other nodes may adopt them now.
	return s.announce(ctx, dispatcher.Notification{Adopt: true})
}
