package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
)

// endedColumns are a trigger and the end of its latest run.
var endedColumns = ` SELECT ` + triggerColumns + `, coalesce(r.ended_at, m.decided_at) FROM `

// latestRun joins jobs and the latest runs to triggers: those that a claim or a settlement
// has made, which advanced the trigger to their instant. A fire that was skipped ended then.
const latestRun = ` JOIN jobs AS j ON j.id = t.job_id
		LEFT JOIN runs AS r ON r.scheduled_at = t.prev_fire_time AND r.trigger_id = t.id AND r.kind IN (1, 3)
		LEFT JOIN misfires AS m ON m.from_at = t.prev_fire_time AND m.trigger_id = t.id AND m.decision = 'skip' AND m.node <> 0
	WHERE j.enabled AND j.deleted_at IS NULL AND (NOT r.live AND r.ended_at IS NOT NULL OR m.decided_at IS NOT NULL) AND `

// anyEnded finds all fixed delays that await the end of a run by triggers_delayed.
// $1 limit
var anyEnded = endedColumns + `triggers AS t` + latestRun + `t.delayed AND t.next_fire_time IS NULL AND t.state = 'waiting'
		AND t.enabled AND t.deleted_at IS NULL ORDER BY t.id LIMIT $1`

// theseEnded are those of the batch.
// $1 limit
var theseEnded = endedColumns + `b JOIN triggers AS t ON t.id = b.id` + latestRun + `t.delayed = b.yes
		AND (t.next_fire_time IS NULL) = b.yes AND t.state = b.waiting AND t.enabled = b.yes AND (t.deleted_at IS NULL) = b.yes
	ORDER BY t.id LIMIT $1`

const waitingExtra = `'waiting' AS waiting`

// A paused trigger gets its next fire, too; the poll leaves it out until it is resumed.
const scheduleNext = ` UPDATE triggers AS t SET anchor_at = b.anchor, next_fire_time = b.next, due_at = b.due, fired = t.fired + 1,
		state = CASE WHEN b.next IS NULL THEN 'complete' ELSE t.state END
	FROM b WHERE t.id = b.id AND t.state = b.waiting AND t.revision = b.revision AND t.calendar_revision = b.calendars
		AND t.prev_fire_time = b.prev AND (t.next_fire_time IS NULL) = b.yes AND t.delayed = b.yes`

// EndedDelays returns the fixed delays whose latest run has ended.
func (s *store) EndedDelays(ctx context.Context, ids []int64, limit int) ([]dispatcher.EndedDelay, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	find, args := s.hot.ended, []any{int64(limit)}
	if len(ids) > 0 {
		find, args = s.hot.endedOf, append(args, s.batch(slices.Compact(slices.Sorted(slices.Values(ids))))...)
	}
	var all []dispatcher.EndedDelay
	_, err := s.run(ctx, find, args, func(row scanner) error {
		var ended int64
		t, err := scanTrigger(widerRow{scanner: row, after: []any{&ended}})
		one := dispatcher.EndedDelay{DueTrigger: t.due(), EndedAt: instant(ended), Fired: t.Fired}
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
func (s *store) ScheduleNext(ctx context.Context, delayed []dispatcher.DelayedFire) error {
	if len(delayed) == 0 {
		return nil
	}
	var id, revision, calendars, prev, anchor []int64
	var next, due []*int64
	for _, one := range byTrigger(delayed, func(f dispatcher.DelayedFire) int64 { return f.TriggerID }) {
		id, revision, calendars = append(id, one.TriggerID), append(revision, one.Revision), append(calendars, one.CalendarRevision)
		prev, anchor = append(prev, one.Prev.UnixMilli()), append(anchor, one.Anchor.UnixMilli())
		next, due = append(next, orNull(one.Next)), append(due, dueOrNull(one.Next, one.Due))
	}
	if _, err := s.exec(ctx, s.hot.scheduleNext, s.batch(id, revision, calendars, prev, anchor, next, due)); err != nil {
		return fmt.Errorf("schedule next fires of %d fixed delays: %w", len(delayed), err)
	}
	return nil
}
