package definitions

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// ImportQuotas returns the quotas that apply to an import of app.
func (s *Store) ImportQuotas(ctx context.Context, app access.App, change input.Change) (target.Quotas, error) {
	if change.Operator && app.Bounds != nil {
		return app.Bounds.WithDefaults(app.Name).Quotas, nil
	}
	// $1 id of an app, which may be deleted
	const stored = `SELECT bounds FROM apps WHERE id = $1`
	var bounds target.Bounds
	if _, err := db.ReadRow(ctx, s.db.Read, []any{db.JSONColumn(&bounds)}, stored, run.AppID(app.Name)); err != nil {
		return target.Quotas{}, fmt.Errorf("bounds of app %s: %w", app.Name, err)
	}
	return bounds.WithDefaults(app.Name).Quotas, nil
}

// importApp writes the row of an app, which stays disabled until finishImport. Its history begins with the fires that
// were due at the export.
func (s *Store) importApp(ctx context.Context, t *dispatch.Tx, export access.Export, until int64) (access.App, error) {
	before, err := s.loadApp(ctx, locked(t), export.App.Name)
	if err == nil {
		err = t.Allow(before.Revision)
	}
	if err != nil {
		return access.App{}, err
	}
	decided, err := before.Put(export.App, t.By, t.At)
	if err != nil {
		return access.App{}, err
	}
	defaults, err := writtenDefaults(export.App)
	if err != nil {
		return access.App{}, err
	}
	externalID := newExternalID()
	if t.By.Operator && export.App.AWSExternalID != "" {
		externalID = export.App.AWSExternalID // trust policies demand it
	}
	// $1 id, $2 name, $3 description, $4 false, $5 until when the import may go on, $6 retention, $7 revision, $8 now, $9 beginning
	// of the history, $10 installation, $11 bounds, $12 external id, $13 defaults, $14 salt
	const put = `INSERT INTO apps (id, name, description, enabled, owner_enabled, retention, revision, created_at,
		updated_at, history_from, installation, bounds, external_id, defaults, salt, importing_until)
		VALUES ($1, $2, $3, $4, $4, $6, $7, $8, $8, $9, $10, $11, $12, CAST($13 AS TEXT), $14, $5)
		ON CONFLICT (id) DO UPDATE SET description = excluded.description, enabled = excluded.enabled,
			owner_enabled = excluded.owner_enabled, bounds = excluded.bounds, external_id = excluded.external_id,
			defaults = excluded.defaults, retention = excluded.retention, created_at = excluded.created_at,
			updated_at = excluded.updated_at, deleted_at = NULL,
			revision = CASE WHEN apps.revision >= excluded.revision THEN apps.revision + 1 ELSE excluded.revision END,
			history_from = excluded.history_from, installation = excluded.installation, salt = excluded.salt, switched_to = NULL,
			importing_until = excluded.importing_until
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
	app, found, err := db.First(ctx, t, scanApp, put, run.AppID(a.Name), a.Name, a.Description, false, until,
		cmp.Or(a.Retention, input.DefaultRetention).Std().Milliseconds(),
		max(a.Revision, 1), t.At.UnixMilli(), since.UnixMilli(), export.Installation, db.JSONColumn(decided.Bounds), externalID, defaults,
		append([]byte{}, export.Salt...)) // not NULL
	if err == nil && !found {
		err = dispatcher.ErrPrecondition
	}
	if err == nil {
		err = reserveNames(ctx, t, a.Name, append(slices.Clone(before.Names), a.Name))
	}
	return app, err
}

// endLeftRuns ends some waiting runs of an app that was deleted here, as nodes do: they moved with the app and may run
// elsewhere. Attempts of them that nodes still make are cut off. Runs that come back with the app are imported later.
// more is true if further runs wait.
func endLeftRuns(ctx context.Context, t *dispatch.Tx, app string) (more bool, err error) {
	// $1 app. It stays deleted meanwhile.
	const deleted = `SELECT 1 FROM apps WHERE id = $1 AND deleted_at IS NOT NULL`
	if _, is, err := db.First(ctx, t, db.ScanInt, deleted+t.ForUpdate(), run.AppID(app)); err != nil || !is {
		return false, err
	}
	const of, ordered = ` JOIN live_runs AS r ON r.job_id = j.id`, ` ORDER BY r.scheduled_at + 0, r.trigger_id, r.kind LIMIT `
	// $1 app
	waiting := `SELECT` + db.ContenderColumns + ` FROM jobs AS j` + of + ` WHERE j.app_id = $1` + ordered + strconv.Itoa(mostLeft+1)
	found, err := db.Collect(ctx, t, func(row db.Scanner) (r run.HeldRun, err error) {
		err = row.Scan(db.ContenderRefs(&r, new(run.NodeID))...)
		return r, err
	}, waiting, run.AppID(app))
	if err != nil || len(found) == 0 {
		return false, err
	}
	for _, one := range found[:min(len(found), mostLeft)] {
		if one.Token != 0 { // a node may be making its attempt
			t.Notify(dispatcher.Notification{Run: one.String(), Token: one.Token, Attempt: one.Attempt})
		}
	}
	// $1 now, from $2 on: the app
	left := t.Steps(1, t.Rows(1, 2, "", db.IDColumns...), `SELECT`+dispatch.ChosenEnd(dispatch.End{
		State: `'cancelled'`, Class: `'job_deleted'`, Message: `'the app was deleted before this run ended'`,
	})+` FROM n CROSS JOIN b JOIN jobs AS j ON j.app_id = b.id`+of+ordered+strconv.Itoa(mostLeft), db.LockToDelete, 1,
		dispatch.EndSteps(t.Flavor, "")...)
	if err := dispatch.Take(ctx, t, left, append([]any{t.At.UnixMilli()}, t.Batch([]int64{run.AppID(app)})...)...); err != nil {
		return false, fmt.Errorf("end runs from before the app was deleted: %w", err)
	}
	return len(found) > mostLeft, nil
}

// imported is what jobs of an imported app also need: its calendars, and the fires that come as runs.
type imported struct {
	revision  int64 // of all calendars
	calendars dispatcher.Calendars
	runs      map[run.Key]bool
}

func importCalendar(ctx context.Context, t *dispatch.Tx, app string, calendar dispatcher.Calendar) (revision int64, err error) {
	calendar.App = app
	text, err := encodeCalendar(calendar)
	if err == nil {
		_, err = writeCalendar(ctx, t, calendar, text)
	}
	if err == nil {
		revision, err = rememberCalendar(ctx, t, app, calendar.Name, &text)
	}
	return revision, err
}

// importFollows writes the followers of a job. All jobs have to exist before.
func (s *Store) importFollows(ctx context.Context, t *dispatch.Tx, one access.ExportedJob, app access.App) error {
	job := one.WithOrigins()
	b := dispatcher.JobBefore{Bounds: app.Bounds, Defaults: app.Defaults, Keys: s.keys != nil}
	var err error
	if b.Follows.IDs, err = s.idsOfJobs(ctx, t, job.App, job.FollowNames()); err != nil {
		return err
	}
	if err := s.loadFollows(ctx, t, job, &b); err != nil {
		return err
	}
	attached, followers, err := b.Follow(job, t.At)
	if err != nil {
		return err
	}
	if job, err = s.writeAttachedOf(ctx, t, nil, job, attached); err != nil {
		return err
	}
	return writeFollowers(ctx, t, job, followers)
}

// importGroup creates a group, which has to exist before jobs name it.
func (s *Store) importGroup(ctx context.Context, t *dispatch.Tx, group target.EndpointGroup, app string) error {
	group.App = app
	before, err := s.loadGroup(ctx, locked(t), group, t.By)
	if err != nil {
		return err
	}
	if group, err = before.Put(group); err == nil {
		_, err = s.writeGroup(ctx, t, nil, group)
	}
	return err
}

// importAlert creates an alert. Its conditions are evaluated again.
func (s *Store) importAlert(ctx context.Context, t *dispatch.Tx, alert alert.Alert, app string) error {
	alert.App = app
	before, err := s.loadAlert(ctx, locked(t), alert, t.By)
	if err != nil {
		return err
	}
	decided, err := before.Put(alert, t.At)
	if err == nil {
		_, err = s.writeAlert(ctx, t, decided)
	}
	if err == nil && alert.Muted != nil {
		err = WriteMute(ctx, t, alert, alert.Muted)
	}
	return err
}

func (s *Store) importJob(ctx context.Context, t *dispatch.Tx, one access.ExportedJob, calendars imported) error {
	prior, err := takeNames(ctx, t, one.WithOrigins())
	if err != nil {
		return err
	}
	job, err := one.Restore(prior, calendars.calendars, t.By.Actor, t.At)
	if err != nil {
		return err
	}
	app, shared, err := loadShared(ctx, locked(t), job)
	if err != nil {
		return err
	}
	shared.calendars, job.AppPaused = calendars.revision, len(shared.pauses) > 0
	job.State = job.RollUp(false)
	before := dispatcher.JobBefore{Bounds: app.Bounds, Keys: s.keys != nil}
	if err := loadAdmission(ctx, t, job, &before); err != nil {
		return err
	}
	triggers := len(job.Triggers)
	if err := before.Admit(job, 1, triggers); err != nil {
		return err
	}
	if err := before.CheckSecrets(job); err != nil {
		return err
	}
	if err := countJobs(ctx, t, job.App, 1, triggers); err != nil {
		return err
	}
	job, secrets := s.sealJobSecrets(job)
	err = takeBackMisfires(ctx, t, job, calendars)
	if err == nil {
		err = writeJob(ctx, t, nil, job, shared)
	}
	if err == nil {
		err = writeJobSecrets(ctx, t, nil, job, secrets)
	}
	if err == nil && one.CarriedState != nil {
		err = setState(ctx, t, job.Key(), one.CarriedState)
	}
	if err != nil {
		return err
	}
	// A fixed delay whose run ended there continues from here.
	// $1 now, from $2 on: ids
	end := t.Rows(0, 2, "", db.IDColumns...) + ` UPDATE trigger_clock AS c SET ended_at = $1 FROM b
		WHERE c.id = b.id AND c.delayed AND c.next_fire_time IS NULL AND c.state = 'waiting' AND c.prev_fire_time IS NOT NULL`
	ids := triggerIDs(job)
	slices.Sort(ids)
	if err := t.Exec(ctx, end, append([]any{t.At.UnixMilli()}, t.Batch(ids)...)...); err != nil {
		return err
	}
	return remember(ctx, t, dispatcher.CauseImport, ids)
}

// takeBackMisfires deletes the misfires recorded when the job was deleted here, for fires that come back with it.
func takeBackMisfires(ctx context.Context, t *dispatch.Tx, job dispatcher.Job, calendars imported) error {
	// $1 job, from $2 on: ids of triggers
	take := t.Rows(0, 2, "", db.IDColumns...) + ` DELETE FROM misfires WHERE job_id = $1 AND trigger_id IN (SELECT id FROM b) AND node = 0
		AND decided_at = (SELECT deleted_at FROM jobs WHERE id = $1) RETURNING from_at, to_at, trigger_id, decision, reason, decided_at`
	missed, err := db.Collect(ctx, t, func(row db.Scanner) (dispatcher.Misfire, error) {
		m := dispatcher.Misfire{JobID: job.Key()}
		err := row.Scan(db.InstantColumn(&m.From), db.InstantColumn(&m.To), &m.TriggerID, &m.Decision, &m.Reason,
			db.InstantColumn(&m.DecidedAt))
		return m, err
	}, take, append([]any{job.Key()}, t.Batch(triggerIDs(job))...)...)
	if err != nil {
		return fmt.Errorf("take back what was decided about job %s/%s: %w", job.App, job.Name, err)
	}
	return dispatch.InsertMisfires(ctx, t, dispatcher.Unretire(job, calendars.calendars, missed, calendars.runs))
}

// importRuns queues some of the waiting runs. Each belongs to a job of the import by its key, as Export.Validate has
// checked, and replaces no run of another job.
func importRuns(ctx context.Context, t *dispatch.Tx, jobs map[string]dispatcher.Job, runs []access.ExportedRun) error {
	// $1 scheduled instant, $2 trigger, $3 kind, $4 job. It may have ended here because the app was deleted; see endLeftRuns.
	const forget = `DELETE FROM runs WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3 AND job_id = $4`
	// $1 scheduled instant, $2 trigger, $3 kind, $4 job, $5 revision, $6 attempt, $7 failures, $8 state, $9 next attempt, $10 until,
	// $11 whether it has an input
	put := `INSERT INTO live_runs (scheduled_at, trigger_id, kind, job_id, app_id, revision, node, token, attempt, failures, state,
		next_attempt_at, retry_until, has_input)
		SELECT $1, $2, $3, $4, ` + dispatch.AppOf("$4") + `, $5, 0, 0, $6, $7, $8, $9, $10, $11
		WHERE NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.scheduled_at = $1 AND r.trigger_id = $2 AND r.kind = $3)
		ON CONFLICT DO NOTHING RETURNING 1`
	var given []dispatch.QueuedRun
	for _, run := range runs {
		job := jobs[run.Job]
		key := run.Key(job)
		if err := t.Exec(ctx, forget, append(dispatch.KeyArgs(key), job.Key())...); err != nil {
			return fmt.Errorf("run %s: %w", key, err)
		}
		_, added, err := db.First(ctx, t, db.ScanInt, put, append(dispatch.KeyArgs(key), job.Key(), job.Revision, run.Attempt, run.Failures,
			run.State, db.OrNullAt(run.NextAttemptAt), db.OrNullAt(run.RetryUntil), run.Input != nil)...)
		if err == nil && !added {
			err = fmt.Errorf("there is a run with this id that the import may not replace: %w", dispatcher.ErrConflict)
		}
		if err != nil {
			return fmt.Errorf("run %s: %w", key, err)
		}
		given = append(given, dispatch.QueuedRun{Key: key, Input: run.Input})
	}
	return dispatch.WriteInputs(ctx, t, given)
}
