package feeds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/store/reads"
)

// bulkAction is a row of bulk_actions.
type bulkAction struct {
	repeat.BulkAction
	id     int64
	cursor string       // of the last job or run processed; empty: none
	by     input.Change // the author, in whose name it acts

	unreadable error // the stored request
}

const bulkRows = `SELECT b.id, a.name, b.spec, b.state, b.waits, b.tries, b.try_at, b.total, b.more, b.done, b.skipped, b.problem, b.item,
		b.created_by, b.token_id, b.address, b.request_id, b.traceparent, b.created_at, b.ended_at
	FROM bulk_actions AS b JOIN apps AS a ON a.id = b.app_id WHERE `

func scanBulk(row db.Scanner) (b bulkAction, err error) {
	var spec string
	var tryAt int64
	err = row.Scan(&b.id, &b.App, &spec, &b.State, &b.Waits, &b.Tries, &tryAt, &b.Total, &b.More, &b.Done, &b.Skipped, &b.Problem,
		&b.cursor, &b.CreatedBy, &b.by.TokenID, &b.by.Address, &b.by.RequestID, &b.by.Traceparent,
		db.InstantColumn(&b.CreatedAt), db.OptionalColumn(&b.EndedAt))
	if err != nil {
		return b, err
	}
	b.ID, b.by.Actor = repeat.BulkActionID(b.id), b.CreatedBy
	if err := json.Unmarshal([]byte(spec), &b.BulkSpec); err != nil {
		b.unreadable = fmt.Errorf("read what bulk action %s does: %w", b.ID, err)
	}
	b.by.Reason, b.TryAt = b.Reason, orNothing(tryAt)
	return b, nil
}

// findBulk returns a bulk action of an app, or ErrNotFound. lock locks its row.
func findBulk(ctx context.Context, q db.Querier, app, id, lock string) (bulkAction, error) {
	key, err := repeat.ParseBulkActionID(id)
	if err != nil {
		return bulkAction{}, dispatcher.NotFound("bulk action", input.Echo(id))
	}
	// $1 bulk action, $2 app
	found, ok, err := db.First(ctx, q, scanBulk, bulkRows+`b.id = $1 AND b.app_id = $2`+db.LockOf(lock, "b"), key, run.AppID(app))
	return found, db.OrNotFound(ok, err, "bulk action", id)
}

// BulkAction returns a bulk action.
func (s *Store) BulkAction(ctx context.Context, app, id string) (repeat.BulkAction, error) {
	found, err := findBulk(ctx, s.db.Read, app, id, "")
	return found.BulkAction, err
}

// BulkActions lists the bulk actions of an app, the latest first.
func (s *Store) BulkActions(ctx context.Context, app string, page input.Page) ([]repeat.BulkAction, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if _, err := definitions.ReadApp(ctx, s.db.Read, app, ""); err != nil {
		return nil, err
	}
	var w db.Conditions
	w.Add("b.app_id = %s", run.AppID(app))
	if page.Cursor != "" {
		after, err := repeat.ParseBulkActionID(page.Cursor)
		if err != nil {
			return nil, fmt.Errorf("cursor %s: %w", input.Echo(page.Cursor), err)
		}
		w.Add("b.id < %s", after)
	}
	rows, err := db.Collect(ctx, s.db.Read, scanBulk, bulkRows+`1 = 1`+w.Text+` ORDER BY b.id DESC LIMIT `+strconv.Itoa(page.Limit), w.Args...)
	all := make([]repeat.BulkAction, len(rows))
	for i, row := range rows {
		all[i] = row.BulkAction
	}
	return all, err
}

