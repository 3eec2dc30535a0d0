package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// An app moves in two steps that never overlap. ExportApp reads it in one snapshot, once it is disabled and the
// clocks of its triggers have followed: each clock was written after the switch, so a claim that began before it
// either is in the snapshot or no longer matches. As long as the app stays disabled, nothing of it fires here.
// ImportApp writes the same clocks, so that what was owed is owed there.

// left tells that a run r is claimed by a dead node. While its app is disabled no node adopts it, so it waits as queued
// runs do.
const left = `r.state = 'claimed' AND r.node IN (SELECT id FROM nodes WHERE state = 'dead')`

// inFlight are the runs of an app that a node works on, and those whose attempt a target has accepted. $1 app
func inFlight(f flavor) string {
	return `SELECT r.scheduled_at FROM live_runs AS r JOIN jobs AS j ON j.id = r.job_id
			WHERE j.app_id = $1 AND (r.callback IS NOT NULL OR r.state NOT IN ('queued', 'retrying') AND NOT (` + left + `))
		UNION ALL SELECT r.scheduled_at FROM (` + anyClaim(f) + `) AS r JOIN jobs AS j ON j.id = r.job_id WHERE j.app_id = $1`
}

// waitingRunsOfApp are the runs of an app that wait. What a dead node has left goes on as if another had adopted it. A run
// that waits for its host is attempted over there when the host's next probe is due here. Runs of a job or trigger that is
// deleted would end at their next attempt, so they stay. Shards stay, too: their parent, which waits because it was retried,
// is spread again over there. $1 app
const waitingRunsOfApp = `SELECT j.name, coalesce(t.name, ''), r.kind, r.scheduled_at, r.trigger_id,
		CASE WHEN r.state = 'claimed' THEN 'queued' ELSE r.state END,
		CASE WHEN r.state = 'claimed' AND ` + unsent + ` THEN r.attempt - 1 ELSE r.attempt END, r.failures,
		coalesce(w.probe_at, r.next_attempt_at), r.retry_until, (SELECT x.input FROM run_inputs AS x
			WHERE x.scheduled_at = r.scheduled_at AND x.trigger_id = r.trigger_id AND x.kind = r.kind)
	FROM live_runs AS r JOIN jobs AS j ON j.id = r.job_id LEFT JOIN triggers AS t ON t.id = r.trigger_id AND t.deleted_at IS NULL
		LEFT JOIN host_waits AS w ON w.id = r.waits_for AND r.waits_for <> 0
	WHERE j.app_id = $1 AND j.deleted_at IS NULL AND (r.kind IN (2, 4, 6, 7) OR t.id IS NOT NULL) AND r.kind < 16
		AND r.callback IS NULL AND (r.state IN ('queued', 'retrying') OR ` + left + `)
	ORDER BY r.scheduled_at, r.trigger_id, r.kind`

// ExportApp returns a disabled app with all that belongs to it.
func (s *store) ExportApp(ctx context.Context, name string) (export dispatcher.Export, err error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	options := &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	if _, snapshots := s.flavor.(*sqlite); snapshots { // each of its transactions reads one
		options = nil
	}
	tx, err := s.read.BeginTx(ctx, options)
	if err != nil {
		return export, fmt.Errorf("export app %s: %w", name, err)
	}
	defer tx.Rollback()
	if export, err = s.exported(ctx, tx, name); err != nil {
		return export, fmt.Errorf("export app %s: %w", name, err)
	}
	return export, nil
}

