package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
)

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
	put := `INSERT INTO live_runs (scheduled_at, trigger_id, kind, job_id, app_id, revision, node, token, attempt, failures, state,
		next_attempt_at, retry_until, has_input)
		SELECT $1, $2, $3, $4, ` + appOf("$4") + `, $5, 0, 0, $6, $7, $8, $9, $10, $11
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
