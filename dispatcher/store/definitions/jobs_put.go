package definitions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// PutJob creates or replaces a job with its triggers. It returns the job as stored, and whether it was created. A job
// put unchanged stays as it is.
func (s *Store) PutJob(ctx context.Context, job dispatcher.Job, change input.Change) (dispatcher.Job, bool, error) {
	stored, before, err := Redefine(ctx, s, change, Redefinition[jobBefore, dispatcher.JobChange, dispatcher.Job]{
		Load:      func(ctx context.Context, from Source) (jobBefore, error) { return s.loadJob(ctx, from, job, change) },
		Unchanged: func(b jobBefore) (dispatcher.Job, bool) { return b.same, b.isSame },
		Decide:    func(b jobBefore, now time.Time) (dispatcher.JobChange, error) { return b.Put(job, now) },
		Write: func(ctx context.Context, t *dispatch.Tx, b jobBefore, decided dispatcher.JobChange) (dispatcher.Job, error) {
			return s.writePut(ctx, t, b, job, decided)
		},
	})
	return stored, err == nil && before.Old == nil, err
}

// jobBefore is the state that a PUT of a job depends on, with more data for its rows.
type jobBefore struct {
	dispatcher.JobBefore
	same   dispatcher.Job // the stored job, if isSame
	isSame bool
	shared shared
	values *dispatcher.Job // Old with the values of its secrets, for the audit log
}

// loadJob reads the state that a PUT of a job depends on, and for an unchanged job the data to show. Two writers that
// create the same job queue at the row of the app, as all do; so do portions that apply the app's switch.
func (s *Store) loadJob(ctx context.Context, from Source, job dispatcher.Job, by input.Change) (b jobBefore, err error) {
	app, shared, err := loadShared(ctx, from, job)
	if err != nil {
		return b, err
	}
	b.shared, b.Pauses, b.Bounds, b.Defaults, b.Keys = shared, shared.pauses, app.Bounds, app.Defaults, s.keys != nil
	read, err := s.readJob(ctx, from, job.App, job.Name, from.Lock)
	if err == nil && read.Err != nil { // a PUT replaces an unreadable job
		err = s.loadTriggersOf(ctx, from, from.Lock, &read)
	}
	if b.Old, err = replaced(by, read.Job, read.Job.Revision, err); err != nil {
		return b, err
	}
	users := []dispatcher.Job{job}
	if b.Old != nil {
		users = append(users, *b.Old)
	}
	if b.Follows.IDs, err = s.idsOfJobs(ctx, from, job.App, job.FollowNames()); err != nil {
		return b, err
	}
	if b.shared.calendars, b.Calendars, err = calendarsOf(ctx, from, job.App, users...); err != nil {
		return b, err
	}
	if b.same, b.isSame = b.Unchanged(job); b.isSame {
		return b, nil
	}
	return b, s.loadForChange(ctx, from, job, &b)
}

// loadForChange reads the further state that a changed job depends on.
func (s *Store) loadForChange(ctx context.Context, from Source, job dispatcher.Job, b *jobBefore) (err error) {
	if b.Old == nil {
		if b.Prior, err = priorJob(ctx, from, job.App, job.Name); err != nil {
			return err
		}
	}
	if err := priorTriggers(ctx, from, b.Old, job, &b.Prior); err != nil {
		return err
	}
	if err := loadAdmission(ctx, from, job, &b.JobBefore); err != nil {
		return err
	}
	declared := job
	declared.Origin = b.Prior.Origin
	if b.Old != nil {
		declared.Origin = b.Old.Origin
	}
	if err := s.loadFollows(ctx, from, declared, &b.JobBefore); err != nil {
		return err
	}
	if from.tx != nil {
		b.values, err = s.withValues(ctx, from, b.Old)
	}
	return err
}

