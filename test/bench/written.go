package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// The bytes that one fire wrote while due fires still shared tables with definitions, and runs in flight with
// history, as multiples of bare SQL. Both were measured in turns of one run, after a checkpoint each, with
// 20,000 triggers in batches of 500: 1,212 bytes of WAL to 774, and 255 bytes of table and indexes to 124.
// Bare SQL has not changed since, so today's figures of bare SQL convert to those of the earlier tables.
const (
	earlierWAL  = 1212.0 / 774
	earlierDisk = 255.0 / 124
)

// written has the bytes that fires have written to PostgreSQL.
type written struct {
	tables           string // of their runs: a table with its partitions
	fires, wal, disk float64
}

// writtenTime is how long the fires run whose bytes are measured. The first write of each page
// after a checkpoint writes the whole page.
const writtenTime = 2500 * time.Millisecond

// compareWritten fills in the bytes of fires, compared with bare SQL. It takes separate turns,
// because checkpoints would disturb the turns that measure speed.
func (b *bench) compareWritten(ctx context.Context, r *Result, fires, sql measure) error {
	if b.pool == nil {
		return nil
	}
	own, anchor := written{tables: "runs"}, written{tables: "bare_runs"}
	for range min(b.Rounds, 3) {
		for _, turn := range []measure{b.noting(&own, fires), b.noting(&anchor, sql)} {
			if _, err := turn(ctx, min(writtenTime, b.Options.Time)); err != nil {
				return err
			}
		}
	}
	own.fill(r, anchor)
	return nil
}

// noting measures, and records the bytes written meanwhile. Each turn begins after a checkpoint, so
// that it has the same number of full pages in the WAL.
func (b *bench) noting(w *written, m measure) measure {
	return func(ctx context.Context, span time.Duration) (float64, error) {
		// Only some users may; for others, the number of full pages varies.
		var denied *pgconn.PgError
		if err := b.execute(ctx, "CHECKPOINT"); err != nil && (!errors.As(err, &denied) || denied.Code != "42501") {
			return 0, err
		}
		wal, disk, err := b.bytes(ctx, w.tables)
		if err != nil {
			return 0, err
		}
		begun := time.Now()
		rate, err := m(ctx, span)
		if err != nil {
			return 0, err
		}
		w.fires += rate * time.Since(begun).Seconds()
		walAfter, diskAfter, err := b.bytes(ctx, w.tables)
		w.wal, w.disk = w.wal+walAfter-wal, w.disk+diskAfter-disk
		return rate, err
	}
}

// bytes returns the size of the WAL so far, and of a table with its partitions and indexes.
func (s *space) bytes(ctx context.Context, table string) (wal, disk float64, err error) {
	if wal, err = s.wal(ctx); err != nil || s.pool == nil {
		return wal, 0, err
	}
	// $1 table
	const size = `SELECT CAST(sum(pg_total_relation_size(relid)) AS float8) FROM pg_partition_tree(CAST($1 AS text)::regclass)`
	const plain = `SELECT CAST(pg_total_relation_size(CAST($1 AS text)::regclass) AS float8)`
	var whole *float64
	if err := s.pool.QueryRow(ctx, size, table).Scan(&whole); err != nil {
		return 0, 0, err
	}
	if whole != nil {
		return wal, *whole, nil
	}
	return wal, disk, s.pool.QueryRow(ctx, plain, table).Scan(&disk)
}

// fill reports the bytes of one fire, and the ratio to the earlier tables, which it derives from
// bare SQL in the same turns.
func (w written) fill(r *Result, anchor written) {
	if w.fires == 0 || anchor.fires == 0 {
		return
	}
	r.WAL, r.Disk = some(w.wal/w.fires), some(w.disk/w.fires)
	if wal := anchor.wal / anchor.fires * earlierWAL; wal > 0 {
		r.WALRatio = some(*r.WAL / wal)
	}
	if disk := anchor.disk / anchor.fires * earlierDisk; disk > 0 {
		r.DiskRatio = some(*r.Disk / disk)
	}
}
