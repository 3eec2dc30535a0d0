package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// rescheduledTrigger is a trigger as it is stored, and as it will be.
type rescheduledTrigger struct {
	triggerRow
	app, job string
	moved    dispatcher.Trigger
	missed   []dispatcher.Misfire
}

// rescheduledPage is a page of triggers, by id.
type rescheduledPage struct {
	triggers map[int64]rescheduledTrigger // those that change
	last     int64                        // id of the last trigger that was read; 0: none
}

// orClock returns now, or the time of the database's clock if now is zero, to the millisecond.
func (s *store) orClock(ctx context.Context, now time.Time) (time.Time, error) {
	var err error
	if now.IsZero() {
		now, err = s.clock(ctx, s.read)
	}
	return now.UTC().Truncate(time.Millisecond), err
}

// reschedule works out again the next fires of triggers t, outside a transaction. which selects them; its
// parameters begin with $1, the id that all are after, and $2, how many.
func (s *store) reschedule(ctx context.Context, which string, args []any,
	move func(job dispatcher.Job, trigger string, calendars dispatcher.Calendars) (dispatcher.Trigger, []dispatcher.Misfire),
) (rescheduledPage, error) {
	page := `SELECT ` + triggerColumns + `, a.name, j.name FROM triggers AS t JOIN jobs AS j ON j.id = t.job_id
		JOIN apps AS a ON a.id = t.app_id
		WHERE t.id > $1 AND t.next_fire_time IS NOT NULL AND t.state = 'waiting' AND ` + which + ` ORDER BY t.id LIMIT $2`
	found, err := collect(ctx, s.read, func(row scanner) (r rescheduledTrigger, err error) {
		r.triggerRow, err = scanTrigger(widerRow{scanner: row, after: []any{&r.app, &r.job}})
		return r, err
	}, page, args...)
	if err != nil {
		return rescheduledPage{}, fmt.Errorf("read triggers: %w", err)
	}
	done := rescheduledPage{triggers: make(map[int64]rescheduledTrigger, len(found))}
	calendars := map[string]dispatcher.Calendars{}
	for _, t := range found {
		if _, known := calendars[t.app]; !known && t.Calendar != "" {
			_, all, err := s.AppCalendars(ctx, t.app)
			if err != nil {
				return rescheduledPage{}, err
			}
			calendars[t.app] = dispatcher.CompileCalendars(all)
		}
		job := dispatcher.Job{App: t.app, Name: t.job, Enabled: true, Triggers: map[string]dispatcher.Trigger{t.name: t.Trigger}}
		t.moved, t.missed = move(job, t.name, calendars[t.app])
		if orNone(orNullAt(t.moved.NextFireTime)) != orNone(orNullAt(t.NextFireTime)) || storedState(t.moved.State) != storedState(t.State) {
			done.triggers[t.id] = t
		}
		done.last = t.id
	}
	return done, nil
}

