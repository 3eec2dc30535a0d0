package feeds

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// backfill is a row of backfills.
type backfill struct {
	repeat.Backfill
	id, jobID, nextAt int64
	cursor            *repeat.BackfillInstant // nil: none
	traceparent       string                  // of the request for it
	deleted           bool                    // the job
	unreadable        error                   // the stored request
}

// backfillRows are backfills f with the names of their jobs, and the numbers of their unfinished runs.
const backfillRows = `SELECT f.id, a.name, j.name, j.deleted_at IS NOT NULL, f.job_id, f.spec, f.state, f.error,
		f.waits, f.tries, f.try_at, f.total, f.queued,
		f.skipped, f.succeeded, f.failed, f.cancelled, f.cursor_at, f.cursor_trigger, f.next_at, f.created_by,
		f.traceparent, f.created_at, f.ended_at,
		(SELECT count(*) FROM backfill_runs AS r WHERE r.backfill_id = f.id)
	FROM backfills AS f JOIN apps AS a ON a.id = f.app_id JOIN jobs AS j ON j.id = f.job_id WHERE `

func scanBackfill(row db.Scanner) (b backfill, err error) {
	var spec string
	var trigger, tryAt int64
	err = row.Scan(&b.id, &b.App, &b.Job, &b.deleted, &b.jobID, &spec, &b.State, &b.Error,
		&b.Waits, &b.Tries, &tryAt, &b.Total, &b.Queued, &b.Skipped,
		&b.Succeeded, &b.Failed, &b.Cancelled, db.OptionalColumn(&b.ReachedAt), &trigger, &b.nextAt, &b.CreatedBy, &b.traceparent,
		db.InstantColumn(&b.CreatedAt), db.OptionalColumn(&b.EndedAt), &b.Running)
	if err != nil {
		return b, err
	}
	b.ID = repeat.BackfillID(b.id)
	if b.ReachedAt != nil {
		b.cursor = &repeat.BackfillInstant{At: *b.ReachedAt, TriggerID: trigger}
	}
	b.TryAt = orNothing(tryAt)
	if err := json.Unmarshal([]byte(spec), &b.BackfillSpec); err != nil {
		b.unreadable = fmt.Errorf("read what backfill %s runs: %w", b.ID, err)
	}
	return b, nil
}

// findBackfill returns a backfill of an app, or ErrNotFound. lock locks its row.
func findBackfill(ctx context.Context, q db.Querier, app, id, lock string) (backfill, error) {
	key, err := repeat.ParseBackfillID(id)
	if err != nil {
		return backfill{}, dispatcher.NotFound("backfill", input.Echo(id))
	}
	// $1 backfill, $2 app
	found, ok, err := db.First(ctx, q, scanBackfill, backfillRows+`f.id = $1 AND f.app_id = $2`+db.LockOf(lock, "f"), key, run.AppID(app))
	return found, db.OrNotFound(ok, err, "backfill", id)
}

// Backfill returns a backfill.
func (s *Store) Backfill(ctx context.Context, app, id string) (repeat.Backfill, error) {
	found, err := findBackfill(ctx, s.db.Read, app, id, "")
	return found.Backfill, err
}

// Backfills lists backfills of an app, the latest first.
func (s *Store) Backfills(ctx context.Context, query repeat.BackfillQuery) ([]repeat.Backfill, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	of, err := s.reads.IDsOf(ctx, query.App, query.Job, "")
	if err != nil {
		return nil, err
	}
	var w db.Conditions
	w.Add("f.app_id = %s", run.AppID(query.App))
	if query.Job != "" {
		w.Add("f.job_id = %s", of.Job)
	}
	if query.Page.Cursor != "" {
		after, err := repeat.ParseBackfillID(query.Page.Cursor)
		if err != nil {
			return nil, fmt.Errorf("cursor %s: %w", input.Echo(query.Page.Cursor), err)
		}
		w.Add("f.id < %s", after)
	}
	rows, err := db.Collect(ctx, s.db.Read, scanBackfill,
		backfillRows+`1 = 1`+w.Text+` ORDER BY f.id DESC LIMIT `+strconv.Itoa(query.Page.Limit), w.Args...)
	all := make([]repeat.Backfill, len(rows))
	for i, row := range rows {
		all[i] = row.Backfill
	}
	return all, err
}