// CountBulk counts the jobs or runs that a bulk action would change.
func (s *Store) CountBulk(ctx context.Context, app string, spec repeat.BulkSpec) (count repeat.BulkCount, err error) {
	if _, err := definitions.ReadApp(ctx, s.db.Read, app, ""); err != nil {
		return count, err
	}
	if spec.Action == repeat.BulkRetryRuns {
		found, err := s.reads.CountDeadLetters(ctx, spec.Filter.Dead(app, input.Page{}), repeat.MostBulkCounted)
		return repeat.BulkCount{Total: found.Count, More: found.More}, err
	}
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	counting := s.countUnended
	if spec.Action.OfJobs() {
		counting = s.countSelected
	}
	n, err := counting(ctx, app, spec.Filter, repeat.MostBulkCounted+1)
	if err != nil {
		return count, fmt.Errorf("count for a bulk action in app %s: %w", input.Echo(app), err)
	}
	return repeat.BulkCount{Total: min(n, repeat.MostBulkCounted), More: n > repeat.MostBulkCounted}, nil
}

func (s *Store) countSelected(ctx context.Context, app string, filter repeat.BulkFilter, most int) (int, error) {
	now, err := s.db.Now(ctx, s.db.Read)
	if err != nil {
		return 0, err
	}
	list := reads.SummaryList{Query: filter.Jobs(app, input.Page{}), Recent: db.Day(now.UnixMilli()) - db.DayMillis}
	var args definitions.StatementArgs
	inner := list.Candidates(app, &args)
	filters := list.Filters(&args)
	n, _, err := db.First(ctx, s.db.Read, db.ScanInt, `SELECT count(*) FROM (SELECT 1 FROM (SELECT j.id, j.name`+inner+` LIMIT `+
		args.Add(reads.MostUnlisted)+`) AS c CROSS JOIN jobs AS j WHERE j.id = c.id`+filters+` LIMIT `+args.Add(most)+`) AS found`, args...)
	return int(n), err
}

// countUnended counts the unfinished runs of an app that a filter selects, up to most.
func (s *Store) countUnended(ctx context.Context, app string, filter repeat.BulkFilter, most int) (int, error) {
	of, err := s.reads.IDsOf(ctx, app, filter.Job, "")
	if err != nil {
		return 0, err
	}
	w, err := reads.RunConditions(filter.Live(app, input.Page{}), 0)
	if err != nil {
		return 0, err
	}
	if of.Job != 0 {
		w.Add("r.job_id = %s", of.Job)
	}
	claimed, err := s.reads.ClaimedNow(ctx)
	if err != nil {
		return 0, err
	}
	many, err := s.reads.HasManyJobs(ctx, run.AppID(app), s.reads.Walks.CountedJobs)
	if err != nil {
		return 0, err
	}
	list, args := reads.UnendedOfApp(w, claimed, run.AppID(app), many, ` LIMIT `+strconv.Itoa(most))
	n, _, err := db.First(ctx, s.db.Read, db.ScanInt, `SELECT count(*) FROM (`+list+`) AS found`, args...)
	return int(n), err
}

// CreateBulkAction begins a bulk action.
func (s *Store) CreateBulkAction(
	ctx context.Context, app string, spec repeat.BulkSpec, count repeat.BulkCount, change input.Change,
) (created repeat.BulkAction, err error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return created, fmt.Errorf("write what a bulk action does: %w", err)
	}
	err = s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		if _, err := definitions.ReadApp(ctx, t, app, ""); err != nil {
			return err
		}
		id := repeat.NewBackfillID(t.At, rand.Int64())
		// $1 bulk action, $2 app, $3 what was asked for, $4 and $5 what was counted, $6 to $10 by whom, $11 now
		const insert = `INSERT INTO bulk_actions (id, app_id, spec, state, total, more, created_by, token_id, address, request_id,
				traceparent, created_at)
			VALUES ($1, $2, $3, 'running', $4, $5, $6, $7, $8, $9, $10, $11)`
		if err := t.Exec(ctx, insert, id, run.AppID(app), dispatch.Storable(string(text)), count.Total, count.More,
			dispatch.Storable(t.By.Actor), t.By.TokenID, dispatch.Storable(t.By.Address), dispatch.Storable(t.By.RequestID), t.By.Traceparent,
			t.At.UnixMilli()); err != nil {
			return fmt.Errorf("create bulk action in app %s: %w", app, err)
		}
		row, err := findBulk(ctx, t, app, repeat.BulkActionID(id), "")
		if err != nil {
			return err
		}
		created = row.BulkAction
		t.Notify(dispatcher.Notification{Bulk: true})
		return auditBulk(ctx, t, "create", created)
	})
	return created, err
}

