package feeds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// backfillPage is the maximum number of instants in one step.
const backfillPage = 200

// OpenBackfills returns the backfills that have not ended; none while a rollback awaits a decision.
func (s *Store) OpenBackfills(ctx context.Context) ([]dispatcher.OpenSteps, error) {
	return s.openSteps(ctx, "backfills")
}

// feeding is a step of a backfill.
type feeding struct {
	backfill
	job    dispatcher.Job
	result repeat.FedBackfill
	waits  string // why it does not continue now; empty: it does
}

// FeedBackfill counts the ended runs of a backfill, and queues runs that may begin.
func (s *Store) FeedBackfill(ctx context.Context, id int64, now time.Time) (fed repeat.FedBackfill, err error) {
	err = s.dispatch.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *dispatch.Tx) error {
		// $1 backfill
		row, found, err := db.First(ctx, t, scanBackfill, backfillRows+`f.id = $1 AND f.ended_at IS NULL`+db.LockOf(t.ForUpdate(), "f"), id)
		if err != nil || !found {
			return err
		}
		if row.TryAt != nil && t.At.Before(*row.TryAt) {
			fed.NextAt = *row.TryAt
			return nil
		}
		inPortions := row.Pace > 0 && row.Pace < input.Duration(portion)
		if at := row.stepAt(t.At); inPortions && row.State == repeat.BackfillRunning && t.At.Before(at) {
			fed.NextAt = at
			return nil
		}
		f := feeding{backfill: row}
		if err := f.countEnded(ctx, t); err != nil {
			return err
		}
		exhausted, err := s.queueNext(ctx, t, &f)
		if problems, is := errors.AsType[input.Problems](err); is {
			f.State, f.Error, err = repeat.BackfillCancelling, problems[0].Message, nil
		}
		if err != nil {
			return err
		}
		fed = f.result
		failpoint.Hit(failpoint.InBackfill)
		return f.write(ctx, t, exhausted)
	})
	if err != nil {
		err = fmt.Errorf("feed backfill %s: %w", repeat.BackfillID(id), err)
		at, errAside := s.setStepAside(ctx, "backfills", id, err, now)
		return repeat.FedBackfill{NextAt: at}, errors.Join(err, errAside)
	}
	return fed, nil
}

// endedRun is an ended run of a backfill with its state; nil: it is not in the history.
type endedRun struct {
	at, trigger int64
	state       *string
}

// countEnded counts the runs that have ended since the last step, and deletes their rows.
func (f *feeding) countEnded(ctx context.Context, t *dispatch.Tx) error {
	// $1 backfill. A run that is nowhere was removed with what its app does not keep.
	const ended = `SELECT x.scheduled_at, x.trigger_id, x.state FROM (SELECT f.scheduled_at, f.trigger_id,
			(SELECT coalesce(r.state, 'succeeded') FROM runs AS r WHERE r.scheduled_at = f.scheduled_at AND r.trigger_id = f.trigger_id
				AND r.kind = 5) AS state,
			EXISTS (SELECT 1 FROM live_runs AS l WHERE l.scheduled_at = f.scheduled_at AND l.trigger_id = f.trigger_id AND l.kind = 5) AS live
		FROM backfill_runs AS f WHERE f.backfill_id = $1) AS x WHERE x.state IS NOT NULL OR NOT x.live`
	all, err := db.ReadRows(ctx, t, func(r *endedRun) []any { return []any{&r.at, &r.trigger, &r.state} }, ended, f.id)
	if err != nil || len(all) == 0 {
		return err
	}
	var at, trigger []int64
	for _, r := range all {
		at, trigger = append(at, r.at), append(trigger, r.trigger)
		state := run.Lost
		if r.state != nil {
			state = run.State(*r.state)
		}
		switch state {
		case run.Succeeded:
			f.Succeeded++
		case run.Cancelled, run.Skipped, run.Superseded:
			f.Cancelled++
		default:
			f.Failed++
		}
	}
	f.Running -= len(all)
	f.result.Ended = len(all)
	// $1 backfill, from $2 on: two of db.KeyColumns
	forget := t.Rows(0, 2, "", db.KeyColumns[:2]...) + ` DELETE FROM backfill_runs
		WHERE backfill_id = $1 AND (scheduled_at, trigger_id) IN (SELECT b.scheduled_at, b.trigger_id FROM b)`
	return t.Exec(ctx, forget, append([]any{f.id}, t.Batch(at, trigger)...)...)
}