func (s *store) exported(ctx context.Context, tx *sql.Tx, name string) (export dispatcher.Export, err error) {
	export = dispatcher.Export{Format: dispatcher.ExportFormat}
	if export.App, err = findApp(ctx, tx, name, ""); err != nil {
		return export, err
	}
	if err = s.movable(ctx, tx, export.App); err != nil {
		return export, err
	}
	now, err := s.clock(ctx, tx)
	if err != nil {
		return export, err
	}
	export.ExportedAt = now.Truncate(time.Millisecond)
	// $1 app
	const installation = `SELECT CASE WHEN a.installation <> '' THEN a.installation ELSE i.id END FROM apps AS a CROSS JOIN installation AS i
		WHERE a.id = $1`
	if export.Installation, _, err = first(ctx, tx, scanText, installation, dispatcher.AppID(name)); err != nil {
		return export, err
	}
	if _, export.Calendars, err = appCalendars(ctx, tx, name); err != nil {
		return export, err
	}
	if export.Groups, err = allGroups(ctx, tx, name); err != nil {
		return export, err
	}
	if export.Alerts, err = allAlerts(ctx, tx, name); err != nil {
		return export, err
	}
	if export.Jobs, err = s.exportedJobs(ctx, tx, name); err != nil {
		return export, err
	}
	if export.Pauses, err = exportedPauses(ctx, tx, name); err != nil {
		return export, err
	}
	export.Waiting, err = collect(ctx, tx, func(row scanner) (r dispatcher.ExportedRun, err error) {
		var key dispatcher.RunKey
		var given *string
		err = row.Scan(&r.Job, &r.Trigger, kindColumn(&key), instantColumn(&key.ScheduledAt), &key.TriggerID, &r.State, &r.Attempt,
			&r.Failures, optionalColumn(&r.NextAttemptAt), optionalColumn(&r.RetryUntil), &given)
		r.Kind, r.ScheduledAt = key.Kind, key.ScheduledAt
		if r.Kind.HasOwnID() {
			r.Run = key.String()
		}
		if err == nil && given != nil {
			r.Input = &dispatcher.RunInput{}
			*r.Input, err = dispatcher.DecodeRunInput(*given)
		}
		return r, err
	}, waitingRunsOfApp, dispatcher.AppID(name))
	jobs := export.Runnable()
	export.Waiting = slices.DeleteFunc(export.Waiting, func(run dispatcher.ExportedRun) bool { return !run.Proven(jobs) })
	return export, err
}

// movable refuses an app that may still change.
func (s *store) movable(ctx context.Context, tx *sql.Tx, app dispatcher.App) error {
	if app.Enabled && !app.Bounds.Suspended {
		return fmt.Errorf("it is enabled; disable it first: %w", dispatcher.ErrConflict)
	}
	// $1 app
	const follows = `SELECT 1 FROM apps WHERE id = $1 AND switched_to IS NOT NULL`
	if _, pending, err := first(ctx, tx, scanInt, follows, dispatcher.AppID(app.Name)); err != nil || pending {
		if pending {
			err = fmt.Errorf("it was disabled a moment ago, and its triggers have yet to follow; try again: %w", dispatcher.ErrConflict)
		}
		return err
	}
	// $1 app
	const pending = `SELECT 1 FROM pending_ends AS e JOIN jobs AS j ON j.id = e.job_id WHERE j.app_id = $1 LIMIT 1`
	if _, left, err := first(ctx, tx, scanInt, pending, dispatcher.AppID(app.Name)); err != nil || left {
		if left {
			err = fmt.Errorf("runs of it ended a moment ago, and what follows them is not queued yet; try again: %w", dispatcher.ErrConflict)
		}
		return err
	}
	// $1 app
	const open = `SELECT f.id, j.name FROM backfills AS f JOIN jobs AS j ON j.id = f.job_id WHERE f.app_id = $1 AND f.ended_at IS NULL
		ORDER BY f.id`
	backfills, err := collect(ctx, tx, func(row scanner) (text string, err error) {
		var id int64
		err = row.Scan(&id, &text)
		return fmt.Sprintf("%s of job %s", dispatcher.BackfillID(id), text), err
	}, open, dispatcher.AppID(app.Name))
	if err != nil || len(backfills) > 0 {
		if len(backfills) > 0 {
			err = fmt.Errorf("it has backfills that do not move, %s; cancel them, or let them end while the app is enabled: %w",
				strings.Join(backfills, ", "), dispatcher.ErrConflict)
		}
		return err
	}
	running, err := collect(ctx, tx, scanInt, inFlight(s.flavor), dispatcher.AppID(app.Name))
	if err == nil && len(running) > 0 {
		err = fmt.Errorf("%d of its runs are in flight; try again when they have ended: %w", len(running), dispatcher.ErrConflict)
	}
	return err
}