// auditBulk adds a bulk action to the audit log. Each of its changes has its own entry.
func auditBulk(ctx context.Context, t *dispatch.Tx, action string, b repeat.BulkAction) error {
	return t.AuditChange(ctx, dispatch.AuditEntry{Action: action, App: b.App, Subject: "bulk action " + b.ID, After: map[string]any{
		"action": b.Action, "filter": b.Filter, "reason": b.Reason, "state": b.State, "total": b.Total, "done": b.Done, "skipped": b.Skipped}})
}

// CancelBulkAction ends a bulk action.
func (s *Store) CancelBulkAction(ctx context.Context, app, id string, change input.Change) (repeat.BulkAction, error) {
	type cancellation = definitions.Redefinition[bulkAction, repeat.BulkAction, repeat.BulkAction]
	cancelled, _, err := definitions.Redefine(ctx, s.definitions, change, cancellation{
		Load: func(ctx context.Context, from definitions.Source) (bulkAction, error) {
			return findBulk(ctx, from, app, id, from.Lock)
		},
		Unchanged: func(b bulkAction) (repeat.BulkAction, bool) { return b.BulkAction, b.State == repeat.BulkCancelled },
		Decide:    func(b bulkAction, now time.Time) (repeat.BulkAction, error) { return b.Cancel(now) },
		Write: func(ctx context.Context, t *dispatch.Tx, b bulkAction, cancelled repeat.BulkAction) (repeat.BulkAction, error) {
			if err := endBulk(ctx, t, b.id, repeat.BulkCancelled, b.cursor); err != nil {
				return cancelled, fmt.Errorf("cancel bulk action %s: %w", id, err)
			}
			return cancelled, auditBulk(ctx, t, "cancel", cancelled)
		},
	})
	return cancelled, err
}

const (
	// bulkPage is the maximum number of jobs or runs in one step.
	bulkPage = 50
	// bulkPause is how long an action waits when its app has no quota left.
	bulkPause = 5 * time.Second
	// mostBulkTries is how often a job or run may fail before it is skipped, after some two minutes.
	mostBulkTries = 8
	// mostBulkText bounds the stored reason why a job or run was refused, in bytes.
	mostBulkText = 1024
)

// OpenBulkActions returns the bulk actions that have not ended; none while a rollback awaits a decision.
func (s *Store) OpenBulkActions(ctx context.Context) ([]dispatcher.OpenSteps, error) {
	return s.openSteps(ctx, "bulk_actions")
}

// bulkItem is a job or a run for a bulk action, with the cursor after it.
type bulkItem struct{ name, cursor string }

// bulkItems selects the next jobs or runs of a bulk action. next is the cursor of the following page; empty: none.
func (s *Store) bulkItems(ctx context.Context, app string, spec repeat.BulkSpec, page input.Page) (
	items []bulkItem, next string, err error,
) {
	if spec.Action.OfJobs() {
		jobs, next, err := s.reads.JobSummaries(ctx, spec.Filter.Jobs(app, page))
		for _, job := range jobs {
			items = append(items, bulkItem{job.Name, dispatcher.JobCursor(app, job.Name)})
		}
		return items, next, err
	}
	var runs []run.Run
	if spec.Action == repeat.BulkRetryRuns {
		runs, err = s.reads.FindDeadLetters(ctx, spec.Filter.Dead(app, page), true)
	} else {
		runs, err = s.reads.Runs(ctx, spec.Filter.Live(app, page))
	}
	for _, run := range runs {
		items = append(items, bulkItem{run.ID, run.ID})
	}
	if len(items) == page.Limit {
		next = items[len(items)-1].cursor
	}
	return items, next, err
}