// queueNext queues runs of the next instants, as concurrency and pace allow. exhausted means that no instants are left.
func (s *Store) queueNext(ctx context.Context, t *dispatch.Tx, f *feeding) (exhausted bool, err error) {
	if f.deleted && f.State != repeat.BackfillCancelling {
		f.State, f.Error = repeat.BackfillCancelling, "the job was deleted"
	}
	if f.State != repeat.BackfillRunning {
		return false, nil
	}
	if f.unreadable != nil {
		return false, f.unreadable
	}
	if f.job, err = s.definitions.FindJob(ctx, t, f.App, f.Job, ""); err != nil {
		return false, err
	}
	free := f.free(t.At)
	if free <= 0 {
		return false, nil
	}
	if f.waits, err = f.noRoom(ctx, t); err != nil || f.waits != "" {
		f.result.NextAt = t.At.Add(roomAgain)
		return false, err
	}
	page, err := f.page(ctx, t)
	if err != nil || f.State != repeat.BackfillRunning {
		return false, err
	}
	known, err := existing(ctx, t.Flavor, t, page)
	if err != nil {
		return false, err
	}
	var fresh, again []dispatch.QueuedRun
	looked := 0
	for ; looked < len(page); looked++ {
		one := page[looked]
		run, state := known.decide(f.Existing, one)
		if run && len(fresh)+len(again) == free {
			break
		}
		queued := dispatch.QueuedRun{Key: keyOfInstant(one), JobID: f.jobID, Revision: f.job.Revision, Input: f.input()}
		switch {
		case !run:
			f.Skipped++
		case state == inHistory:
			again = append(again, queued)
		default:
			fresh = append(fresh, queued)
		}
		f.cursor = &one
	}
	if err := f.queueAll(ctx, t, fresh, again); err != nil {
		return false, err
	}
	f.result.More = looked == len(page) && len(page) == backfillPage && f.result.Queued < free
	return looked == len(page) && len(page) < backfillPage, nil
}

// roomAgain is the interval at which a backfill checks whether its app has room for its runs.
const roomAgain = 15 * time.Second

// noRoom returns why the app has no room for further runs of the backfill; empty: it has room.
func (f *feeding) noRoom(ctx context.Context, t *dispatch.Tx) (why string, err error) {
	app, err := definitions.FindApp(ctx, t, f.App, "")
	if err != nil {
		return "", err
	}
	most := app.Bounds.Quotas.WaitingRuns
	waiting, err := definitions.WaitingRunsOf(ctx, t, f.App, most)
	if err == nil && waiting >= int64(most) {
		return target.WaitingRunsReached(f.App, waiting, most).Message, nil
	}
	if err == nil {
		err = definitions.MayKeep(ctx, t, app, f.Payload)
	}
	if full, is := errors.AsType[*input.Problem](err); is {
		return full.Message, nil
	}
	return "", err
}

// page returns the next instants, or an error if one of their triggers was removed: its runs could not be made.
func (f *feeding) page(ctx context.Context, t *dispatch.Tx) ([]repeat.BackfillInstant, error) {
	// $1 backfill
	text, _, err := db.First(ctx, t, db.ScanText, `SELECT schedules FROM backfills WHERE id = $1`, f.id)
	if err != nil {
		return nil, err
	}
	var schedules repeat.BackfillSchedules
	if err := json.Unmarshal([]byte(text), &schedules); err != nil {
		return nil, fmt.Errorf("read its schedules: %w", err)
	}
	there := make(map[int64]bool, len(f.job.Triggers))
	for name := range f.job.Triggers {
		there[f.job.TriggerKey(name)] = true
	}
	for _, trigger := range schedules.Triggers {
		if !there[trigger.ID] {
			f.State, f.Error = repeat.BackfillCancelling, fmt.Sprintf("trigger %s of the job was removed", trigger.Name)
			return nil, nil
		}
	}
	return f.Next(ctx, schedules, f.cursor, backfillPage)
}

// portion is the minimum time between two steps of a backfill with a pace. A step costs about as much as the runs that
// it queues, so with a pace of milliseconds runs are counted and queued in portions.
const portion = 100 * time.Millisecond

// paced returns when the next run may be queued. Unused time of the last second is made up for, so that the pace holds
// on average.
func (b backfill) paced(now time.Time) time.Time {
	last := db.Instant(b.nextAt)
	if saved := now.Add(-time.Second); last.Before(saved) {
		last = saved
	}
	return last
}

// stepAt returns when the next step queues runs of a backfill with a pace.
func (b backfill) stepAt(now time.Time) time.Time {
	return b.paced(now).Add(max(0, portion-time.Duration(b.Pace)))
}

// free returns how many runs may be queued now. A job with a bound has at most as many of them in progress as slots, so
// that its own fires do not wait behind them.
func (f *feeding) free(now time.Time) int {
	free := f.Concurrency
	if slots := f.job.Slots(); slots > 0 {
		free = min(free, slots)
	}
	free -= f.Running
	if f.Pace == 0 || free <= 0 {
		return free
	}
	if at := f.stepAt(now); now.Before(at) {
		f.result.NextAt = at
		return 0
	}
	return min(free, 1+int(now.Sub(f.paced(now))/time.Duration(f.Pace)))
}

