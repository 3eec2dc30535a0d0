package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Partitions are made for yesterday, today and some days ahead: fires are claimed within
// seconds of their instants.
const (
	daysBehind = 1
	daysAhead  = 3
)

// datedTables have partitions of one day each, runs first.
var datedTables = []string{"runs", "attempts", "responses", "broadcasts", "run_inputs"}

// Partition is one day of a table.
type Partition struct {
	table string // one of datedTables
	Day   int64  // its first instant
}

// Name ends in the day, such as runs_20260131.
func (p Partition) Name() string { return p.table + "_" + Instant(p.Day).Format("20060102") }

// LimitLockWait gives up after the lead with which fires are claimed: a transaction waiting for a lock blocks the
// claims behind it, too.
func (p *Postgres) LimitLockWait(ctx context.Context, tx *sql.Tx) error {
	if !p.LimitsLockWait() {
		return nil
	}
	// Without statistics the planner would read a whole day to find its few kept rows.
	_, err := tx.ExecContext(ctx, `SET LOCAL lock_timeout = '50ms'; SET LOCAL enable_seqscan = off`)
	return err
}

func (p *Postgres) LimitsLockWait() bool { return p.Has.Has(SessionSettings) }

func (p *Postgres) ByDay() bool { return p.Has.Has(DayPartitions) }

// Unpartitioned holds the rows of days without a partition.
func (p *Postgres) Unpartitioned() string {
	if !p.ByDay() {
		return "runs"
	}
	return "runs_default"
}

func (p *Postgres) RotatePartitions(ctx context.Context, q Querier, try tryChange, now, horizon int64) (dropped int, err error) {
	if !p.ByDay() {
		return 0, nil
	}
	there, err := Partitions(ctx, q)
	if err != nil {
		return 0, err
	}
	errs := []error{makeDays(ctx, try, there, now)}
	for _, one := range there {
		// They are in the order of their days. If the next day has expired, runs that ended up to a day after their
		// instant have expired, too.
		if one.Day+2*DayMillis > horizon || ctx.Err() != nil {
			break
		}
		gone := false
		done, err := try(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
			gone, err = one.drop(ctx, tx, horizon)
			return err
		})
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("drop partition %s: %w", one.Name(), err)) // it does not block the others
		case !done:
			return dropped, errors.Join(errs...)
		case gone:
			dropped++
		}
	}
	return dropped, errors.Join(errs...)
}

func (p *Postgres) DaysAhead(ctx context.Context, q Querier, now int64) (*int, error) {
	if !p.ByDay() {
		return nil, nil
	}
	there, err := Partitions(ctx, q)
	if err != nil {
		return nil, err
	}
	days := 0
	for slices.IndexFunc(datedTables, func(table string) bool {
		return !slices.Contains(there, Partition{table: table, Day: Day(now) + int64(days+1)*DayMillis})
	}) < 0 {
		days++
	}
	return &days, nil
}

