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
	old := read.Job
	users := []dispatcher.Job{job}
	switch {
	case err == nil:
		b.Old, users = &old, append(users, old)
	case !errors.Is(err, dispatcher.ErrNotFound):
		return b, err
	}
	if err := dispatch.Allow(by, old.Revision); err != nil {
		return b, err
	}
	if b.Follows.IDs, err = s.idsOfJobs(ctx, from, job.App, job.Followers()); err != nil {
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
		followers = append(followers, job.Followers()...)
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
