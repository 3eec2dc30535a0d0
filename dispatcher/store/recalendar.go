package store

import (
	"context"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// recalendarTimeout is how long a change of a calendar may take.
const recalendarTimeout = time.Minute

// recalendar is a change of the calendars of an app: names are those that mean something else
// now.
type recalendar struct {
	app           string
	names         map[string]bool
	before, after dispatcher.Calendars
}

// jobsAtOnce bounds how many jobs with their triggers are held in memory.
const jobsAtOnce = 500

// recalendar counts the app's calendars up and gives the triggers that are concerned new fire
// times. Jobs keep their revisions: whoever changes a calendar and then a job that he read
// before has no quarrel with himself.
func (s *store) recalendar(ctx context.Context, t *tx, move recalendar) error {
	// $1 app
	const count = `UPDATE apps SET calendar_revision = calendar_revision + 1 WHERE id = $1 RETURNING calendar_revision`
	revision, _, err := first(ctx, t, scanInt, count, dispatcher.AppID(move.app))
	if err != nil {
		return err
	}
	names := make([]string, 0, len(move.names))
	for name := range move.names {
		names = append(names, name)
	}
	// $1 app, from $2 on: names. Triggers lock in the order of their ids, as in a claim.
	jobs := t.rows(0, 2, "", nameColumns...) + ` SELECT job_id FROM triggers AS t WHERE t.app_id = $1 AND t.calendar <> ''
		AND t.deleted_at IS NULL AND t.calendar IN (SELECT name FROM b) ORDER BY t.id`
	if lock := t.lock(); lock != "" {
		jobs += lock + ` OF t`
	}
	ids, err := collect(ctx, t, scanInt, jobs, append([]any{dispatcher.AppID(move.app)}, t.batch(names)...)...)
	if err != nil {
		return err
	}
	slices.Sort(ids)
	for page := range slices.Chunk(slices.Compact(ids), jobsAtOnce) {
		versions, err := s.jobsByID(ctx, t, page)
		if err != nil {
			return err
		}
		if err := t.moveTriggers(ctx, versions, move, revision); err != nil {
			return err
		}
	}
	return nil
}

// moveTriggers writes the fire times that the triggers of jobs have by the new calendars.
func (t *tx) moveTriggers(ctx context.Context, jobs []dispatcher.JobVersion, move recalendar, revision int64) error {
	var id []int64
	var next, due []*int64
	var state, faults []string
	for _, job := range jobs {
		if job.Err != nil {
			continue // nothing of it fires
		}
		triggers, missed := dispatcher.Recalendar(job.Job, move.names, move.before, move.after, t.now)
		for name, one := range triggers {
			id = append(id, dispatcher.TriggerID(job.App, job.Name, name))
			next, due = append(next, orNullAt(one.NextFireTime)), append(due, orNullAt(one.DueAt))
			state, faults = append(state, string(one.State)), append(faults, one.Error)
		}
		if err := t.insertMisfires(ctx, missed); err != nil {
			return err
		}
	}
	// $1 revision of the app's calendars, from $2 on: the columns
	write := t.rows(0, 2, "", column{"id", bigint}, column{"next", bigint}, column{"due", bigint}, column{"state", text}, column{"error", text}) +
		` UPDATE triggers AS t SET next_fire_time = b.next, due_at = b.due, state = b.state, error = b.error, calendar_revision = $1
			FROM b WHERE t.id = b.id`
	_, err := t.ExecContext(ctx, write, append([]any{revision}, t.batch(id, next, due, state, faults)...)...)
	return err
}
