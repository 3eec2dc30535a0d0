package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// failedRun is a live run that failed alone in some work.
type failedRun struct {
	work dispatcher.Work
	key  run.Key
	// token is that of the attempt of the calling node; 0: no live node may hold the run.
	token run.Token
	why   error
}

// setRunAside sets a run aside. If the run was taken or ended meanwhile, it stays as it is. A run of a deleted job ends
// instead, as nodes end others at their next attempt.
func (s *Store) setRunAside(ctx context.Context, run failedRun, now time.Time) error {
	var aside *dispatcher.SetAside
	hide := func(all bool) error {
		return s.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *Tx) (err error) {
			aside, err = hideRun(ctx, t, run, all)
			return err
		})
	}
	err := hide(true)
	if s.OfStored(ctx, err) {
		err = hide(false) // it cannot even end, or leave its slots
	}
	switch {
	case s.OfStored(ctx, err):
		aside = &dispatcher.SetAside{Work: run.work, Run: run.key.String(), Problem: ProblemOf(run.why)}
		notKept(aside, now, err)
		s.Asides.remember(run.work, aside.Run, aside.TryAt)
	case err != nil:
		return fmt.Errorf("set run %s aside: %w", run.key, errors.Join(run.why, err))
	}
	if aside != nil {
		s.Asides.Report(ctx, *aside)
	}
	return nil
}

// hideRun is setRunAside in a transaction. It returns the row that is set aside, or nil. Without all, the run keeps its
// slots, and does not end if its job was deleted.
func hideRun(ctx context.Context, t *Tx, failed failedRun, all bool) (*dispatcher.SetAside, error) {
	// $1 to $3 key
	const read = `SELECT r.job_id, r.node, r.token, r.state, NOT EXISTS (SELECT 1 FROM nodes AS o WHERE o.id = r.node AND o.state <> 'dead')
			OR r.state IN ('retrying', 'waiting_callback', 'waiting_shards'),
			EXISTS (SELECT 1 FROM jobs AS j WHERE j.id = r.job_id AND j.deleted_at IS NOT NULL)
		FROM live_runs AS r WHERE r.scheduled_at = $1 AND r.trigger_id = $2 AND r.kind = $3`
	var live struct {
		job, node, token int64
		state            run.State
		dead             bool // its node is dead, or it has none
		gone             bool // its job is deleted
	}
	found, err := db.ReadRow(ctx, t, []any{&live.job, &live.node, &live.token, &live.state, &live.dead, &live.gone},
		read+db.LockOf(t.ForUpdate(), "r"), KeyArgs(failed.key)[:3]...)
	free := live.dead && failed.token == 0 || failed.token != 0 && live.token == int64(failed.token)
	if err != nil || !found || live.node == asideNode || !free {
		return nil, err
	}
	row := AsideRow{Work: failed.work, Item: failed.key.String(), Job: live.job, key: failed.key, node: live.node, state: live.state}
	shown := dispatcher.SetAside{Work: failed.work, Run: row.Item, Problem: ProblemOf(failed.why)}
	if _, err = setAside(ctx, t, row, &shown); err != nil {
		return nil, err
	}
	// $1 to $3 key, $4 why, $5 job
	const hide = `UPDATE live_runs SET node = -3, token = 0, waits_for = 0, class = 'other', error = $4,
		state = CASE WHEN state IN ('retrying', 'waiting_callback', 'waiting_shards') THEN 'queued' ELSE state END
		WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3 AND job_id = $5`
	why := Storable("set aside, tried again at " + input.FormatInstant(shown.TryAt) + ": " + shown.Problem)
	if err = t.Exec(ctx, hide, append(KeyArgs(failed.key), why, live.job)...); err != nil {
		return nil, err
	}
	if !all {
		return &shown, nil
	}
	// $1 to $3 key, $4 job. Its slots go to other runs of the job in the handler's next round.
	const leave = `DELETE FROM slots WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3 AND job_id = $4`
	if err = t.Exec(ctx, leave, append(KeyArgs(failed.key), live.job)...); err != nil || !live.gone {
		return &shown, err
	}
	if err = endAside(ctx, t, failed.key); err == nil {
		err = ForgetAside(ctx, t, row.Item)
	}
	return nil, err
}

// asideEntry is a row of set_aside.
type asideEntry struct {
	AsideRow
	tries  int
	tryAt  int64
	exists bool // the run is still set aside
	gone   bool // its job or app is deleted
}

func scanAsideEntry(row db.Scanner) (e asideEntry, err error) {
	err = row.Scan(&e.Work, &e.Item, &e.App, &e.Job, db.InstantColumn(&e.key.ScheduledAt), &e.key.TriggerID, db.KindColumn(&e.key), &e.node,
		&e.state, &e.tries, &e.tryAt, &e.exists, &e.gone)
	return e, err
}

func asideEntries(condition string) string {
	return `SELECT x.work, x.item, x.app_id, x.job_id, x.scheduled_at, x.trigger_id, x.kind, x.node, x.state, x.tries, x.try_at,
			EXISTS (SELECT 1 FROM live_runs AS r WHERE r.scheduled_at = x.scheduled_at AND r.trigger_id = x.trigger_id
				AND r.kind = x.kind AND r.node = -3),
			EXISTS (SELECT 1 FROM jobs AS j JOIN apps AS a ON a.id = j.app_id
				WHERE j.id = x.job_id AND (j.deleted_at IS NOT NULL OR a.deleted_at IS NOT NULL))
		FROM set_aside AS x WHERE ` + condition
}