// StepBulkAction acts on the next jobs or runs of a bulk action, or notes why it cannot.
func (s *Store) StepBulkAction(ctx context.Context, id int64, now time.Time) (repeat.BulkStep, error) {
	step, err := s.stepBulk(ctx, id, now)
	if err != nil {
		at, errAside := s.setStepAside(ctx, "bulk_actions", id, err, now)
		return repeat.BulkStep{TryAt: at}, errors.Join(err, errAside)
	}
	return step, nil
}

func (s *Store) stepBulk(ctx context.Context, id int64, now time.Time) (step repeat.BulkStep, err error) {
	// $1 bulk action
	b, found, err := db.First(ctx, s.db.Read, scanBulk, bulkRows+`b.id = $1 AND b.ended_at IS NULL`, id)
	if err != nil || !found {
		return step, err
	}
	if b.unreadable != nil {
		return step, b.unreadable
	}
	b.by.Now = now
	items, next, err := s.bulkItems(ctx, b.App, b.BulkSpec, input.Page{Limit: bulkPage, Cursor: b.cursor})
	if errors.Is(err, dispatcher.ErrNotFound) { // the job named by the filter, or the app, was deleted
		items, next, err = nil, "", nil
	}
	if err != nil {
		return step, fmt.Errorf("select for bulk action %s: %w", b.ID, err)
	}
	for _, item := range items {
		wait, err := s.reachBulk(ctx, b, item)
		if errors.Is(err, errMovedOn) {
			return step, nil // the node that has moved it on continues
		}
		if err != nil {
			return step, fmt.Errorf("bulk action %s: %s %s: %w", b.ID, b.Action, item.name, err)
		}
		if wait {
			step.Waits = bulkPause
			return step, nil
		}
		b.cursor, b.Tries = item.cursor, 0
		step.Reached++
		step.Adopt = step.Adopt || b.Action == repeat.BulkRunJobs || b.Action == repeat.BulkRetryRuns
	}
	step.More = next != ""
	err = s.dispatch.Change(ctx, b.by, func(ctx context.Context, t *dispatch.Tx) error {
		if next == "" {
			return endBulk(ctx, t, b.id, repeat.BulkComplete, b.cursor)
		}
		return moveBulk(ctx, t, b, next, bulkProgress{})
	})
	if errors.Is(err, errMovedOn) {
		err = nil
	}
	return step, err
}

// errMovedOn means that another node has moved a bulk action on, or that it has ended.
var errMovedOn = errors.New("the bulk action has moved on")

// reachBulk applies a bulk action to one job or run, in the transaction that moves the action on, or skips it. wait
// means that the app has no quota left for it now.
func (s *Store) reachBulk(ctx context.Context, b bulkAction, item bulkItem) (wait bool, err error) {
	var unfolded []int64
	err = s.dispatch.Change(ctx, b.by, func(ctx context.Context, t *dispatch.Tx) error {
		if err := moveBulk(ctx, t, b, item.cursor, bulkProgress{done: 1}); err != nil {
			return err
		}
		unfolded, err = s.doBulk(ctx, t, b, item.name)
		failpoint.Hit(failpoint.InBulkAction)
		return err
	})
	s.dispatch.Claims.Forget(unfolded...)
	var why string
	problem, isProblem := errors.AsType[*input.Problem](err)
	var problems input.Problems
	switch {
	case err == nil || errors.Is(err, errMovedOn):
		return false, err
	case isProblem && (problem.Code == input.CodeBoundQuota || problem.Code == input.CodeBoundSuspended):
		return true, s.dispatch.Change(ctx, b.by, func(ctx context.Context, t *dispatch.Tx) error {
			return moveBulk(ctx, t, b, b.cursor, bulkProgress{waits: problem.Message})
		})
	case isProblem:
		why = item.name + ": " + problem.Message
	case errors.As(err, &problems):
		why = item.name + ": " + problems.Error()
	case errors.Is(err, errSame), errors.Is(err, dispatcher.ErrConflict), errors.Is(err, dispatcher.ErrNotFound):
	case b.Tries+1 < mostBulkTries || !s.dispatch.OfStored(ctx, err):
		return false, err
	default:
		why = item.name + ": " + err.Error()
	}
	return false, s.dispatch.Change(ctx, b.by, func(ctx context.Context, t *dispatch.Tx) error {
		return moveBulk(ctx, t, b, item.cursor, bulkProgress{skipped: 1, problem: why})
	})
}

