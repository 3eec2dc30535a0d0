package dispatch

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// All live runs end by the same steps, in one transaction: the run enters the history, the clock of a fixed delay gets
// the time of the end, and the row among the live runs is deleted. The caller chooses the runs and their outcomes.

// End is the outcome of a live run r, as expressions.
type End struct {
	node, attempt, started, at, status, State, Class, Message string
}

// ChosenEnd lists the columns of c that the steps of an end need. Empty fields take the values of the row.
func ChosenEnd(e End) string {
	or := func(expression, own string) string {
		if expression == "" {
			return own
		}
		return expression
	}
	return ` r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.job_id AS of_job, r.revision AS of_revision, ` +
		or(e.node, `CASE WHEN r.node > 0 THEN r.node ELSE 0 END`) + ` AS of_node, r.claimed_at AS of_claimed, ` +
		or(e.started, `r.started_at`) + ` AS of_started, ` + or(e.at, `n.now`) + ` AS of_end, ` +
		or(e.attempt, `r.attempt`) + ` AS over, ` + or(e.status, `r.http_status`) + ` AS of_status, ` +
		e.State + ` AS of_state, ` + or(e.Class, `r.class`) + ` AS of_class, ` + or(e.Message, `r.error`) + ` AS of_error, r.waited AS of_waited`
}

// insertEnded inserts the runs c into the history. where is empty or begins with WHERE.
func insertEnded(where string) string {
	return ` INSERT INTO runs (scheduled_at, trigger_id, kind, job_id, revision, node, ended_at, claimed_ms, started_ms, attempt,
		http_status, state, class, error, waited)
	SELECT c.of_at, c.of_trigger, c.of_kind, c.of_job, c.of_revision, c.of_node, c.of_end, ` + millisBefore(`c.of_end`, `c.of_claimed`) + `,
		` + millisBefore(`c.of_end`, `c.of_started`) + `, c.over, c.of_status, NULLIF(c.of_state, 'succeeded'), NULLIF(c.of_class, ''),
		NULLIF(c.of_error, ''), NULLIF(c.of_waited, '') FROM c` + where
}

// millisBefore is how long before an end something was; NULL if that does not fit. It subtracts only close instants.
func millisBefore(end, at string) string {
	return `CASE WHEN ` + at + ` BETWEEN ` + end + ` - 2147483647 AND ` + end + ` + 2147483647 THEN ` + end + ` - ` + at + ` END`
}

// noteEnd stores in the clocks of fixed delays when their runs c ended. Manual runs and shards do not count.
const noteEnd = ` UPDATE trigger_clock AS t SET ended_at = c.of_end FROM c
	WHERE t.id = c.of_trigger AND t.delayed AND t.prev_fire_time = c.of_at AND c.of_kind IN (1, 3)`

// followedEndSteps are EndSteps for runs that may have followers.
func followedEndSteps(f db.Flavor) []string {
	return append([]string{insertPending(allChosen)}, EndSteps(f, "")...)
}

// allChosen is a condition that all rows of c meet.
const allChosen = `1 = 1`

// EndSteps are the steps that end the runs of c that meet a condition; empty: all. The last step deletes their rows.
func EndSteps(f db.Flavor, condition string) []string {
	condition = cmp.Or(condition, allChosen)
	return []string{
		insertEnded(` WHERE ` + condition + ` ON CONFLICT DO NOTHING`),
		noteEnd + ` AND ` + condition,
		f.DeleteChosen(condition),
	}
}

// endingOf is a statement that ends live runs that no node works on, a batch at a time, chosen by choose.
// before are steps before the end.
// $1 now, $2 limit, from $3 on a batch that says nothing
func endingOf(f db.Flavor, choose string, before ...string) db.Statement {
	return f.Steps(1, f.Rows(1, 3, "", db.IDColumns...), choose, db.SkipLockedRows, 1, append(before, followedEndSteps(f)...)...)
}

// endBatch bounds what one statement ends; the next round ends the rest.
const endBatch = 1000