// CreateBackfill begins a backfill of a job.
func (s *Store) CreateBackfill(
	ctx context.Context, app, name string, plan repeat.BackfillPlan, change input.Change,
) (created repeat.Backfill, err error) {
	spec, err := jsonText(plan.BackfillSpec)
	if err != nil {
		return created, fmt.Errorf("write what a backfill runs: %w", err)
	}
	schedules, err := jsonText(plan.Schedules)
	if err != nil {
		return created, fmt.Errorf("write the schedules of a backfill: %w", err)
	}
	err = s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		job, err := s.definitions.FindJob(ctx, t, app, name, t.ForUpdate())
		if err != nil {
			return err
		}
		if err := job.CheckPayloadOf(plan.Payload); err != nil {
			return err
		}
		// $1 job
		const open = `SELECT id FROM backfills WHERE job_id = $1 AND ended_at IS NULL`
		if other, found, err := db.First(ctx, t, db.ScanInt, open, job.Key()); err != nil || found {
			if found {
				err = fmt.Errorf("backfill %s of job %s has not ended: %w", repeat.BackfillID(other), name, dispatcher.ErrConflict)
			}
			return err
		}
		if err := definitions.CountManual(ctx, t, app, plan.Payload); err != nil {
			return err
		}
		id := repeat.NewBackfillID(t.At, rand.Int64())
		// $1 backfill, $2 app, $3 job, $4 what was asked for, $5 schedules, $6 instants, $7 by whom, $8 trace context, $9 now
		const insert = `INSERT INTO backfills (id, app_id, job_id, spec, schedules, state, total, created_by, traceparent, created_at)
			VALUES ($1, $2, $3, $4, $5, 'running', $6, $7, $8, $9)`
		if err := t.Exec(ctx, insert, id, run.AppID(app), job.Key(), spec, schedules, plan.Total, dispatch.Storable(t.By.Actor),
			t.By.Traceparent, t.At.UnixMilli()); err != nil {
			return fmt.Errorf("create backfill of job %s: %w", name, err)
		}
		row, err := findBackfill(ctx, t, app, repeat.BackfillID(id), "")
		if err != nil {
			return err
		}
		created = row.Backfill
		t.Notify(dispatcher.Notification{Backfill: true})
		return auditBackfill(ctx, t, "create", created)
	})
	return created, err
}

// jsonText returns the stored form of a value, with an unchanged payload.
func jsonText(value any) (string, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return dispatch.Storable(text.String()), err
}

// auditBackfill adds a change of a backfill to the audit log, without its payload.
func auditBackfill(ctx context.Context, t *dispatch.Tx, action string, b repeat.Backfill) error {
	after := map[string]any{"job": b.Job, "trigger": b.Trigger, "from": b.From, "to": b.To, "concurrency": b.Concurrency, "order": b.Order,
		"pace": b.Pace, "existing": b.Existing, "reason": b.Reason, "state": b.State, "total": b.Total, "queued": b.Queued}
	if b.Payload != nil {
		after["payload"] = dispatch.SumOf(b.Payload)
	}
	return t.AuditChange(ctx, dispatch.AuditEntry{Action: action, App: b.App, Subject: "backfill " + b.ID, After: after})
}

