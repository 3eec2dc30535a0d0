package definitions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// An import is written in parts, each in a transaction of at most MostImported rows: other writers take turns between
// them, because SQLite allows one at a time. Until the last part the app is disabled, accepts no other change, and has
// apps.importing_until. Each part extends that time, and is refused if it differs from the value of the previous part.
// An import that has not finished by then, because its node died, was cut off: it is removed, and may be repeated.

const (
	// MostImported bounds the estimated rows that a part of an import writes: other writers wait no longer for it than
	// for a change of a large job.
	MostImported = 1000
	// importLease is the time limit of a part of an import. It is far longer than db.OtherTimeout.
	importLease = time.Minute
	// runsAtOnce is how many runs one step writes, and rowsOfRun are the rows of each: an ended run is deleted, a
	// waiting one inserted with its input.
	runsAtOnce, rowsOfRun = 100, 3
	// mostLeft is how many runs from before the deletion of an app end in a transaction, each with two rows.
	mostLeft = MostImported / 2
)

// importGoesOn is the error of a change during an import.
func importGoesOn(app string) error {
	return fmt.Errorf("an import of app %s goes on; try again when it has ended, or a minute after it was cut off: %w", app,
		dispatcher.ErrConflict)
}

// importStep writes a few rows of an import. Its stage begins after the previous stage, if that found no problem.
type importStep struct {
	stage int
	at    string // path in the export
	rows  int    // at most
	do    func(ctx context.Context, t *dispatch.Tx) error
}

// AppImport is an import in progress.
type AppImport struct {
	s         *Store
	export    access.Export
	change    input.Change
	calendars imported
	app       access.App
	steps     []importStep
	done      int            // steps of committed parts
	problems  input.Problems // of the steps done
	until     int64          // when it counts as cut off, in Unix milliseconds; 0: not begun
}

// ImportApp creates an app from an export.
func (s *Store) ImportApp(ctx context.Context, export access.Export, change input.Change) (access.App, error) {
	i, err := s.BeginImport(ctx, export, change)
	for more := err == nil; more && err == nil; {
		more, err = i.Part(ctx)
	}
	if err == nil {
		return i.app, nil
	}
	if i != nil && i.until != 0 {
		// Even if the caller has gone, this removes the import at once.
		rest, cancel := db.Bound(context.WithoutCancel(ctx), db.OtherTimeout)
		defer cancel()
		if removal := s.removeImport(rest, export.App.Name, i.until, change.Now); removal != nil {
			err = fmt.Errorf("%w (what it wrote is removed in a minute: %w)", err, removal)
		}
	}
	return access.App{}, fmt.Errorf("import app %s: %w", export.App.Name, err)
}

// BeginImport checks an export and makes room for it.
func (s *Store) BeginImport(ctx context.Context, export access.Export, change input.Change) (*AppImport, error) {
	if err := export.Validate(); err != nil {
		return nil, err
	}
	change.IfAbsent, change.IfRevision = true, 0
	i := &AppImport{s: s, export: export, change: change}
	i.calendars.calendars = dispatcher.CompileCalendars(export.Calendars)
	var problems input.Problems
	for n, calendar := range export.Calendars {
		problems.AddError(input.Pointer("calendars", strconv.Itoa(n)), i.calendars.calendars.Check(calendar.Name))
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	_, err := s.removeCutOff(ctx, export.App.Name, change.Now)
	if err != nil {
		return nil, err
	}
	for more := true; more && err == nil; {
		err = s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) (err error) {
			more, err = endLeftRuns(ctx, t, export.App.Name)
			return err
		})
	}
	i.plan()
	return i, err
}

