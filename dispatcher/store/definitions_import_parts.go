package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// An import is written in parts, each in a transaction of at most mostImported rows: between them other writers have their turn, as
// SQLite has one at a time. Until the last part the app is disabled, takes no other change, and has apps.importing_until. A part
// moves that on, and is refused if it is no longer as the part before left it. An import that has not come to its end by then, as
// its node died, was cut off: it is removed, and may be repeated.

const (
	// mostImported bounds the rows that a part of an import writes, as a list of steps estimates them: no writer waits longer for it
	// than for a change of a large job.
	mostImported = 1000
	// importLease is how long a part of an import may take, which is far longer than db.OtherTimeout.
	importLease = time.Minute
	// runsAtOnce is how many runs one step writes, and rowsOfRun are the rows of each: a run that ended goes, one that waits comes,
	// with its input.
	runsAtOnce, rowsOfRun = 100, 3
	// mostLeft is how many runs from before the deletion of an app end in a transaction. Each is deleted, and gets a row.
	mostLeft = mostImported / 2
)

// importGoesOn tells a change that it meets an import.
func importGoesOn(app string) error {
	return fmt.Errorf("an import of app %s goes on; try again when it has ended, or a minute after it was cut off: %w", app,
		dispatcher.ErrConflict)
}

// importStep writes a few rows of an import. Its stage begins when all steps of the stage before are done and found no problem.
type importStep struct {
	stage int
	at    string // of what it writes in the export
	rows  int    // at most
	do    func(ctx context.Context, t *tx) error
}

// importing is an import on its way.
type importing struct {
	s         *Store
	export    access.Export
	change    input.Change
	calendars imported
	app       access.App
	steps     []importStep
	done      int            // steps whose part is committed
	problems  input.Problems // of the steps that are done
	until     int64          // when it counts as cut off, in Unix milliseconds; 0: nothing is written
}

// ImportApp creates an app from an export.
func (s *Store) ImportApp(ctx context.Context, export access.Export, change input.Change) (access.App, error) {
	i, err := s.beginImport(ctx, export, change)
	for more := err == nil; more && err == nil; {
		more, err = i.part(ctx)
	}
	if err == nil {
		return i.app, nil
	}
	if i != nil && i.until != 0 {
		// The caller may have gone, which is no reason to leave it to the handler.
		rest, cancel := db.Bound(context.WithoutCancel(ctx), db.OtherTimeout)
		defer cancel()
		if removal := s.removeImport(rest, export.App.Name, i.until, change.Now); removal != nil {
			err = fmt.Errorf("%w (what it wrote is removed in a minute: %w)", err, removal)
		}
	}
	return access.App{}, fmt.Errorf("import app %s: %w", export.App.Name, err)
}

// beginImport checks an export, and makes room for it.
func (s *Store) beginImport(ctx context.Context, export access.Export, change input.Change) (*importing, error) {
	if err := export.Validate(); err != nil {
		return nil, err
	}
	change.IfAbsent, change.IfRevision = true, 0
	i := &importing{s: s, export: export, change: change}
	var err error
	if i.calendars.calendars, err = exportedCalendars(export); err != nil {
		return nil, err
	}
	if _, err = s.removeCutOff(ctx, export.App.Name, change.Now); err != nil {
		return nil, err
	}
	for more := true; more && err == nil; {
		err = s.change(ctx, change, func(ctx context.Context, t *tx) (err error) {
			more, err = endLeftRuns(ctx, t, export.App.Name)
			return err
		})
	}
	i.plan()
	return i, err
}

