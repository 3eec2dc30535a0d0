package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// advanceMatches is the compare-and-swap of clocks with all conditions that a claim must check
// again: not off, not early, the app enabled, the node active. The clocks of a newly disabled app
// follow its switch in portions, so the app itself decides.
// $1 node, $4 lead in milliseconds
const advanceMatches = ` t.id = b.id AND t.revision = b.revision
	AND t.calendar_revision = b.calendars AND t.prev_fire_time IS NOT DISTINCT FROM b.prev AND t.next_fire_time = b.next
	AND (t.off = 0) = b.yes AND t.due_at <= b.now + $4
	AND (t.app_id IN (SELECT id FROM apps WHERE enabled)) = b.yes
	AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state = 'active')`

const advanced = `UPDATE trigger_clock AS t SET prev_fire_time = b.next, next_fire_time = b.upto, due_at = b.upto_due,
	state = CASE WHEN b.upto IS NULL AND NOT t.delayed THEN 'complete' ELSE t.state END, ended_at = `

// advance is the claim of a fire. It clears ended_at, which belongs to an earlier run.
const advance = advanced + `NULL FROM b WHERE` + advanceMatches

// advanceSettled is the settlement of missed fires. A skipped fixed delay ends with it.
const advanceSettled = advanced + `CASE WHEN t.delayed AND b.run_at IS NULL THEN b.now END FROM b WHERE` + advanceMatches

const claimExtra = `next AS run_at, 1 AS kind, 'waiting' AS waiting`

const claimedRow = `t.id, b.job_id, t.app_id, t.revision, b.run_at, b.kind, b.now, b.yes, b.no`

// insertClaim makes one row of all won fires c, except those that want their own rows.
// $1 node, $2 token
func insertClaim(f db.Flavor) string {
	return ` INSERT INTO claims (token, node, claimed_at, ` + f.ClaimColumns() + `)
	SELECT $2, $1, min(c.now), ` + f.ClaimValues() + ` FROM c WHERE c.live = c.no HAVING count(*) > 0`
}

// insertLive makes live runs of won fires. A trigger that was declared again may have reached an instant that has
// a run; the claim then advances it and wins no run.
// $1 node, $2 token
const insertLive = ` INSERT INTO live_runs (scheduled_at, trigger_id, kind, job_id, app_id, revision, node, token, claimed_at, attempt,
	state)
	SELECT c.run_at, c.id, c.kind, c.job_id, c.app_id, c.revision, $1, $2, c.now, 1, 'claimed' FROM c WHERE `

const returnLive = ` ON CONFLICT DO NOTHING RETURNING ` + heldColumns

// Claim advances triggers, stores their runs in a claim or among the live runs, and returns the won runs.
func (s *Store) Claim(ctx context.Context, batch dispatcher.ClaimBatch) ([]run.HeldRun, error) {
	if len(batch.Advances) == 0 {
		return nil, nil
	}
	var held []run.HeldRun
	token := batch.Token
	err := InParts(ctx, s.OfStored, batch.Advances, func(part []dispatcher.Advance) error {
		some := batch
		some.Advances, some.Token = part, token
		won, err := s.claim(ctx, some)
		if err == nil {
			held = append(held, won...)
			token++ // a claim is one row; the other part of a split batch is another claim with its own token
		}
		return err
	}, func(one dispatcher.Advance, why error) error {
		return s.QuarantineAlone(ctx, dispatcher.WorkFire, one.TriggerID, one.Revision, why, batch.Now)
	})
	if err != nil {
		return nil, fmt.Errorf("claim %d fires: %w", len(batch.Advances), err)
	}
	return held, nil
}

