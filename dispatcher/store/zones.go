package store

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

func (s *store) ZonesChanged(ctx context.Context) (bool, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	// A node with other zones that was at work since then has written fire times by these. While
	// there is one, it would do so again: two versions must not undo each other's work for ever.
	// $1 this program's zones
	const changed = `SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM nodes AS o WHERE o.zones <> $1 AND o.state <> 'dead')
			AND (i.zones <> $1 OR EXISTS (SELECT 1 FROM nodes AS o WHERE o.zones <> $1 AND o.heartbeat_at >= i.zoned_at))
		THEN 1 ELSE 0 END FROM installation AS i`
	n, _, err := first(ctx, s.read, scanInt, changed, schedule.ZonesVersion())
	return n == 1, err
}

// rezoned is a trigger with the fire time that it has and the one that it should have.
type rezoned struct {
	triggerRow
	app, job string
	moved    dispatcher.Trigger
	missed   []dispatcher.Misfire
}

func (s *store) Rezone(ctx context.Context, after int64, limit int, now time.Time) (done dispatcher.Rezoned, err error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	// Only what is armed by the rules of some zone is concerned; which those of UTC are not.
	// $1 last id of the page before, $2 limit
	const page = `SELECT ` + triggerColumns + `, a.name, j.name FROM triggers AS t JOIN jobs AS j ON j.id = t.job_id JOIN apps AS a ON a.id = t.app_id
		WHERE t.id > $1 AND t.next_fire_time IS NOT NULL AND t.state = 'waiting' AND NOT t.delayed
			AND (t.timezone NOT IN ('', 'UTC') OR t.calendar <> '')
		ORDER BY t.id LIMIT $2`
	triggers, err := collect(ctx, s.read, func(row scanner) (r rezoned, err error) {
		r.triggerRow, err = scanTrigger(wider{scanner: row, after: []any{&r.app, &r.job}})
		return r, err
	}, page, after, limit)
	if err != nil {
		return done, fmt.Errorf("read triggers: %w", err)
	}
	if len(triggers) == 0 {
		return done, s.zoned(ctx, now)
	}
	done.Last, done.More = triggers[len(triggers)-1].id, true
	if now.IsZero() {
		if now, err = s.clock(ctx, s.read); err != nil {
			return done, err
		}
	}
	var moved []rezoned
	calendars := map[string]dispatcher.Calendars{}
	for _, t := range triggers {
		if _, known := calendars[t.app]; !known && t.Calendar != "" {
			_, all, err := s.AppCalendars(ctx, t.app)
			if err != nil {
				return done, err
			}
			calendars[t.app] = dispatcher.CompileCalendars(all)
		}
		job := dispatcher.Job{App: t.app, Name: t.job, Enabled: true, Triggers: map[string]dispatcher.Trigger{t.name: t.Trigger}}
		t.moved, t.missed = dispatcher.Rezone(job, t.name, calendars[t.app], now.UTC().Truncate(time.Millisecond))
		if orNone(orNullAt(t.moved.NextFireTime)) != orNone(orNullAt(t.NextFireTime)) || storedState(t.moved.State) != storedState(t.State) {
			moved = append(moved, t)
		}
	}
	done.Moved, err = s.rezone(ctx, moved, now)
	return done, err
}

// zoned notes that all fire times are by this program's zones.
func (s *store) zoned(ctx context.Context, now time.Time) error {
	return s.change(ctx, dispatcher.Change{Now: now}, func(ctx context.Context, t *tx) error {
		// $1 zones, $2 now
		_, err := t.ExecContext(ctx, `UPDATE installation SET zones = $1, zoned_at = $2`, schedule.ZonesVersion(), t.now.UnixMilli())
		return err
	})
}

// rezone writes the fire times of triggers that nobody has claimed or changed meanwhile, and
// returns how many: what was claimed goes on by the zones of who claimed it.
func (s *store) rezone(ctx context.Context, triggers []rezoned, now time.Time) (moved int, err error) {
	if len(triggers) == 0 {
		return 0, nil
	}
	var id, revision, calendars, from []int64
	var next, due []*int64
	var state, faults []string
	byID := make(map[int64]rezoned, len(triggers))
	for _, t := range triggers {
		id, revision, calendars, from = append(id, t.id), append(revision, t.revision), append(calendars, t.calendars), append(from, t.NextFireTime.UnixMilli())
		next, due = append(next, orNullAt(t.moved.NextFireTime)), append(due, orNullAt(t.moved.DueAt))
		state, faults = append(state, string(storedState(t.moved.State))), append(faults, t.moved.Error)
		byID[t.id] = t
	}
	// From $1 on: rezoneColumns
	write := s.rows(0, 1, "", rezoneColumns...) + ` UPDATE triggers AS t SET next_fire_time = b.next, due_at = b.due, state = b.state, error = b.error
		FROM b WHERE t.id = b.id AND t.revision = b.revision AND t.calendar_revision = b.calendars AND t.next_fire_time = b.from_at
			AND t.state = 'waiting' RETURNING t.id`
	if s.single() {
		write = write[:len(write)-len("t.id")] + "id"
	}
	err = s.change(ctx, dispatcher.Change{Actor: "system", Now: now}, func(ctx context.Context, t *tx) error {
		won, err := collect(ctx, t, scanInt, write, s.batch(id, revision, calendars, from, next, due, state, faults)...)
		if err != nil {
			return err
		}
		moved = len(won)
		var missed []dispatcher.Misfire
		for _, id := range won {
			one := byID[id]
			missed = append(missed, one.missed...)
			if err := t.audit(ctx, "zones", one.app, "job "+one.job+" trigger "+one.name, one.revision); err != nil {
				return err
			}
		}
		if err := t.insertMisfires(ctx, missed); err != nil {
			return err
		}
		return t.remember(ctx, dispatcher.CauseZones, won)
	})
	if err != nil {
		return 0, fmt.Errorf("move %d triggers: %w", len(triggers), err)
	}
	return moved, nil
}
