package definitions

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// Triggers are rescheduled when a calendar or the time zone database changes, and after a rollback. This always takes
// two steps: the moves are computed ahead of the transaction, and those of triggers that did not change meanwhile are
// written.

// clockKey is a clock as read; an instant of -1 means none.
type clockKey struct {
	revision, calendars, prev, next int64
	state                           dispatcher.TriggerState
}

// move is the new state of a trigger's clock. It takes some 200 bytes.
type move struct {
	from      clockKey
	next, due *int64
	state     dispatcher.TriggerState
	err       string
	missed    []dispatcher.Misfire
}

// movedTo returns the move of a trigger that was read.
func movedTo(t dispatch.TriggerRow, to dispatcher.Trigger, missed []dispatcher.Misfire) move {
	return move{
		from: clockKey{t.Revision, t.Calendars, orNone(db.OrNullAt(t.PrevFireTime)), orNone(db.OrNullAt(t.NextFireTime)), t.State.Stored()},
		next: db.OrNullAt(to.NextFireTime), due: db.OrNullAt(to.DueAt), state: to.State.Stored(), err: to.Error, missed: missed,
	}
}

// orNone returns an instant of a clockKey.
func orNone(ms *int64) int64 {
	if ms == nil {
		return -1
	}
	return *ms
}

// moveColumns are a clock as read, and its new state.
var moveColumns = []db.Column{
	db.Col("of_trigger", db.Bigint), db.Col("revision", db.Bigint), db.Col("calendars", db.Bigint), db.Col("prev", db.Bigint),
	db.Col("from_at", db.Bigint),
	db.Col("was", db.Text),
	db.Col("next", db.Bigint), db.Col("due", db.Bigint), db.Col("state", db.Text),
}

// moveClocks moves the clocks of the batch that have not changed since they were read.
// $1 revision of the app's calendars, 0: as it is; 16 is offError
const moveClocks = ` UPDATE trigger_clock AS c SET next_fire_time = b.next, due_at = b.due, state = b.state,
		off = (c.off & ~16) | CASE WHEN b.state = 'error' THEN 16 ELSE 0 END,
		calendar_revision = CASE WHEN CAST($1 AS bigint) = 0 THEN c.calendar_revision ELSE $1 END
	FROM b WHERE c.id = b.of_trigger AND c.revision = b.revision AND c.calendar_revision = b.calendars AND c.state = b.was
		AND coalesce(c.prev_fire_time, -1) = b.prev AND coalesce(c.next_fire_time, -1) = b.from_at
	RETURNING id`

// writeMoves writes the moves of triggers that have not changed since they were read, with their misfires, and returns
// their ids. calendars is the revision of the app's calendars, if they changed.
func writeMoves(ctx context.Context, t *dispatch.Tx, moves map[int64]move, calendars int64) (won []int64, err error) {
	if len(moves) == 0 {
		return nil, nil
	}
	ids := slices.Sorted(maps.Keys(moves)) // in this order two nodes cannot deadlock
	var revision, known, prev, from []int64
	var next, due []*int64
	var was, state []string
	for _, id := range ids {
		m := moves[id]
		revision, known = append(revision, m.from.revision), append(known, m.from.calendars)
		prev, from, was = append(prev, m.from.prev), append(from, m.from.next), append(was, string(m.from.state))
		next, due, state = append(next, m.next), append(due, m.due), append(state, string(m.state))
	}
	// $1 calendars, from $2 on: moveColumns
	write := t.Rows(0, 2, "", moveColumns...) + moveClocks
	args := append([]any{calendars}, t.Batch(ids, revision, known, prev, from, was, next, due, state)...)
	if won, err = db.Collect(ctx, t, db.ScanInt, write, args...); err != nil {
		return nil, err
	}
	slices.Sort(won)
	if err := writeErrors(ctx, t, moves, won); err != nil {
		return nil, err
	}
	var missed []dispatcher.Misfire
	for _, id := range won {
		missed = append(missed, moves[id].missed...)
	}
	return won, dispatch.InsertMisfires(ctx, t, missed)
}