// ChangeBackfill pauses, resumes or cancels a backfill.
func (s *Store) ChangeBackfill(
	ctx context.Context, app, id string, action repeat.BackfillAction, change input.Change,
) (repeat.Backfill, error) {
	changed, _, err := definitions.Redefine(ctx, s.definitions, change, definitions.Redefinition[backfill, repeat.Backfill, repeat.Backfill]{
		Load: func(ctx context.Context, from definitions.Source) (backfill, error) {
			return findBackfill(ctx, from, app, id, from.Lock)
		},
		Unchanged: func(b backfill) (repeat.Backfill, bool) {
			after, err := b.Change(action)
			return after, err == nil && after.State == b.State && b.Tries == 0
		},
		Decide: func(b backfill, _ time.Time) (repeat.Backfill, error) { return b.Change(action) },
		Write: func(ctx context.Context, t *dispatch.Tx, b backfill, changed repeat.Backfill) (repeat.Backfill, error) {
			// $1 backfill, $2 state. A step that failed is tried again at once.
			const set = `UPDATE backfills SET state = $2, waits = '', tries = 0, try_at = 0 WHERE id = $1`
			if err := t.Exec(ctx, set, b.id, string(changed.State)); err != nil {
				return changed, fmt.Errorf("%s backfill %s: %w", action, id, err)
			}
			if changed.State == repeat.BackfillCancelling {
				if err := cancelWaiting(ctx, t, b.id); err != nil {
					return changed, fmt.Errorf("cancel the runs of backfill %s: %w", id, err)
				}
			}
			t.Notify(dispatcher.Notification{Backfill: true})
			return changed, auditBackfill(ctx, t, string(action), changed)
		},
	})
	return changed, err
}

// cancelWaiting cancels the runs of a backfill that no node works on and no target has accepted.
func cancelWaiting(ctx context.Context, t *dispatch.Tx, id int64) error {
	// $1 backfill
	of := `SELECT` + db.ContenderColumns + ` FROM live_runs AS r JOIN backfill_runs AS f ON f.scheduled_at = r.scheduled_at
			AND f.trigger_id = r.trigger_id
		WHERE f.backfill_id = $1 AND r.kind = 5 AND r.token = 0 AND r.state IN ('queued', 'retrying')
		ORDER BY r.scheduled_at, r.trigger_id` + db.LockOf(t.ForUpdate(), "r")
	all, err := db.Collect(ctx, t, func(row db.Scanner) (dispatch.Ending, error) {
		c := &dispatch.Contender{}
		err := row.Scan(db.ContenderRefs(&c.Held, &c.Node)...)
		return dispatch.Ending{Contender: c, Why: "the backfill was cancelled"}, err
	}, of, id)
	if err != nil || len(all) == 0 {
		return err
	}
	if err := dispatch.CancelShards(ctx, t, dispatch.KeysOfEndings(all), t.At.UnixMilli(), "the backfill was cancelled"); err != nil {
		return err
	}
	return dispatch.Take(ctx, t, t.Hot.Slots.Cancel, dispatch.EndingArgs(t, t.At.UnixMilli(), all)...)
}

// known are the runs in the ledger by instant.
type known map[repeat.BackfillInstant]*knownRuns

// knownRuns are the runs of an instant in the ledger.
type knownRuns struct {
	live      bool // a run has not ended
	claimed   bool // a claim lists the fire, which may have ended
	ended     bool // a run has ended
	fired     bool // the fire has ended
	succeeded bool
	backfill  bool // a run of a backfill has ended
}

// place is the location of the backfill run of an instant.
type place int

const (
	nowhere place = iota
	inHistory
)

func keyOfInstant(one repeat.BackfillInstant) run.Key {
	return run.Key{TriggerID: one.TriggerID, ScheduledAt: one.At, Kind: run.KindBackfill}
}

// decide returns whether a backfill runs an instant, and the location of its run.
func (k known) decide(existing repeat.BackfillExisting, one repeat.BackfillInstant) (run bool, at place) {
	of := k[one]
	if of == nil {
		return true, nowhere
	}
	if of.backfill {
		at = inHistory
	}
	switch {
	case of.live || of.claimed && !of.fired:
		return false, at
	case existing == repeat.ExistingRun:
		return true, at
	case existing == repeat.ExistingFailed:
		return !of.succeeded, at
	}
	return !of.ended, at
}

