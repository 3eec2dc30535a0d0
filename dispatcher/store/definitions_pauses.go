package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// PauseJob pauses or resumes a job, or one of its triggers. What is paused or not already stays as it is, but a resume
// also schedules triggers in state error again.
func (s *Store) PauseJob(ctx context.Context, app, name, trigger string, paused bool,
	change input.Change) (stored dispatcher.Job, err error) {
	same, is := s.unchangedJob(ctx, app, name, change, func(job dispatcher.Job, _ *target.Bounds) bool {
		was, found := isPaused(job, trigger)
		return found && was == paused && (paused || !inError(job, trigger))
	})
	if is {
		return same, nil
	}
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		stored, err = s.pauseJob(ctx, t, app, name, trigger, paused)
		return err
	})
	return stored, err
}

// pauseJob is PauseJob in a transaction.
func (s *Store) pauseJob(ctx context.Context, t *tx, app, name, trigger string, paused bool) (stored dispatcher.Job, err error) {
	job, err := s.findJob(ctx, t, app, name, t.ForUpdate())
	if err != nil {
		return stored, err
	}
	if err := t.allow(job.Revision); err != nil {
		return stored, err
	}
	subject, before := "job "+name, job.Paused
	pause := dispatcher.Pause{}
	if paused {
		if err := dispatcher.CheckUntil(t.by.Until, t.now); err != nil {
			return stored, err
		}
		pause = dispatcher.Pause{PausedBy: t.by.Actor, PausedAt: &t.now, PauseReason: t.by.Reason, PausedUntil: inMillis(t.by.Until)}
	}
	if trigger == "" {
		job.Paused, job.Pause = paused, pause
	} else {
		one, found := job.Triggers[trigger]
		if !found {
			return stored, dispatcher.NotFound("trigger", app+"/"+name+"/"+trigger)
		}
		before, one.Paused, one.Pause = one.Paused, paused, pause
		job.Triggers[trigger] = one
		subject += " trigger " + trigger
	}
	cause := dispatcher.CauseResume
	if paused {
		cause = dispatcher.CausePause
	}
	if !paused && inError(job, trigger) {
		err = s.restartTriggers(ctx, t, &job)
	} else {
		job.Revision++
		err = writePauses(ctx, t, job)
	}
	if err != nil {
		return stored, fmt.Errorf("pause job %s/%s: %w", app, name, err)
	}
	if err := remember(ctx, t, cause, triggerIDs(job)); err != nil {
		return stored, err
	}
	if stored, err = s.shownJob(ctx, t, app, name); err != nil {
		return stored, err
	}
	t.notify(dispatcher.Notification{JobID: job.Key()})
	return stored, t.auditChange(ctx, auditEntry{action: string(cause), app: app, subject: subject, revision: job.Revision,
		before: auditedPause{Paused: before}, after: auditedPause{paused, pause.PauseReason, pause.PausedUntil}})
}

// inMillis is a time as the database keeps it.
func inMillis(at *time.Time) *time.Time { return db.Optional(db.OrNullAt(at)) }

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
	job.State = job.RollUp(false)
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

// inError tells whether a trigger of a job, or without a name any, is in state error.
func inError(job dispatcher.Job, trigger string) bool {
	for name, one := range job.Triggers {
		if one.State == dispatcher.TriggerError && (trigger == "" || trigger == name) {
			return true
		}
	}
	return false
}

// restartTriggers writes a job as if it had been declared again, so that its triggers in state error
// are scheduled again.
func (s *Store) restartTriggers(ctx context.Context, t *tx, job *dispatcher.Job) error {
	revision, calendars, err := calendarsOf(ctx, t, job.App, *job)
	if err != nil {
		return err
	}
	revised, missed, err := dispatcher.Apply(job, *job, dispatcher.Prior{}, calendars, t.now)
	if err != nil {
		return err
	}
	if err := writeJob(ctx, t, job, revised, revision, keepShared); err != nil {
		return err
	}
	*job = revised
	return insertMisfires(ctx, t, missed)
}