func (s *store) exportedJobs(ctx context.Context, tx *sql.Tx, app string) ([]dispatcher.ExportedJob, error) {
	// $1 app
	list := `SELECT ` + jobColumns + ` FROM jobs AS j JOIN apps AS a ON a.id = j.app_id
		WHERE j.app_id = $1 AND j.deleted_at IS NULL AND j.part_of = 0 ORDER BY j.name`
	rows, err := collect(ctx, tx, scanJob, list, dispatcher.AppID(app))
	if err != nil {
		return nil, err
	}
	loaded, err := s.loadTriggers(ctx, tx, "", rows)
	if err != nil {
		return nil, err
	}
	states, err := carriedStatesOfApp(ctx, tx, app)
	if err != nil {
		return nil, err
	}
	jobs := make([]dispatcher.ExportedJob, 0, len(loaded))
	for _, job := range loaded {
		if job.Err != nil {
			return nil, job.Err
		}
		one := dispatcher.ExportedJob{
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

// ImportApp creates an app from an export.
func (s *store) ImportApp(ctx context.Context, export dispatcher.Export, change dispatcher.Change) (app dispatcher.App, err error) {
	if err := export.Validate(); err != nil {
		return app, err
	}
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	change.IfAbsent, change.IfRevision = true, 0
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		before, err := t.appBefore(ctx, export.App.Name)
		if err == nil {
			err = t.allow(before.revision)
		}
		if err == nil {
			app, err = t.importApp(ctx, export, before)
		}
		if err != nil {
			return err
		}
		if err := admitImport(app, export); err != nil {
			return err
		}
		calendars, err := t.importCalendars(ctx, export)
		if err != nil {
			return err
		}
		if err := s.importGroups(ctx, t, export, app); err != nil {
			return err
		}
		if err := t.importPauses(ctx, export); err != nil {
			return err
		}
		if err := s.importJobs(ctx, t, export, calendars); err != nil {
			return err
		}
		if err := s.importFollows(ctx, t, export, app); err != nil {
			return err
		}
		if err := s.importAlerts(ctx, t, export, app); err != nil {
			return err
		}
		if err := t.importRuns(ctx, export); err != nil {
			return err
		}
		t.notify(dispatcher.Notification{App: app.Name})
		t.notify(dispatcher.Notification{Adopt: true})
		return t.auditImport(ctx, export, app)
	})
	if err != nil {
		return app, fmt.Errorf("import app %s: %w", export.App.Name, err)
	}
	return app, nil
}

// admitImport refuses an import of more than the bounds of its app allow, before anything of it is written.
func admitImport(app dispatcher.App, export dispatcher.Export) error {
	var problems dispatcher.Problems
	triggers := 0
	for _, one := range export.Jobs {
		triggers += len(one.Job.Triggers)
	}
	for _, quota := range []struct {
		at, what, name string
		count, most    int
	}{
		{"/jobs", "jobs", "jobs", len(export.Jobs), app.Bounds.Quotas.Jobs},
		{"/jobs", "triggers", "triggers", triggers, app.Bounds.Quotas.Triggers},
		{"/waiting_runs", "runs that wait", "waiting_runs", len(export.Waiting), app.Bounds.Quotas.WaitingRuns},
	} {
		if quota.count > quota.most {
			problems.Add(quota.at, dispatcher.CodeBoundQuota,
				"the import has %d %s, and the bounds of app %s allow %d (quotas.%s); an operator may import it with wider bounds",
				quota.count, quota.what, app.Name, quota.most, quota.name)
		}
	}
	return problems.Err()
}

// importApp writes the row of an app. Its history begins with what was owed when it was exported.
func (t *tx) importApp(ctx context.Context, export dispatcher.Export, before appBefore) (dispatcher.App, error) {
	bounds, err := t.nextBounds(export.App, before)
	if err == nil {
		err = t.takeName(ctx, export.App.Name)
	}
	if err != nil {
		return dispatcher.App{}, err
	}
	encoded, err := json.Marshal(bounds)
	if err != nil {
		return dispatcher.App{}, err
	}
	defaults, err := writtenDefaults(export.App)
	if err != nil {
		return dispatcher.App{}, err
	}
	externalID := newExternalID()
	if t.by.Operator && export.App.AWSExternalID != "" {
		externalID = export.App.AWSExternalID // trust policies demand it
	}
	// $1 id, $2 name, $3 description, $4 enabled, $5 what its owner wants, $6 retention, $7 revision, $8 now, $9 beginning
	// of the history, $10 installation, $11 bounds, $12 external id, $13 defaults
	const put = `INSERT INTO apps (id, name, description, enabled, owner_enabled, retention, revision, created_at,
		updated_at, history_from, installation, bounds, external_id, defaults)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9, $10, $11, $12, CAST($13 AS TEXT))
		ON CONFLICT (id) DO UPDATE SET description = excluded.description, enabled = excluded.enabled,
			owner_enabled = excluded.owner_enabled, bounds = excluded.bounds, external_id = excluded.external_id,
			defaults = excluded.defaults, retention = excluded.retention, created_at = excluded.created_at,
			updated_at = excluded.updated_at, deleted_at = NULL,
			revision = CASE WHEN apps.revision >= excluded.revision THEN apps.revision + 1 ELSE excluded.revision END,
			history_from = excluded.history_from, installation = excluded.installation, switched_to = NULL
		WHERE apps.deleted_at IS NOT NULL
		RETURNING ` + appColumns
	since := export.ExportedAt
	for _, job := range export.Jobs {
		for _, one := range job.Triggers {
			if one.NextFireTime != nil && one.NextFireTime.Before(since) {
				since = *one.NextFireTime
			}
		}
	}
	a := export.App
	app, found, err := first(ctx, t, scanApp, put, dispatcher.AppID(a.Name), a.Name, a.Description, a.Enabled && !bounds.Suspended,
		a.Enabled, cmp.Or(a.Retention, dispatcher.DefaultRetention).Std().Milliseconds(),
		max(a.Revision, 1), t.now.UnixMilli(), since.UnixMilli(), export.Installation, string(encoded), externalID, defaults)
	if err == nil && !found {
		err = dispatcher.ErrPrecondition
	}
	if err == nil {
		err = t.reserveNames(ctx, a.Name)
	}
	if err == nil {
		err = t.endLeftRuns(ctx, a.Name)
	}
	return app, err
}

// endLeftRuns ends what waits of an app that was deleted here, as its nodes would: it went elsewhere with the app, and
// may be done there. What comes back with the app comes after that.
func (t *tx) endLeftRuns(ctx context.Context, app string) error {
	// $1 now, from $2 on: the app
	left := t.steps(1, t.rows(1, 2, "", idColumns...), `SELECT`+chosenEnd(end{
		state: `'cancelled'`, class: `'job_deleted'`, message: `'the app was deleted before this attempt began'`,
	})+` FROM n CROSS JOIN b JOIN jobs AS j ON j.app_id = b.id JOIN live_runs AS r ON r.job_id = j.id
	ORDER BY r.scheduled_at + 0, r.trigger_id`, lockToDelete, 1, endSteps(t.flavor, "")...)
	if err := t.take(ctx, left, append([]any{t.now.UnixMilli()}, t.batch([]int64{dispatcher.AppID(app)})...)...); err != nil {
		return fmt.Errorf("end runs from before the app was deleted: %w", err)
	}
	return nil
}

// imported are the calendars of an app that is imported.
type imported struct {
	revision  int64 // of the lot
	calendars dispatcher.Calendars
}

func (t *tx) importCalendars(ctx context.Context, export dispatcher.Export) (imported, error) {
	all := imported{calendars: dispatcher.CompileCalendars(export.Calendars)}
	var problems dispatcher.Problems
	for i, calendar := range export.Calendars {
		problems.AddError(dispatcher.Pointer("calendars", fmt.Sprint(i)), all.calendars.Check(calendar.Name))
	}
	if err := problems.Err(); err != nil {
		return all, err
	}
	for _, calendar := range export.Calendars {
		calendar.App = export.App.Name
		text, err := encodeCalendar(calendar)
		if err == nil {
			_, err = t.writeCalendar(ctx, calendar, text)
		}
		if err == nil {
			all.revision, err = t.countCalendars(ctx, export.App.Name)
		}
		if err == nil {
			err = t.rememberCalendar(ctx, export.App.Name, calendar.Name, &text, all.revision)
		}
		if err != nil {
			return all, fmt.Errorf("calendar %s: %w", calendar.Name, err)
		}
	}
	return all, nil
}

func (s *store) importJobs(ctx context.Context, t *tx, export dispatcher.Export, calendars imported) error {
	var problems dispatcher.Problems
	for i, one := range export.Jobs {
		err := s.importJob(ctx, t, one, calendars)
		var wrong dispatcher.Problems
		if err != nil && !errors.As(err, &wrong) {
			return fmt.Errorf("job %s: %w", one.Job.Name, err)
		}
		problems.AddError(dispatcher.Pointer("jobs", fmt.Sprint(i), "job"), err)
	}
	return problems.Err()
}

// importFollows writes what follows the jobs, which have to be there before others name them.
func (s *store) importFollows(ctx context.Context, t *tx, export dispatcher.Export, app dispatcher.App) error {
	var problems dispatcher.Problems
	for i, one := range export.Jobs {
		job := one.WithOrigins()
		if job.FollowMask() == 0 {
			continue
		}
		job, all, err := s.putFollows(ctx, t, nil, job, app)
		if err == nil {
			err = t.writeFollowers(ctx, job, all)
		}
		var wrong dispatcher.Problems
		if err != nil && !errors.As(err, &wrong) {
			return fmt.Errorf("job %s: %w", one.Job.Name, err)
		}
		problems.AddError(dispatcher.Pointer("jobs", fmt.Sprint(i), "job"), err)
	}
	return problems.Err()
}

// importGroups creates the groups, which have to be there before jobs name them.
func (s *store) importGroups(ctx context.Context, t *tx, export dispatcher.Export, app dispatcher.App) error {
	var problems dispatcher.Problems
	for i, group := range export.Groups {
		group.App = app.Name
		err := t.admitGroup(ctx, app, nil, group)
		if err == nil {
			_, err = s.writeGroup(ctx, t, nil, group.Resolved())
		}
		var wrong dispatcher.Problems
		if err != nil && !errors.As(err, &wrong) {
			return err
		}
		problems.AddError(dispatcher.Pointer("groups", fmt.Sprint(i)), wrong.Err())
	}
	return problems.Err()
}

// importAlerts creates the alerts. What holds of them is found out again.
func (s *store) importAlerts(ctx context.Context, t *tx, export dispatcher.Export, app dispatcher.App) error {
	var problems dispatcher.Problems
	for i, alert := range export.Alerts {
		alert.App = app.Name
		_, err := t.replacedAlert(ctx, app, alert)
		if err == nil {
			_, err = s.writeAlert(ctx, t, app, alert.Resolved())
		}
		if err == nil && alert.Muted != nil {
			err = t.writeMute(ctx, alert, alert.Muted)
		}
		var wrong dispatcher.Problems
		if err != nil && !errors.As(err, &wrong) {
			return err
		}
		problems.AddError(dispatcher.Pointer("alerts", fmt.Sprint(i)), wrong.Err())
	}
	if len(problems) > 0 || len(export.Alerts) == 0 {
		return problems.Err()
	}
	return t.followAlertsOf(ctx, app.Name)
}

func (s *store) importJob(ctx context.Context, t *tx, one dispatcher.ExportedJob, calendars imported) error {
	prior, err := t.takeNames(ctx, one.WithOrigins())
	if err != nil {
		return err
	}
	job, err := one.Restore(prior, calendars.calendars, t.by.Actor, t.now)
	if err != nil {
		return err
	}
	job, secrets, err := s.sealJobSecrets(nil, job)
	if err != nil {
		return err
	}
	app, shared, err := t.lockShared(ctx, job)
	job.AppPaused = shared.paused()
	job.State = job.RollUp(false)
	if err == nil {
		err = t.admit(ctx, app, nil, job)
	}
	if err == nil {
		err = t.writeJob(ctx, nil, job, calendars.revision, shared)
	}
	if err == nil {
		err = t.writeJobSecrets(ctx, nil, job, secrets)
	}
	if err == nil && one.CarriedState != nil {
		err = t.setState(ctx, job.Key(), one.CarriedState)
	}
	if err != nil {
		return err
	}
	// A fixed delay whose run ended over there goes on from here.
	// $1 now, from $2 on: ids
	end := t.rows(0, 2, "", idColumns...) + ` UPDATE trigger_clock AS c SET ended_at = $1 FROM b
		WHERE c.id = b.id AND c.delayed AND c.next_fire_time IS NULL AND c.state = 'waiting' AND c.prev_fire_time IS NOT NULL`
	ids := triggerIDs(job)
	slices.Sort(ids)
	if _, err := t.ExecContext(ctx, end, append([]any{t.now.UnixMilli()}, t.batch(ids)...)...); err != nil {
		return err
	}
	return t.remember(ctx, dispatcher.CauseImport, ids)
}

// importRuns queues the runs that waited. Each is one of the jobs of the import by its key, as Export.Validate has checked, and
// takes the place of no run of another job.
func (t *tx) importRuns(ctx context.Context, export dispatcher.Export) error {
	jobs := export.Runnable()
	// $1 scheduled instant, $2 trigger, $3 kind, $4 job. It may have ended here because the app was deleted; see endLeftRuns.
	const forget = `DELETE FROM runs WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3 AND job_id = $4`
	// $1 scheduled instant, $2 trigger, $3 kind, $4 job, $5 revision, $6 attempt, $7 failures, $8 state, $9 next attempt, $10 until,
	// $11 whether it has an input
	const put = `INSERT INTO live_runs (scheduled_at, trigger_id, kind, job_id, revision, node, token, attempt, failures, state,
		next_attempt_at, retry_until, has_input)
		SELECT $1, $2, $3, $4, $5, 0, 0, $6, $7, $8, $9, $10, $11
		WHERE NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.scheduled_at = $1 AND r.trigger_id = $2 AND r.kind = $3)
		ON CONFLICT DO NOTHING RETURNING 1`
	var given []queuedRun
	for _, run := range export.Waiting {
		job := jobs[run.Job]
		key := run.Key(job)
		if _, err := t.ExecContext(ctx, forget, append(keyArgs(key), job.Key())...); err != nil {
			return fmt.Errorf("run %s: %w", key, err)
		}
		_, added, err := first(ctx, t, scanInt, put, append(keyArgs(key), job.Key(), job.Revision, run.Attempt, run.Failures,
			run.State, orNullAt(run.NextAttemptAt), orNullAt(run.RetryUntil), run.Input != nil)...)
		if err == nil && !added {
			err = fmt.Errorf("there is a run with this id that the import may not replace: %w", dispatcher.ErrConflict)
		}
		if err != nil {
			return fmt.Errorf("run %s: %w", key, err)
		}
		given = append(given, queuedRun{RunKey: key, input: run.Input})
	}
	return t.writeInputs(ctx, given)
}
