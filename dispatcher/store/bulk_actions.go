package store

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// bulkAction is a row of bulk_actions.
type bulkAction struct {
	repeat.BulkAction
	id     int64
	cursor string       // of the last job or run that was reached; empty: none was
	by     input.Change // who asked for it, and does what it does

	unreadable error // what was asked for
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
	if err == nil && !ok {
		err = dispatcher.NotFound("bulk action", id)
	}
	return found, err
}

// BulkAction returns a bulk action.
func (s *Store) BulkAction(ctx context.Context, app, id string) (repeat.BulkAction, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	found, err := findBulk(ctx, s.db.Read, app, id, "")
	return found.BulkAction, err
}

// BulkActions lists the bulk actions of an app, the latest first.
func (s *Store) BulkActions(ctx context.Context, app string, page input.Page) ([]repeat.BulkAction, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if _, err := readApp(ctx, s.db.Read, app, ""); err != nil {
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

// CountBulk counts what a bulk action would act on.
func (s *Store) CountBulk(ctx context.Context, app string, spec repeat.BulkSpec) (count repeat.BulkCount, err error) {
	if _, err := readApp(ctx, s.db.Read, app, ""); err != nil {
		return count, err
	}
	if spec.Action == repeat.BulkRetryRuns {
		found, err := s.CountDeadLetters(ctx, spec.Filter.Dead(app, input.Page{}), repeat.MostBulkCounted)
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

// countSelected counts the jobs of an app that a filter selects, up to most.
func (s *Store) countSelected(ctx context.Context, app string, filter repeat.BulkFilter, most int) (int, error) {
	now, err := s.db.Now(ctx, s.db.Read)
	if err != nil {
		return 0, err
	}
	list := summaryList{query: filter.Jobs(app, input.Page{}), recent: db.Day(now.UnixMilli()) - db.DayMillis}
	var args statementArgs
	inner := list.candidates(app, &args)
	filters := list.filters(&args)
	n, _, err := db.First(ctx, s.db.Read, db.ScanInt, `SELECT count(*) FROM (SELECT 1 FROM (SELECT j.id, j.name`+inner+` LIMIT `+
		args.add(mostUnlisted)+`) AS c CROSS JOIN jobs AS j WHERE j.id = c.id`+filters+` LIMIT `+args.add(most)+`) AS found`, args...)
	return int(n), err
}

// countUnended counts the runs of an app that are not over and that a filter selects, up to most.
func (s *Store) countUnended(ctx context.Context, app string, filter repeat.BulkFilter, most int) (int, error) {
	of, err := s.idsOf(ctx, app, filter.Job, "")
	if err != nil {
		return 0, err
	}
	w, err := runConditions(filter.Live(app, input.Page{}), 0)
	if err != nil {
		return 0, err
	}
	if of.job != 0 {
		w.Add("r.job_id = %s", of.job)
	}
	claimed, err := s.claimedNow(ctx)
	if err != nil {
		return 0, err
	}
	many, err := s.hasManyJobs(ctx, run.AppID(app), s.walks.countedJobs)
	if err != nil {
		return 0, err
	}
	list, args := unendedOfApp(w, claimed, run.AppID(app), many, ` LIMIT `+strconv.Itoa(most))
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
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		if _, err := readApp(ctx, t, app, ""); err != nil {
			return err
		}
		id := repeat.NewBackfillID(t.now, rand.Int64())
		// $1 bulk action, $2 app, $3 what was asked for, $4 and $5 what was counted, $6 to $10 by whom, $11 now
		const insert = `INSERT INTO bulk_actions (id, app_id, spec, state, total, more, created_by, token_id, address, request_id,
				traceparent, created_at)
			VALUES ($1, $2, $3, 'running', $4, $5, $6, $7, $8, $9, $10, $11)`
		if _, err := t.ExecContext(ctx, insert, id, run.AppID(app), storable(string(text)), count.Total, count.More,
			storable(t.by.Actor), t.by.TokenID, storable(t.by.Address), storable(t.by.RequestID), t.by.Traceparent, t.now.UnixMilli()); err != nil {
			return fmt.Errorf("create bulk action in app %s: %w", app, err)
		}
		row, err := findBulk(ctx, t, app, repeat.BulkActionID(id), "")
		if err != nil {
			return err
		}
		created = row.BulkAction
		t.notify(dispatcher.Notification{Bulk: true})
		return auditBulk(ctx, t, "create", created)
	})
	return created, err
}

// auditBulk adds a bulk action to the audit log. Each of its changes has an entry of its own.
func auditBulk(ctx context.Context, t *tx, action string, b repeat.BulkAction) error {
	return t.auditChange(ctx, auditEntry{action: action, app: b.App, subject: "bulk action " + b.ID, after: map[string]any{
		"action": b.Action, "filter": b.Filter, "reason": b.Reason, "state": b.State, "total": b.Total, "done": b.Done, "skipped": b.Skipped}})
}

// CancelBulkAction ends a bulk action.
func (s *Store) CancelBulkAction(ctx context.Context, app, id string, change input.Change) (repeat.BulkAction, error) {
	cancelled, _, err := redefine(ctx, s, change, redefinition[bulkAction, repeat.BulkAction, repeat.BulkAction]{
		load: func(ctx context.Context, from source) (bulkAction, error) {
			return findBulk(ctx, from, app, id, from.lock)
		},
		unchanged: func(b bulkAction) (repeat.BulkAction, bool) { return b.BulkAction, b.State == repeat.BulkCancelled },
		decide:    func(b bulkAction, now time.Time) (repeat.BulkAction, error) { return b.Cancel(now) },
		write: func(ctx context.Context, t *tx, b bulkAction, cancelled repeat.BulkAction) (repeat.BulkAction, error) {
			if err := endBulk(ctx, t, b.id, repeat.BulkCancelled, b.cursor); err != nil {
				return cancelled, fmt.Errorf("cancel bulk action %s: %w", id, err)
			}
			return cancelled, auditBulk(ctx, t, "cancel", cancelled)
		},
	})
	return cancelled, err
}