// EndRuns ends live runs that no node works on with a statement of endingOf and its choose, and returns how many. Runs
// that cannot end are set aside.
func (s *Store) EndRuns(ctx context.Context, work dispatcher.Work, by db.Statement, choose string, now time.Time) (int, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	args := func(limit int) []any { return append([]any{db.OrZero(now), int64(limit)}, s.db.Batch([]int64{0})...) }
	ended, last := 0, run.Key{}
	_, err := inPortions(ctx, s.OfStored, endBatch, func(limit int) (int, error) {
		n, err := s.exec(ctx, by, args(limit))
		ended += int(n)
		return int(n), err
	}, func(why error) (bool, error) {
		which := s.db.Rows(1, 3, "", db.IDColumns...) + ` SELECT c.of_at, c.of_trigger, c.of_kind FROM (` + choose + `) AS c`
		key, found, err := db.First(ctx, s.db.Read, ScanRunKey, which, args(1)...)
		if err != nil || !found || key == last { // it stayed, because another node is working on it
			return false, err
		}
		last = key
		return true, s.setRunAside(ctx, failedRun{work, key, 0, why}, now)
	})
	if err != nil || ended == 0 {
		return ended, err
	}
	return ended, s.announceEnds(ctx)
}

// announceEnds notifies the nodes after the end of runs that no node worked on.
func (s *Store) announceEnds(ctx context.Context) error {
	return s.Change(ctx, input.Change{}, func(ctx context.Context, t *Tx) error {
		t.Notify(dispatcher.Notification{Adopt: true}) // fixed delays continue from here
		return NotifyEnds(ctx, t)
	})
}

// GiveUp ends retrying runs after the end of their retries, and returns how many.
func (s *Store) GiveUp(ctx context.Context, now time.Time) (int, error) {
	given, err := s.EndRuns(ctx, dispatcher.WorkGiveUp, s.Hot.GiveUp, expiredRetries, now)
	if err != nil {
		return 0, fmt.Errorf("give up runs: %w", err)
	}
	return given, nil
}

// FailLostRuns ends the runs that dead nodes had begun, and returns how many.
func (s *Store) FailLostRuns(ctx context.Context, now time.Time) (int, error) {
	return s.EndRuns(ctx, dispatcher.WorkLost, s.Hot.FailLost, begunByDeadNodes(s.db.Flavor), now)
}

// begunRows are the live runs that a node has begun.
// $1 node
const begunRows = `SELECT ` + adoptedColumns + ` FROM live_runs AS r WHERE node = $1 AND ` + db.NotParked + ` AND state = 'running'`

// chooseBegun chooses the runs of the batch that their node has begun and still holds. The form of its comparison of
// the state keeps PostgreSQL from the index of runs by node.
func chooseBegun(f db.Flavor) string {
	return `SELECT` + ChosenEnd(End{
		at: `b.now`, status: `0`, State: `'lost'`, Class: `'other'`,
		Message: `'the request may have been sent, its node does not make it any more, and the job wants it at most once'`,
	}) + `, r.node AS dead, COALESCE(r.started_at, ` + claimedAt + `) AS since, 'the node does not make it any more' AS why, b.now
	FROM b JOIN live_runs AS r ON` + db.Fence(f) + ` AND (r.state = 'running') = b.yes`
}

// Begun returns the runs that a node has begun.
func (s *Store) Begun(ctx context.Context, node run.NodeID) ([]run.HeldRun, error) {
	begun, err := s.readHeld(ctx, db.ClaimTimeout, newAdoptedRow(), s.Hot.Begun, []any{int64(node)})
	if err != nil {
		return nil, fmt.Errorf("read begun runs: %w", err)
	}
	return begun, nil
}