// plan lists the steps of the import in their order.
func (i *AppImport) plan() {
	stage, jobs := 0, i.export.Runnable()
	i.calendars.runs = map[run.Key]bool{}
	for _, one := range i.export.Waiting {
		key := one.Key(jobs[one.Job])
		key.ScheduledAt = key.ScheduledAt.UTC()
		i.calendars.runs[key] = true
	}
	add := func(at string, rows int, do func(context.Context, *dispatch.Tx) error) {
		i.steps = append(i.steps, importStep{stage, at, rows, do})
	}
	e := i.export
	add("", 10, i.begin)
	stage++
	for n, calendar := range e.Calendars {
		add(input.Pointer("calendars", strconv.Itoa(n)), 4, func(ctx context.Context, t *dispatch.Tx) (err error) {
			i.calendars.revision, err = importCalendar(ctx, t, e.App.Name, calendar)
			return err
		})
	}
	for n, group := range e.Groups {
		add(input.Pointer("groups", strconv.Itoa(n)), 2+len(target.Secrets(group)), func(ctx context.Context, t *dispatch.Tx) error {
			return i.s.importGroup(ctx, t, group, e.App.Name)
		})
	}
	add("/pauses", len(e.Pauses), func(ctx context.Context, t *dispatch.Tx) error { return importPauses(ctx, t, e) })
	stage++
	for n, one := range e.Jobs {
		// A trigger has a definition, a clock, and a new revision; an old revision may end.
		add(input.Pointer("jobs", strconv.Itoa(n), "job"), 6+5*len(one.Job.Triggers), func(ctx context.Context, t *dispatch.Tx) error {
			return i.s.importJob(ctx, t, one, i.calendars)
		})
	}
	stage++
	for n, one := range e.Jobs {
		if one.Job.FollowMask() != 0 {
			add(input.Pointer("jobs", strconv.Itoa(n), "job"), rowsOfFollows(one.Job), func(ctx context.Context, t *dispatch.Tx) error {
				return i.s.importFollows(ctx, t, one, i.app)
			})
		}
	}
	for n, alert := range e.Alerts {
		add(input.Pointer("alerts", strconv.Itoa(n)), 10, func(ctx context.Context, t *dispatch.Tx) error {
			return i.s.importAlert(ctx, t, alert, e.App.Name)
		})
	}
	stage++
	for runs := range slices.Chunk(e.Waiting, runsAtOnce) {
		add("/waiting_runs", rowsOfRun*len(runs), func(ctx context.Context, t *dispatch.Tx) error { return importRuns(ctx, t, jobs, runs) })
	}
	add("", MostImported, i.finish)
}

// rowsOfFollows counts the rows for the followers of a job: a job for each target, a follower for each that it names.
func rowsOfFollows(job dispatcher.Job) int {
	rows := 2
	for _, follow := range job.EachFollow() {
		rows += 6 + len(follow.Jobs)
	}
	return rows
}

