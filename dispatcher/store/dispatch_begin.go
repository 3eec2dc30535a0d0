package store

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// beginRuns begins the runs of the batch that are still held. The fence is part of the update: a run may be
// cancelled meanwhile.
func beginRuns(f db.Flavor) string {
	return db.Chosen(`SELECT b.scheduled_at AS of_at, b.trigger_id AS of_trigger, b.kind AS of_kind, b.token AS of_token,
		b.attempt AS over, b.now FROM b`) + `
	UPDATE live_runs AS r SET state = 'running', started_at = COALESCE(r.started_at, c.now)
	FROM c WHERE` + db.OfChosen(f) + ` AND r.token = c.of_token AND r.attempt = c.over RETURNING ` + heldColumns
}

// Begin commits that the requests of runs are about to be sent, and returns the runs still held.
func (s *Store) Begin(ctx context.Context, runs []run.HeldRun) ([]run.HeldRun, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	if err := s.unfoldRuns(ctx, runs); err != nil {
		return nil, err
	}
	var begun []run.HeldRun
	err := inParts(ctx, s, runs, func(part []run.HeldRun) error {
		some, err := s.heldRuns(ctx, db.ClaimTimeout, len(part), s.hot.begin, s.db.KeysOf(part))
		begun = append(begun, some...)
		return err
	}, s.heldAside(ctx, dispatcher.WorkBegin))
	if err != nil {
		return nil, fmt.Errorf("begin %d runs: %w", len(runs), err)
	}
	return begun, nil
}

// heldAside sets aside runs that a node holds and that failed alone.
func (s *Store) heldAside(ctx context.Context, work dispatcher.Work) func(run.HeldRun, error) error {
	return func(run run.HeldRun, why error) error {
		return s.setRunAside(ctx, failedRun{work, run.Key, run.Token, why}, time.Time{})
	}
}

const releaseRuns = ` UPDATE live_runs AS r SET state = 'queued', node = 0, token = 0, claimed_at = NULL, started_at = NULL,
	attempt = r.attempt - 1
	FROM b WHERE`

// Release hands back runs that were not begun, for any node to adopt.
func (s *Store) Release(ctx context.Context, runs []run.HeldRun) error {
	if len(runs) == 0 {
		return nil
	}
	for _, run := range runs {
		s.rollbacks.handedBack(run.Key)
	}
	err := s.unfoldRuns(ctx, runs)
	if err == nil {
		err = inParts(ctx, s, runs, func(part []run.HeldRun) error {
			_, err := s.exec(ctx, s.hot.release, s.db.KeysOf(part))
			return err
		}, s.heldAside(ctx, dispatcher.WorkBegin))
	}
	if err != nil {
		return fmt.Errorf("release %d runs: %w", len(runs), err)
	}
	// Other nodes may adopt them now.
	return s.announce(ctx, dispatcher.Notification{Adopt: true})
}