// skipsPage is how many instants BackfillSkips reads with one query.
const skipsPage = 2000

// BackfillSkips counts the instants that a backfill would leave out.
func (s *Store) BackfillSkips(ctx context.Context, plan repeat.BackfillPlan) (skipped int, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	var after *repeat.BackfillInstant
	for {
		page, err := plan.Next(ctx, plan.Schedules, after, skipsPage)
		if err != nil {
			return 0, err
		}
		known, err := existing(ctx, s.db.Flavor, s.db.Read, page)
		if err != nil {
			return 0, fmt.Errorf("look for runs of the instants of a backfill: %w", err)
		}
		for _, one := range page {
			if run, _ := known.decide(plan.Existing, one); !run {
				skipped++
			}
		}
		if len(page) < skipsPage {
			return skipped, nil
		}
		after = &page[len(page)-1]
	}
}

// existing reads the runs of instants in the ledger: scheduled runs, catch-up runs and runs of backfills.
func existing(ctx context.Context, f db.Flavor, q db.Querier, page []repeat.BackfillInstant) (known, error) {
	all := known{}
	if len(page) == 0 {
		return all, nil
	}
	sorted := slices.Clone(page)
	db.SortBy(sorted, keyOfInstant)
	var at, trigger []int64
	for _, one := range sorted {
		at, trigger = append(at, one.At.UnixMilli()), append(trigger, one.TriggerID)
	}
	const of = `.scheduled_at = b.scheduled_at AND r.trigger_id = b.trigger_id`
	// $1 first day, $2 end of the last, from $3 on: two of db.KeyColumns
	list := f.Rows(0, 3, "", db.KeyColumns[:2]...) + `
		SELECT r.scheduled_at, r.trigger_id, r.kind, coalesce(r.state, 'succeeded') FROM b JOIN runs AS r ON r` + of + db.Within + `
			WHERE r.kind IN (1, 3, 5)
		UNION ALL SELECT r.scheduled_at, r.trigger_id, r.kind, 'live' FROM b JOIN live_runs AS r ON r` + of + ` WHERE r.kind IN (1, 3, 5)
		UNION ALL SELECT r.scheduled_at, r.trigger_id, 1, 'claimed' FROM b JOIN (` + f.ClaimedFires() + `) AS r ON r` + of
	err := db.EachRow(ctx, q, func(row db.Scanner) error {
		var one repeat.BackfillInstant
		var key run.Key
		var state string
		err := row.Scan(db.InstantColumn(&one.At), &one.TriggerID, db.KindColumn(&key), &state)
		if all[one] == nil {
			all[one] = &knownRuns{}
		}
		switch k := all[one]; state {
		case "live":
			k.live = true
		case "claimed":
			k.claimed = true
		default:
			k.ended = true
			k.succeeded = k.succeeded || state == string(run.Succeeded)
			k.fired = k.fired || key.Kind == run.KindSchedule
			k.backfill = k.backfill || key.Kind == run.KindBackfill
		}
		return err
	}, list, db.DatedIn(f, at, trigger)...)
	return all, err
}

// Backfilled counts the runs of backfills of a job, by trigger.
func (s *Store) Backfilled(ctx context.Context, job int64, from, to time.Time) (map[int64]int, error) {
	// $1 job, $2 from, $3 to. Shards do not count.
	const of = ` AS r WHERE r.job_id = $1 AND r.scheduled_at >= $2 AND r.scheduled_at <= $3 AND r.kind = 5`
	const list = `SELECT x.trigger_id, count(*) FROM (SELECT r.trigger_id FROM runs` + of + ` UNION ALL
		SELECT r.trigger_id FROM live_runs` + of + `) AS x GROUP BY x.trigger_id`
	counts, err := db.ReadMap[int64, int](ctx, s.db.Read, list, job, from.UnixMilli(), to.UnixMilli())
	if err != nil {
		return nil, fmt.Errorf("count the backfilled runs of a job: %w", err)
	}
	return counts, nil
}