// loadAdmission reads the limits and uses that decide whether an app allows a job.
func loadAdmission(ctx context.Context, q db.Querier, job dispatcher.Job, b *dispatcher.JobBefore) (err error) {
	if b.Used, err = usedBy(ctx, q, job.App); err != nil {
		return err
	}
	name := job.Target.GroupName()
	if name == "" {
		return nil
	}
	group, err := findGroup(ctx, q, job.App, name, "")
	if errors.Is(err, dispatcher.ErrNotFound) {
		return nil
	}
	b.Group = &group
	return err
}

func (s *Store) writePut(ctx context.Context, t *dispatch.Tx, b jobBefore, declared dispatcher.Job, c dispatcher.JobChange) (
	stored dispatcher.Job, err error) {
	if err := countJobs(ctx, t, declared.App, c.Jobs, c.Triggers); err != nil {
		return stored, err
	}
	job, secrets := s.sealJobSecrets(c.Job)
	if job, err = s.writeAttachedOf(ctx, t, b.Old, job, c.Attached); err != nil {
		return stored, err
	}
	err = writeJob(ctx, t, b.Old, job, b.shared)
	if err == nil {
		err = writeJobSecrets(ctx, t, b.Old, job, secrets)
	}
	if err == nil {
		err = writeFollows(ctx, t, b.Old, job, c.Followers)
	}
	if err != nil {
		return stored, fmt.Errorf("put job %s/%s: %w", job.App, job.Name, err)
	}
	if err := dispatch.InsertMisfires(ctx, t, c.Missed); err != nil {
		return stored, err
	}
	if err := remember(ctx, t, dispatcher.CausePut, triggerIDs(job)); err != nil {
		return stored, err
	}
	if err := followAlertsOfJob(ctx, t, job.App, job.Key()); err != nil {
		return stored, err
	}
	if stored, err = asStored(job); err != nil {
		return stored, err
	}
	t.Notify(dispatcher.Notification{JobID: job.Key()})
	err = auditJob(ctx, t, dispatch.AuditEntry{Action: "put", App: job.App, Subject: "job " + job.Name, Revision: job.Revision},
		b.values, replacedValues(job, declared, b.values))
	if err != nil {
		return stored, err
	}
	return b.Shown(stored), s.removeUnusedOf(ctx, t, b.Old, &job)
}

// asStored returns a job as reading it back would, so that a PUT need not read it.
func asStored(job dispatcher.Job) (dispatcher.Job, error) {
	row, err := rowOf(job)
	if err == nil {
		err = row.decode()
	}
	if err != nil {
		return job, fmt.Errorf("job %s/%s: stored %w", job.App, job.Name, err)
	}
	row.Labels = input.ParseLabels(job.Labels.String())
	row.NodeLabels = input.ParseLabels(job.NodeLabels.String())
	if len(job.Acknowledge) == 0 {
		row.Acknowledge = nil
	}
	row.Triggers = maps.Clone(job.Triggers)
	for name, t := range row.Triggers {
		for _, at := range []**time.Time{&t.StartAt, &t.EndAt, &t.PrevFireTime, &t.NextFireTime, &t.DueAt} {
			*at = db.Optional(db.OrNullAt(*at))
		}
		t.State = dispatch.ShownState(t.State.Stored(), t.Paused || job.Paused || job.AppPaused)
		row.Triggers[name] = t
	}
	return row.Job, nil
}

// writeJob writes a job and its triggers, and retires those that only old had.
func writeJob(ctx context.Context, t *dispatch.Tx, old *dispatcher.Job, job dispatcher.Job, shared shared) error {
	row, err := rowOf(job)
	if err != nil {
		return err
	}
	// From $1 on: the fields of a job
	put := jobFields.Insert("jobs") + ` ON CONFLICT (id) DO UPDATE SET ` + jobFields.Update() + `, deleted_at = NULL`
	if err := t.Exec(ctx, put, jobFields.Values(&row)...); err != nil {
		return err
	}
	if err := errors.Join(writeState(ctx, t, job), writeObjective(ctx, t, job)); err != nil {
		return err
	}
	failpoint.Hit(failpoint.InDefinition)
	if err := writeTriggers(ctx, t, job, shared); err != nil || old == nil {
		return err
	}
	removed := maps.Clone(old.Triggers)
	maps.DeleteFunc(removed, func(name string, _ dispatcher.Trigger) bool {
		_, stays := job.Triggers[name]
		return stays
	})
	return retireTriggers(ctx, t, job, removed)
}

