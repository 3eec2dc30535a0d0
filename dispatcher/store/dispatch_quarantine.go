package store

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Quarantine puts a trigger that cannot be evaluated into state error.
func (s *store) Quarantine(ctx context.Context, triggerID, revision int64, reason string) error {
	return s.change(ctx, dispatcher.Change{}, func(ctx context.Context, t *tx) error {
		// $1 id, $2 revision, $3 reason. The next fire time stays: a change of the definition
		// accounts for what was due.
		const quarantine = `UPDATE triggers SET state = 'error', error = $3 WHERE id = $1 AND revision = $2 AND state = 'waiting'`
		if _, err := t.ExecContext(ctx, quarantine, triggerID, revision, storable(reason)); err != nil {
			return err
		}
		return t.writeError(ctx, triggerID)
	})
}

// Disable puts the trigger of a run into state error, and audits that.
func (s *store) Disable(ctx context.Context, run dispatcher.RunKey, reason string, now time.Time) error {
	return s.change(ctx, dispatcher.Change{Actor: "system", Now: now}, func(ctx context.Context, t *tx) error {
		var app, job, trigger string
		// $1 trigger, $2 reason. The next fire time stays: a resume accounts for what was due.
		const disable = `UPDATE triggers SET state = 'error', error = $2 WHERE id = $1 AND state = 'waiting' RETURNING revision`
		revision, found, err := first(ctx, t, scanInt, disable, run.TriggerID, storable(reason))
		if err != nil || !found {
			return err
		}
		if err := t.writeError(ctx, run.TriggerID); err != nil {
			return err
		}
		// $1 trigger
		const names = `SELECT a.name, j.name, t.name FROM triggers AS t JOIN jobs AS j ON j.id = t.job_id
			JOIN apps AS a ON a.id = t.app_id WHERE t.id = $1`
		_, _, err = first(ctx, t, func(row scanner) (struct{}, error) { return struct{}{}, row.Scan(&app, &job, &trigger) }, names, run.TriggerID)
		if err != nil {
			return err
		}
		return t.audit(ctx, "disable", app, "job "+job+" trigger "+trigger, revision)
	})
}

// writeError writes the state of the job of a trigger that may be in error.
func (t *tx) writeError(ctx context.Context, triggerID int64) error {
	// $1 id of the trigger
	const ofJob = `UPDATE jobs SET state = 'ERROR', completed_at = NULL WHERE id = (SELECT job_id FROM triggers WHERE id = $1
		AND state = 'error')`
	_, err := t.ExecContext(ctx, ofJob, triggerID)
	return err
}
