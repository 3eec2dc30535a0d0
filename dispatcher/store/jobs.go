package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
)

func (s *store) PutJob(ctx context.Context, job dispatcher.Job, change dispatcher.Change) (stored dispatcher.Job, err error) {
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		// Writers of one app's jobs queue at its row; two that make the same job do, too.
		if _, err := findApp(ctx, t, job.App, t.lock()); err != nil {
			return err
		}
		var old *dispatcher.Job
		prior := int64(0)
		switch found, err := s.findJob(ctx, t, job.App, job.Name, t.lock()); {
		case err == nil:
			old, prior = &found, found.Revision
		case !errors.Is(err, dispatcher.ErrNotFound):
			return err
		}
		if err := t.allow(prior); err != nil {
			return err
		}
		if old == nil {
			// $1 id
			const deleted = `SELECT revision FROM jobs WHERE id = $1`
			if prior, _, err = first(ctx, t, scanInt, deleted, dispatcher.JobID(job.App, job.Name)); err != nil {
				return err
			}
		}
		revised, missed, err := dispatcher.Revise(old, job, prior, t.now)
		if err != nil {
			return err
		}
		if err := t.writeJob(ctx, old, revised); err != nil {
			return fmt.Errorf("put job %s/%s: %w", job.App, job.Name, err)
		}
		if err := t.insertMisfires(ctx, missed); err != nil {
			return err
		}
		if stored, err = s.findJob(ctx, t, job.App, job.Name, ""); err != nil {
			return err
		}
		return t.audit(ctx, "put", job.App, "job "+job.Name, revised.Revision)
	})
	return stored, err
}

// writeJob writes a job and its triggers, and retires those that old had besides.
func (t *tx) writeJob(ctx context.Context, old *dispatcher.Job, job dispatcher.Job) error {
	target, err := json.Marshal(job.Target)
	if err != nil {
		return err
	}
	names, err := triggerNames(job)
	if err != nil {
		return err
	}
	jobID, appID := dispatcher.JobID(job.App, job.Name), dispatcher.AppID(job.App)
	// $1 id, $2 app, $3 name, $4 description, $5 enabled, $6 paused, $7 target, $8 payload,
	// $9 names of the triggers, $10 revision, $11 created, $12 updated
	const put = `INSERT INTO jobs (id, app_id, name, description, enabled, paused, target, payload, trigger_names,
			revision, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
		ON CONFLICT (id) DO UPDATE SET description = excluded.description, enabled = excluded.enabled,
			paused = excluded.paused, target = excluded.target, payload = excluded.payload,
			trigger_names = excluded.trigger_names, revision = excluded.revision,
			created_at = excluded.created_at, updated_at = excluded.updated_at, deleted_at = NULL`
	_, err = t.ExecContext(ctx, put, jobID, appID, job.Name, job.Description, job.Enabled, job.Paused, string(target),
		string(job.Payload), names, job.Revision, job.CreatedAt.UnixMilli(), job.UpdatedAt.UnixMilli())
	if err != nil {
		return err
	}
	for name, trigger := range job.Triggers {
		if err := t.writeTrigger(ctx, job, name, trigger); err != nil {
			return fmt.Errorf("trigger %s: %w", name, err)
		}
	}
	if old == nil {
		return nil
	}
	for name := range old.Triggers {
		if _, stays := job.Triggers[name]; !stays {
			if err := t.retireTrigger(ctx, job, name); err != nil {
				return fmt.Errorf("trigger %s: %w", name, err)
			}
		}
	}
	return nil
}

// writeTrigger writes a trigger as Revise made it.
func (t *tx) writeTrigger(ctx context.Context, job dispatcher.Job, name string, trigger dispatcher.Trigger) error {
	// $1 id, $2 job, $3 app, $4 revision, $5 next fire, $6 previous fire, $7 misfire after,
	// $8 anchor, $9 start, $10 end, $11 repeat count, $12 enabled, $13 paused, $14 job paused,
	// $15 state, $16 name, $17 expression, $18 dialect, $19 zone, $20 gap, $21 overlap, $22 error
	const put = `INSERT INTO triggers (id, job_id, app_id, revision, next_fire_time, prev_fire_time, misfire_after,
			anchor_at, start_at, end_at, repeat_count, enabled, paused, job_paused, state, name, expression, dialect,
			timezone, gap, overlap, error)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)
		ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, next_fire_time = excluded.next_fire_time,
			prev_fire_time = excluded.prev_fire_time, misfire_after = excluded.misfire_after,
			anchor_at = excluded.anchor_at, start_at = excluded.start_at, end_at = excluded.end_at,
			repeat_count = excluded.repeat_count, enabled = excluded.enabled, paused = excluded.paused,
			job_paused = excluded.job_paused, state = excluded.state, expression = excluded.expression,
			dialect = excluded.dialect, timezone = excluded.timezone, gap = excluded.gap, overlap = excluded.overlap,
			error = excluded.error, deleted_at = NULL`
	_, err := t.ExecContext(ctx, put, dispatcher.TriggerID(job.App, job.Name, name), dispatcher.JobID(job.App, job.Name),
		dispatcher.AppID(job.App), job.Revision, orNullAt(trigger.NextFireTime), orNullAt(trigger.PrevFireTime),
		trigger.MisfireAfter.Std().Milliseconds(), trigger.AnchorAt.UnixMilli(), orNullAt(trigger.StartAt),
		orNullAt(trigger.EndAt), trigger.RepeatCount, trigger.Enabled, trigger.Paused, job.Paused, trigger.State, name,
		trigger.Expression, trigger.Dialect, trigger.Timezone, trigger.Gap, trigger.Overlap, trigger.Error)
	return err
}

