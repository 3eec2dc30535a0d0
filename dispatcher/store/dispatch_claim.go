package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

// advanceMatches is the compare-and-swap of triggers, and all that a claim must check
// again: not paused, not early, the app enabled, the node active.
// $1 node, $4 lead in milliseconds
const advanceMatches = ` t.id = b.id AND t.state = b.waiting AND t.revision = b.revision
	AND t.calendar_revision = b.calendars AND t.prev_fire_time IS NOT DISTINCT FROM b.prev AND t.next_fire_time = b.next
	AND (t.paused OR t.job_paused) = b.no AND t.due_at <= b.now + $4
	AND (t.app_id IN (SELECT id FROM apps WHERE enabled)) = b.yes
	AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')`

const advance = `UPDATE triggers AS t SET prev_fire_time = b.next, next_fire_time = b.upto, due_at = b.upto_due,
	state = CASE WHEN b.upto IS NULL AND NOT t.delayed THEN 'complete' ELSE t.state END FROM b WHERE` + advanceMatches

const claimExtra = `next AS run_at, 1 AS kind, 'waiting' AS waiting`

const claimedRow = `t.id, t.job_id, t.revision, b.run_at, b.kind, b.now`

// $1 node, $2 token
const newRuns = ` INSERT INTO runs (scheduled_at, trigger_id, kind, job_id, revision, node, token, claimed_at, attempt, live, state)
	SELECT c.run_at, c.id, c.kind, c.job_id, c.revision, $1, $2, c.now, 1, TRUE, 'claimed' FROM c WHERE c.run_at IS NOT NULL`

const insertNewRuns = newRuns + ` RETURNING ` + heldColumns

const insertRuns = newRuns + ` ON CONFLICT DO NOTHING RETURNING ` + heldColumns

// Claim advances triggers and inserts their runs, and returns the runs that were won.
func (s *store) Claim(ctx context.Context, batch dispatcher.ClaimBatch) ([]dispatcher.HeldRun, error) {
	if len(batch.Advances) == 0 {
		return nil, nil
	}
	// In the order of their ids: two nodes that claim the same fires cannot deadlock.
	sorted := slices.SortedFunc(slices.Values(batch.Advances), func(a, b dispatcher.Advance) int {
		return cmp.Compare(a.TriggerID, b.TriggerID)
	})
	var a advances
	for _, one := range sorted {
		a.add(one)
	}
	args := append([]any{int64(batch.Node), int64(batch.Token), orZero(batch.Now), batch.Lead.Milliseconds()},
		s.batch(a.columns()...)...)
	failpoint.During(failpoint.DuringClaim)
	held, err := s.heldRuns(ctx, claimTimeout, s.hot.claim, args)
	if err != nil {
		return nil, fmt.Errorf("claim %d fires: %w", len(sorted), err)
	}
	s.rollbacks.claimed(held)
	return held, nil
}

// advances are the columns of a batch of compare-and-swaps.
type advances struct {
	id, revision, calendars, next []int64
	prev, then, thenDue           []*int64
}

func (a *advances) add(one dispatcher.Advance) {
	a.id = append(a.id, one.TriggerID)
	a.revision = append(a.revision, one.Revision)
	a.calendars = append(a.calendars, one.CalendarRevision)
	a.prev = append(a.prev, orNull(one.Prev))
	a.next = append(a.next, one.Next.UnixMilli())
	a.then = append(a.then, orNull(one.Then))
	a.thenDue = append(a.thenDue, dueOrNull(one.Then, one.ThenDue))
}

// columns are in the order of advanceColumns, with more behind them.
func (a *advances) columns(more ...any) []any {
	return append([]any{a.id, a.revision, a.calendars, a.prev, a.next, a.then, a.thenDue}, more...)
}

// heldColumns are a HeldRun.
const heldColumns = `scheduled_at, trigger_id, kind, job_id, revision, token, attempt, failures, retry_until`

// heldRuns runs a hot statement that returns runs, the latest last.
func (s *store) heldRuns(ctx context.Context, most time.Duration, hot statement, args []any) ([]dispatcher.HeldRun, error) {
	ctx, cancel := bound(ctx, most)
	defer cancel()
	var held []dispatcher.HeldRun
	err := retry(ctx, s.transient, func() error {
		held = nil
		_, err := s.run(ctx, hot, args, func(row scanner) error {
			var run dispatcher.HeldRun
			var at int64
			var until *int64
			var kind int16
			err := row.Scan(&at, &run.TriggerID, &kind, &run.JobID, &run.Revision, &run.Token, &run.Attempt, &run.Failures, &until)
			run.ScheduledAt, run.RetryUntil = instant(at), zeroable(optional(until))
			run.Kind, _ = dispatcher.KindOfCode(byte(kind))
			held = append(held, run)
			return err
		})
		return err
	})
	slices.SortFunc(held, func(a, b dispatcher.HeldRun) int {
		return cmp.Or(a.ScheduledAt.Compare(b.ScheduledAt), cmp.Compare(a.TriggerID, b.TriggerID))
	})
	return held, err
}

// $1 node, $2 token, 0 for any
const heldRuns = `SELECT ` + heldColumns + ` FROM runs
	WHERE live AND node = $1 AND (token = $2 OR $2 = 0) AND state NOT IN ('running', 'retrying')`

// Held returns the live runs that a node holds and has not begun.
func (s *store) Held(ctx context.Context, node dispatcher.NodeID, token dispatcher.Token) ([]dispatcher.HeldRun, error) {
	held, err := s.heldRuns(ctx, claimTimeout, s.hot.held, []any{int64(node), int64(token)})
	if err != nil {
		return nil, fmt.Errorf("read held runs: %w", err)
	}
	return held, nil
}