// input is the input of the runs of the backfill.
func (f *feeding) input() *run.Input {
	return &run.Input{Payload: f.Payload, Traceparent: f.traceparent, Cause: &run.Cause{Backfill: f.ID,
		Range: &run.Range{From: f.From, To: f.To}}}
}

// queueAll queues fresh runs, and brings others back from the history.
func (f *feeding) queueAll(ctx context.Context, t *dispatch.Tx, fresh, again []dispatch.QueuedRun) error {
	queued, err := dispatch.QueueRuns(ctx, t, fresh)
	if err != nil {
		return err
	}
	for _, run := range again {
		if err := bringBack(ctx, t, run); err != nil {
			return fmt.Errorf("run %s: %w", run.Key, err)
		}
		queued = append(queued, run.Key)
	}
	f.Skipped += len(fresh) + len(again) - len(queued) // they were requested meanwhile
	f.Queued += len(queued)
	f.Running += len(queued)
	f.result.Queued = len(queued)
	if len(queued) == 0 {
		return nil
	}
	var at, trigger []int64
	for _, key := range queued {
		at, trigger = append(at, key.ScheduledAt.UnixMilli()), append(trigger, key.TriggerID)
	}
	// $1 backfill, from $2 on: two of db.KeyColumns
	note := t.Rows(0, 2, "", db.KeyColumns[:2]...) + ` INSERT INTO backfill_runs (backfill_id, scheduled_at, trigger_id)
		SELECT $1, b.scheduled_at, b.trigger_id FROM b`
	if err := t.Exec(ctx, note, append([]any{f.id}, t.Batch(at, trigger)...)...); err != nil {
		return err
	}
	if pace := time.Duration(f.Pace); pace > 0 {
		f.nextAt = f.paced(t.At).UnixMilli() + int64(len(queued))*pace.Milliseconds()
		f.result.NextAt = f.stepAt(t.At)
	}
	return nil
}

// bringBack queues a run of the history again, with a new input. Its attempts are kept. A broadcast comes back with the
// failed shards, or with all if none failed.
func bringBack(ctx context.Context, t *dispatch.Tx, r dispatch.QueuedRun) error {
	shards, err := dispatch.EndedShards(ctx, t, r.Key)
	if err != nil {
		return err
	}
	counts := &run.ShardCounts{}
	for _, shard := range shards {
		if shard.State != run.Succeeded {
			counts.Failed++
		}
	}
	if err := dispatch.WriteInputs(ctx, t, []dispatch.QueuedRun{r}); err != nil {
		return err
	}
	key := append(dispatch.KeyArgs(r.Key), r.JobID)
	if len(shards) > 0 {
		return dispatch.RetryBroadcast(ctx, t, r.String(), key, counts)
	}
	t.Notify(dispatcher.Notification{Adopt: true})
	for _, step := range []string{dispatch.KeepLatest(dispatch.IsRun), dispatch.BackToLive(0) + dispatch.IsRun,
		`DELETE FROM runs AS r WHERE` + dispatch.IsRun} {
		if err := t.Exec(ctx, step, key...); err != nil {
			return err
		}
	}
	return nil
}

// write stores the progress of the backfill.
func (f *feeding) write(ctx context.Context, t *dispatch.Tx, exhausted bool) error {
	var ended *time.Time
	if f.Running == 0 && (exhausted || f.State == repeat.BackfillCancelling) {
		ended = &t.At
		if f.State = repeat.BackfillCancelled; exhausted {
			f.State = repeat.BackfillComplete
		}
		if reached := f.Queued + f.Skipped; exhausted && reached != f.Total {
			f.Error = fmt.Sprintf("%d instants were counted at first, and %d were reached: the time zone data of the nodes changed meanwhile",
				f.Total, reached)
		}
	}
	at, trigger := (*int64)(nil), int64(0)
	if f.cursor != nil {
		at, trigger = db.OrNull(f.cursor.At), f.cursor.TriggerID
	}
	// $1 backfill, $2 state, $3 why, $4 to $8 counts, $9 and $10 cursor, $11 pace, $12 when it ended, $13 why it waits
	const write = `UPDATE backfills SET state = $2, error = $3, queued = $4, skipped = $5, succeeded = $6, failed = $7, cancelled = $8,
		cursor_at = $9, cursor_trigger = $10, next_at = $11, ended_at = $12, waits = $13, tries = 0, try_at = 0 WHERE id = $1`
	return t.Exec(ctx, write, f.id, string(f.State), dispatch.Storable(f.Error), f.Queued, f.Skipped, f.Succeeded, f.Failed,
		f.Cancelled, at, trigger, f.nextAt, db.OrNullAt(ended), f.waits)
}
