package store

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

// advanceMatches is the compare-and-swap of clocks, and all that a claim must check
// again: not off, not early, the app enabled, the node active. The clocks of an app that has just been disabled
// follow its switch in portions, so it is the app that decides.
// $1 node, $4 lead in milliseconds
const advanceMatches = ` t.id = b.id AND t.revision = b.revision
	AND t.calendar_revision = b.calendars AND t.prev_fire_time IS NOT DISTINCT FROM b.prev AND t.next_fire_time = b.next
	AND (t.off = 0) = b.yes AND t.due_at <= b.now + $4
	AND (t.app_id IN (SELECT id FROM apps WHERE enabled)) = b.yes
	AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')`

const advanced = `UPDATE trigger_clock AS t SET prev_fire_time = b.next, next_fire_time = b.upto, due_at = b.upto_due,
	state = CASE WHEN b.upto IS NULL AND NOT t.delayed THEN 'complete' ELSE t.state END, ended_at = `

// advance is the claim of a fire. What ended_at still says is of a run before it.
const advance = advanced + `NULL FROM b WHERE` + advanceMatches

// advanceSettled is the settlement of missed fires. A fixed delay that was skipped has ended with that.
const advanceSettled = advanced + `CASE WHEN t.delayed AND b.run_at IS NULL THEN b.now END FROM b WHERE` + advanceMatches

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
	var a advances
	for _, one := range byTrigger(batch.Advances, func(a dispatcher.Advance) int64 { return a.TriggerID }) {
		a.add(one)
	}
	args := append([]any{int64(batch.Node), int64(batch.Token), orZero(batch.Now), batch.Lead.Milliseconds()},
		s.batch(a.columns()...)...)
	failpoint.During(failpoint.DuringClaim)
	held, err := s.heldRuns(ctx, claimTimeout, s.hot.claim, args)
	if err != nil {
		return nil, fmt.Errorf("claim %d fires: %w", len(batch.Advances), err)
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
	return sortedBy(held, func(r dispatcher.HeldRun) dispatcher.RunKey { return r.RunKey }), err
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
	return s.announce(ctx, dispatcher.Notification{Adopt: true})
}

// A fire that is caught up by itself has a run of kind schedule, and else there is one of kind
// catch_up.
const settleExtra = `CASE WHEN decision = 'fire_all' THEN 1 ELSE 3 END AS kind, 'waiting' AS waiting`

const settledRow = claimedRow + `, b.next, b.to_at, b.missed, b.decision, b.reason`

// $1 node
const insertDecisions = ` INSERT INTO misfires (from_at, to_at, trigger_id, job_id, count, decision, reason, catch_up, node, decided_at)
	SELECT c.next, c.to_at, c.id, c.job_id, c.missed, c.decision, c.reason, c.run_at, $1, c.now FROM c
	WHERE c.decision <> 'fire_all' ON CONFLICT DO NOTHING`

// Settle records what is decided about missed fires, and returns the catch-up runs that were won.
func (s *store) Settle(ctx context.Context, batch dispatcher.SettleBatch) ([]dispatcher.HeldRun, error) {
	if len(batch.Settlements) == 0 {
		return nil, nil
	}
	var a advances
	var to, missed []int64
	var decision, reason []string
	var catchUp []*int64
	for _, one := range byTrigger(batch.Settlements, func(s dispatcher.Settlement) int64 { return s.TriggerID }) {
		a.add(one.Advance)
		to, missed = append(to, one.To.UnixMilli()), append(missed, int64(one.Count))
		decision, reason = append(decision, string(one.Decision)), append(reason, one.Reason)
		catchUp = append(catchUp, orNull(one.CatchUp))
	}
	args := append([]any{int64(batch.Node), int64(batch.Token), orZero(batch.Now), int64(0)},
		s.batch(a.columns(to, missed, decision, reason, catchUp)...)...)
	held, err := s.heldRuns(ctx, otherTimeout, s.hot.settle, args)
	if err != nil {
		return nil, fmt.Errorf("settle %d triggers: %w", len(batch.Settlements), err)
	}
	return held, nil
}
