package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// PendingEnd is the end of a run, or a decision about missed fires, that has yet to be followed.
type PendingEnd struct {
	Key        run.Key // of missed fires, the kind is empty and the instant the first
	JobID      int64
	AppID      int64 // of the job
	EndedAt    time.Time
	StartedAt  *time.Time
	Attempt    int
	HTTPStatus int
	State      run.State // of missed fires: empty
	Class      run.Class
	Reason     string
	// How often it could not be followed, why, and when it is tried again; 0: at once.
	Tries   int
	Problem string
	TryAt   int64
	// judged tells that alerts know of it already, and group that its job calls a group.
	Judged, Group bool
	Salt          run.Salt // of the app
	// What the job and the trigger are called now. follows is 0 if the job is deleted.
	App, Job, Trigger string
	Follows           run.FollowMask
}

// Event returns which event of the job it is.
func (e *PendingEnd) Event() run.FollowEvent {
	switch e.State {
	case "":
		return run.OnMisfire
	case run.Succeeded:
		return run.OnSuccess
	}
	return run.OnFailure
}

// Run returns the id of the run that ended; empty: fires were missed.
func (e *PendingEnd) Run() string {
	if e.Key.Kind == "" {
		return ""
	}
	return e.Key.String()
}

// Missed returns the id that the first of missed fires would have as a run; empty: a run ended.
func (e *PendingEnd) Missed() string {
	if e.Key.Kind != "" {
		return ""
	}
	return run.Key{TriggerID: e.Key.TriggerID, ScheduledAt: e.Key.ScheduledAt, Kind: run.KindSchedule}.String()
}

// PendingEnds returns the pending ends that a query chooses, which is of pending_ends alone.
func PendingEnds(chosen string) string {
	return `SELECT e.ended_at, e.trigger_id, e.scheduled_at, e.kind, e.job_id, e.app_id, e.attempt, e.started_at, e.http_status, e.state,
			e.class, e.error, e.tries, e.problem, e.try_at, e.judged, coalesce(j.target_group, '') <> '',
			coalesce(a.name, ''), a.salt, coalesce(j.name, ''), coalesce(t.name, ''),
			CASE WHEN j.deleted_at IS NULL THEN coalesce(j.follows, 0) ELSE 0 END
		FROM (` + chosen + `) AS e
		LEFT JOIN jobs AS j ON j.id = e.job_id LEFT JOIN apps AS a ON a.id = j.app_id LEFT JOIN triggers AS t ON t.id = e.trigger_id
		ORDER BY e.ended_at, e.trigger_id, e.scheduled_at, e.kind`
}

// ScanPendingEnd reads a row of PendingEnds.
func ScanPendingEnd(row db.Scanner) (e PendingEnd, err error) {
	var kind int
	err = row.Scan(db.InstantColumn(&e.EndedAt), &e.Key.TriggerID, db.InstantColumn(&e.Key.ScheduledAt), &kind, &e.JobID, &e.AppID, &e.Attempt,
		db.OptionalColumn(&e.StartedAt), &e.HTTPStatus, &e.State, &e.Class, &e.Reason, &e.Tries,
		&e.Problem, &e.TryAt, &e.Judged, &e.Group, &e.App, (*[]byte)(&e.Salt), &e.Job, &e.Trigger, &e.Follows)
	e.Key.Kind, _ = run.KindOfCode(byte(kind))
	return e, err
}

// KeyArgs are the parameters of oneEnd.
func (e *PendingEnd) KeyArgs() []any {
	return []any{e.EndedAt.UnixMilli(), e.Key.TriggerID, e.Key.ScheduledAt.UnixMilli(), int64(e.Key.Kind.Code())}
}

// SetAside returns what people are told of an end that is set aside.
func (e *PendingEnd) SetAside() dispatcher.SetAside {
	return dispatcher.SetAside{Work: dispatcher.WorkFollow, App: e.App, Job: e.Job, Run: e.Run(), Problem: e.Problem, Tries: e.Tries,
		TryAt: db.Instant(e.TryAt)}
}

