package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// churn claims and records fires while the snapshot is open, so that no version of their clocks can
// be removed. The triggers were due in the last hour; afterwards they are due tomorrow.
func (w *world) churn(ctx context.Context) (err error) {
	b, err := w.old.openBench(ctx, churning, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.leave(ctx)) }()
	const size = 500
	rounds := max(1, w.churnFires/len(b.due))
	for round := range rounds {
		by := time.Hour / time.Duration(2*rounds)
		if round == rounds-1 {
			by = dayLength
		}
		for range len(b.due) / size {
			if err := errors.Join(b.claim(ctx, size, by), b.record(ctx, false)); err != nil {
				return err
			}
		}
	}
	return w.churnRetries(ctx, b)
}

// churnRetries makes one fire in thirty fail and succeed in its second attempt, which leaves dead
// versions of live runs, too.
func (w *world) churnRetries(ctx context.Context, b *bench) error {
	for range w.churnFires / 30 / batchSize {
		err := errors.Join(b.claim(ctx, batchSize, dayLength), b.record(ctx, true))
		if err == nil {
			err = errors.Join(b.retry(ctx), b.record(ctx, false))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// countGivenUp counts the runs without success, and the misfires, of apps with working targets.
func (w *world) countGivenUp(ctx context.Context) error {
	// $1 the apps whose targets do not work, $2 from
	const givenUp = `SELECT (SELECT count(*) FROM runs AS r JOIN jobs AS j ON j.id = r.job_id
			WHERE r.scheduled_at >= $2 AND r.state IS NOT NULL AND j.app_id <> ALL ($1))
		+ (SELECT count(*) FROM misfires AS m JOIN jobs AS j ON j.id = m.job_id WHERE m.decided_at >= $2 AND j.app_id <> ALL ($1))`
	ill := []int64{run.AppID(broken), run.AppID(hanging)}
	var counts [2]float64
	for i, d := range w.both() {
		n, err := d.number(ctx, givenUp, ill, w.begun.UnixMilli())
		if err != nil {
			return err
		}
		counts[i] = float64(n)
	}
	w.figures.compare("given_up", "count", counts[0], counts[1])
	return nil
}

// cleanUpTime is the longest permitted clean-up.
const cleanUpTime = 15 * time.Minute

// cleanUp purges both databases until nothing more is removed, and counts the remaining expired rows.
func (w *world) cleanUp(ctx context.Context) error {
	var took [2]time.Duration
	var idle [2][]float64
	for i, d := range w.both() {
		b, err := d.openBench(ctx, probe, 0)
		if err != nil {
			return err
		}
		defer func() { _ = b.leave(ctx) }()
		if took[i], err = w.purge(ctx, b); err != nil {
			return err
		}
		for range w.rounds {
			begun := time.Now()
			if _, err := b.store.Purge(ctx, b.node, time.Time{}); err != nil {
				return err
			}
			idle[i] = append(idle[i], milliseconds(time.Since(begun)))
		}
	}
	w.figures.compare("cleanup", "s", took[0].Seconds(), took[1].Seconds())
	w.figures.inTurns("idle_cleanup", "ms", idle[0], idle[1])
	left, err := w.expired(ctx)
	if err != nil {
		return err
	}
	w.figures.add("cleanup_left", "count", float64(left))
	return nil
}

// purge calls Purge until it has nothing more to remove. It continues after an error, like the node's loop.
func (w *world) purge(ctx context.Context, b *bench) (time.Duration, error) {
	begun := time.Now()
	var latest error
	for time.Since(begun) < cleanUpTime {
		call := time.Now()
		done, err := b.store.Purge(ctx, b.node, time.Time{})
		if took := time.Since(call); took > 5*time.Second {
			fmt.Fprintf(w.log, "  a purge of the %s database took %s: %+v\n", b.name, took.Round(time.Millisecond), done)
		}
		if err != nil {
			fmt.Fprintf(w.log, "  purge of the %s database: %v\n", b.name, err)
			if latest != nil && latest.Error() == err.Error() {
				return time.Since(begun), nil // too slow; the rest shows in the counts
			}
		}
		// If it gave way to another transaction, it reports for now that nothing is left.
		if latest = err; err == nil && done == (dispatcher.Purged{}) {
			return time.Since(begun), nil
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
	return time.Since(begun), nil
}

// expired counts the rows that a clean-up should have removed by now.
func (w *world) expired(ctx context.Context) (left int64, err error) {
	// History is removed by whole days, a day late, because a run of that day may have ended later.
	horizon := func(kept time.Duration) time.Time { return time.Now().UTC().Add(-kept - dayLength).Truncate(dayLength) }
	keptFrom, brieflyFrom := horizon(w.kept()), horizon(w.briefly())
	for _, part := range []struct {
		name, query string
		args        []any
	}{
		{"deleted jobs", `SELECT count(*) FROM jobs WHERE deleted_at < $1`, []any{keptFrom.UnixMilli()}},
		{"removed triggers", `SELECT count(*) FROM triggers WHERE deleted_at < $1`, []any{keptFrom.UnixMilli()}},
		{"clocks without a trigger", `SELECT count(*) FROM trigger_clock AS c
			WHERE NOT EXISTS (SELECT 1 FROM triggers AS t WHERE t.id = c.id)`, nil},
		{"partitions", `SELECT count(*) FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
			WHERE c.relname ~ '^(runs|attempts|responses)_[0-9]{8}$' AND right(c.relname, 8) < $1`, []any{keptFrom.Format("20060102")}},
		{"runs of the app that keeps less", `SELECT count(*) FROM runs AS r JOIN jobs AS j ON j.id = r.job_id
			WHERE r.scheduled_at < $1 AND j.app_id = $2`, []any{brieflyFrom.UnixMilli(), run.AppID(brief)}},
	} {
		n, err := w.old.number(ctx, part.query, part.args...)
		if err != nil {
			return 0, err
		}
		if n > 0 {
			fmt.Fprintf(w.log, "  left after the clean-up: %d %s\n", n, part.name)
		}
		left += n
	}
	return left, nil
}