// errSame means that a bulk action would not change a job.
var errSame = errors.New("the job is so already")

// doBulk applies a bulk action to one job or run.
func (s *Store) doBulk(ctx context.Context, t *dispatch.Tx, b bulkAction, name string) (unfolded []int64, err error) {
	switch b.Action {
	case repeat.BulkPauseJobs, repeat.BulkResumeJobs:
		pause := b.Action == repeat.BulkPauseJobs
		job, err := s.definitions.FindJob(ctx, t, b.App, name, t.ForUpdate())
		if err != nil {
			return nil, err
		}
		if job.Paused == pause { // a pause by another user keeps its reason
			return nil, errSame
		}
		_, _, err = s.definitions.JobPause(b.App, name, "", pause, t.By).In(ctx, t)
		return nil, err
	case repeat.BulkRunJobs:
		_, err = s.requestRun(ctx, t, b.App, name, nil)
		return nil, err
	case repeat.BulkCancelRuns:
		_, unfolded, err = s.changeRunIn(ctx, t, name, "cancel", cancelRun)
		return unfolded, err
	case repeat.BulkRetryRuns:
		_, unfolded, err = s.changeRunIn(ctx, t, name, "retry", retryRun)
		return unfolded, err
	}
	return nil, fmt.Errorf("action %s is unknown to this version", input.Echo(string(b.Action)))
}

// bulkProgress is the progress that a transaction adds to a bulk action.
type bulkProgress struct {
	done, skipped  int
	problem, waits string
}

// moveBulk moves a bulk action on from its last read cursor; errMovedOn if it is no longer there.
func moveBulk(ctx context.Context, t *dispatch.Tx, b bulkAction, to string, p bulkProgress) error {
	// $1 bulk action, $2 from, $3 to, $4 done, $5 skipped, $6 why the latest was refused; empty: as it is, $7 why it waits
	const move = `UPDATE bulk_actions SET item = $3, done = done + $4, skipped = skipped + $5,
		problem = CASE WHEN $6 = '' THEN problem ELSE $6 END, waits = $7, tries = 0, try_at = 0 WHERE id = $1 AND item = $2 AND ended_at IS NULL`
	n, err := db.Affect(ctx, t, move, b.id, b.cursor, to, p.done, p.skipped, dispatch.Storable(dispatch.Shortened(p.problem, mostBulkText)),
		dispatch.Storable(dispatch.Shortened(p.waits, mostBulkText)))
	if err == nil && n == 0 {
		err = errMovedOn
	}
	return err
}

func endBulk(ctx context.Context, t *dispatch.Tx, id int64, state repeat.BulkState, at string) error {
	// $1 bulk action, $2 state, $3 now, $4 cursor
	const end = `UPDATE bulk_actions SET state = $2, ended_at = $3, waits = '', tries = 0, try_at = 0
		WHERE id = $1 AND item = $4 AND ended_at IS NULL`
	n, err := db.Affect(ctx, t, end, id, string(state), t.At.UnixMilli(), at)
	if err == nil && n == 0 {
		err = errMovedOn
	}
	return err
}
