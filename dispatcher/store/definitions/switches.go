package definitions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// ownOff returns the reasons for being off in the definition and state of a trigger.
func ownOff(state dispatcher.TriggerState, paused, jobPaused bool) int {
	off := 0
	if paused {
		off |= dispatch.OffPaused
	}
	if jobPaused {
		off |= dispatch.OffJob
	}
	if state == dispatcher.TriggerError {
		off |= dispatch.OffError
	}
	return off
}

// shared is the state that triggers share when their rows are written. Among the reasons for being off, those in keep
// stay as in their clocks, and those in set apply.
type shared struct {
	keep, set int
	calendars int64                 // revision of the app's
	pauses    []dispatcher.AppPause // of the app, that hold the job
}

// loadShared returns the app of a job, and the effect of the app, its pauses and the labels that the job requires on
// the job's triggers. A transaction locks the app and then the set of labels: that delays a switch with portions that
// would miss the triggers. A snapshot leaves out the labels, which only affect the rows of clocks.
func loadShared(ctx context.Context, from Source, job dispatcher.Job) (app access.App, shared shared, err error) {
	if app, err = from.app(ctx, job.App); err != nil {
		return app, shared, err
	}
	if !app.Enabled || app.Bounds.Suspended {
		shared.set |= dispatch.OffApp
	}
	pauses, err := heldPauses(ctx, from, job.App)
	if err != nil {
		return app, shared, err
	}
	if shared.pauses = dispatcher.HeldBy(pauses, job.Labels); len(shared.pauses) > 0 {
		shared.set |= dispatch.OffPauses
	}
	if from.tx == nil {
		return app, shared, nil
	}
	served, err := dispatch.RequireLabels(ctx, from.tx, job.NodeLabels)
	if !served {
		shared.set |= dispatch.OffLabels
	}
	return app, shared, err
}

// followApp applies the app's switch to the clocks of its next triggers, and returns how many. The app is locked first,
// so that the switch and its jobs do not change meanwhile.
func followApp(ctx context.Context, t *dispatch.Tx, app int64, limit int) (followed int, err error) {
	// $1 id
	const pending = `SELECT enabled, switched_to FROM apps WHERE id = $1 AND switched_to IS NOT NULL`
	var enabled bool
	var from int64
	found, err := db.ReadRow(ctx, t, []any{&enabled, &from}, pending+t.ForUpdate(), app)
	if err != nil || !found {
		return 0, err
	}
	// $1 app, $2 id of the last trigger of the portion before, $3 limit
	const next = `SELECT id FROM triggers WHERE app_id = $1 AND id > $2 ORDER BY id LIMIT $3`
	ids, err := db.Collect(ctx, t, db.ScanInt, next, app, from, limit)
	if err == nil {
		err = dispatch.SwitchClocks(ctx, t, ids, dispatch.OffApp, !enabled)
	}
	if err != nil {
		return 0, err
	}
	// $1 id, $2 cursor
	const move = `UPDATE apps SET switched_to = $2 WHERE id = $1`
	err = t.Exec(ctx, move, app, dispatch.FollowedTo(ids, limit))
	return len(ids), err
}

