package definitions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// movesAtOnce is how many triggers one statement moves.
const movesAtOnce = 2000

// movePlan has the moves of triggers, by id, for a change of calendars of their app.
type movePlan struct {
	next  Replacement
	moves map[int64]move
}

// planPut computes ahead of the transaction the moves of the triggers affected by a change of a calendar. Evaluating
// schedules takes longer than writing the result, and this way the triggers, and in SQLite all writers, are locked only
// for writing. A change of a trigger meanwhile voids its part of the plan, which costs only time.
func (s *Store) planPut(ctx context.Context, q db.Querier, next Replacement, now time.Time) (movePlan, error) {
	if len(next.Changed) == 0 {
		return movePlan{}, nil
	}
	ids, err := s.users(ctx, q, next)
	if err != nil {
		return movePlan{}, err
	}
	plan := movePlan{next, make(map[int64]move, len(ids))}
	for page := range slices.Chunk(ids, movesAtOnce) {
		if err := s.planMoves(ctx, q, plan, page, now); err != nil {
			return movePlan{}, err
		}
	}
	return plan, nil
}

// rescheduleForCalendar increments the revision of the app's calendars and gives the triggers that use the changed
// calendar new fire times. Jobs keep their revisions, so that a client that changes a calendar and then a job that it
// read before gets no conflict.
func (s *Store) rescheduleForCalendar(ctx context.Context, t *dispatch.Tx, next Replacement, definition string, plan movePlan) error {
	revision, err := rememberCalendar(ctx, t, next.app, next.name, &definition)
	if err != nil {
		return err
	}
	if plan.next.revision != next.revision || plan.moves == nil {
		plan.moves = map[int64]move{}
	}
	plan.next = next
	ids, err := s.users(ctx, t, next)
	if err != nil {
		return err
	}
	for page := range slices.Chunk(ids, movesAtOnce) {
		keys, err := lockClocks(ctx, t, page)
		if err != nil {
			return err
		}
		var void []int64
		for _, id := range slices.Sorted(maps.Keys(keys)) {
			if planned, ok := plan.moves[id]; !ok || planned.from != keys[id] {
				void = append(void, id)
			}
		}
		if err := s.planMoves(ctx, t, plan, void, t.At); err != nil {
			return err
		}
		moves := make(map[int64]move, len(keys))
		for id := range keys { // the others were deleted meanwhile
			moves[id] = plan.moves[id]
		}
		won, err := writeMoves(ctx, t, moves, revision)
		if err == nil {
			err = remember(ctx, t, dispatcher.CauseCalendar, won)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// users returns the triggers affected by a change, in the order in which claims lock them.
func (s *Store) users(ctx context.Context, q db.Querier, next Replacement) ([]int64, error) {
	// $1 app, from $2 on: names
	query := s.db.Rows(0, 2, "", db.NameColumns...) + ` SELECT t.id FROM b JOIN triggers AS t ON t.calendar = b.name
		WHERE t.app_id = $1 AND t.calendar <> '' AND t.deleted_at IS NULL ORDER BY t.id`
	return db.Collect(ctx, q, db.ScanInt, query, append([]any{run.AppID(next.app)}, s.db.Batch(db.SortedKeys(next.Changed))...)...)
}

// planMoves adds the moves of triggers at now to plan. It reads only the columns of their jobs that decide whether they
// fire, so jobs that this version cannot read have fire times, too.
func (s *Store) planMoves(ctx context.Context, q db.Querier, plan movePlan, ids []int64, now time.Time) error {
	if len(ids) == 0 {
		return nil
	}
	// From $1 on: ids
	query := s.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT ` + dispatch.TriggerColumns + `, j.name, j.origin, j.enabled` +
		dispatch.TheseTriggers + `
		JOIN jobs AS j ON j.id = t.job_id`
	return db.EachRow(ctx, q, func(row db.Scanner) error {
		job := dispatcher.Job{App: plan.next.app}
		t, err := dispatch.ScanTrigger(db.WiderRow{Scanner: row, After: []any{&job.Name, &job.Origin, &job.Enabled}})
		if err != nil {
			return err
		}
		job.Triggers = map[string]dispatcher.Trigger{t.Name: t.Trigger}
		triggers, missed := dispatcher.RescheduleForCalendar(job, plan.next.Changed, plan.next.Before, plan.next.After, now)
		to, concerned := triggers[t.Name]
		if !concerned { // it does not fire and stays unchanged
			to = t.Trigger
		}
		plan.moves[t.ID] = movedTo(t, to, missed)
		return nil
	}, query, s.db.Batch(ids)...)
}

// lockClocks locks and returns the clocks of triggers that were not deleted.
func lockClocks(ctx context.Context, t *dispatch.Tx, ids []int64) (map[int64]clockKey, error) {
	// From $1 on: ids. They lock in order, as in a claim, so that the two cannot deadlock.
	query := t.Rows(0, 1, "", db.IDColumns...) + ` SELECT c.id, c.revision, c.calendar_revision, coalesce(c.prev_fire_time, -1),
		coalesce(c.next_fire_time, -1), c.state` + dispatch.TheseTriggers + ` WHERE t.deleted_at IS NULL ORDER BY c.id` +
		db.LockOf(t.ForUpdate(), "c")
	keys := make(map[int64]clockKey, len(ids))
	err := db.EachRow(ctx, t, func(row db.Scanner) error {
		var id int64
		var key clockKey
		err := row.Scan(&id, &key.revision, &key.calendars, &key.prev, &key.next, &key.state)
		keys[id] = key
		return err
	}, query, t.Batch(ids)...)
	return keys, err
}

// zoneSetting selects the setting without its data, which takes half a megabyte. The table has at most one row.
const zoneSetting = `SELECT release, sum, set_at, set_by FROM zone_data`

func scanZoneSetting(row db.Scanner) (z dispatcher.ZoneSetting, err error) {
	err = row.Scan(&z.Release, &z.Sum, db.OptionalColumn(&z.SetAt), &z.SetBy)
	return z, err
}

// ZoneSetting returns the time zone data that all nodes use.
func (s *Store) ZoneSetting(ctx context.Context) (dispatcher.ZoneSetting, error) {
	setting, _, err := db.First(ctx, s.db.Read, scanZoneSetting, zoneSetting)
	return setting, err
}

// ZoneArchive returns the data of the setting with this sum.
func (s *Store) ZoneArchive(ctx context.Context, sum string) ([]byte, error) {
	var archive []byte
	found, err := db.ReadRow(ctx, s.db.Read, []any{&archive}, `SELECT archive FROM zone_data WHERE sum = $1`, sum)
	return archive, db.OrNotFound(found, err, "time zone data", sum)
}

// SetZones makes all nodes use an archive, or each its own data. The nodes read it in their next round.
func (s *Store) SetZones(ctx context.Context, release string, archive []byte, change input.Change) (
	set dispatcher.ZoneSetting, err error,
) {
	err = s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		before, _, err := db.First(ctx, t, scanZoneSetting, zoneSetting)
		if err != nil {
			return err
		}
		set = dispatcher.ZoneSetting{}
		if archive == nil {
			err = t.Exec(ctx, `DELETE FROM zone_data`)
		} else {
			sum, at := sha256.Sum256(archive), t.At
			set = dispatcher.ZoneSetting{Release: release, Sum: hex.EncodeToString(sum[:]), SetAt: &at, SetBy: change.Actor}
			// $1 sum, $2 release, $3 archive, $4 now, $5 actor
			const write = `INSERT INTO zone_data (one, sum, release, archive, set_at, set_by) VALUES (1, $1, $2, $3, $4, $5)
				ON CONFLICT (one) DO UPDATE SET sum = excluded.sum, release = excluded.release, archive = excluded.archive,
				set_at = excluded.set_at, set_by = excluded.set_by`
			err = t.Exec(ctx, write, set.Sum, release, archive, at.UnixMilli(), change.Actor)
		}
		if err != nil {
			return fmt.Errorf("write time zone data: %w", err)
		}
		action := map[bool]string{true: "use", false: "reset"}[archive != nil]
		return t.AuditChange(ctx, dispatch.AuditEntry{Action: action, Subject: "zones", Before: before, After: set})
	})
	return set, err
}

// NoteZones notes the release that a node uses. If it changed, the fire times no longer count as computed with one
// release, so they are computed again once all nodes use the same.
func (s *Store) NoteZones(ctx context.Context, id run.NodeID, release string) error {
	return s.dispatch.Change(ctx, input.Change{}, func(ctx context.Context, t *dispatch.Tx) error {
		// $1 node, $2 release
		const other = `SELECT 1 FROM nodes WHERE id = $1 AND zones <> $2`
		if _, differs, err := db.First(ctx, t, db.ScanInt, other, id, release); err != nil || !differs {
			return err
		}
		if err := t.Exec(ctx, `UPDATE installation SET zones = ''`); err != nil {
			return err
		}
		return t.Exec(ctx, `UPDATE nodes SET zones = $2 WHERE id = $1`, id, release)
	})
}