// InsertMisfires records what a change of a definition decided, and queues the runs that follow from it.
func InsertMisfires(ctx context.Context, t *Tx, missed []dispatcher.Misfire) error {
	if len(missed) == 0 {
		return nil
	}
	var from, to, trigger, job, count, decided []int64
	var decision, reason []string
	var catchUp []*int64
	var runs []dispatcher.Misfire
	for _, m := range missed {
		if m.Run != "" {
			runs = append(runs, m)
		}
		if m.Decision == dispatcher.DecisionFireAll {
			continue // its run explains it
		}
		from, to = append(from, m.From.UnixMilli()), append(to, m.To.UnixMilli())
		trigger, job = append(trigger, m.TriggerID), append(job, m.JobID)
		count, decided = append(count, int64(m.Count)), append(decided, m.DecidedAt.UnixMilli())
		decision, reason = append(decision, string(m.Decision)), append(reason, m.Reason)
		catchUp = append(catchUp, nil)
		if m.Run != "" {
			catchUp[len(catchUp)-1] = new(m.To.UnixMilli())
		}
	}
	if err := queueSettled(ctx, t, runs); err != nil || len(from) == 0 {
		return err
	}
	batch := t.Batch(from, to, trigger, job, count, decision, reason, decided, catchUp)
	// From $1 on: db.MisfireColumns
	insert := t.Rows(0, 1, "", db.MisfireColumns...) + ` INSERT INTO misfires (from_at, to_at, trigger_id, job_id, count, decision,
		reason, catch_up, node, decided_at)
		SELECT b.from_at, b.to_at, b.trigger_id, b.job_id, b.missed, b.decision, b.reason, b.run_at, 0, b.decided_at FROM b WHERE 1 = 1
		ON CONFLICT DO NOTHING`
	if _, err := t.ExecContext(ctx, insert, batch...); err != nil {
		return fmt.Errorf("insert %d misfires: %w", len(from), err)
	}
	// From $1 on: db.MisfireColumns
	follow := t.Rows(0, 1, "", db.MisfireColumns...) + ` INSERT INTO pending_ends (ended_at, trigger_id, scheduled_at, kind, job_id, app_id,
		attempt, http_status, state, class, error)
		SELECT b.decided_at, b.trigger_id, b.from_at, 0, b.job_id, j.app_id, 0, 0, '', '', '' FROM b
		JOIN jobs AS j ON j.id = b.job_id AND j.follows <> 0 WHERE (j.follows & 12) <> 0 ON CONFLICT DO NOTHING`
	if _, err := t.ExecContext(ctx, follow, batch...); err != nil {
		return fmt.Errorf("follow %d misfires: %w", len(from), err)
	}
	return NotifyEnds(ctx, t)
}

// queueSettled queues the runs of pending fires that a change of a definition settled. They wait as retries do: until they are
// due, and as long as a pause or a switch holds the job or the trigger.
func queueSettled(ctx context.Context, t *Tx, settled []dispatcher.Misfire) error {
	runs, due := make([]QueuedRun, 0, len(settled)), make(map[run.Key]int64, len(settled))
	for _, m := range settled {
		key, err := run.ParseKey(m.Run)
		if err != nil {
			return fmt.Errorf("run %s: %w", m.Run, err)
		}
		runs, due[key] = append(runs, QueuedRun{Key: key, JobID: m.JobID}), m.RunDueAt.UnixMilli()
	}
	queued, err := QueueRuns(ctx, t, runs)
	if err != nil || len(queued) == 0 {
		return err
	}
	k := db.NewKeys(len(queued))
	dueAt := make([]int64, 0, len(queued))
	for _, key := range queued {
		k.Add(key, 0, 0)
		dueAt = append(dueAt, due[key])
	}
	// From $1 on: db.SettledColumns
	wait := t.Rows(0, 1, "", db.SettledColumns...) + ` UPDATE live_runs AS r SET state = 'retrying', next_attempt_at = b.due,
		revision = (SELECT j.revision FROM jobs AS j WHERE j.id = r.job_id)
		FROM b WHERE r.scheduled_at = b.scheduled_at AND r.trigger_id = b.trigger_id AND r.kind = b.kind`
	if _, err := t.ExecContext(ctx, wait, t.Batch(k.At, k.Trigger, k.Kind, dueAt)...); err != nil {
		return fmt.Errorf("queue %d runs of pending fires: %w", len(queued), err)
	}
	return nil
}