func writeErrors(ctx context.Context, t *dispatch.Tx, moves map[int64]move, won []int64) error {
	var ids []int64
	var problems []string
	for _, id := range won {
		if m := moves[id]; m.state == dispatcher.TriggerError || m.from.state == dispatcher.TriggerError {
			ids, problems = append(ids, id), append(problems, dispatch.Storable(m.err))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	// From $1 on: id, error
	write := t.Rows(0, 1, "", db.Col("id", db.Bigint), db.Col("error", db.Text)) + ` UPDATE triggers AS t SET error = b.error
		FROM b WHERE t.id = b.id`
	return t.Exec(ctx, write, t.Batch(ids, problems)...)
}

// rescheduledTrigger is the move of a trigger, with its names.
type rescheduledTrigger struct {
	move
	app, job, name string
	jobID          int64
}

// rescheduledPage is a page of triggers, by id.
type rescheduledPage struct {
	triggers map[int64]rescheduledTrigger // only changed ones
	last     int64                        // id of the last trigger read; 0: none
}

// reschedule computes the next fires of triggers t, with clocks c, outside a transaction. which selects them; its
// parameters begin with $1, the id after which to start, and $2, the limit.
func (s *Store) reschedule(ctx context.Context, which string, args []any,
	again rescheduling,
) (rescheduledPage, error) {
	page := `SELECT ` + dispatch.TriggerColumns + `, a.name, j.name, j.origin FROM triggers AS t` + dispatch.WithClock +
		` JOIN jobs AS j ON j.id = t.job_id
		JOIN apps AS a ON a.id = t.app_id
		WHERE t.id > $1 AND c.next_fire_time IS NOT NULL AND c.state = 'waiting' AND ` + which + ` ORDER BY t.id LIMIT $2`
	type named struct {
		dispatch.TriggerRow
		app, job, origin string
	}
	found, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (r named, err error) {
		r.TriggerRow, err = dispatch.ScanTrigger(db.WiderRow{Scanner: row, After: []any{&r.app, &r.job, &r.origin}})
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
		job := dispatcher.Job{App: t.app, Name: t.job, Origin: t.origin, JobSpec: dispatcher.JobSpec{Enabled: true,
			Triggers: map[string]dispatcher.Trigger{t.Name: t.Trigger}}}
		to, missed := againOf(job, t.Name, calendars[t.app], again)
		m := movedTo(t.TriggerRow, to, missed)
		if orNone(m.next) != m.from.next || m.state != m.from.state {
			done.triggers[t.ID] = rescheduledTrigger{m, t.app, t.job, t.Name, t.JobID}
		}
		done.last = t.ID
	}
	return done, nil
}

// rescheduling computes the next fire of a trigger.
type rescheduling func(job dispatcher.Job, trigger string, calendars dispatcher.Calendars) (dispatcher.Trigger, []dispatcher.Misfire)

// againOf calls again. A trigger that makes it panic is in error.
func againOf(job dispatcher.Job, name string, calendars dispatcher.Calendars, again rescheduling) (
	to dispatcher.Trigger, missed []dispatcher.Misfire,
) {
	err := dispatcher.WithoutPanic(func() error {
		to, missed = again(job, name, calendars)
		return nil
	})
	if err != nil {
		to, missed = job.Triggers[name], nil
		to.State, to.Error = dispatcher.TriggerError, dispatch.ProblemOf(err)
	}
	return to, missed
}

// writeRescheduled writes the fire times and misfires of triggers that were not claimed or changed meanwhile, and
// returns how many. A claimed fire is not affected. note writes more about the changed triggers in the same
// transaction.
func (s *Store) writeRescheduled(ctx context.Context, triggers map[int64]rescheduledTrigger, now time.Time,
	note func(ctx context.Context, t *dispatch.Tx, won []int64) error,
) (moved int, err error) {
	err = dispatch.InParts(ctx, s.dispatch.OfStored, slices.Sorted(maps.Keys(triggers)), func(ids []int64) error {
		n, err := s.writeRescheduledPart(ctx, triggers, ids, now, note)
		moved += n
		return err
	}, func(id int64, why error) error {
		return s.dispatch.QuarantineAlone(ctx, dispatcher.WorkZones, id, triggers[id].from.revision, why, now)
	})
	if err != nil {
		return moved, fmt.Errorf("move %d triggers: %w", len(triggers), err)
	}
	return moved, nil
}

// writeRescheduledPart is writeRescheduled for some of the triggers, in one transaction.
func (s *Store) writeRescheduledPart(ctx context.Context, triggers map[int64]rescheduledTrigger, ids []int64, now time.Time,
	note func(ctx context.Context, t *dispatch.Tx, won []int64) error,
) (moved int, err error) {
	moves := make(map[int64]move, len(ids))
	for _, id := range ids {
		moves[id] = triggers[id].move
	}
	err = s.dispatch.Change(ctx, input.Change{Actor: "system", Now: now}, func(ctx context.Context, t *dispatch.Tx) error {
		won, err := writeMoves(ctx, t, moves, 0)
		if err != nil {
			return err
		}
		moved = len(won)
		return note(ctx, t, won)
	})
	if err != nil {
		return 0, err
	}
	return moved, nil
}

// ZonesChanged reports whether fire times may be computed with other time zone data than this program has.
func (s *Store) ZonesChanged(ctx context.Context) (bool, error) {
	// A node with other zones that has run since then has written fire times with them. While
	// it runs, it would do so again: two versions must not keep undoing each other's work.
	// $1 this program's zones
	const changed = `SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM nodes AS o WHERE o.zones <> $1 AND o.state <> 'dead')
			AND (i.zones <> $1 OR EXISTS (SELECT 1 FROM nodes AS o WHERE o.zones <> $1 AND o.heartbeat_at >= i.zones_checked_at))
		THEN 1 ELSE 0 END FROM installation AS i`
	n, _, err := db.First(ctx, s.db.Read, db.ScanInt, changed, schedule.ZonesVersion())
	return n == 1, err
}

// RescheduleForZones reschedules a page of triggers that depend on time zones.
func (s *Store) RescheduleForZones(ctx context.Context, after int64, limit int, now time.Time) (done dispatcher.Rescheduled, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if now, err = s.db.OrClock(ctx, now); err != nil {
		return done, err
	}
	// Only fires that depend on the rules of a time zone can move. UTC has no such rules.
	const zoned = `NOT t.delayed AND (t.timezone NOT IN ('', 'UTC') OR t.calendar <> '')`
	page, err := s.reschedule(ctx, zoned, []any{after, limit},
		func(job dispatcher.Job, name string, calendars dispatcher.Calendars) (dispatcher.Trigger, []dispatcher.Misfire) {
			return dispatcher.RescheduleForZones(job, name, calendars, now)
		})
	if err != nil {
		return done, err
	}
	if page.last == 0 {
		return done, s.dispatch.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *dispatch.Tx) error {
			// All fire times are by this program's zones. $1 zones, $2 now
			return t.Exec(ctx, `UPDATE installation SET zones = $1, zones_checked_at = $2`, schedule.ZonesVersion(), t.At.UnixMilli())
		})
	}
	done.Last, done.More = page.last, true
	done.Moved, err = s.writeRescheduled(ctx, page.triggers, now, func(ctx context.Context, t *dispatch.Tx, won []int64) error {
		for _, id := range won {
			one := page.triggers[id]
			if err := t.Audit(ctx, "zones", one.app, "job "+one.job+" trigger "+one.name, one.from.revision); err != nil {
				return err
			}
			t.Notify(dispatcher.Notification{JobID: one.jobID})
		}
		return remember(ctx, t, dispatcher.CauseZones, won)
	})
	return done, err
}