// addShown adds to jobs of one app the data that only users see.
func (s *Store) addShown(ctx context.Context, q db.Querier, app string, jobs []dispatcher.JobVersion) error {
	bare := make([]dispatcher.Job, len(jobs))
	var followers []string
	paused := false
	for i, job := range jobs {
		bare[i] = job.Job
		followers = append(followers, job.FollowNames()...)
		paused = paused || job.AppPaused
	}
	owner, err := ReadApp(ctx, q, app, "")
	if err != nil {
		return err
	}
	shown := dispatcher.JobBefore{Bounds: owner.Bounds}
	if _, shown.Calendars, err = calendarsOf(ctx, q, app, bare...); err != nil {
		return err
	}
	slices.Sort(followers) // jobs of a page name the same ones
	if shown.Follows.IDs, err = s.idsOfJobs(ctx, q, app, slices.Compact(followers)); err != nil {
		return err
	}
	var pauses []dispatcher.AppPause
	if paused {
		if pauses, err = heldPauses(ctx, q, app); err != nil {
			return err
		}
	}
	for i := range jobs {
		job := &jobs[i]
		shown.Pauses = dispatcher.HeldBy(pauses, job.Labels)
		if job.Err != nil {
			job.State = dispatcher.JobError
			continue
		}
		job.Job = shown.Shown(job.Job)
	}
	return nil
}