// RetrySetAside lets runs be found again after their pause, and reads which rows other nodes have set aside.
func (s *Store) RetrySetAside(ctx context.Context, limit int, now time.Time) (retried int, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if now, err = s.db.OrClock(ctx, now); err != nil {
		return 0, err
	}
	// $1 now, $2 limit
	due, err := db.Collect(ctx, s.db.Read, scanAsideEntry, asideEntries(`x.try_at <= $1 ORDER BY x.try_at LIMIT $2`), now.UnixMilli(), limit)
	if err != nil {
		return 0, fmt.Errorf("look for rows that are set aside: %w", err)
	}
	var errs []error
	for _, entry := range due {
		again := false
		err := s.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *Tx) (err error) {
			again, err = retryAside(ctx, t, entry)
			return err
		})
		if err != nil && !s.OfStored(ctx, err) {
			return retried, fmt.Errorf("try %s again: %w", entry.Item, err)
		}
		if err != nil {
			errs = append(errs, s.SetAside(ctx, entry.AsideRow, err, now))
		}
		if again {
			retried++
		}
	}
	s.Asides.prune(now)
	// $1 now, $2 limit
	left, err := db.Collect(ctx, s.db.Read, scanAsideEntry, asideEntries(`x.try_at > $1 AND x.kind = 0 ORDER BY x.try_at LIMIT $2`),
		now.UnixMilli(), limit)
	for _, entry := range left {
		s.Asides.remember(entry.Work, entry.Item, db.Instant(entry.tryAt))
	}
	return retried, errors.Join(append(errs, err)...)
}

// retryAside lets a row be tried again, or deletes its entry if it was, and reports whether a run may now be taken.
func retryAside(ctx context.Context, t *Tx, entry asideEntry) (again bool, err error) {
	late := entry.tryAt <= t.At.Add(-asideGrace).UnixMilli()
	switch {
	case entry.exists && entry.gone:
		err = endAside(ctx, t, entry.key)
	case entry.gone && entry.Work == dispatcher.WorkUnfold:
		err = endAsideClaims(ctx, t, entry.Job)
	case entry.exists:
		again, err = bringAsideBack(ctx, t, entry)
		if err == nil && again {
			t.Notify(dispatcher.Notification{Adopt: true})
		}
		return again, err
	case !entry.gone && !late:
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// $1 work, $2 item
	err = t.Exec(ctx, `DELETE FROM set_aside WHERE work = $1 AND item = $2`, entry.Work, entry.Item)
	return false, err
}

// bringAsideBack restores the node and state of a run, so that the next search finds it. A run that its node had begun
// goes back to that node: it ends as lost once the node is dead.
func bringAsideBack(ctx context.Context, t *Tx, entry asideEntry) (bool, error) {
	// $1 to $3 key, $4 node, $5 state, $6 now, $7 job
	const back = `UPDATE live_runs AS r SET class = '', error = '',
			node = CASE WHEN $5 IN ('running', 'waiting_shards') OR EXISTS (SELECT 1 FROM nodes AS o WHERE o.id = $4 AND o.state = 'dead') OR $4 < 0
				THEN CAST($4 AS BIGINT) ELSE 0 END,
			state = CASE WHEN $5 IN ('running', 'retrying', 'waiting_callback', 'waiting_shards') OR $4 < 0
					OR EXISTS (SELECT 1 FROM nodes AS o WHERE o.id = $4 AND o.state = 'dead') THEN $5 ELSE 'queued' END,
			next_attempt_at = CASE WHEN next_attempt_at IS NULL THEN NULL ELSE CAST($6 AS BIGINT) END
		WHERE r.scheduled_at = $1 AND r.trigger_id = $2 AND r.kind = $3 AND r.job_id = $7 AND r.node = -3`
	n, err := t.Affect(ctx, back, append(KeyArgs(entry.key)[:3:3], entry.node, string(entry.state), t.At.UnixMilli(), entry.Job)...)
	return n > 0, err
}

// endAside ends a run that is set aside after its job was deleted.
func endAside(ctx context.Context, t *Tx, key run.Key) error {
	// $1 now, from $2 on: the key
	ended := t.Steps(1, t.Rows(1, 2, "", db.KeyColumns[:3]...), `SELECT`+ChosenEnd(End{
		State: `'cancelled'`, Class: `'job_deleted'`, Message: `'the job was deleted before this attempt began'`,
	})+` FROM n CROSS JOIN b JOIN live_runs AS r ON`+db.OfBatch(t.Flavor)+` AND r.node = -3`, db.LockToDelete, 1, EndSteps(t.Flavor, "")...)
	k := db.NewKeys(1)
	k.Add(key, 0, 0)
	if err := Take(ctx, t, ended, append([]any{t.At.UnixMilli()}, t.Batch(k.At, k.Trigger, k.Kind)...)...); err != nil {
		return fmt.Errorf("end run %s of a deleted job: %w", key, err)
	}
	t.Notify(dispatcher.Notification{Adopt: true}) // a fixed delay continues from here
	return nil
}

// EndAsides ends the runs of a job that are set aside, and deletes its other entries. The job is being deleted.
func EndAsides(ctx context.Context, t *Tx, job int64) error {
	// $1 job
	entries, err := db.Collect(ctx, t, scanAsideEntry, asideEntries(`x.job_id = $1`), job)
	for _, entry := range entries {
		if err == nil && entry.exists {
			err = endAside(ctx, t, entry.key)
		}
	}
	if err == nil && len(entries) > 0 {
		err = endAsideClaims(ctx, t, job)
	}
	if err != nil || len(entries) == 0 {
		return err
	}
	return t.Exec(ctx, `DELETE FROM set_aside WHERE job_id = $1`, job)
}

// ForgetAside deletes the entry of a run that was set aside and now ends.
func ForgetAside(ctx context.Context, t *Tx, id string) error {
	// $1 run
	return t.Exec(ctx, `DELETE FROM set_aside WHERE item = $1 AND kind > 0`, id)
}
