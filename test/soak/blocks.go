package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// quiet stops other work that reads blocks, and waits for its end.
func (w *world) quiet(ctx context.Context) error {
	for _, statement := range []string{"ALTER SYSTEM SET autovacuum = off", "SELECT pg_reload_conf()"} {
		if _, err := w.admin.Exec(ctx, statement); err != nil {
			return err
		}
	}
	for running := 1; running > 0; {
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		const workers = `SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'autovacuum worker'`
		if err := w.admin.QueryRow(ctx, workers).Scan(&running); err != nil {
			return err
		}
	}
	return nil
}

// measureBlocks counts the blocks that each cost reads in each database, cached or not. Unlike a
// time, the number is the same on a busy machine.
func (w *world) measureBlocks(ctx context.Context) error {
	var blocks [2][]float64
	group, within := errgroup.WithContext(ctx)
	for i, d := range w.both() { // at once: the reads of one do not count for the other
		group.Go(func() (err error) {
			if blocks[i], err = w.blocksOf(within, d); err != nil {
				err = fmt.Errorf("blocks in the %s database: %w", d.name, err)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for n, step := range steps() {
		w.figures.compare(step.name+"_blocks", "blocks", blocks[0][n], blocks[1][n])
	}
	return nil
}

// blockRounds is how often each cost is measured, after a first time that fills caches.
const blockRounds = 5

// blocksOf returns the number of blocks for each step.
func (w *world) blocksOf(ctx context.Context, d *database) (blocks []float64, err error) {
	b, err := d.openBench(ctx, probe, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.leave(ctx)) }()
	if b.floor, err = w.setDueOnly(ctx, d); err != nil {
		return nil, err
	}
	for _, step := range steps() {
		if err := step.do(b, ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	before, err := b.read(ctx)
	if err != nil {
		return nil, err
	}
	for _, step := range steps() {
		for range blockRounds {
			if err := step.do(b, ctx); err != nil {
				return nil, fmt.Errorf("%s: %w", step.name, err)
			}
		}
		after, err := b.read(ctx)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, float64(after-before)/blockRounds)
		before = after
	}
	return blocks, nil
}

// flushInterval is longer than the interval after which a PostgreSQL backend reports its statistics
// at the next statement.
const flushInterval = 1100 * time.Millisecond

// read returns the number of blocks read so far, as reported by the store's only connection and by this one.
func (b *bench) read(ctx context.Context) (int64, error) {
	if err := pause(ctx, flushInterval); err != nil {
		return 0, err
	}
	if _, err := b.store.Installation(ctx); err != nil {
		return 0, err
	}
	return b.number(ctx, `SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()`)
}