// retireTrigger ends a trigger; the ledger keeps its name.
func (t *tx) retireTrigger(ctx context.Context, job dispatcher.Job, name string) error {
	// $1 id, $2 now, $3 revision
	const retire = `UPDATE triggers SET next_fire_time = NULL, state = 'complete', revision = $3, deleted_at = $2 WHERE id = $1`
	_, err := t.ExecContext(ctx, retire, dispatcher.TriggerID(job.App, job.Name, name), t.now.UnixMilli(), job.Revision)
	return err
}

func (s *store) DeleteJob(ctx context.Context, app, name string, change dispatcher.Change) error {
	return s.change(ctx, change, func(ctx context.Context, t *tx) error {
		job, err := s.findJob(ctx, t, app, name, t.lock())
		if err != nil {
			return err
		}
		if err := t.allow(job.Revision); err != nil {
			return err
		}
		// $1 now, $2 id
		const remove = `UPDATE jobs SET deleted_at = $1, updated_at = $1, trigger_names = '[]' WHERE id = $2`
		if _, err := t.ExecContext(ctx, remove, t.now.UnixMilli(), dispatcher.JobID(app, name)); err != nil {
			return err
		}
		for trigger := range job.Triggers {
			if err := t.retireTrigger(ctx, job, trigger); err != nil {
				return fmt.Errorf("delete job %s/%s: trigger %s: %w", app, name, trigger, err)
			}
		}
		if err := t.insertMisfires(ctx, dispatcher.Retire(job, t.now)); err != nil {
			return err
		}
		return t.audit(ctx, "delete", app, "job "+name, job.Revision)
	})
}

func (s *store) PauseJob(ctx context.Context, app, name, trigger string, paused bool, change dispatcher.Change) (stored dispatcher.Job, err error) {
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		job, err := s.findJob(ctx, t, app, name, t.lock())
		if err != nil {
			return err
		}
		if err := t.allow(job.Revision); err != nil {
			return err
		}
		subject := "job " + name
		if trigger == "" {
			job.Paused = paused
		} else {
			one, found := job.Triggers[trigger]
			if !found {
				return dispatcher.NotFound("trigger", app+"/"+name+"/"+trigger)
			}
			one.Paused = paused
			job.Triggers[trigger] = one
			subject += " trigger " + trigger
		}
		job.Revision++
		if err := t.writePauses(ctx, job); err != nil {
			return fmt.Errorf("pause job %s/%s: %w", app, name, err)
		}
		if stored, err = s.findJob(ctx, t, app, name, ""); err != nil {
			return err
		}
		action := "resume"
		if paused {
			action = "pause"
		}
		return t.audit(ctx, action, app, subject, job.Revision)
	})
	return stored, err
}

// writePauses writes the pauses of a job and its triggers, and the revision.
func (t *tx) writePauses(ctx context.Context, job dispatcher.Job) error {
	// $1 id, $2 paused, $3 revision, $4 now
	const ofJob = `UPDATE jobs SET paused = $2, revision = $3, updated_at = $4 WHERE id = $1`
	jobID := dispatcher.JobID(job.App, job.Name)
	if _, err := t.ExecContext(ctx, ofJob, jobID, job.Paused, job.Revision, t.now.UnixMilli()); err != nil {
		return err
	}
	for name, trigger := range job.Triggers {
		// $1 id, $2 paused, $3 job paused, $4 revision
		const ofTrigger = `UPDATE triggers SET paused = $2, job_paused = $3, revision = $4 WHERE id = $1`
		id := dispatcher.TriggerID(job.App, job.Name, name)
		if _, err := t.ExecContext(ctx, ofTrigger, id, trigger.Paused, job.Paused, job.Revision); err != nil {
			return fmt.Errorf("trigger %s: %w", name, err)
		}
	}
	return nil
}
