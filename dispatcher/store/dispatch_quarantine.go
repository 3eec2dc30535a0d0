package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// Quarantine puts a trigger that cannot be evaluated into state error.
func (s *Store) Quarantine(ctx context.Context, triggerID, revision int64, reason string) error {
	return s.change(ctx, input.Change{}, func(ctx context.Context, t *tx) error {
		_, _, err := putInError(ctx, t, triggerID, revision, reason)
		return err
	})
}

// quarantineAlone quarantines a trigger of which the work of a batch failed alone.
func (s *Store) quarantineAlone(ctx context.Context, work dispatcher.Work, triggerID, revision int64, why error, now time.Time) error {
	item := "trigger " + strconv.FormatInt(triggerID, 10)
	shown := dispatcher.SetAside{Work: work, Item: item, Problem: problemOf(why)}
	done := false
	err := s.change(ctx, input.Change{Now: now}, func(ctx context.Context, t *tx) (err error) {
		if _, done, err = putInError(ctx, t, triggerID, revision, shown.Problem); err != nil || !done {
			return err
		}
		// $1 trigger
		const names = `SELECT a.name, j.name, t.name FROM triggers AS t JOIN jobs AS j ON j.id = t.job_id JOIN apps AS a ON a.id = t.app_id
			WHERE t.id = $1`
		_, _, err = db.First(ctx, t, func(row db.Scanner) (struct{}, error) {
			return struct{}{}, row.Scan(&shown.App, &shown.Job, &shown.Item)
		}, names, triggerID)
		return err
	})
	switch {
	case s.ofStored(ctx, err):
		return s.setAside(ctx, asideRow{work: work, item: item}, errors.Join(why, err), now)
	case err != nil:
		return fmt.Errorf("quarantine trigger %d: %w", triggerID, errors.Join(why, err))
	case done:
		s.asides.reportQuarantine(ctx, shown)
	}
	return nil
}

// endedSo finds a run that ended by its latest attempt.
// $1 scheduled instant, $2 trigger, $3 kind, $4 job, $5 node, $6 attempt, $7 status
const endedSo = `SELECT 1 FROM runs WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3 AND job_id = $4 AND node = $5
	AND attempt = $6 AND http_status = $7 AND state IS NOT NULL`

// Disable puts the trigger of a run that ended so into state error, and audits that.
func (s *Store) Disable(ctx context.Context, ended dispatcher.Record, reason string, now time.Time) (done bool, err error) {
	err = s.change(ctx, input.Change{Actor: "system", Now: now}, func(ctx context.Context, t *tx) error {
		run := ended.Key
		_, done, err = db.First(ctx, t, db.ScanInt, endedSo, run.ScheduledAt.UnixMilli(), run.TriggerID, int64(run.Code()), ended.JobID,
			int64(ended.Node), ended.Attempt, ended.Outcome.HTTPStatus)
		if err != nil || !done {
			return err
		}
		var revision int64
		revision, done, err = putInError(ctx, t, run.TriggerID, ended.Revision, reason)
		if err != nil || !done {
			return err
		}
		var app, job, trigger string
		// $1 trigger
		const names = `SELECT a.name, j.name, t.name FROM triggers AS t JOIN jobs AS j ON j.id = t.job_id
			JOIN apps AS a ON a.id = t.app_id WHERE t.id = $1`
		_, _, err = db.First(ctx, t, func(row db.Scanner) (struct{}, error) { return struct{}{}, row.Scan(&app, &job, &trigger) }, names,
			run.TriggerID)
		if err != nil {
			return err
		}
		return t.auditChange(ctx, auditEntry{action: "disable", app: app, subject: "job " + job + " trigger " + trigger, revision: revision,
			after: map[string]string{"state": string(dispatcher.TriggerError), "error": reason}})
	})
	if err != nil {
		return false, fmt.Errorf("disable the trigger of run %s: %w", ended.Key, err)
	}
	return done, nil
}

// putInError puts a waiting trigger of a revision into state error, and with it its job. The next
// fire time stays: a change of the definition, or a resume, accounts for what was due. The job is locked first, as
// by everyone who changes it.
func putInError(ctx context.Context, t *tx, triggerID, revision int64, reason string) (of int64, done bool, err error) {
	// $1 trigger
	job := `SELECT j.id FROM triggers AS t JOIN jobs AS j ON j.id = t.job_id WHERE t.id = $1` + db.LockOf(t.ForUpdate(), "j")
	jobID, found, err := db.First(ctx, t, db.ScanInt, job, triggerID)
	if err != nil || !found {
		return 0, false, err
	}
	// $1 trigger, $2 revision; 16 is offError
	const stop = `UPDATE trigger_clock SET state = 'error', off = off | 16
		WHERE id = $1 AND revision = $2 AND state = 'waiting' RETURNING revision`
	if of, done, err = db.First(ctx, t, db.ScanInt, stop, triggerID, revision); err != nil || !done {
		return 0, false, err
	}
	// $1 trigger, $2 reason
	const explain = `UPDATE triggers SET error = $2 WHERE id = $1`
	if _, err = t.ExecContext(ctx, explain, triggerID, storable(reason)); err != nil {
		return 0, false, err
	}
	// $1 job
	const ofJob = `UPDATE jobs SET state = 'ERROR', completed_at = NULL WHERE id = $1`
	_, err = t.ExecContext(ctx, ofJob, jobID)
	return of, err == nil, err
}