// LoseRuns ends as lost the begun runs that their node no longer attempts, and returns how many.
func (s *Store) LoseRuns(ctx context.Context, runs []run.HeldRun, now time.Time) (int, error) {
	if len(runs) == 0 {
		return 0, nil
	}
	lost := 0
	err := InParts(ctx, s.OfStored, runs, func(part []run.HeldRun) error {
		n, err := s.exec(ctx, s.Hot.LoseBegun, append([]any{db.OrZero(now)}, db.KeysIn(s.db.Flavor, part)...))
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

// The end of a run of a job with followers leaves a row in pending_ends, in the statement that inserts it into the
// history. So neither can exist without the other, however a node dies. Jobs without followers are not in the index
// jobs_followed, and the records of their runs use statements that do not look there.

// alertWantsSuccess is the condition that alerts need to know about the success of a run c of the job j: an earlier end
// is still pending, a condition of the job holds or is being counted towards, or the run began late.
const alertWantsSuccess = `(EXISTS (SELECT 1 FROM pending_ends AS e WHERE e.job_id = j.id)
			OR EXISTS (SELECT 1 FROM alert_states AS s WHERE s.job_id = j.id AND s.armed)
			OR c.of_kind = 1 AND c.of_started - c.of_at > j.alert_late_after)`

// wantedEnd selects the ends c of jobs j that may have followers. Shards, cancelled and skipped runs have none.
const wantedEnd = `c.of_kind < 16 AND CASE coalesce(c.of_state, 'succeeded')
		WHEN 'succeeded' THEN (j.follows & 1) <> 0 OR (j.follows & 8) <> 0 AND ` + alertWantsSuccess + `
		WHEN 'failed' THEN (j.follows & 10) <> 0 WHEN 'timed_out' THEN (j.follows & 10) <> 0 WHEN 'lost' THEN (j.follows & 10) <> 0
		ELSE FALSE END`

// insertPending makes pending ends of the runs c that meet a condition.
func insertPending(condition string) string {
	return ` INSERT INTO pending_ends (ended_at, trigger_id, scheduled_at, kind, job_id, app_id, attempt, started_at, http_status, state,
		class, error)
	SELECT c.of_end, c.of_trigger, c.of_at, c.of_kind, c.of_job, j.app_id, c.over, c.of_started, c.of_status,
		coalesce(c.of_state, 'succeeded'), coalesce(c.of_class, ''), coalesce(c.of_error, '')
	FROM c JOIN jobs AS j ON j.id = c.of_job AND j.follows <> 0 WHERE ` + condition + ` AND ` + wantedEnd + ` ON CONFLICT DO NOTHING`
}

// insertPendingMisfires makes pending ends of the decisions c about missed fires.
const insertPendingMisfires = ` INSERT INTO pending_ends (ended_at, trigger_id, scheduled_at, kind, job_id, app_id, attempt, http_status,
		state, class, error)
	SELECT c.now, c.id, c.next, 0, c.job_id, j.app_id, 0, 0, '', '', '' FROM c JOIN jobs AS j ON j.id = c.job_id AND j.follows <> 0
	WHERE c.decision <> 'fire_all' AND (j.follows & 12) <> 0 ON CONFLICT DO NOTHING`

// NotifyEnds notifies the nodes if there are pending ends, possibly from this transaction.
func NotifyEnds(ctx context.Context, t *Tx) error {
	_, found, err := db.First(ctx, t, db.ScanInt, anyPending)
	if found {
		t.Notify(dispatcher.Notification{Ends: true})
	}
	return err
}

const anyPending = `SELECT 1 FROM pending_ends LIMIT 1`

// endedColumns are a fixed delay and the end of its latest run, of triggers AS d.
var endedColumns = ` SELECT ` + TriggerRead.Selected("d.") + `, ` + dueColumns + `, t.ended_at`

// anyEnded finds all fixed delays that await the end of a run by trigger_clock_delayed. The clock has the end
// already: whatever ends a run writes it there.
// $1 limit
var anyEnded = endedColumns + ` FROM trigger_clock AS t JOIN triggers AS d ON d.id = t.id
	WHERE t.delayed AND t.next_fire_time IS NULL AND t.state = 'waiting' AND t.ended_at IS NOT NULL ORDER BY t.id LIMIT $1`

// theseEnded finds those of the batch.
// $1 limit
var theseEnded = endedColumns + ` FROM b JOIN trigger_clock AS t ON t.id = b.id JOIN triggers AS d ON d.id = b.id
	WHERE t.delayed = b.yes AND (t.next_fire_time IS NULL) = b.yes AND t.state = b.waiting AND t.ended_at IS NOT NULL
	ORDER BY t.id LIMIT $1`

const waitingExtra = `'waiting' AS waiting`

// isEnded selects the clocks t of the batch with a next fire still to be scheduled.
const isEnded = ` t.id = b.id AND t.state = b.waiting AND t.revision = b.revision AND t.calendar_revision = b.calendars
	AND t.prev_fire_time = b.prev AND (t.next_fire_time IS NULL) = b.yes AND t.delayed = b.yes`

// scheduleNext sets their next fires, even of paused triggers; the poll leaves these out until they are resumed.
const scheduleNext = `UPDATE trigger_clock AS t SET next_fire_time = b.next, due_at = b.due, ended_at = NULL,
	state = CASE WHEN b.next IS NULL THEN 'complete' ELSE t.state END FROM b WHERE` + isEnded

// countFired counts the ended runs of triggers c.
const countFired = ` UPDATE triggers AS d SET anchor_at = c.anchor, fired = d.fired + 1 FROM c WHERE d.id = c.id`

// scheduleNextOn returns the statement: one for PostgreSQL, which locks the clocks first, and two for SQLite.
func scheduleNextOn(f db.Flavor) db.Statement {
	batch := f.Rows(0, 1, waitingExtra, db.ScheduleNextColumns...)
	if _, one := f.(*db.Postgres); one {
		return db.Writing(batch + db.Chosen(scheduleNext+` RETURNING t.id, b.anchor`) + countFired)
	}
	return db.Writing(batch+db.Chosen(`SELECT t.id, b.anchor FROM b JOIN trigger_clock AS t ON`+isEnded)+countFired, batch+` `+scheduleNext)
}

// EndedDelays returns the fixed delays whose latest run has ended.
func (s *Store) EndedDelays(ctx context.Context, ids []int64, limit int) ([]dispatcher.EndedDelay, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	find, args := s.Hot.Ended, []any{int64(limit)}
	if len(ids) > 0 {
		find, args = s.Hot.EndedOf, append(args, s.db.Batch(slices.Compact(slices.Sorted(slices.Values(ids))))...)
	}
	var all []dispatcher.EndedDelay
	_, err := s.db.Execute(ctx, find, args, func(row db.Scanner) error {
		var t TriggerRow
		var ended int64
		due, err := newDueRow().scan(db.WiderRow{Scanner: row, Before: TriggerRead.Refs(&t), After: []any{&ended}})
		one := dispatcher.EndedDelay{DueTrigger: due, TriggerVersion: t.Version(), EndedAt: db.Instant(ended), Fired: t.Fired}
		one.Spec.Anchor = one.EndedAt
		all = append(all, one)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read fixed delays: %w", err)
	}
	return all, nil
}

// ScheduleNext sets the next fires of fixed delays.
func (s *Store) ScheduleNext(ctx context.Context, delayed []dispatcher.DelayedFire) error {
	if len(delayed) == 0 {
		return nil
	}
	err := InParts(ctx, s.OfStored, delayed, func(part []dispatcher.DelayedFire) error {
		var id, revision, calendars, prev, anchor []int64
		var next, due []*int64
		for _, one := range db.ByTrigger(part, func(f dispatcher.DelayedFire) int64 { return f.TriggerID }) {
			id, revision, calendars = append(id, one.TriggerID), append(revision, one.Revision), append(calendars, one.CalendarRevision)
			prev, anchor = append(prev, one.Prev.UnixMilli()), append(anchor, one.Anchor.UnixMilli())
			next, due = append(next, db.OrNull(one.Next)), append(due, db.OrNull(db.DueOr(one.Next, one.Due)))
		}
		_, err := s.exec(ctx, s.Hot.ScheduleNext, s.db.Batch(id, revision, calendars, prev, anchor, next, due))
		return err
	}, func(one dispatcher.DelayedFire, why error) error {
		return s.QuarantineAlone(ctx, dispatcher.WorkFire, one.TriggerID, one.Revision, why, time.Time{})
	})
	if err != nil {
		return fmt.Errorf("schedule next fires of %d fixed delays: %w", len(delayed), err)
	}
	return nil
}

// EndedLate is the predicate of runs_late: runs that ended a day or more after their instant.
const EndedLate = `r.ended_at - r.scheduled_at >= 86400000`

// CallbackNote is the content of live_runs.callback: the state of an attempt accepted by its target. If the target
// reports a failure before the node has recorded the acceptance, Started is 0.
type CallbackNote struct {
	Started   int64  `json:"started,omitempty"`
	Accepted  int64  `json:"accepted,omitempty"`
	Status    int    `json:"status,omitempty"`
	Within    int64  `json:"within,omitempty"` // milliseconds
	Group     string `json:"group,omitempty"`
	Heartbeat *int64 `json:"heartbeat,omitempty"`
	Progress  string `json:"progress,omitempty"`
	Percent   *int   `json:"percent,omitempty"`
	Failed    bool   `json:"failed,omitempty"`
	TimedOut  bool   `json:"timed_out,omitempty"` // of what failed
	Message   string `json:"message,omitempty"`
	// State is the revision of the carried state given to the attempt; nil: its job carries no state.
	State *int64 `json:"state,omitempty"`
}

// Column returns the text of a note for its row.
func (n CallbackNote) Column() *string {
	text, err := json.Marshal(n)
	if err != nil {
		panic(err) // its fields always marshal
	}
	column := Storable(string(text))
	return &column
}

// ReadCallbackNote reads the text of a note from its row.
func ReadCallbackNote(text string) (n CallbackNote, err error) {
	if err = json.Unmarshal([]byte(text), &n); err != nil {
		err = fmt.Errorf("stored callback: %w", err)
	}
	return n, err
}

// acceptedAttempt converts the note of an adopted run for the engine. An attempt with an unreadable note counts as
// failed: the run has been adopted by then, and must continue.
func acceptedAttempt(text string) *run.AcceptedAttempt {
	n, err := ReadCallbackNote(text)
	if err != nil {
		return &run.AcceptedAttempt{Failed: true, Message: "what was stored of the accepted attempt cannot be read: " + err.Error()}
	}
	a := &run.AcceptedAttempt{
		HTTPStatus: n.Status, Failed: n.Failed, TimedOut: n.TimedOut, Message: n.Message, Within: time.Duration(n.Within) * time.Millisecond,
	}
	if n.Started != 0 {
		a.StartedAt = db.Instant(n.Started)
	}
	return a
}

// chooseCompleted chooses runs that their targets complete. If the node has not yet recorded that the target accepted
// the attempt, that record becomes a late result in the row of the attempt.
func chooseCompleted(f db.Flavor) string {
	return `SELECT` + ChosenEnd(End{at: `b.now`, State: `'succeeded'`, Class: `''`, Message: `b.error`}) + `,
		CASE WHEN r.state <> 'waiting_callback' AND r.node > 0 AND r.claimed_at IS NOT NULL THEN 1 ELSE 0 END AS attempted
	FROM b JOIN live_runs AS r ON` + db.Fence(f)
}

const insertCompleted = ` INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at,
	http_status, state, class, error)
	SELECT c.of_at, c.of_trigger, c.of_kind, c.over, c.of_node, ` + begunAt + `, c.of_end, 0, c.of_state, '', ''
	FROM c WHERE c.attempted = 1 ON CONFLICT DO NOTHING`