// FollowSwitches applies changed switches and pauses of apps, and changed sets of labels, to some clocks each, in
// separate transactions.
func (s *Store) FollowSwitches(ctx context.Context, limit int) (followed int, more bool, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	// $1 limit
	const (
		ofSwitch = `SELECT name FROM apps WHERE switched_to IS NOT NULL ORDER BY id LIMIT $1`
		ofPauses = `SELECT name FROM apps WHERE paused_to IS NOT NULL ORDER BY id LIMIT $1`
	)
	most := dispatch.PendingMost + s.dispatch.Asides.Count(dispatcher.WorkPauses)
	switched, err := db.Collect(ctx, s.db.Read, db.ScanText, ofSwitch, most)
	if err != nil {
		return 0, false, fmt.Errorf("look for switched apps: %w", err)
	}
	pausing, err := db.Collect(ctx, s.db.Read, db.ScanText, ofPauses, most)
	if err != nil {
		return 0, false, fmt.Errorf("look for apps whose pauses changed: %w", err)
	}
	sets, err := s.dispatch.SwitchedSets(ctx)
	if err != nil {
		return 0, false, err
	}
	more = len(switched) == most || len(pausing) == most || len(sets) == dispatch.PendingMost
	var errs []error
	step := func(what, item string, app string, do func() (int, bool, error)) {
		err := s.dispatch.OrAside(ctx, func() error {
			n, left, err := do()
			followed, more = followed+n, more || left
			return err
		}, func(why error) error {
			row := dispatch.AsideRow{Work: dispatcher.WorkPauses, Item: item}
			if app != "" {
				row.App = run.AppID(app)
			}
			return s.dispatch.SetAside(ctx, row, why, time.Time{})
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("let %d triggers follow %s: %w", limit, what, err))
		}
	}
	for _, app := range dispatch.WithoutAsides(s.dispatch.Asides, dispatcher.WorkPauses, switched, dispatch.AppItem, db.WallClock()) {
		step("the switch of app "+app, dispatch.AppItem(app), app, func() (int, bool, error) {
			n, err := s.follow(ctx, dispatcher.Notification{App: app}, func(ctx context.Context, t *dispatch.Tx) (int, error) {
				return followApp(ctx, t, run.AppID(app), limit)
			})
			return n, n == limit, err
		})
	}
	for _, app := range dispatch.WithoutAsides(s.dispatch.Asides, dispatcher.WorkPauses, pausing, dispatch.AppItem, db.WallClock()) {
		step("the pauses of app "+app, dispatch.AppItem(app), app, func() (int, bool, error) { return s.followPauses(ctx, app, limit) })
	}
	for _, labels := range sets {
		step("whether a node has labels "+labels, "labels "+labels, "", func() (int, bool, error) {
			n, err := s.follow(ctx, dispatcher.Notification{}, func(ctx context.Context, t *dispatch.Tx) (int, error) {
				return dispatch.FollowLabels(ctx, t, labels, limit)
			})
			return n, n == limit, err
		})
	}
	return followed, more && len(errs) == 0, errors.Join(errs...)
}

// follow updates a portion of clocks, and notifies the nodes if any changed.
func (s *Store) follow(ctx context.Context, changed dispatcher.Notification,
	portion func(context.Context, *dispatch.Tx) (int, error)) (followed int, err error) {
	err = s.dispatch.Change(ctx, input.Change{}, func(ctx context.Context, t *dispatch.Tx) error {
		if followed, err = portion(ctx, t); followed > 0 {
			t.Notify(changed)
		}
		return err
	})
	return followed, err
}

// PauseJob pauses or resumes a job, or one of its triggers. Repeating either changes nothing, but a resume also
// reschedules triggers in state error.
func (s *Store) PauseJob(ctx context.Context, app, name, trigger string, paused bool, change input.Change) (dispatcher.Job, error) {
	stored, _, err := Redefine(ctx, s, change, s.JobPause(app, name, trigger, paused, change))
	return stored, err
}

// JobPause is PauseJob in steps.
func (s *Store) JobPause(app, name, trigger string, paused bool,
	by input.Change) Redefinition[jobBefore, dispatcher.PauseChange, dispatcher.Job] {
	return Redefinition[jobBefore, dispatcher.PauseChange, dispatcher.Job]{
		Load: func(ctx context.Context, from Source) (jobBefore, error) {
			b, err := s.loadStored(ctx, from, app, name)
			if err == nil {
				err = dispatch.Allow(by, b.Old.Revision)
			}
			return b, err
		},
		Unchanged: func(b jobBefore) (dispatcher.Job, bool) { return b.Paused(trigger, paused) },
		Decide: func(b jobBefore, now time.Time) (dispatcher.PauseChange, error) {
			return b.Pause(trigger, paused, by, now)
		},
		Write: func(ctx context.Context, t *dispatch.Tx, b jobBefore, c dispatcher.PauseChange) (stored dispatcher.Job, err error) {
			if c.Restarted {
				err = writeJob(ctx, t, b.Old, c.Job, b.shared)
			} else {
				err = writePauses(ctx, t, c.Job)
			}
			if err == nil {
				err = dispatch.InsertMisfires(ctx, t, c.Missed)
			}
			if err != nil {
				return stored, fmt.Errorf("pause job %s/%s: %w", app, name, err)
			}
			cause, subject := dispatcher.CauseResume, "job "+name
			if paused {
				cause = dispatcher.CausePause
			}
			if trigger != "" {
				subject += " trigger " + trigger
			}
			if err := remember(ctx, t, cause, triggerIDs(c.Job)); err != nil {
				return stored, err
			}
			if stored, err = asStored(c.Job); err != nil {
				return stored, err
			}
			t.Notify(dispatcher.Notification{JobID: c.Job.Key()})
			return b.Shown(stored), t.AuditChange(ctx, dispatch.AuditEntry{Action: string(cause), App: app, Subject: subject,
				Revision: c.Job.Revision,
				Before:   auditedPause{Paused: c.Was}, After: auditedPause{paused, c.Pause.PauseReason, c.Pause.PausedUntil}})
		},
	}
}

