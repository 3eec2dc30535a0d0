package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

const (
	// bulkPage is how many jobs or runs one step acts on, at most.
	bulkPage = 50
	// bulkPause is how long an action waits for which the app has no quota left.
	bulkPause = 5 * time.Second
	// mostBulkTries is how often a job or run may fail until it is skipped, after some two minutes.
	mostBulkTries = 8
	// mostBulkText bounds what is kept of why a job or run was refused, in bytes.
	mostBulkText = 1024
)

// OpenBulkActions returns the bulk actions that have not ended; none while a rollback awaits its choice.
func (s *Store) OpenBulkActions(ctx context.Context) ([]dispatcher.OpenSteps, error) {
	open, err := s.openSteps(ctx, "bulk_actions")
	if err != nil {
		return nil, fmt.Errorf("look for bulk actions: %w", err)
	}
	return open, nil
}

// bulkItem is a job or a run that a bulk action reaches, and the cursor of what follows it.
type bulkItem struct{ name, cursor string }

// bulkItems selects the next jobs or runs of a bulk action. next is the cursor of the following page; empty: there is none.
func (s *Store) bulkItems(ctx context.Context, app string, spec repeat.BulkSpec, page input.Page) (
	items []bulkItem, next string, err error,
) {
	if spec.Action.OfJobs() {
		jobs, next, err := s.JobSummaries(ctx, spec.Filter.Jobs(app, page))
		for _, job := range jobs {
			items = append(items, bulkItem{job.Name, dispatcher.JobCursor(app, job.Name)})
		}
		return items, next, err
	}
	var runs []run.Run
	if spec.Action == repeat.BulkRetryRuns {
		runs, err = s.deadLetters(ctx, spec.Filter.Dead(app, page), true)
	} else {
		runs, err = s.Runs(ctx, spec.Filter.Live(app, page))
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
	if errors.Is(err, dispatcher.ErrNotFound) { // the job that the filter names, or the app, is gone
		items, next, err = nil, "", nil
	}
	if err != nil {
		return step, fmt.Errorf("select for bulk action %s: %w", b.ID, err)
	}
	for _, item := range items {
		wait, err := s.reachBulk(ctx, b, item)
		if errors.Is(err, errMovedOn) {
			return step, nil // the node that has moved it on goes on
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
	err = s.change(ctx, b.by, func(ctx context.Context, t *tx) error {
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

// errMovedOn says that another node has moved a bulk action on, or that it has ended.
var errMovedOn = errors.New("the bulk action has moved on")

// reachBulk does what a bulk action does to one job or run, in the transaction that moves the action on, or skips it. wait tells
// that the app has no quota left for it now.
func (s *Store) reachBulk(ctx context.Context, b bulkAction, item bulkItem) (wait bool, err error) {
	var unfolded []int64
	err = s.change(ctx, b.by, func(ctx context.Context, t *tx) error {
		if err := moveBulk(ctx, t, b, item.cursor, bulkProgress{done: 1}); err != nil {
			return err
		}
		unfolded, err = s.doBulk(ctx, t, b, item.name)
		failpoint.Hit(failpoint.InBulkAction)
		return err
	})
	s.claims.forget(unfolded...)
	var why string
	problem, isProblem := errors.AsType[*input.Problem](err)
	var problems input.Problems
	switch {
	case err == nil || errors.Is(err, errMovedOn):
		return false, err
	case isProblem && (problem.Code == input.CodeBoundQuota || problem.Code == input.CodeBoundSuspended):
		return true, s.change(ctx, b.by, func(ctx context.Context, t *tx) error {
			return moveBulk(ctx, t, b, b.cursor, bulkProgress{waits: problem.Message})
		})
	case isProblem:
		why = item.name + ": " + problem.Message
	case errors.As(err, &problems):
		why = item.name + ": " + problems.Error()
	case errors.Is(err, errSame), errors.Is(err, dispatcher.ErrConflict), errors.Is(err, dispatcher.ErrNotFound):
	case b.Tries+1 < mostBulkTries || !s.ofStored(ctx, err):
		return false, err
	default:
		why = item.name + ": " + err.Error()
	}
	return false, s.change(ctx, b.by, func(ctx context.Context, t *tx) error {
		return moveBulk(ctx, t, b, item.cursor, bulkProgress{skipped: 1, problem: why})
	})
}

// errSame says that a job is already as a bulk action would make it.
var errSame = errors.New("the job is so already")

// doBulk does what a bulk action does to one job or run.
func (s *Store) doBulk(ctx context.Context, t *tx, b bulkAction, name string) (unfolded []int64, err error) {
	switch b.Action {
	case repeat.BulkPauseJobs, repeat.BulkResumeJobs:
		pause := b.Action == repeat.BulkPauseJobs
		job, err := s.findJob(ctx, t, b.App, name, t.ForUpdate())
		if err != nil {
			return nil, err
		}
		if job.Paused == pause { // the pause of somebody else keeps its reason
			return nil, errSame
		}
		_, _, err = s.jobPause(b.App, name, "", pause, t.by).in(ctx, t)
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

// bulkProgress is what a transaction adds to a bulk action.
type bulkProgress struct {
	done, skipped  int
	problem, waits string
}

// moveBulk moves a bulk action on from where it was read, to a cursor; errMovedOn if it is no longer there.
func moveBulk(ctx context.Context, t *tx, b bulkAction, to string, p bulkProgress) error {
	// $1 bulk action, $2 from, $3 to, $4 done, $5 skipped, $6 why the latest was refused; empty: as it is, $7 why it waits
	const move = `UPDATE bulk_actions SET item = $3, done = done + $4, skipped = skipped + $5,
		problem = CASE WHEN $6 = '' THEN problem ELSE $6 END, waits = $7, tries = 0, try_at = 0 WHERE id = $1 AND item = $2 AND ended_at IS NULL`
	n, err := db.Affect(ctx, t, move, b.id, b.cursor, to, p.done, p.skipped, storable(shortened(p.problem, mostBulkText)),
		storable(shortened(p.waits, mostBulkText)))
	if err == nil && n == 0 {
		err = errMovedOn
	}
	return err
}

// endBulk ends a bulk action that is at a cursor.
func endBulk(ctx context.Context, t *tx, id int64, state repeat.BulkState, at string) error {
	// $1 bulk action, $2 state, $3 now, $4 cursor
	const end = `UPDATE bulk_actions SET state = $2, ended_at = $3, waits = '', tries = 0, try_at = 0
		WHERE id = $1 AND item = $4 AND ended_at IS NULL`
	n, err := db.Affect(ctx, t, end, id, string(state), t.now.UnixMilli(), at)
	if err == nil && n == 0 {
		err = errMovedOn
	}
	return err
}