// SkipRolledBack skips a page of fires due before a rollback was resolved, and settles the rollback at the end.
func (s *Store) SkipRolledBack(ctx context.Context, after int64, limit int, now time.Time) (done dispatcher.RollbackSkipped, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if now, err = s.db.OrClock(ctx, now); err != nil {
		return done, err
	}
	r, found, err := dispatch.Unsettled(ctx, s.db.Read)
	if err != nil || !found || r.Choice != dispatcher.RollbackSkip {
		return done, err
	}
	reason := fmt.Sprintf("the database lost commits, as was noticed at %s, and an operator chose to skip", input.FormatInstant(r.At))
	// $3 up to when
	page, err := s.reschedule(ctx, `c.next_fire_time <= $3`, []any{after, limit, r.SkipTo.UnixMilli()},
		func(job dispatcher.Job, name string, calendars dispatcher.Calendars) (dispatcher.Trigger, []dispatcher.Misfire) {
			moved, missed := dispatcher.SkipDue(job, name, calendars, r.SkipTo, reason)
			for i := range missed {
				missed[i].DecidedAt = now
			}
			return moved, missed
		})
	if err != nil {
		return done, err
	}
	if page.last != 0 {
		done.Last, done.More = page.last, true
		done.Triggers, err = s.writeRescheduled(ctx, page.triggers, now, func(context.Context, *dispatch.Tx, []int64) error { return nil })
		return done, err
	}
	if after != 0 {
		done.More = true
		return done, nil // start again: changes meanwhile may have left further due fires
	}
	if err := s.dispatch.UnfoldRolledBack(ctx); err != nil {
		return done, err
	}
	if done.Runs, err = s.dispatch.EndRuns(ctx, dispatcher.WorkLost, s.dispatch.Hot.RollbackSkip, dispatch.SkippableRuns, now); err != nil {
		return done, fmt.Errorf("end runs: %w", err)
	}
	if done.More = done.Runs > 0; done.More {
		return done, nil
	}
	return done, s.dispatch.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *dispatch.Tx) error {
		// Another rollback, not yet decided by an operator, may have been noticed meanwhile.
		if again, found, err := dispatch.LockRollback(ctx, t); err != nil || !found || again != r {
			return err
		}
		if err := dispatch.DropRolledBack(ctx, t, r, reason); err != nil {
			return err
		}
		return dispatch.SettleRollback(ctx, t)
	})
}