// plan lists the steps of the import in their order.
func (i *importing) plan() {
	stage := 0
	add := func(at string, rows int, do func(context.Context, *tx) error) {
		i.steps = append(i.steps, importStep{stage, at, rows, do})
	}
	e := i.export
	add("", 10, i.begin)
	stage++
	for n, calendar := range e.Calendars {
		add(input.Pointer("calendars", strconv.Itoa(n)), 4, func(ctx context.Context, t *tx) (err error) {
			i.calendars.revision, err = importCalendar(ctx, t, e.App.Name, calendar)
			return err
		})
	}
	for n, group := range e.Groups {
		add(input.Pointer("groups", strconv.Itoa(n)), 2+len(target.Secrets(group)), func(ctx context.Context, t *tx) error {
			return i.s.importGroup(ctx, t, group, e.App.Name)
		})
	}
	add("/pauses", len(e.Pauses), func(ctx context.Context, t *tx) error { return importPauses(ctx, t, e) })
	stage++
	for n, one := range e.Jobs {
		// A trigger has a definition, a clock, and a revision that begins; another may end.
		add(input.Pointer("jobs", strconv.Itoa(n), "job"), 6+5*len(one.Job.Triggers), func(ctx context.Context, t *tx) error {
			return i.s.importJob(ctx, t, one, i.calendars)
		})
	}
	stage++
	for n, one := range e.Jobs {
		if one.Job.FollowMask() != 0 {
			add(input.Pointer("jobs", strconv.Itoa(n), "job"), rowsOfFollows(one.Job), func(ctx context.Context, t *tx) error {
				return i.s.importFollows(ctx, t, one, i.app)
			})
		}
	}
	for n, alert := range e.Alerts {
		add(input.Pointer("alerts", strconv.Itoa(n)), 10, func(ctx context.Context, t *tx) error {
			return i.s.importAlert(ctx, t, alert, e.App.Name)
		})
	}
	stage++
	jobs := e.Runnable()
	for runs := range slices.Chunk(e.Waiting, runsAtOnce) {
		add("/waiting_runs", rowsOfRun*len(runs), func(ctx context.Context, t *tx) error { return importRuns(ctx, t, jobs, runs) })
	}
	add("", mostImported, i.finish)
}

// rowsOfFollows is how many rows what follows a job has: a job for each target, and a follower for each that it names.
func rowsOfFollows(job dispatcher.Job) int {
	rows := 2
	for _, follow := range job.EachFollow() {
		rows += 6 + len(follow.Jobs)
	}
	return rows
}

// part does the next steps in one transaction, as many as fit, and returns whether there are more.
func (i *importing) part(ctx context.Context) (more bool, err error) {
	var done int
	var until int64
	var problems input.Problems
	err = i.s.change(ctx, i.change, func(ctx context.Context, t *tx) error { // it may be run again
		done, problems, t.importing = i.done, slices.Clone(i.problems), true
		until = t.now.Add(importLease).UnixMilli()
		if i.until != 0 {
			if err := holdImport(ctx, t, i.export.App.Name, i.until, until); err != nil {
				return err
			}
		}
		for rows := 0; done < len(i.steps); done++ {
			step := i.steps[done]
			if rows += step.rows; rows > mostImported && rows > step.rows {
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

// begin writes the app, and refuses what it has no room for.
func (i *importing) begin(ctx context.Context, t *tx) (err error) {
	i.app, err = i.s.importApp(ctx, t, i.export, t.now.Add(importLease).UnixMilli())
	if err != nil {
		return err
	}
	return i.app.Bounds.Quotas.CheckImport(i.app.Name, i.export.Counts())
}

// finish lets jobs follow the alerts, and makes the app live.
func (i *importing) finish(ctx context.Context, t *tx) (err error) {
	if len(i.export.Alerts) > 0 {
		if err := followAlertsOf(ctx, t, i.app.Name); err != nil {
			return err
		}
	}
	i.app, err = finishImport(ctx, t, i.export)
	return err
}

// holdImport moves the time on until which an import counts as going on. ErrConflict: it was cut off, and another change has it now.
func holdImport(ctx context.Context, t *tx, app string, from, until int64) error {
	// $1 id, $2 from, $3 until
	const hold = `UPDATE apps SET importing_until = $3 WHERE id = $1 AND importing_until = $2`
	n, err := t.execute(ctx, hold, run.AppID(app), from, until)
	if err == nil && n == 0 {
		err = fmt.Errorf("the import took longer than %s for a part and was removed; repeat it: %w", importLease, dispatcher.ErrConflict)
	}
	return err
}