// loadTriggers adds the triggers to jobs. An unreadable job gets none.
func (s *Store) loadTriggers(ctx context.Context, q db.Querier, lock string, jobs []JobRow) ([]dispatcher.JobVersion, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	byID := make(map[int64]*dispatcher.JobVersion, len(jobs))
	all := make([]dispatcher.JobVersion, len(jobs))
	var ids []int64
	for i, row := range jobs {
		all[i] = row.JobVersion
		all[i].Triggers = make(map[string]dispatcher.Trigger, len(row.TriggerNames))
		byID[row.ID] = &all[i]
		for _, name := range row.TriggerNames {
			ids = append(ids, row.TriggerKey(name))
		}
	}
	slices.Sort(ids)
	// From $1 on: the ids. Ids lock in order, as in a claim, so that the two cannot deadlock. The clock is
	// locked first: anyone who writes a row of triggers has the lock of its clock.
	query := s.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT ` + dispatch.TriggerColumns + dispatch.TheseTriggers + ` ORDER BY t.id` +
		db.LockOf(lock, "c, t")
	triggers, err := db.Collect(ctx, q, dispatch.ScanTrigger, query, s.db.Batch(ids)...)
	if err != nil {
		return nil, err
	}
	for _, t := range triggers {
		job := byID[t.JobID]
		t.State = dispatch.ShownState(t.State, job.AppPaused)
		job.Triggers[t.Name] = t.Trigger
	}
	return all, nil
}

func triggerIDs(job dispatcher.Job) []int64 {
	ids := make([]int64, 0, len(job.Triggers))
	for name := range job.Triggers {
		ids = append(ids, job.TriggerKey(name))
	}
	return ids
}

// writeTriggers writes the triggers of a job as Apply returned them, with their shared state.
func writeTriggers(ctx context.Context, t *dispatch.Tx, job dispatcher.Job, shared shared) error {
	if len(job.Triggers) == 0 {
		return nil
	}
	rows := make([]dispatch.TriggerRow, 0, len(job.Triggers))
	for name, one := range job.Triggers {
		row := dispatch.TriggerRow{
			Trigger: one, ID: job.TriggerKey(name), JobID: job.Key(),
			AppID: run.AppID(job.App), Name: name, NodeLabels: job.NodeLabels.String(), Revision: job.Revision, JobPaused: job.Paused,
			Timeout: input.Duration(job.Target.Timeout()), Fires: job.Enabled && one.Enabled,
		}
		row.Off = shared.set | ownOff(one.State, one.Paused, job.Paused)
		if one.Calendar != "" {
			row.Calendars = shared.calendars
		}
		rows = append(rows, row)
	}
	rows = db.ByTrigger(rows, func(row dispatch.TriggerRow) int64 { return row.ID })
	columns, values := dispatch.TriggerFields.Batch(rows)
	written := dispatch.TriggerFields.Written()
	// From $1 on: the fields of a trigger
	put := t.Rows(0, 1, "", columns...) + ` INSERT INTO triggers (` + written.Names("") + `) SELECT ` + written.Names("b.") + `
		FROM b WHERE 1 = 1
		ON CONFLICT (id) DO UPDATE SET ` + dispatch.TriggerFields.Update() + `, deleted_at = NULL`
	if err := t.Exec(ctx, put, t.Batch(values...)...); err != nil {
		return err
	}
	columns, values = dispatch.ClockFields.Batch(rows)
	written = dispatch.ClockFields.Written()
	// $1 bits of off that stay as they are, from $2 on: the fields of a clock
	put = t.Rows(0, 2, "", columns...) + ` INSERT INTO trigger_clock AS c (` + written.Names("") + `) SELECT ` + written.Names("b.") + `
		FROM b WHERE 1 = 1
		ON CONFLICT (id) DO UPDATE SET ` + dispatch.ClockFields.Update() + `, off = (c.off & $1) | excluded.off`
	return t.Exec(ctx, put, append([]any{shared.keep}, t.Batch(values...)...)...)
}

// retireTriggers ends triggers of a job; the ledger keeps their names, and their clocks keep their last fire.
func retireTriggers(ctx context.Context, t *dispatch.Tx, job dispatcher.Job, triggers map[string]dispatcher.Trigger) error {
	// $1 revision, from $2 on: ids
	stop := t.Rows(0, 2, "", db.IDColumns...) + ` UPDATE trigger_clock AS c SET next_fire_time = NULL, due_at = NULL,
		state = 'complete', off = c.off & ~16, revision = $1 FROM b WHERE c.id = b.id`
	// $1 revision, $2 now, from $3 on: ids
	retire := t.Rows(0, 3, "", db.IDColumns...) + ` UPDATE triggers AS t SET deleted_at = $2, revision = $1 FROM b WHERE t.id = b.id`
	job.Triggers = triggers
	ids := triggerIDs(job)
	if err := t.Exec(ctx, stop, append([]any{job.Revision}, t.Batch(ids)...)...); err != nil {
		return err
	}
	if err := t.Exec(ctx, retire, append([]any{job.Revision, t.At.UnixMilli()}, t.Batch(ids)...)...); err != nil {
		return err
	}
	return remember(ctx, t, dispatcher.CauseDelete, ids)
}

// TriggersByID returns the declarations of triggers that were not deleted.
func (s *Store) TriggersByID(ctx context.Context, ids []int64) ([]dispatcher.TriggerVersion, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	args := s.db.Batch(slices.Compact(slices.Sorted(slices.Values(ids))))
	all := make([]dispatcher.TriggerVersion, 0, len(ids))
	_, err := s.db.Execute(ctx, s.dispatch.Hot.Triggers, args, func(row db.Scanner) error {
		var t dispatch.TriggerRow
		err := row.Scan(dispatch.TriggerRead.Refs(&t)...)
		all = append(all, t.Version())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %d triggers: %w", len(ids), err)
	}
	return all, nil
}