// Partitions returns the existing partitions, the runs of each day first.
func Partitions(ctx context.Context, q Querier) ([]Partition, error) {
	// $1 tables
	const list = `SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
		WHERE i.inhparent = ANY (CAST(CAST($1 AS text[]) AS regclass[])) ORDER BY right(c.relname, 8), c.relname DESC`
	names, err := Collect(ctx, q, ScanText, list, datedTables)
	var all []Partition
	for _, name := range names {
		end := max(strings.LastIndexByte(name, '_'), 0)
		if at, err := time.Parse("_20060102", name[end:]); err == nil { // a default partition has no day
			all = append(all, Partition{table: name[:end], Day: at.UnixMilli()})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list partitions: %w", err)
	}
	return all, nil
}

func makeDays(ctx context.Context, try tryChange, there []Partition, now int64) error {
	for n := -daysBehind; n <= daysAhead; n++ {
		for _, table := range datedTables {
			one := Partition{table: table, Day: Day(now) + int64(n)*DayMillis}
			if slices.Contains(there, one) {
				continue
			}
			done, err := try(ctx, one.attach)
			if err != nil {
				return fmt.Errorf("make partition %s: %w", one.Name(), err)
			}
			if !done {
				return nil
			}
		}
	}
	return nil
}

// attach makes a partition and attaches it. Unlike one created in place, an attached partition does not lock the
// table against reads and writes, but only its default partition. A day with rows in the default partition stays
// there.
func (p Partition) attach(ctx context.Context, tx *sql.Tx) error {
	if there, err := p.attached(ctx, tx); err != nil || there {
		return err
	}
	from, to := p.Day, p.Day+DayMillis
	// $1 from, $2 to
	_, found, err := First(ctx, tx, ScanInt,
		`SELECT 1 FROM `+p.table+`_default WHERE scheduled_at >= $1 AND scheduled_at < $2 LIMIT 1`, from, to)
	if err != nil || found {
		return err
	}
	_, err = tx.ExecContext(ctx, fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %[1]s (LIKE %[2]s INCLUDING ALL);
		ALTER TABLE %[2]s ATTACH PARTITION %[1]s FOR VALUES FROM (%[3]d) TO (%[4]d)`, p.Name(), p.table, from, to))
	return err
}

// attached reports whether a partition exists. Another node may have made or dropped it since they were listed.
func (p Partition) attached(ctx context.Context, tx *sql.Tx) (bool, error) {
	// $1 name
	_, found, err := First(ctx, tx, ScanInt, `SELECT 1 FROM pg_inherits WHERE inhrelid = to_regclass($1)`, p.Name())
	return found, err
}

// mostKept is the maximum number of rows that move before a day is dropped: the table is locked meanwhile. A day with
// more waits until enough of them have expired, too.
const mostKept = 20_000

// kept selects the rows of a partition x to keep though its day has expired.
// $1 and $2 bounds of the day, $3 horizon
func (p Partition) kept() string {
	if p.table == "runs" {
		return `SELECT x.* FROM ` + p.Name() + ` AS x WHERE x.ended_at - x.scheduled_at >= 86400000 AND x.ended_at >= $3
			AND x.scheduled_at >= $1 AND x.scheduled_at < $2`
	}
	// Rows of the runs that have been kept, and of unfinished runs.
	return `SELECT x.* FROM (
			SELECT r.scheduled_at, r.trigger_id, r.kind FROM runs AS r WHERE r.scheduled_at >= $1 AND r.scheduled_at < $2 UNION ALL
			SELECT r.scheduled_at, r.trigger_id, r.kind FROM live_runs AS r WHERE r.scheduled_at >= $1 AND r.scheduled_at < $2
		) AS k JOIN ` + p.Name() + ` AS x ON x.scheduled_at = k.scheduled_at AND x.trigger_id = k.trigger_id AND x.kind = k.kind
		WHERE CAST($3 AS BIGINT) <> 0`
}

// keep copies the kept rows to the default partition by the names of the columns: a column added later is last in
// this partition, but elsewhere in the default one.
func (p Partition) keep(ctx context.Context, tx *sql.Tx, bounds []any) error {
	// $1 table
	const named = `SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped`
	columns, _, err := First(ctx, tx, ScanText, named, p.table)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO `+p.table+`_default (`+columns+`) SELECT `+columns+` FROM (`+p.kept()+`) AS k`, bounds...)
	return err
}

// drop drops a partition after the runs that ended late moved to the default partition. It first locks the tables
// that no record writes to, while it looks; the table itself only to detach the partition.
func (p Partition) drop(ctx context.Context, tx *sql.Tx, horizon int64) (dropped bool, err error) {
	if there, err := p.attached(ctx, tx); err != nil || !there {
		return false, err
	}
	if p.table != "runs" { // runs goes last
		if there, err := (Partition{table: "runs", Day: p.Day}).attached(ctx, tx); err != nil || there {
			return false, err
		}
	}
	if _, err := tx.ExecContext(ctx, `LOCK TABLE `+p.Name()+`, `+p.table+`_default IN ACCESS EXCLUSIVE MODE`); err != nil {
		return false, err
	}
	bounds := []any{p.Day, p.Day + DayMillis, horizon}
	kept, _, err := First(ctx, tx, ScanInt, fmt.Sprintf(`SELECT count(*) FROM (%s LIMIT %d) AS k`, p.kept(), mostKept+1), bounds...)
	if err != nil || kept > mostKept {
		return false, err
	}
	if kept > 0 {
		if _, err := tx.ExecContext(ctx, `ALTER TABLE `+p.table+` DETACH PARTITION `+p.Name()); err != nil {
			return false, err
		}
		if err := p.keep(ctx, tx, bounds); err != nil {
			return false, fmt.Errorf("keep %d rows: %w", kept, err)
		}
	}
	if _, err := tx.ExecContext(ctx, `DROP TABLE `+p.Name()); err != nil {
		return false, err
	}
	return true, nil
}
