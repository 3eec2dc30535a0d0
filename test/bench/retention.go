package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// The old history of the benchmark of retention: its days and jobs. The latest run is well before
// retentionKept, which is the shortest permitted retention.
const (
	retentionDays = 10
	retentionJobs = 200
	retentionRate = 1000 // fires a second meanwhile
	retentionKept = input.MinRetention
)

// retention measures how late fires are next to a long history. In turns, all of it is kept, and
// that of one app is removed run by run because the app has a shorter retention than others. Then
// no app keeps it, and PostgreSQL drops it by the day.
func (b *bench) retention(ctx context.Context) error {
	receiver, err := listen(nil)
	if err != nil {
		return err
	}
	defer receiver.close()
	never := func(int, time.Time) dispatcher.Schedule {
		return dispatcher.Schedule{Expression: "at(2099-01-01T00:00:00Z)"}
	}
	if err := declare(ctx, b.database, declaration{
		app: "old", triggers: retentionJobs, perJob: 1, target: to(receiver.url), schedule: never}); err != nil {
		return err
	}
	if err := b.fill(ctx); err != nil {
		return err
	}
	steady := declaration{app: "steady", triggers: retentionRate, perJob: dispatcher.MaxTriggers,
		target: to(receiver.url), schedule: spread(retentionRate)}
	_, err = b.runNode(ctx, nodeOptions{database: b.database, sends: true, purge: time.Second},
		func(ctx context.Context, start time.Time) error {
			if err := pause(ctx, time.Until(start)); err != nil {
				return err
			}
			return b.retentionInTurns(ctx, receiver)
		}, steady)
	return err
}

// turn is some seconds of the benchmark of retention.
type turn struct {
	removed int64 // old runs
	late    latencies
	missing int
}

// retentionInTurns shortens the retention of one app every other turn, then of all apps, and reports each.
func (b *bench) retentionInTurns(ctx context.Context, receiver *receiver) error {
	const one, everyone = " WHERE name = 'old'", " WHERE name <> ''"
	span := (b.Time / time.Duration(2*b.Rounds+1)).Round(time.Second)
	kinds := []struct {
		name, apps string
		keep       time.Duration
	}{
		{"retention, all kept", one, input.DefaultRetention.Std()},
		{"retention, one app's", one, retentionKept},
		{"retention, everyone's", everyone, retentionKept},
	}
	turns, ratios := make([]turn, len(kinds)), make([]rates, len(kinds))
	for n := range 2*b.Rounds + 1 {
		kind := n % 2
		if n == 2*b.Rounds {
			kind = 2
		}
		one, err := b.retentionTurn(ctx, receiver, kinds[kind].apps, kinds[kind].keep, max(span, time.Second))
		if err != nil {
			return err
		}
		all := &turns[kind]
		all.removed, all.late, all.missing = all.removed+one.removed, append(all.late, one.late...), all.missing+one.missing
		ratios[kind] = append(ratios[kind], one.late.at(0.99))
	}
	for i, kind := range kinds {
		slices.Sort(turns[i].late)
		r := Result{
			Bench: kind.name, Database: b.kind, Unit: "runs removed/s", Triggers: some(retentionRate), Missing: some(turns[i].missing),
			Value: float64(turns[i].removed) / (time.Duration(len(ratios[i])) * max(span, time.Second)).Seconds(),
		}
		r.lateness(turns[i].late)
		switch i {
		case 1:
			r.P99Ratio = some(ratios[1].over(ratios[0]).median())
		case 2:
			r.P99Ratio = some(ratios[2][0] / ratios[0].median())
		}
		if err := b.Report(r); err != nil {
			return err
		}
	}
	return nil
}

