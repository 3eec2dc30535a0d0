package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// endedColumns are a fixed delay and the end of its latest run, of triggers AS d.
var endedColumns = ` SELECT ` + triggerRead.Selected("d.") + `, ` + dueColumns + `, t.ended_at`

// anyEnded finds all fixed delays that await the end of a run by trigger_clock_delayed. The end is in the clock
// already: what ends a run writes it there.
// $1 limit
var anyEnded = endedColumns + ` FROM trigger_clock AS t JOIN triggers AS d ON d.id = t.id
	WHERE t.delayed AND t.next_fire_time IS NULL AND t.state = 'waiting' AND t.ended_at IS NOT NULL ORDER BY t.id LIMIT $1`

// theseEnded are those of the batch.
// $1 limit
var theseEnded = endedColumns + ` FROM b JOIN trigger_clock AS t ON t.id = b.id JOIN triggers AS d ON d.id = b.id
	WHERE t.delayed = b.yes AND (t.next_fire_time IS NULL) = b.yes AND t.state = b.waiting AND t.ended_at IS NOT NULL
	ORDER BY t.id LIMIT $1`

const waitingExtra = `'waiting' AS waiting`

// isEnded tells the clocks t of the batch whose next fire is still to be scheduled.
const isEnded = ` t.id = b.id AND t.state = b.waiting AND t.revision = b.revision AND t.calendar_revision = b.calendars
	AND t.prev_fire_time = b.prev AND (t.next_fire_time IS NULL) = b.yes AND t.delayed = b.yes`

// scheduleNext gives them their next fires. A paused trigger gets its next fire, too; the poll leaves it out
// until it is resumed.
const scheduleNext = `UPDATE trigger_clock AS t SET next_fire_time = b.next, due_at = b.due, ended_at = NULL,
	state = CASE WHEN b.next IS NULL THEN 'complete' ELSE t.state END FROM b WHERE` + isEnded

// countFired counts the runs that ended, of triggers c.
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
	find, args := s.hot.ended, []any{int64(limit)}
	if len(ids) > 0 {
		find, args = s.hot.endedOf, append(args, s.db.Batch(slices.Compact(slices.Sorted(slices.Values(ids))))...)
	}
	var all []dispatcher.EndedDelay
	_, err := s.db.Execute(ctx, find, args, func(row db.Scanner) error {
		var t triggerRow
		var ended int64
		due, err := newDueRow().scan(db.WiderRow{Scanner: row, Before: triggerRead.Refs(&t), After: []any{&ended}})
		one := dispatcher.EndedDelay{DueTrigger: due, TriggerVersion: t.version(), EndedAt: db.Instant(ended), Fired: t.Fired}
		one.Spec.Anchor = one.EndedAt
		all = append(all, one)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read fixed delays: %w", err)
	}
	return all, nil
}

// ScheduleNext gives fixed delays their next fires.
func (s *Store) ScheduleNext(ctx context.Context, delayed []dispatcher.DelayedFire) error {
	if len(delayed) == 0 {
		return nil
	}
	err := inParts(ctx, s, delayed, func(part []dispatcher.DelayedFire) error { return s.scheduleNext(ctx, part) },
		func(one dispatcher.DelayedFire, why error) error {
			return s.quarantineAlone(ctx, dispatcher.WorkFire, one.TriggerID, one.Revision, why, time.Time{})
		})
	if err != nil {
		return fmt.Errorf("schedule next fires of %d fixed delays: %w", len(delayed), err)
	}
	return nil
}

// scheduleNext is ScheduleNext of fixed delays in one statement.
func (s *Store) scheduleNext(ctx context.Context, delayed []dispatcher.DelayedFire) error {
	var id, revision, calendars, prev, anchor []int64
	var next, due []*int64
	for _, one := range db.ByTrigger(delayed, func(f dispatcher.DelayedFire) int64 { return f.TriggerID }) {
		id, revision, calendars = append(id, one.TriggerID), append(revision, one.Revision), append(calendars, one.CalendarRevision)
		prev, anchor = append(prev, one.Prev.UnixMilli()), append(anchor, one.Anchor.UnixMilli())
		next, due = append(next, db.OrNull(one.Next)), append(due, db.OrNull(db.DueOr(one.Next, one.Due)))
	}
	_, err := s.exec(ctx, s.hot.scheduleNext, s.db.Batch(id, revision, calendars, prev, anchor, next, due))
	return err
}
