package store

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// However a live run ends, it does so by the same steps, in one transaction: it enters the history, the clock of a
// fixed delay learns when its run ended, and the row among the live runs goes. What ends it chooses the run, and
// says how it ended.

// end says how a live run r ends, each as an expression.
type end struct {
	node, attempt, started, at, status, state, class, message string
}

// chosenEnd lists the columns of c that the steps of an end rely on. A field that is empty is the row's own.
func chosenEnd(e end) string {
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
		e.state + ` AS of_state, ` + or(e.class, `r.class`) + ` AS of_class, ` + or(e.message, `r.error`) + ` AS of_error`
}

// insertEnded inserts the runs c into the history. where is empty or begins with WHERE.
func insertEnded(where string) string {
	return ` INSERT INTO runs (scheduled_at, trigger_id, kind, job_id, revision, node, ended_at, claimed_ms, started_ms, attempt,
		http_status, state, class, error)
	SELECT c.of_at, c.of_trigger, c.of_kind, c.of_job, c.of_revision, c.of_node, c.of_end, ` + millisBefore(`c.of_end`, `c.of_claimed`) + `,
		` + millisBefore(`c.of_end`, `c.of_started`) + `, c.over, c.of_status, NULLIF(c.of_state, 'succeeded'), NULLIF(c.of_class, ''),
		NULLIF(c.of_error, '') FROM c` + where
}

// millisBefore is how long before an end something was; NULL if that does not fit. It subtracts only what is near.
func millisBefore(end, at string) string {
	return `CASE WHEN ` + at + ` BETWEEN ` + end + ` - 2147483647 AND ` + end + ` + 2147483647 THEN ` + end + ` - ` + at + ` END`
}

// noteEnd tells the clocks of fixed delays when their runs c ended. Manual runs and shards leave them alone.
const noteEnd = ` UPDATE trigger_clock AS t SET ended_at = c.of_end FROM c
	WHERE t.id = c.of_trigger AND t.delayed AND t.prev_fire_time = c.of_at AND c.of_kind IN (1, 3)`

// followedEndSteps are endSteps after which somebody may follow the runs.
func followedEndSteps(f db.Flavor, condition string) []string {
	return append([]string{insertPending(cmp.Or(condition, allChosen))}, endSteps(f, condition)...)
}

// allChosen is a condition that all of c meet.
const allChosen = `1 = 1`

// endSteps are the steps by which those of c end that meet a condition; empty: all. The last deletes their
// rows.
func endSteps(f db.Flavor, condition string) []string {
	condition = cmp.Or(condition, allChosen)
	return []string{
		insertEnded(` WHERE ` + condition + ` ON CONFLICT DO NOTHING`),
		noteEnd + ` AND ` + condition,
		f.DeleteChosen(condition),
	}
}

// endingOf is a statement that ends live runs that nobody works on, which choose chooses, a batch at a time.
// before are steps before the end.
// $1 now, $2 limit, from $3 on a batch that says nothing
func endingOf(f db.Flavor, choose string, before ...string) db.Statement {
	return f.Steps(1, f.Rows(1, 3, "", db.IDColumns...), choose, db.SkipLockedRows, 1, append(before, followedEndSteps(f, "")...)...)
}

// endingUnfollowed is endingOf for runs that nothing is to follow.
func endingUnfollowed(f db.Flavor, choose string, before ...string) db.Statement {
	return f.Steps(1, f.Rows(1, 3, "", db.IDColumns...), choose, db.SkipLockedRows, 1, append(before, endSteps(f, "")...)...)
}

// endBatch bounds what one statement ends; the next round ends the rest.
const endBatch = 1000

// endRuns ends live runs that nobody works on by one of the statements of endingOf, whose choice of runs is given, and returns how
// many. Runs that cannot end are set aside.
func (s *Store) endRuns(ctx context.Context, work dispatcher.Work, by db.Statement, choose string, now time.Time) (int, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	args := func(limit int) []any { return append([]any{db.OrZero(now), int64(limit)}, s.db.Batch([]int64{0})...) }
	ended, last := 0, run.Key{}
	_, err := inPortions(ctx, s, endBatch, func(limit int) (int, error) {
		n, err := s.exec(ctx, by, args(limit))
		ended += int(n)
		return int(n), err
	}, func(why error) (bool, error) {
		which := s.db.Rows(1, 3, "", db.IDColumns...) + ` SELECT c.of_at, c.of_trigger, c.of_kind FROM (` + choose + `) AS c`
		key, found, err := db.First(ctx, s.db.Read, scanRunKey, which, args(1)...)
		if err != nil || !found || key == last { // it stayed, because somebody else is at it
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

// announceEnds notifies the nodes after runs have ended that nobody worked on.
func (s *Store) announceEnds(ctx context.Context) error {
	return s.change(ctx, input.Change{}, func(ctx context.Context, t *tx) error {
		t.notify(dispatcher.Notification{Adopt: true}) // fixed delays go on from here
		return notifyEnds(ctx, t)
	})
}

// GiveUp ends the retrying runs whose time is over, and returns how many.
func (s *Store) GiveUp(ctx context.Context, now time.Time) (int, error) {
	given, err := s.endRuns(ctx, dispatcher.WorkGiveUp, s.hot.giveUp, expiredRetries, now)
	if err != nil {
		return 0, fmt.Errorf("give up runs: %w", err)
	}
	return given, nil
}

// FailLostRuns ends the runs that dead nodes had begun, and returns how many.
func (s *Store) FailLostRuns(ctx context.Context, now time.Time) (int, error) {
	return s.endRuns(ctx, dispatcher.WorkLost, s.hot.failLost, begunByDeadNodes(s.db.Flavor), now)
}