// writeRescheduled writes the fire times and misfires of triggers that were not claimed or changed in
// the meantime, and returns how many. A claimed fire is not affected. note writes more about the
// changed triggers in the same transaction.
func (s *store) writeRescheduled(ctx context.Context, triggers map[int64]rescheduledTrigger, now time.Time,
	note func(ctx context.Context, t *tx, won []int64) error,
) (moved int, err error) {
	if len(triggers) == 0 {
		return 0, nil
	}
	var id, revision, calendars, from []int64
	var next, due []*int64
	var state, problems []string
	for _, one := range slices.Sorted(maps.Keys(triggers)) { // in their order two nodes cannot deadlock
		t := triggers[one]
		id, revision, calendars, from = append(id, t.id), append(revision, t.revision), append(calendars, t.calendars),
			append(from, t.NextFireTime.UnixMilli())
		next, due = append(next, orNullAt(t.moved.NextFireTime)), append(due, orNullAt(t.moved.DueAt))
		state, problems = append(state, string(storedState(t.moved.State))), append(problems, t.moved.Error)
	}
	// From $1 on: rescheduleColumns
	write := s.rows(0, 1, "", rescheduleColumns...) + ` UPDATE triggers AS t
		SET next_fire_time = b.next, due_at = b.due, state = b.state, error = b.error
		FROM b WHERE t.id = b.of_trigger AND t.revision = b.revision AND t.calendar_revision = b.calendars AND t.next_fire_time = b.from_at
			AND t.state = 'waiting' RETURNING id`
	err = s.change(ctx, dispatcher.Change{Actor: "system", Now: now}, func(ctx context.Context, t *tx) error {
		won, err := collect(ctx, t, scanInt, write, s.batch(id, revision, calendars, from, next, due, state, problems)...)
		if err != nil {
			return err
		}
		moved = len(won)
		var missed []dispatcher.Misfire
		for _, id := range won {
			missed = append(missed, triggers[id].missed...)
		}
		if err := t.insertMisfires(ctx, missed); err != nil {
			return err
		}
		return note(ctx, t, won)
	})
	if err != nil {
		return 0, fmt.Errorf("move %d triggers: %w", len(triggers), err)
	}
	return moved, nil
}

// ZonesChanged tells whether fire times may be worked out with other time zone data than this
// program has.
func (s *store) ZonesChanged(ctx context.Context) (bool, error) {
	// A node with other zones that was at work since then has written fire times by these. While
	// there is one, it would do so again: two versions must not undo each other's work for ever.
	// $1 this program's zones
	const changed = `SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM nodes AS o WHERE o.zones <> $1 AND o.state <> 'dead')
			AND (i.zones <> $1 OR EXISTS (SELECT 1 FROM nodes AS o WHERE o.zones <> $1 AND o.heartbeat_at >= i.zones_checked_at))
		THEN 1 ELSE 0 END FROM installation AS i`
	n, _, err := first(ctx, s.read, scanInt, changed, schedule.ZonesVersion())
	return n == 1, err
}

// RescheduleForZones works out again the fire times of a page of triggers that depend on time
// zones.
func (s *store) RescheduleForZones(ctx context.Context, after int64, limit int, now time.Time) (done dispatcher.Rescheduled, err error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	if now, err = s.orClock(ctx, now); err != nil {
		return done, err
	}
	// Only fires that depend on the rules of a time zone can move. UTC has none.
	const zoned = `NOT t.delayed AND (t.timezone NOT IN ('', 'UTC') OR t.calendar <> '')`
	page, err := s.reschedule(ctx, zoned, []any{after, limit},
		func(job dispatcher.Job, name string, calendars dispatcher.Calendars) (dispatcher.Trigger, []dispatcher.Misfire) {
			return dispatcher.RescheduleForZones(job, name, calendars, now)
		})
	if err != nil {
		return done, err
	}
	if page.last == 0 {
		return done, s.noteZones(ctx, now)
	}
	done.Last, done.More = page.last, true
	done.Moved, err = s.writeRescheduled(ctx, page.triggers, now, func(ctx context.Context, t *tx, won []int64) error {
		for _, id := range won {
			one := page.triggers[id]
			t.notify(dispatcher.Notification{JobID: dispatcher.JobID(one.app, one.job)})
			if err := t.audit(ctx, "zones", one.app, "job "+one.job+" trigger "+one.name, one.revision); err != nil {
				return err
			}
		}
		return t.remember(ctx, dispatcher.CauseZones, won)
	})
	return done, err
}

// noteZones notes that all fire times are by this program's zones.
func (s *store) noteZones(ctx context.Context, now time.Time) error {
	return s.change(ctx, dispatcher.Change{Now: now}, func(ctx context.Context, t *tx) error {
		// $1 zones, $2 now
		_, err := t.ExecContext(ctx, `UPDATE installation SET zones = $1, zones_checked_at = $2`, schedule.ZonesVersion(), t.now.UnixMilli())
		return err
	})
}