// claim is Claim for fires in one statement.
func (s *Store) claim(ctx context.Context, batch dispatcher.ClaimBatch) ([]run.HeldRun, error) {
	a := newAdvances(len(batch.Advances))
	live, claim := make([]bool, 0, len(batch.Advances)), s.Hot.Claim
	for _, one := range db.ByTrigger(batch.Advances, func(a dispatcher.Advance) int64 { return a.TriggerID }) {
		if err := checkAdvance(one); err != nil {
			return nil, err
		}
		a.add(one)
		if live = append(live, one.Live); one.Live {
			claim = s.Hot.ClaimLive
		}
	}
	args := append([]any{int64(batch.Node), int64(batch.Token), db.OrZero(batch.Now), batch.Lead.Milliseconds()},
		s.db.Batch(a.columns(live)...)...)
	failpoint.During(failpoint.DuringClaim)
	held, err := s.heldRuns(ctx, db.ClaimTimeout, len(batch.Advances), claim, args)
	if err != nil {
		s.Claims.doubted()
		return nil, err
	}
	s.Claims.add(held, false)
	s.Rollbacks.claimed(batch.Node, held)
	return held, nil
}

// advances are the columns of a batch of compare-and-swaps.
type advances struct {
	id, revision, calendars, next, job []int64
	prev, then, thenDue                db.Times
}

func newAdvances(rows int) *advances {
	ids := func() []int64 { return make([]int64, 0, rows) }
	return &advances{
		id: ids(), revision: ids(), calendars: ids(), next: ids(), job: ids(),
		prev: db.NewTimes(rows), then: db.NewTimes(rows), thenDue: db.NewTimes(rows),
	}
}

func (a *advances) add(one dispatcher.Advance) {
	a.id = append(a.id, one.TriggerID)
	a.revision = append(a.revision, one.Revision)
	a.calendars = append(a.calendars, one.CalendarRevision)
	a.prev.Add(one.Prev)
	a.next = append(a.next, one.Next.UnixMilli())
	a.then.Add(one.Then)
	a.thenDue.Add(db.DueOr(one.Then, one.ThenDue))
	a.job = append(a.job, one.JobID)
}

// columns returns the columns in the order of advanceColumns, followed by more.
func (a *advances) columns(more ...any) []any {
	return append([]any{a.id, a.revision, a.calendars, a.prev.Cells, a.next, a.then.Cells, a.thenDue.Cells, a.job}, more...)
}

// heldColumns are a HeldRun from a row of live_runs, with TRUE for live.
const heldColumns = `scheduled_at, trigger_id, kind, job_id, revision, token, attempt, failures, retry_until, claimed_at, TRUE`

// heldFire are the same columns for a fire f of a claim.
const heldFire = `f.scheduled_at, f.trigger_id, 1, f.job_id, f.revision, f.token, 1, 0, CAST(NULL AS BIGINT), f.claimed_at, FALSE`

// adoptedColumns are heldColumns, the note of an accepted attempt, whether the run has an input, and what it waited for.
// Other statements meet only runs without these, or already adopted ones.
const adoptedColumns = heldColumns + `, callback, has_input, waited`

// heldRuns runs a hot statement that returns heldColumns of runs, about so many rows, the latest last.
func (s *Store) heldRuns(ctx context.Context, most time.Duration, rows int, hot db.Statement, args []any) ([]run.HeldRun, error) {
	return s.readHeld(ctx, most, newHeldRow(rows), hot, args)
}

// readHeld is heldRuns with a given scan destination.
func (s *Store) readHeld(ctx context.Context, most time.Duration, into *heldRow, hot db.Statement, args []any) ([]run.HeldRun, error) {
	ctx, cancel := db.Bound(ctx, most)
	defer cancel()
	held := make([]run.HeldRun, 0, into.rows)
	err := retry(ctx, s.db.Transient, func() error {
		held = held[:0]
		_, err := s.db.Execute(ctx, hot, args, func(row db.Scanner) error {
			run, err := into.scan(row)
			held = append(held, run)
			return err
		})
		return err
	})
	db.SortBy(held, db.HeldKey)
	return held, err
}

// heldRow is the scan destination of heldColumns, reused for each row like dueRow.
type heldRow struct {
	run            run.HeldRun
	at             int64
	kind           int16
	until, claimed pgtype.Int8
	callback       *string
	refs           []any
	rows           int // expected number of rows
}

