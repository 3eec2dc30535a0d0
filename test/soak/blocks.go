package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// quiet stops what would read blocks besides the measurement, and waits for what has begun.
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

// measureBlocks counts the blocks that each cost reads in each database, cached or not. Unlike a time it is the same
// on a busy machine.
func (w *world) measureBlocks(ctx context.Context) error {
	var blocks [2][]float64
	group, within := errgroup.WithContext(ctx)
	for i, d := range w.both() { // at once: what one reads does not count for the other
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

// Each cost is taken that often, one after the other, after a first time that fills caches.
const blockRounds = 5

// blocksOf returns the blocks of each step.
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

// flushInterval is longer than the time after which a backend of PostgreSQL reports its statistics with the next
// statement.
const flushInterval = 1100 * time.Millisecond

// read returns how many blocks have been read so far, as the store's only connection and this one report them.
func (b *bench) read(ctx context.Context) (int64, error) {
	if err := pause(ctx, flushInterval); err != nil {
		return 0, err
	}
	if _, err := b.store.Installation(ctx); err != nil {
		return 0, err
	}
	return b.number(ctx, `SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()`)
}