// RollbackEffect counts what the choice about the unsettled rollback decides about: it computes the moves of a skip
// without writing them, and counts the runs that a skip would end.
func (s *Store) RollbackEffect(ctx context.Context, now time.Time) (effect dispatcher.RollbackEffect, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if now, err = s.db.OrClock(ctx, now); err != nil {
		return effect, err
	}
	r, found, err := dispatch.Unsettled(ctx, s.db.Read)
	if err != nil || !found {
		return effect, err
	}
	apps := map[string]*dispatcher.RollbackApp{}
	of := func(name string) *dispatcher.RollbackApp {
		if apps[name] == nil {
			apps[name] = &dispatcher.RollbackApp{App: name}
		}
		return apps[name]
	}
	// $3 now
	page, err := s.reschedule(ctx, `c.next_fire_time <= $3`, []any{0, dispatcher.MostRollbackCounted, now.UnixMilli()},
		func(job dispatcher.Job, name string, calendars dispatcher.Calendars) (dispatcher.Trigger, []dispatcher.Misfire) {
			return dispatcher.SkipDue(job, name, calendars, now, "")
		})
	if err != nil {
		return effect, err
	}
	for _, trigger := range page.triggers {
		app := of(trigger.app)
		app.Triggers++
		for _, missed := range trigger.missed {
			app.Fires += missed.Count
		}
	}
	runs, err := s.liveAt(ctx, r.At)
	if err != nil {
		return effect, err
	}
	for _, name := range runs {
		of(name).Runs++
	}
	effect.More = len(page.triggers) >= dispatcher.MostRollbackCounted || len(runs) >= dispatcher.MostRollbackCounted
	for _, app := range apps {
		effect.Apps = append(effect.Apps, *app)
	}
	slices.SortFunc(effect.Apps, func(a, b dispatcher.RollbackApp) int { return strings.Compare(a.App, b.App) })
	// $1 when it was noticed
	const latest = `SELECT max(r.scheduled_at) FROM runs AS r WHERE r.scheduled_at <= $1`
	at, _, err := db.First(ctx, s.db.Read, db.ScanNullInt, latest, r.At.UnixMilli())
	if at != nil {
		effect.LatestRunAt = new(db.Instant(*at))
	}
	return effect, err
}

// liveAt returns the apps of the runs that a skip of a rollback ends, one for each run, at most MostRollbackCounted.
func (s *Store) liveAt(ctx context.Context, noticed time.Time) ([]string, error) {
	most := strconv.Itoa(dispatcher.MostRollbackCounted)
	// $1 when it was noticed
	live := `SELECT a.name FROM (SELECT * FROM (SELECT r.job_id FROM live_runs AS r WHERE r.scheduled_at <= $1 AND r.node <> -3
			LIMIT ` + most + `) AS l UNION ALL
		SELECT c.job_id FROM (` + dispatch.AnyClaim(s.db.Flavor) + `) AS c WHERE c.claimed_at <= $1) AS r
		JOIN jobs AS j ON j.id = r.job_id JOIN apps AS a ON a.id = j.app_id LIMIT ` + most
	apps, err := db.ReadRows(ctx, s.db.Read, func(name *string) []any { return []any{name} }, live, noticed.UnixMilli())
	if err != nil {
		return nil, fmt.Errorf("count the live runs of a rollback: %w", err)
	}
	return apps, nil
}