// loadStored reads a job, with the data to show, for a change that concerns neither its app nor its labels.
// ErrNotFound: it does not exist.
func (s *Store) loadStored(ctx context.Context, from Source, app, name string) (b jobBefore, err error) {
	old, err := s.FindJob(ctx, from, app, name, from.Lock)
	if err != nil {
		return b, err
	}
	owner, err := ReadApp(ctx, from, app, "")
	if err != nil {
		return b, err
	}
	b.Old, b.Bounds = &old, owner.Bounds
	if old.AppPaused {
		pauses, err := heldPauses(ctx, from, app)
		if err != nil {
			return b, err
		}
		b.Pauses = dispatcher.HeldBy(pauses, old.Labels)
	}
	b.shared.keep = dispatch.OffApp | dispatch.OffLabels | dispatch.OffPauses
	if b.Follows.IDs, err = s.idsOfJobs(ctx, from, app, old.FollowNames()); err != nil {
		return b, err
	}
	b.shared.calendars, b.Calendars, err = calendarsOf(ctx, from, app, old)
	return b, err
}

// auditedPause is a pause in the audit log.
type auditedPause struct {
	Paused bool       `json:"paused"`
	Reason string     `json:"reason,omitempty"`
	Until  *time.Time `json:"until,omitempty"`
}

func writePauses(ctx context.Context, t *dispatch.Tx, job dispatcher.Job) error {
	// $1 id, $2 paused, $3 revision, $4 now, $5 pause, $6 since when, $7 until when
	const ofJob = `UPDATE jobs SET paused = $2, revision = $3, updated_at = $4, pause = $5, paused_at = $6, pause_until = $7 WHERE id = $1`
	jobID := job.Key()
	if err := t.Exec(ctx, ofJob, jobID, job.Paused, job.Revision, t.At.UnixMilli(), dispatch.PauseColumn(&job.Pause),
		db.OrNullAt(job.PausedAt), db.OrNullAt(job.PausedUntil)); err != nil {
		return err
	}
	if err := writeState(ctx, t, job); err != nil {
		return err
	}
	// $1 revision, from $2 on: id, off
	ofClocks := t.Rows(0, 2, "", db.Col("id", db.Bigint), db.Col("off", db.Integer)) + ` UPDATE trigger_clock AS c
		SET off = (c.off & ~6) | b.off, revision = $1 FROM b WHERE c.id = b.id`
	// $1 job paused, $2 revision, from $3 on: id, paused, pause, since when, until when
	ofTriggers := t.Rows(0, 3, "", db.Col("id", db.Bigint), db.Col("paused", db.Boolean), db.Col("pause", db.Text), db.Col("since", db.Bigint),
		db.Col("until", db.Bigint)) + ` UPDATE triggers AS t
		SET paused = b.paused, pause = b.pause, paused_at = b.since, pause_until = b.until,
			 job_paused = $1, revision = $2 FROM b WHERE t.id = b.id`
	var ids []int64
	var paused []bool
	var pauses []*string
	var since, until []*int64
	var off []int32
	for name, trigger := range job.Triggers {
		ids, paused = append(ids, job.TriggerKey(name)), append(paused, trigger.Paused)
		pauses, since, until = append(pauses, nil), append(since, db.OrNullAt(trigger.PausedAt)), append(until, db.OrNullAt(trigger.PausedUntil))
		if trigger.Paused {
			pauses[len(pauses)-1] = new(dispatch.PauseText(trigger.Pause))
		}
		off = append(off, int32(ownOff("", trigger.Paused, job.Paused)))
	}
	if err := t.Exec(ctx, ofClocks, append([]any{job.Revision}, t.Batch(ids, off)...)...); err != nil {
		return err
	}
	return t.Exec(ctx, ofTriggers, append([]any{job.Paused, job.Revision}, t.Batch(ids, paused, pauses, since, until)...)...)
}
