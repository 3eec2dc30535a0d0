package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// PauseJob pauses or resumes a job, or one of its triggers. What is paused or not already stays as it is, but a resume
// also schedules triggers in state error again.
func (s *Store) PauseJob(ctx context.Context, app, name, trigger string, paused bool, change input.Change) (dispatcher.Job, error) {
	stored, _, err := redefine(ctx, s, change, s.jobPause(app, name, trigger, paused, change))
	return stored, err
}

// jobPause is PauseJob in steps.
func (s *Store) jobPause(app, name, trigger string, paused bool,
	by input.Change) redefinition[jobBefore, dispatcher.PauseChange, dispatcher.Job] {
	return redefinition[jobBefore, dispatcher.PauseChange, dispatcher.Job]{
		load: func(ctx context.Context, from source) (jobBefore, error) {
			b, err := s.loadStored(ctx, from, app, name)
			if err == nil {
				err = allow(by, b.Old.Revision)
			}
			return b, err
		},
		unchanged: func(b jobBefore) (dispatcher.Job, bool) { return b.Paused(trigger, paused) },
		decide: func(b jobBefore, now time.Time) (dispatcher.PauseChange, error) {
			return b.Pause(trigger, paused, by, now)
		},
		write: func(ctx context.Context, t *tx, b jobBefore, c dispatcher.PauseChange) (stored dispatcher.Job, err error) {
			if c.Restarted {
				err = writeJob(ctx, t, b.Old, c.Job, b.calendars, keepShared)
			} else {
				err = writePauses(ctx, t, c.Job)
			}
			if err == nil {
				err = insertMisfires(ctx, t, c.Missed)
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
			t.notify(dispatcher.Notification{JobID: c.Job.Key()})
			return b.Shown(stored), t.auditChange(ctx, auditEntry{action: string(cause), app: app, subject: subject, revision: c.Job.Revision,
				before: auditedPause{Paused: c.Was}, after: auditedPause{paused, c.Pause.PauseReason, c.Pause.PausedUntil}})
		},
	}
}

// loadStored reads a job, and what it is shown with. ErrNotFound: there is none.
func (s *Store) loadStored(ctx context.Context, from source, app, name string) (b jobBefore, err error) {
	old, err := s.findJob(ctx, from, app, name, from.lock)
	if err != nil {
		return b, err
	}
	owner, err := readApp(ctx, from, app, "")
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
	b.calendars, b.Calendars, err = calendarsOf(ctx, from, app, old)
	return b, err
}

// auditedPause is what the audit log shows of a pause.
type auditedPause struct {
	Paused bool       `json:"paused"`
	Reason string     `json:"reason,omitempty"`
	Until  *time.Time `json:"until,omitempty"`
}

// pauseColumn is NULL for no pause.
func pauseColumn(p *dispatcher.Pause) any {
	return orDefault(p, dispatcher.Pause{}, func(text string) (pause dispatcher.Pause) {
		_ = json.Unmarshal([]byte(text), &pause) // it stays a pause without it
		return pause
	}, pauseText)
}

func pauseText(p dispatcher.Pause) string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // texts and a time always marshal
	}
	return string(text)
}

// writePauses writes the pauses of a job and its triggers, and the revision.
func writePauses(ctx context.Context, t *tx, job dispatcher.Job) error {
	// $1 id, $2 paused, $3 revision, $4 now, $5 pause, $6 since when, $7 until when
	const ofJob = `UPDATE jobs SET paused = $2, revision = $3, updated_at = $4, pause = $5, paused_at = $6, pause_until = $7 WHERE id = $1`
	jobID := job.Key()
	if _, err := t.ExecContext(ctx, ofJob, jobID, job.Paused, job.Revision, t.now.UnixMilli(), pauseColumn(&job.Pause),
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
			pauses[len(pauses)-1] = new(pauseText(trigger.Pause))
		}
		off = append(off, int32(ownOff("", trigger.Paused, job.Paused)))
	}
	if _, err := t.ExecContext(ctx, ofClocks, append([]any{job.Revision}, t.Batch(ids, off)...)...); err != nil {
		return err
	}
	_, err := t.ExecContext(ctx, ofTriggers, append([]any{job.Paused, job.Revision}, t.Batch(ids, paused, pauses, since, until)...)...)
	return err
}