// Part does as many of the next steps as fit in one transaction, and returns whether there are more.
func (i *AppImport) Part(ctx context.Context) (more bool, err error) {
	var done int
	var until int64
	var problems input.Problems
	err = i.s.dispatch.Change(ctx, i.change, func(ctx context.Context, t *dispatch.Tx) error { // it may run again
		done, problems, t.Importing = i.done, slices.Clone(i.problems), true
		until = t.At.Add(importLease).UnixMilli()
		if i.until != 0 {
			if err := holdImport(ctx, t, i.export.App.Name, i.until, until); err != nil {
				return err
			}
		}
		for rows := 0; done < len(i.steps); done++ {
			step := i.steps[done]
			if rows += step.rows; rows > MostImported && rows > step.rows {
				return nil
			}
			if len(problems) > 0 && step.stage != i.steps[done-1].stage {
				return problems.Err()
			}
			err := step.do(ctx, t)
			var wrong input.Problems
			if err != nil && !errors.As(err, &wrong) {
				return fmt.Errorf("%s: %w", step.at, err)
			}
			problems.AddError(step.at, err)
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	i.done, i.problems, i.until = done, problems, until
	return done < len(i.steps), nil
}

// begin writes the app, and refuses an import beyond its limits.
func (i *AppImport) begin(ctx context.Context, t *dispatch.Tx) (err error) {
	i.app, err = i.s.importApp(ctx, t, i.export, t.At.Add(importLease).UnixMilli())
	if err != nil {
		return err
	}
	return i.app.Bounds.Quotas.CheckImport(i.app.Name, i.export.Counts())
}

// finish applies the alerts to the jobs and makes the app live.
func (i *AppImport) finish(ctx context.Context, t *dispatch.Tx) (err error) {
	if len(i.export.Alerts) > 0 {
		if err := followAlertsOf(ctx, t, i.app.Name); err != nil {
			return err
		}
	}
	// $1 id, $2 what its owner wants. The clocks of its triggers follow, if it is enabled.
	const finish = `UPDATE apps SET importing_until = NULL, owner_enabled = $2, enabled = $3, switched_to = CASE WHEN $3 THEN 0 END
		WHERE id = $1 RETURNING ` + appColumns
	id, app := run.AppID(i.export.App.Name), i.export.App
	written, err := FindApp(ctx, t, app.Name, "")
	if err != nil {
		return err
	}
	i.app, _, err = db.First(ctx, t, scanApp, finish, id, app.Enabled, app.Enabled && !written.Bounds.Suspended)
	if err == nil {
		_, err = followApp(ctx, t, id, MostImported)
	}
	if err != nil {
		return err
	}
	t.Notify(dispatcher.Notification{App: app.Name})
	t.Notify(dispatcher.Notification{Adopt: true})
	return auditImport(ctx, t, i.export, i.app)
}

// holdImport extends the time that an import has. ErrConflict: it was cut off, and another change has taken it over.
func holdImport(ctx context.Context, t *dispatch.Tx, app string, from, until int64) error {
	// $1 id, $2 from, $3 until
	const hold = `UPDATE apps SET importing_until = $3 WHERE id = $1 AND importing_until = $2`
	n, err := t.Affect(ctx, hold, run.AppID(app), from, until)
	if err == nil && n == 0 {
		err = fmt.Errorf("the import took longer than %s for a part and was removed; repeat it: %w", importLease, dispatcher.ErrConflict)
	}
	return err
}

// RemoveCutOffImports removes imports that did not finish, and returns how many.
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

// orNow returns the given time, or that of the database.
func (s *Store) orNow(ctx context.Context, given time.Time) (time.Time, error) {
	if !given.IsZero() {
		return given, nil
	}
	return s.db.Now(ctx, s.db.Read)
}

// removeCutOff removes a cut-off import of an app, and returns whether it did. An active import stays.
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

// removeImport removes the rows of an import, in parts as small as its own. until is apps.importing_until: it fails
// with ErrConflict when the import continues, or another node removes it.
func (s *Store) removeImport(ctx context.Context, app string, until int64, now time.Time) error {
	for more := true; more; {
		var next int64
		err := s.dispatch.Change(ctx, input.Change{Actor: "system", Now: now}, func(ctx context.Context, t *dispatch.Tx) (err error) {
			t.Importing = true
			next = max(t.At.Add(importLease).UnixMilli(), until)
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

// removePart removes a part of an imported app, and returns whether there is more: first its runs, then its jobs, then
// the rest and the app. It has not fired, so there are no misfires: it leaves deleted rows like those of a deleted app,
// but no decisions about fires and no entries in the audit log.
func (s *Store) removePart(ctx context.Context, t *dispatch.Tx, app string) (more bool, err error) {
	for _, remove := range []func() (int, error){
		func() (int, error) { return removeImportedRuns(ctx, t, app) },
		func() (int, error) { return s.removeImportedJobs(ctx, t, app) },
		func() (int, error) {
			alerts, err := allAlerts(ctx, t, app, ScanAlert(app))
			return removeSome(alerts, err, func(a alert.Alert) error { return removeAlert(ctx, t, a) })
		},
		func() (int, error) {
			groups, err := allGroups(ctx, t, app)
			return removeSome(groups, err, func(g target.EndpointGroup) error { return removeGroup(ctx, t, run.GroupID(app, g.Name)) })
		},
		func() (int, error) {
			_, calendars, err := appCalendars(ctx, t, app)
			return removeSome(calendars, err, func(c dispatcher.Calendar) error { return dropCalendar(ctx, t, c) })
		},
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
	if err := t.Exec(ctx, remove, t.At.UnixMilli(), run.AppID(app)); err != nil {
		return false, err
	}
	apps, err := appNames(ctx, locked(t))
	if err != nil {
		return false, err
	}
	return false, reserveNames(ctx, t, app, apps)
}

// removeImportedRuns removes some runs of an app, with their inputs, and returns how many.
func removeImportedRuns(ctx context.Context, t *dispatch.Tx, app string) (int, error) {
	// $1 app, $2 limit
	const some = `SELECT r.scheduled_at, r.trigger_id, r.kind FROM jobs AS j JOIN live_runs AS r ON r.job_id = j.id
		WHERE j.app_id = $1 LIMIT $2`
	keys, err := db.Collect(ctx, t, dispatch.ScanRunKey, some, run.AppID(app), MostImported/rowsOfRun)
	// $1 scheduled instant, $2 trigger, $3 kind, $4 app
	const (
		runs = `DELETE FROM live_runs WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3
			AND job_id IN (SELECT id FROM jobs WHERE app_id = $4)`
		inputs = `DELETE FROM run_inputs WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3`
	)
	for _, key := range keys {
		if err == nil {
			err = t.Exec(ctx, inputs, dispatch.KeyArgs(key)...)
		}
		if err == nil {
			err = t.Exec(ctx, runs, append(dispatch.KeyArgs(key), run.AppID(app))...)
		}
	}
	return len(keys), err
}

func (s *Store) removeImportedJobs(ctx context.Context, t *dispatch.Tx, app string) (int, error) {
	// $1 app, $2 limit
	const some = `SELECT name FROM jobs WHERE app_id = $1 AND deleted_at IS NULL AND part_of = 0 ORDER BY name LIMIT $2`
	names, err := db.Collect(ctx, t, db.ScanText, some, run.AppID(app), MostImported/10)
	if err != nil {
		return 0, err
	}
	removed, rows := 0, 0
	for _, name := range names {
		job, err := s.FindJob(ctx, t, app, name, t.ForUpdate())
		if err != nil {
			return removed, err
		}
		if rows += rowsOfFollows(job) + 5*len(job.Triggers); rows > MostImported && removed > 0 {
			return removed, nil
		}
		if err := dropJob(ctx, t, job); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// removeSome removes some of the items of a kind that an app has, and returns how many.
func removeSome[T any](all []T, err error, remove func(T) error) (int, error) {
	if err != nil {
		return 0, err
	}
	all = all[:min(len(all), MostImported/10)]
	for _, one := range all {
		if err := remove(one); err != nil {
			return 0, err
		}
	}
	return len(all), nil
}
