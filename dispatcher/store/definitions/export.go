package definitions

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// An app moves in two steps that never overlap. ExportApp reads it in one snapshot, once it is disabled and the clocks
// of its triggers have followed: each clock was written after the switch, so a claim that began before it either is in
// the snapshot or no longer matches. Adoptions that began before it are waited for. No job of the app fires here while
// it stays disabled. ImportApp writes the same clocks, so that overdue fires are due there.

// left is true for a run r claimed by a dead node. No node adopts it while its app is disabled, so it waits as queued
// runs do.
const left = `r.state = 'claimed' AND r.node IN (SELECT id FROM nodes WHERE state = 'dead')`

// waitingRunsOfApp are the waiting runs of an app. Runs of a dead node continue as if another had adopted them. A run
// that waits for its host is attempted over there when the host's next probe is due here. Runs of a job or trigger that is
// deleted would end at their next attempt, so they stay. Shards stay, too: their parent, which waits because it was retried,
// is spread again over there. $1 app
const waitingRunsOfApp = `SELECT j.name, coalesce(t.name, ''), r.kind, r.scheduled_at, r.trigger_id,
		CASE WHEN r.state = 'claimed' THEN 'queued' ELSE r.state END,
		CASE WHEN r.state = 'claimed' AND ` + dispatch.Unsent + ` THEN r.attempt - 1 ELSE r.attempt END, r.failures,
		coalesce(w.probe_at, r.next_attempt_at), r.retry_until, (SELECT x.input FROM run_inputs AS x
			WHERE x.scheduled_at = r.scheduled_at AND x.trigger_id = r.trigger_id AND x.kind = r.kind)
	FROM live_runs AS r JOIN jobs AS j ON j.id = r.job_id LEFT JOIN triggers AS t ON t.id = r.trigger_id AND t.deleted_at IS NULL
		LEFT JOIN host_waits AS w ON w.id = r.waits_for AND r.waits_for <> 0
	WHERE j.app_id = $1 AND j.deleted_at IS NULL AND (r.kind IN (2, 4, 6, 7) OR t.id IS NOT NULL) AND r.kind < 16
		AND r.callback IS NULL AND (r.state IN ('queued', 'retrying') OR ` + left + `)
	ORDER BY r.scheduled_at, r.trigger_id, r.kind`

// ExportApp returns a disabled app with everything that belongs to it.
func (s *Store) ExportApp(ctx context.Context, name string) (export access.Export, err error) {
	// $1 id
	const adopted = `SELECT id FROM apps WHERE id = $1 AND NOT enabled`
	if _, err = db.Affect(ctx, s.db.Write, adopted+s.db.LockRows(db.LockToDelete), run.AppID(name)); err == nil {
		err = s.snapshot(ctx, func(ctx context.Context, q db.Querier) error {
			export, err = s.exported(ctx, q, name)
			return err
		})
	}
	if err != nil {
		return export, fmt.Errorf("export app %s: %w", name, err)
	}
	return export, nil
}

func (s *Store) exported(ctx context.Context, tx db.Querier, name string) (export access.Export, err error) {
	export = access.Export{Format: access.ExportFormat}
	if export.App, err = FindApp(ctx, tx, name, ""); err != nil {
		return export, err
	}
	if err = s.movable(ctx, tx, export.App); err != nil {
		return export, err
	}
	now, err := s.db.Now(ctx, tx)
	if err != nil {
		return export, err
	}
	export.ExportedAt = now.Truncate(time.Millisecond)
	// $1 app
	const identity = `SELECT CASE WHEN a.installation <> '' THEN a.installation ELSE i.id END, a.salt
		FROM apps AS a CROSS JOIN installation AS i WHERE a.id = $1`
	if _, err = db.ReadRow(ctx, tx, []any{&export.Installation, &export.Salt}, identity, run.AppID(name)); err != nil {
		return export, err
	}
	if _, export.Calendars, err = appCalendars(ctx, tx, name); err != nil {
		return export, err
	}
	if export.Groups, err = allGroups(ctx, tx, name); err != nil {
		return export, err
	}
	if export.Alerts, err = allAlerts(ctx, tx, name, ScanAlert(name)); err != nil {
		return export, err
	}
	if export.Jobs, err = s.exportedJobs(ctx, tx, name); err != nil {
		return export, err
	}
	pauses, err := heldPauses(ctx, tx, name)
	if err != nil {
		return export, err
	}
	for _, pause := range pauses {
		export.Pauses = append(export.Pauses, pause.AppPauseRequest)
	}
	export.Waiting, err = db.Collect(ctx, tx, func(row db.Scanner) (r access.ExportedRun, err error) {
		var key run.Key
		var given *string
		err = row.Scan(&r.Job, &r.Trigger, db.KindColumn(&key), db.InstantColumn(&key.ScheduledAt), &key.TriggerID, &r.State, &r.Attempt,
			&r.Failures, db.OptionalColumn(&r.NextAttemptAt), db.OptionalColumn(&r.RetryUntil), &given)
		r.Kind, r.ScheduledAt = key.Kind, key.ScheduledAt
		if r.Kind.HasOwnID() {
			r.Run = key.String()
		}
		if err == nil && given != nil {
			r.Input = &run.Input{}
			*r.Input, err = run.DecodeInput(*given)
		}
		return r, err
	}, waitingRunsOfApp, run.AppID(name))
	jobs := export.Runnable()
	export.Waiting = slices.DeleteFunc(export.Waiting, func(run access.ExportedRun) bool { return !run.Proven(jobs, export.Salt) })
	return export, err
}