func newHeldRow(rows int) *heldRow {
	r := &heldRow{rows: rows}
	run := &r.run
	r.refs = []any{&r.at, &run.TriggerID, &r.kind, &run.JobID, &run.Revision, &run.Token, &run.Attempt, &run.Failures, &r.until, &r.claimed,
		&run.Live}
	return r
}

// newAdoptedRow is newHeldRow for adoptedColumns.
func newAdoptedRow() *heldRow {
	r := newHeldRow(0)
	r.refs = append(r.refs, &r.callback, &r.run.HasInput, &r.run.Waited)
	return r
}

func (r *heldRow) scan(row db.Scanner) (run.HeldRun, error) {
	err := row.Scan(r.refs...)
	run := r.run
	run.ScheduledAt = db.Instant(r.at)
	run.SetCode(int(r.kind))
	if r.until.Valid {
		run.RetryUntil = db.Instant(r.until.Int64)
	}
	if r.claimed.Valid {
		run.ClaimedAt = db.Instant(r.claimed.Int64)
	}
	if r.callback != nil && err == nil {
		run.Accepted = acceptedAttempt(*r.callback)
	}
	return run, err
}

// heldRows are the live runs that a node holds and has not begun.
// $1 node, $2 token, 0 for any
const heldRows = `SELECT ` + adoptedColumns + ` FROM live_runs AS r
	WHERE node = $1 AND (token = $2 OR $2 = 0) AND ` + db.NotParked + ` AND state <> 'running'`

// Held returns the runs that a node holds and has not begun. With token 0 it leaves out claims that this process
// remembers: they are as many as the work in flight, and finding their open fires takes a look-up in the history for
// each.
func (s *Store) Held(ctx context.Context, node run.NodeID, token run.Token) ([]run.HeldRun, error) {
	ctx, cancel := db.Bound(ctx, db.ClaimTimeout)
	defer cancel()
	// Claims first: runs that leave them meanwhile are then found among the live runs.
	claimed, err := s.heldInClaims(ctx, node, token)
	var held []run.HeldRun
	if err == nil {
		held, err = s.readHeld(ctx, db.ClaimTimeout, newAdoptedRow(), s.Hot.Held, []any{int64(node), int64(token)})
	}
	if err != nil {
		return nil, fmt.Errorf("read held runs: %w", err)
	}
	return joinHeld(claimed, held), nil
}

// joinHeld merges the runs of claims and the live runs without duplicates.
func joinHeld(claimed, live []run.HeldRun) []run.HeldRun {
	if len(claimed) == 0 {
		return live
	}
	seen := make(map[run.Key]bool, len(live))
	for _, run := range live {
		seen[run.Key] = true
	}
	for _, run := range claimed {
		if !seen[run.Key] {
			live = append(live, run)
		}
	}
	return db.SortedBy(live, db.HeldKey)
}

// With fire_all a catch-up fire has a run of kind schedule, otherwise of kind catch_up.
const settleExtra = `CASE WHEN decision = 'fire_all' THEN 1 ELSE 3 END AS kind, 'waiting' AS waiting`

const settledRow = claimedRow + `, b.next, b.to_at, b.missed, b.decision, b.reason`

// $1 node
const insertDecisions = ` INSERT INTO misfires (from_at, to_at, trigger_id, job_id, count, decision, reason, catch_up, node, decided_at)
	SELECT c.next, c.to_at, c.id, c.job_id, c.missed, c.decision, c.reason, c.run_at, $1, c.now FROM c
	WHERE c.decision <> 'fire_all' ON CONFLICT DO NOTHING`

// insertCaughtUp makes live runs of the catch-ups.
const insertCaughtUp = insertLive + `c.run_at IS NOT NULL` + returnLive

