package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// recalendarTimeout is how long a change of a calendar may take.
const recalendarTimeout = time.Minute

// movesAtOnce is how many triggers one statement moves.
const movesAtOnce = 2000

// replacement is a change of one calendar of an app.
type replacement struct {
	revision      int64               // of the app's calendars before
	current       dispatcher.Calendar // none if its revision is 0
	changed       map[string]bool     // calendars that mean something else now, by name
	before, after dispatcher.Calendars
}

// moved is a trigger before and after the change of its calendar.
type moved struct {
	from, to triggerRow
	missed   []dispatcher.Misfire
}

// planMoves works out ahead of the transaction what will become of the triggers that a change
// of a calendar concerns, so that they, and in SQLite all writers, are locked only while rows are
// written: evaluating many schedules takes longer than that. What happens meanwhile makes a part
// of the plan void, and costs time only.
func (s *store) planMoves(ctx context.Context, calendar dispatcher.Calendar, by dispatcher.Change) (map[int64]moved, error) {
	change, err := replace(ctx, s.read, calendar, by)
	if err != nil || change.changed == nil {
		return nil, nil //nolint:nilerr // the transaction finds it again, and it alone decides
	}
	if by.Now.IsZero() {
		if by.Now, err = s.clock(ctx, s.read); err != nil {
			return nil, err
		}
	}
	ids, err := s.users(ctx, s.read, calendar.App, change.changed)
	if err != nil {
		return nil, err
	}
	plan := make(map[int64]moved, len(ids))
	for page := range slices.Chunk(ids, movesAtOnce) {
		if err := s.evaluate(ctx, s.read, calendar.App, page, change, by.Now.UTC().Truncate(time.Millisecond), plan); err != nil {
			return nil, err
		}
	}
	return plan, nil
}

// users returns the triggers that name one of calendars, in the order in which claims lock them.
func (s *store) users(ctx context.Context, q querier, app string, calendars map[string]bool) ([]int64, error) {
	// $1 app, from $2 on: names
	query := s.rows(0, 2, "", nameColumns...) + ` SELECT t.id FROM b JOIN triggers AS t ON t.calendar = b.name
		WHERE t.app_id = $1 AND t.calendar <> '' AND t.deleted_at IS NULL ORDER BY t.id`
	return collect(ctx, q, scanInt, query, append([]any{dispatcher.AppID(app)}, s.batch(sortedKeys(calendars))...)...)
}

// evaluate adds to plan what becomes of triggers at now. It reads of their jobs only what
// decides whether they fire: a job that this version cannot read has fire times nevertheless.
func (s *store) evaluate(ctx context.Context, q querier, app string, ids []int64, change replacement, now time.Time, plan map[int64]moved) error {
	// From $1 on: ids
	query := s.rows(0, 1, "", idColumns...) + ` SELECT ` + triggerColumns + `, j.name, j.enabled
		FROM b JOIN triggers AS t ON t.id = b.id JOIN jobs AS j ON j.id = t.job_id`
	_, err := collect(ctx, q, func(row scanner) (struct{}, error) {
		job := dispatcher.Job{App: app}
		t, err := scanTrigger(wider{scanner: row, after: []any{&job.Name, &job.Enabled}})
		job.Triggers = map[string]dispatcher.Trigger{t.name: t.Trigger}
		moves, missed := dispatcher.Recalendar(job, change.changed, change.before, change.after, now)
		to := t
		if move, ok := moves[t.name]; ok {
			to.Trigger = move
		} else {
			to.State = stored(to.State)
		}
		plan[t.id] = moved{from: t, to: to, missed: missed}
		return struct{}{}, err
	}, query, s.batch(ids)...)
	return err
}