// retentionTurn sets the retention of apps and measures how late fires are meanwhile.
func (b *bench) retentionTurn(ctx context.Context, receiver *receiver, apps string, keep, span time.Duration) (one turn, err error) {
	// $1 milliseconds
	decide := func() error { return b.execute(ctx, `UPDATE apps SET retention = $1`+apps, keep.Milliseconds()) }
	if keep > retentionKept {
		if err := errors.Join(decide(), pause(ctx, 3*time.Second)); err != nil { // the clean-up of the turn before ends
			return one, err
		}
	}
	before, err := b.old(ctx)
	if err != nil {
		return one, err
	}
	from := nextSecond(0)
	if err := errors.Join(pause(ctx, time.Until(from)), decide(), pause(ctx, time.Until(from.Add(span+time.Second)))); err != nil {
		return one, err
	}
	after, err := b.old(ctx)
	if err != nil {
		return one, err
	}
	notes := slices.DeleteFunc(receiver.notedBefore(from.Add(span)), func(n note) bool { return n.due.Before(from) })
	one = turn{before - after, latenciesOf(notes), retentionRate*int(span/time.Second) - len(notes)}
	return one, nil
}

// old counts the runs of the old history.
func (b *bench) old(ctx context.Context) (n int64, err error) {
	// $1 an instant after all of it
	const count = `SELECT count(*) FROM runs WHERE scheduled_at < $1`
	before := time.Now().Add(-12 * time.Hour).UnixMilli()
	if b.pool != nil {
		return n, b.pool.QueryRow(ctx, count, before).Scan(&n)
	}
	db, err := b.file()
	if err != nil {
		return 0, err
	}
	defer db.Close()
	return n, db.QueryRowContext(ctx, count, before).Scan(&n)
}

// fill creates the history of the app "old": successful runs. One in ten was repeated and one in
// four has a response.
func (b *bench) fill(ctx context.Context) error {
	const day = 24 * time.Hour
	today := time.Now().UTC().Truncate(day)
	perDay := b.History / retentionDays
	for n := range retentionDays {
		from := today.Add(-time.Duration(retentionDays+2-n) * day)
		if b.pool != nil {
			for _, table := range []string{"runs", "attempts", "responses"} {
				if err := b.execute(ctx, fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %[1]s_%[2]s PARTITION OF %[1]s FOR VALUES FROM (%[3]d) TO (%[4]d)`,
					table, from.Format("20060102"), from.UnixMilli(), from.Add(day).UnixMilli())); err != nil {
					return err
				}
			}
		}
		// $1 the first instant, $2 milliseconds from one to the next, $3 runs, $4 app
		for _, statement := range []string{
			`INSERT INTO runs (scheduled_at, trigger_id, job_id, revision, node, ended_at, claimed_ms, started_ms, attempt,
				http_status, kind)
			SELECT i.at, t.id, t.job_id, 1, 1, i.at + 9, 9, 9, 1 + CAST(i.n % 10 = 0 AS INTEGER), 204, 1
			FROM i JOIN t ON t.n = i.n % ` + fmt.Sprint(retentionJobs),
			`INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at, http_status, state, class, error)
			SELECT i.at, t.id, 1, 1, 1, i.at, i.at + 4, 503, 'failed', 'http_5xx', ''
			FROM i JOIN t ON t.n = i.n % ` + fmt.Sprint(retentionJobs) + ` WHERE i.n % 10 = 0`,
			`INSERT INTO responses (scheduled_at, trigger_id, kind, attempt, response)
			SELECT i.at, t.id, 1, 1, '{"body":"` + string(payload[9:200]) + `"}'
			FROM i JOIN t ON t.n = i.n % ` + fmt.Sprint(retentionJobs) + ` WHERE i.n % 4 = 1`,
		} {
			if err := b.execute(ctx, `WITH RECURSIVE c (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM c WHERE n + 1 < CAST($3 AS BIGINT)),
				i AS (SELECT n, CAST($1 AS BIGINT) + n * CAST($2 AS BIGINT) AS at FROM c),
				t AS (SELECT id, job_id, row_number() OVER (ORDER BY id) - 1 AS n FROM triggers WHERE app_id = $4) `+statement,
				from.UnixMilli(), day.Milliseconds()/int64(perDay), perDay, run.AppID("old")); err != nil {
				return fmt.Errorf("fill: %w", err)
			}
		}
	}
	if b.pool == nil {
		return nil
	}
	return b.execute(ctx, "VACUUM ANALYZE runs, attempts, responses")
}
