package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// RemoveCutOffImports removes imports that did not come to their end, and returns how many.
func (s *Store) RemoveCutOffImports(ctx context.Context, now time.Time) (removed int, err error) {
	now, err = s.orNow(ctx, now)
	if err != nil {
		return 0, err
	}
	// $1 now
	const cutOff = `SELECT name FROM apps WHERE importing_until <= $1 ORDER BY importing_until LIMIT 100`
	apps, err := db.Collect(ctx, s.db.Read, db.ScanText, cutOff, now.UnixMilli())
	if err != nil {
		return 0, fmt.Errorf("look for imports that were cut off: %w", err)
	}
	var errs []error
	for _, app := range apps {
		is, err := s.removeCutOff(ctx, app, now)
		if is {
			removed++
		}
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// orNow returns a time that is given, or that of the database.
func (s *Store) orNow(ctx context.Context, given time.Time) (time.Time, error) {
	if !given.IsZero() {
		return given, nil
	}
	return s.db.Now(ctx, s.db.Read)
}

// removeCutOff removes an import of an app that was cut off, and returns whether there was one. One that goes on stays.
func (s *Store) removeCutOff(ctx context.Context, app string, now time.Time) (bool, error) {
	now, err := s.orNow(ctx, now)
	if err != nil {
		return false, err
	}
	// $1 id, $2 now
	const cutOff = `SELECT importing_until FROM apps WHERE id = $1 AND importing_until <= $2`
	until, found, err := db.First(ctx, s.db.Read, db.ScanInt, cutOff, run.AppID(app), now.UnixMilli())
	if err == nil && found {
		err = s.removeImport(ctx, app, until, now)
	}
	if err != nil {
		return false, fmt.Errorf("remove the import of app %s that was cut off: %w", app, err)
	}
	return found, nil
}

// removeImport removes what an import has written, in parts as small as its own. until is apps.importing_until: it fails with
// ErrConflict when the import goes on, or another node removes it.
func (s *Store) removeImport(ctx context.Context, app string, until int64, now time.Time) error {
	for more := true; more; {
		var next int64
		err := s.change(ctx, input.Change{Actor: "system", Now: now}, func(ctx context.Context, t *tx) (err error) {
			t.importing = true
			next = max(t.now.Add(importLease).UnixMilli(), until)
			if err = holdImport(ctx, t, app, until, next); err == nil {
				more, err = s.removePart(ctx, t, app)
			}
			return err
		})
		if err != nil {
			return err
		}
		until = next
	}
	return nil
}

// removePart removes a part of an app that is imported, and returns whether there is more: first its runs, then its jobs, then the rest
// and the app. Nothing of it has fired, so nothing was missed: it leaves deleted rows like those of a deleted app, but no decisions
// about fires and no entries in the audit log.
func (s *Store) removePart(ctx context.Context, t *tx, app string) (more bool, err error) {
	for _, remove := range []func() (int, error){
		func() (int, error) { return removeImportedRuns(ctx, t, app) },
		func() (int, error) { return s.removeImportedJobs(ctx, t, app) },
		func() (int, error) { return removeImportedAlerts(ctx, t, app) },
		func() (int, error) { return removeImportedGroups(ctx, t, app) },
		func() (int, error) { return removeImportedCalendars(ctx, t, app) },
	} {
		if n, err := remove(); err != nil || n > 0 {
			return true, err
		}
	}
	if err := endPauses(ctx, t, app); err != nil {
		return false, err
	}
	// $1 now, $2 id
	const remove = `UPDATE apps SET deleted_at = $1, updated_at = $1, importing_until = NULL, alerts_swept_to = NULL, paused_to = NULL
		WHERE id = $2`
	if _, err := t.ExecContext(ctx, remove, t.now.UnixMilli(), run.AppID(app)); err != nil {
		return false, err
	}
	apps, err := appNames(ctx, locked(t))
	if err != nil {
		return false, err
	}
	return false, reserveNames(ctx, t, app, apps)
}

// removeImportedRuns removes some runs of an app, with their inputs, and returns how many.
func removeImportedRuns(ctx context.Context, t *tx, app string) (int, error) {
	// $1 app, $2 limit
	const some = `SELECT r.scheduled_at, r.trigger_id, r.kind FROM jobs AS j JOIN live_runs AS r ON r.job_id = j.id
		WHERE j.app_id = $1 LIMIT $2`
	keys, err := db.Collect(ctx, t, func(row db.Scanner) (key run.Key, err error) {
		err = row.Scan(db.InstantColumn(&key.ScheduledAt), &key.TriggerID, db.KindColumn(&key))
		return key, err
	}, some, run.AppID(app), mostImported/rowsOfRun)
	// $1 scheduled instant, $2 trigger, $3 kind, $4 app
	const (
		runs = `DELETE FROM live_runs WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3
			AND job_id IN (SELECT id FROM jobs WHERE app_id = $4)`
		inputs = `DELETE FROM run_inputs WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3`
	)
	for _, key := range keys {
		if err == nil {
			_, err = t.ExecContext(ctx, inputs, keyArgs(key)...)
		}
		if err == nil {
			_, err = t.ExecContext(ctx, runs, append(keyArgs(key), run.AppID(app))...)
		}
	}
	return len(keys), err
}

// removeImportedJobs removes some jobs of an app, and returns how many.
func (s *Store) removeImportedJobs(ctx context.Context, t *tx, app string) (int, error) {
	// $1 app, $2 limit
	const some = `SELECT name FROM jobs WHERE app_id = $1 AND deleted_at IS NULL AND part_of = 0 ORDER BY name LIMIT $2`
	names, err := db.Collect(ctx, t, db.ScanText, some, run.AppID(app), mostImported/10)
	if err != nil {
		return 0, err
	}
	removed, rows := 0, 0
	for _, name := range names {
		job, err := s.findJob(ctx, t, app, name, t.ForUpdate())
		if err != nil {
			return removed, err
		}
		if rows += rowsOfFollows(job) + 5*len(job.Triggers); rows > mostImported && removed > 0 {
			return removed, nil
		}
		if err := dropJob(ctx, t, job); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// removeImportedAlerts removes some alerts of an app, and returns how many.
func removeImportedAlerts(ctx context.Context, t *tx, app string) (int, error) {
	alerts, err := allAlerts(ctx, t, app)
	if err != nil {
		return 0, err
	}
	alerts = alerts[:min(len(alerts), mostImported/10)]
	for _, alert := range alerts {
		if err := removeAlert(ctx, t, alert); err != nil {
			return 0, err
		}
	}
	return len(alerts), nil
}

// removeImportedGroups removes some groups of an app, and returns how many.
func removeImportedGroups(ctx context.Context, t *tx, app string) (int, error) {
	groups, err := allGroups(ctx, t, app)
	if err != nil {
		return 0, err
	}
	groups = groups[:min(len(groups), mostImported/10)]
	for _, group := range groups {
		if err := removeGroup(ctx, t, run.GroupID(app, group.Name)); err != nil {
			return 0, err
		}
	}
	return len(groups), nil
}

// removeImportedCalendars removes some calendars of an app, and returns how many.
func removeImportedCalendars(ctx context.Context, t *tx, app string) (int, error) {
	_, calendars, err := appCalendars(ctx, t, app)
	if err != nil {
		return 0, err
	}
	calendars = calendars[:min(len(calendars), mostImported/10)]
	for _, calendar := range calendars {
		if err := dropCalendar(ctx, t, calendar); err != nil {
			return 0, err
		}
	}
	return len(calendars), nil
}