// Settle records decisions about missed fires, and returns the won catch-up runs.
func (s *Store) Settle(ctx context.Context, batch dispatcher.SettleBatch) ([]run.HeldRun, error) {
	if len(batch.Settlements) == 0 {
		return nil, nil
	}
	var held []run.HeldRun
	err := InParts(ctx, s.OfStored, batch.Settlements, func(part []dispatcher.Settlement) error {
		some := batch
		some.Settlements = part
		won, err := s.settle(ctx, some)
		held = append(held, won...)
		return err
	}, func(one dispatcher.Settlement, why error) error {
		return s.QuarantineAlone(ctx, dispatcher.WorkFire, one.TriggerID, one.Revision, why, batch.Now)
	})
	if err != nil {
		return nil, fmt.Errorf("settle %d triggers: %w", len(batch.Settlements), err)
	}
	return db.SortedBy(held, db.HeldKey), nil
}

// settle is Settle for triggers in one statement.
func (s *Store) settle(ctx context.Context, batch dispatcher.SettleBatch) ([]run.HeldRun, error) {
	a := newAdvances(len(batch.Settlements))
	var to, missed []int64
	var decision, reason []string
	var catchUp []*int64
	for _, one := range db.ByTrigger(batch.Settlements, func(s dispatcher.Settlement) int64 { return s.TriggerID }) {
		if err := checkAdvance(one.Advance); err != nil {
			return nil, err
		}
		a.add(one.Advance)
		to, missed = append(to, one.To.UnixMilli()), append(missed, int64(one.Count))
		decision, reason = append(decision, string(one.Decision)), append(reason, one.Reason)
		catchUp = append(catchUp, db.OrNull(one.CatchUp))
	}
	args := append([]any{int64(batch.Node), int64(batch.Token), db.OrZero(batch.Now), int64(0)},
		s.db.Batch(a.columns(to, missed, decision, reason, catchUp)...)...)
	return s.heldRuns(ctx, db.OtherTimeout, len(batch.Settlements), s.Hot.Settle, args)
}

// checkAdvance refuses an advance without the job of its trigger: its run would belong to no job, so no list would show
// it and no retention would delete it.
func checkAdvance(one dispatcher.Advance) error {
	if one.JobID == 0 {
		return fmt.Errorf("advance of trigger %d: JobID is 0; it must be the id of the trigger's job, see TriggersByID", one.TriggerID)
	}
	return nil
}

// beginRuns begins the runs of the batch that are still held. The fence is part of the update because a run may be
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
	err := InParts(ctx, s.OfStored, runs, func(part []run.HeldRun) error {
		some, err := s.heldRuns(ctx, db.ClaimTimeout, len(part), s.Hot.Begin, s.db.KeysOf(part))
		begun = append(begun, some...)
		return err
	}, s.heldAside(ctx, dispatcher.WorkBegin))
	if err != nil {
		return nil, fmt.Errorf("begin %d runs: %w", len(runs), err)
	}
	return begun, nil
}

// heldAside sets aside held runs that failed alone.
func (s *Store) heldAside(ctx context.Context, work dispatcher.Work) func(run.HeldRun, error) error {
	return func(run run.HeldRun, why error) error {
		return s.setRunAside(ctx, failedRun{work, run.Key, run.Token, why}, time.Time{})
	}
}

const releaseRuns = ` UPDATE live_runs AS r SET state = 'queued', node = 0, token = 0, claimed_at = NULL, started_at = NULL,
	attempt = r.attempt - 1
	FROM b WHERE`

// Release gives back runs that were not begun, for any node to adopt.
func (s *Store) Release(ctx context.Context, runs []run.HeldRun) error {
	if len(runs) == 0 {
		return nil
	}
	for _, run := range runs {
		s.Rollbacks.handedBack(run.Key)
	}
	err := s.unfoldRuns(ctx, runs)
	if err == nil {
		err = InParts(ctx, s.OfStored, runs, func(part []run.HeldRun) error {
			_, err := s.exec(ctx, s.Hot.Release, s.db.KeysOf(part))
			return err
		}, s.heldAside(ctx, dispatcher.WorkBegin))
	}
	if err != nil {
		return fmt.Errorf("release %d runs: %w", len(runs), err)
	}
	return s.Change(ctx, input.Change{}, func(_ context.Context, t *Tx) error {
		t.Notify(dispatcher.Notification{Adopt: true}) // other nodes may now adopt them
		return nil
	})
}