// movable refuses an app that may still change.
func (s *Store) movable(ctx context.Context, tx db.Querier, app access.App) error {
	if app.Importing {
		return importGoesOn(app.Name)
	}
	if app.Enabled && !app.Bounds.Suspended {
		return fmt.Errorf("it is enabled; disable it first: %w", dispatcher.ErrConflict)
	}
	// $1 app
	const follows = `SELECT 1 FROM apps WHERE id = $1 AND switched_to IS NOT NULL`
	if _, pending, err := db.First(ctx, tx, db.ScanInt, follows, run.AppID(app.Name)); err != nil || pending {
		if pending {
			err = fmt.Errorf("it was disabled a moment ago, and its triggers have yet to follow; try again: %w", dispatcher.ErrConflict)
		}
		return err
	}
	// $1 app
	const pending = `SELECT 1 FROM pending_ends WHERE app_id = $1 LIMIT 1`
	if _, left, err := db.First(ctx, tx, db.ScanInt, pending, run.AppID(app.Name)); err != nil || left {
		if left {
			err = fmt.Errorf("runs of it ended a moment ago, and what follows them is not queued yet; try again: %w", dispatcher.ErrConflict)
		}
		return err
	}
	// $1 app
	const open = `SELECT f.id, j.name FROM backfills AS f JOIN jobs AS j ON j.id = f.job_id WHERE f.app_id = $1 AND f.ended_at IS NULL
		ORDER BY f.id`
	backfills, err := db.Collect(ctx, tx, func(row db.Scanner) (text string, err error) {
		var id int64
		err = row.Scan(&id, &text)
		return fmt.Sprintf("%s of job %s", repeat.BackfillID(id), text), err
	}, open, run.AppID(app.Name))
	if err != nil || len(backfills) > 0 {
		if len(backfills) > 0 {
			err = fmt.Errorf("it has backfills that do not move, %s; cancel them, or let them end while the app is enabled: %w",
				strings.Join(backfills, ", "), dispatcher.ErrConflict)
		}
		return err
	}
	// The runs that a node works on, and those whose attempt a target has accepted. $1 app
	inFlight := `SELECT r.scheduled_at FROM live_runs AS r JOIN jobs AS j ON j.id = r.job_id
			WHERE j.app_id = $1 AND (r.callback IS NOT NULL OR r.state NOT IN ('queued', 'retrying') AND NOT (` + left + `))
		UNION ALL SELECT r.scheduled_at FROM (` + dispatch.AnyClaim(s.db.Flavor) + `) AS r JOIN jobs AS j ON j.id = r.job_id WHERE j.app_id = $1`
	running, err := db.Collect(ctx, tx, db.ScanInt, inFlight, run.AppID(app.Name))
	if err == nil && len(running) > 0 {
		err = fmt.Errorf("%d of its runs are in flight; try again when they have ended: %w", len(running), dispatcher.ErrConflict)
	}
	return err
}

func (s *Store) exportedJobs(ctx context.Context, tx db.Querier, app string) ([]access.ExportedJob, error) {
	// $1 app
	list := `SELECT ` + JobColumns + ` FROM jobs AS j JOIN apps AS a ON a.id = j.app_id
		WHERE j.app_id = $1 AND j.deleted_at IS NULL AND j.part_of = 0 ORDER BY j.name`
	rows, err := db.Collect(ctx, tx, ScanJob, list, run.AppID(app))
	if err != nil {
		return nil, err
	}
	loaded, err := s.loadTriggers(ctx, tx, "", rows)
	if err != nil {
		return nil, err
	}
	// $1 app
	const of = `SELECT ` + carriedColumns + ` FROM jobs AS j JOIN carried_states AS s ON s.job_id = j.id
		WHERE j.app_id = $1 AND j.deleted_at IS NULL AND j.carry_state AND s.state IS NOT NULL`
	found, err := db.Collect(ctx, tx, scanCarriedState, of, run.AppID(app))
	states := make(map[int64]json.RawMessage, len(found))
	for _, one := range found {
		states[one.job] = one.State
	}
	if err != nil {
		return nil, err
	}
	jobs := make([]access.ExportedJob, 0, len(loaded))
	for _, job := range loaded {
		if job.Err != nil {
			return nil, job.Err
		}
		one := access.ExportedJob{
			Job: job.Job, Revision: job.Revision, Paused: job.Paused, PauseReason: job.PauseReason, PausedUntil: job.PausedUntil,
			Origin: job.Origin, CarriedState: states[job.ID], Triggers: map[string]dispatcher.ExportedTrigger{},
		}
		for name, t := range job.Triggers {
			one.Triggers[name] = dispatcher.ExportedTrigger{
				Paused: t.Paused, PauseReason: t.PauseReason, PausedUntil: t.PausedUntil, State: t.State, Error: t.Error,
				AnchorAt: t.AnchorAt, PrevFireTime: t.PrevFireTime, NextFireTime: t.NextFireTime, Fired: t.Fired, CountedFrom: t.CountedFrom,
				Origin: t.Origin,
			}
		}
		jobs = append(jobs, one)
	}
	return jobs, nil
}
