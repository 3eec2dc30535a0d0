package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// What PostgreSQL's planner must be told. The live runs and claims come and go, so its statistics often say that the
// tables are empty, while they hold what a long snapshot keeps from being removed. It would then read a table
// as a whole, and join it to the batch row by row. So each statement goes from the batch to the tables by key:
//
//   - b is MATERIALIZED, which hides constants; conditions on a large table compare it with columns of b.
//   - few makes it take b, or what was chosen, for a single row, from which to begin is never wrong.
//   - A join by the key of a run compares one column with an array. It is found by the index as well, and cannot be
//     a merge join, for which the planner would think of reading the index from end to end.
//   - An order that the primary key has, too, is by a sum, for the same reason.

// few is true. The planner guesses that each half of it is true for one row in 200.
func few(name string, typ columnType) string {
	same, again := name+` + 0`, name+` - 0`
	if typ == text {
		same, again = name+` || ''`, `'' || `+name
	}
	return `(` + name + ` = ` + same + `) IS NOT FALSE AND (` + name + ` = ` + again + `) IS NOT FALSE`
}

func (p *postgres) seemingFew(column string) string { return ` AND ` + few(column, bigint) }

func (p *postgres) rows(now, first int, extra string, columns ...column) string {
	arrays := make([]string, len(columns))
	for i, c := range columns {
		arrays[i] = fmt.Sprintf("$%d::%s[]", first+i, c.typ)
	}
	if extra != "" {
		extra += ", "
	}
	present := postgresMillis
	if now != 0 {
		n := strconv.Itoa(now)
		present = `CASE WHEN $` + n + `::bigint = 0 THEN ` + postgresMillis + ` ELSE $` + n + ` END`
	}
	return `WITH n AS MATERIALIZED (SELECT ` + present + ` AS now),
		b AS MATERIALIZED (SELECT u.*, ` + extra + `n.now, TRUE AS yes, FALSE AS no
			FROM unnest(` + strings.Join(arrays, ", ") + `) AS u(` + names(columns) + `) CROSS JOIN n
			WHERE ` + few(`u.`+columns[0].name, columns[0].typ) + `)`
}

func (p *postgres) batch(columns ...any) []any { return columns }

func (p *postgres) in(n int) string { return ` = ANY ($` + strconv.Itoa(n) + `::bigint[])` }

func (p *postgres) sameRun(r, at, trigger, kind string) string {
	return ` ` + r + `.scheduled_at = ANY (ARRAY[` + at + `]) AND ` + r + `.trigger_id = ` + trigger + ` AND ` + r + `.kind = ` + kind
}

// runsOf is a query of its own for the same reason as eachRun: cut keeps it so.
func (p *postgres) runsOf(node, conditions, cut string) string {
	return ` CROSS JOIN LATERAL (SELECT r.* FROM live_runs AS r WHERE r.node = ` + node + ` AND ` + notParked +
		` AND ` + conditions + cut + `) AS r`
}

// eachRun is a query of its own, which PostgreSQL does not mix with what is around it because it locks its rows. It
// would else begin with the live runs, and go from their jobs to the batch, when it thinks that there are none.
func (p *postgres) eachRun(conditions string) string {
	return ` CROSS JOIN LATERAL (SELECT r.* FROM live_runs AS r WHERE` + ofBatch(p) + ` AND ` + conditions +
		p.lockRows(lockToDelete+skipLocked) + `) AS r`
}

func (p *postgres) eachFirst(columns, joined, conditions, order string) string {
	return `SELECT w.* FROM a CROSS JOIN LATERAL (SELECT ` + columns + ` FROM live_runs AS r` + joined + `
		WHERE ` + conditions + ` ORDER BY ` + order + ` LIMIT $3) AS w`
}

func (p *postgres) eachFirstEnds(conditions, order, lock string) string {
	return `SELECT e.* FROM a CROSS JOIN LATERAL (SELECT e.* FROM pending_ends AS e
		WHERE ` + conditions + ` ORDER BY ` + order + ` LIMIT (SELECT max(a.share) FROM a)` + lock + `) AS e`
}

// lock leaves the keys of a row alone, so that the check of a foreign key, as when a misfire of a
// job is inserted, does not wait for it: FOR UPDATE made that a deadlock.
func (p *postgres) lock() string { return " FOR NO KEY UPDATE" }

func (p *postgres) lockRows(mode string) string {
	if !p.has.Has(SkipLocked) {
		return strings.TrimSuffix(mode, skipLocked)
	}
	return mode
}

func (p *postgres) claimColumns() string { return `trigger_ids, scheduled_at, job_ids, revisions` }

func (p *postgres) claimValues() string {
	return `array_agg(c.id), array_agg(c.run_at), array_agg(c.job_id), array_agg(c.revision)`
}

func (p *postgres) claimedFires() string {
	return `SELECT c.token, c.node, c.claimed_at, u.trigger_id, u.scheduled_at, u.job_id, u.revision FROM claims AS c
		CROSS JOIN LATERAL unnest(c.trigger_ids, c.scheduled_at, c.job_ids, c.revisions) AS u(trigger_id, scheduled_at, job_id, revision)`
}

// claimFence deletes the claims whose last fires this is, and locks the others.
func (p *postgres) claimFence() string {
	return `,
		k AS MATERIALIZED (SELECT token FROM claims WHERE token` + p.in(1) + ` ORDER BY token FOR KEY SHARE),
		d AS (DELETE FROM claims WHERE token` + p.in(2) + ` RETURNING token),
		f AS (SELECT token FROM k UNION ALL SELECT token FROM d)`
}

func (p *postgres) thenClose(s statement) statement { return s }

func (p *postgres) deleteChosen(condition string) string {
	return ` DELETE FROM live_runs AS r USING c WHERE` + ofChosen(p) + ` AND ` + condition
}

func (p *postgres) edges() string {
	const of = `(SELECT` + contenderColumns + ` FROM live_runs AS r WHERE r.job_id = b.id AND r.kind < 16 AND r.node <> -3
		ORDER BY r.scheduled_at + 0`
	return p.rows(0, 2, "", idColumns...) + ` SELECT r.* FROM b CROSS JOIN LATERAL (` + of + `, r.trigger_id, r.kind LIMIT $1)
		UNION ALL ` + of + ` DESC, r.trigger_id DESC, r.kind DESC LIMIT $1)) AS r`
}

// steps are one statement, of which all parts see what was there before it. What was chosen is locked, so that
// it stays as it was seen.
func (p *postgres) steps(_ int, with, choose, lock string, counted int, effects ...string) statement {
	text, last := with+chosen(choose), len(effects)-1
	if lock != "" {
		if lock != lockedThere {
			choose += ` FOR UPDATE OF r` + strings.TrimPrefix(p.lockRows(lock), lockToDelete)
		}
		text = with + `, chosen AS MATERIALIZED (` + choose + `),
		c AS MATERIALIZED (SELECT * FROM chosen WHERE ` + few("of_trigger", bigint) + `)`
	}
	if counted > 1 {
		effects = append(effects, ` SELECT 1 FROM c`)
		last++
	}
	for i, effect := range effects[:last] {
		text += `, e` + strconv.Itoa(i+1) + ` AS (` + effect + `)`
	}
	return write(text + effects[last])
}

func (p *postgres) run(ctx context.Context, hot statement, args []any, scan func(scanner) error) (affected int64, err error) {
	if len(hot.parts) > 1 {
		return p.runParts(ctx, hot, args, scan)
	}
	affected, err = p.query(ctx, hot.parts[0], args, scan)
	var e *pgconn.PgError
	if len(hot.orElse) > 0 && errors.As(err, &e) && e.Code == "23505" { // unique_violation
		return p.query(ctx, hot.orElse[0], args, scan)
	}
	return affected, err
}

// runParts runs the parts of a statement in one transaction.
func (p *postgres) runParts(ctx context.Context, hot statement, args []any, scan func(scanner) error) (affected int64, err error) {
	err = pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		affected = 0
		for i, part := range hot.parts {
			rows, err := tx.Query(ctx, part, slices.Concat([]any{p.mode}, args)...)
			if err != nil {
				return err
			}
			n, err := scanRows(rows, scan)
			if err != nil {
				return err
			}
			if hot.counts(i) {
				affected += n
			}
		}
		return nil
	})
	return affected, err
}

func (p *postgres) query(ctx context.Context, statement string, args []any, scan func(scanner) error) (int64, error) {
	args = slices.Concat([]any{p.mode}, args)
	rows, err := patiently(ctx, func() (pgx.Rows, error) {
		if conn, ok := ctx.Value(oneConnection{}).(*pgxpool.Conn); ok {
			return conn.Query(ctx, statement, args...)
		}
		return p.pool.Query(ctx, statement, args...)
	})
	if err != nil {
		return 0, err
	}
	return scanRows(rows, scan)
}

// oneConnection is the key of the connection in a context.
type oneConnection struct{}

func (p *postgres) onOneConnection(ctx context.Context) (on context.Context, release func(), err error) {
	conn, err := patiently(ctx, func() (*pgxpool.Conn, error) { return p.pool.Acquire(ctx) })
	if err != nil {
		return nil, nil, err
	}
	return context.WithValue(ctx, oneConnection{}, conn), conn.Release, nil
}

// scanRows calls scan, which may be nil, for each row, and returns how many rows there were, or were affected.
func scanRows(rows pgx.Rows, scan func(scanner) error) (int64, error) {
	defer rows.Close()
	for rows.Next() {
		if scan == nil {
			continue
		}
		if err := scan(rows); err != nil {
			return 0, err
		}
	}
	return rows.CommandTag().RowsAffected(), rows.Err()
}

// deadOfEach selects the latest dead letters of each job of the batch.
func (p *postgres) deadOfEach(conditions, limit string) string {
	return ` SELECT r.* FROM b CROSS JOIN LATERAL (` + deadRuns + ` AND r.job_id >= b.id AND r.job_id <= b.id` + conditions +
		strings.Replace(limit, `ORDER BY `, `ORDER BY r.job_id DESC, `, 1) + `) AS r` + limit
}

func (p *postgres) shareLock() string { return " FOR SHARE" }

// expiredOfJobs selects expired runs of the jobs of a batch, of which each is one look into an index.
// $1 before when they have ended, $2 and $3 bounds of their instants, $4 limit
func (p *postgres) expiredOfJobs() string {
	// Without the bounds that look like none, PostgreSQL would begin with all runs of the day.
	return ` SELECT r.scheduled_at, r.trigger_id, r.kind FROM b
	CROSS JOIN LATERAL (SELECT * FROM runs AS r WHERE r.job_id >= b.id AND r.job_id <= b.id` + expiredIn + `
		ORDER BY r.job_id, r.scheduled_at, r.trigger_id, r.kind LIMIT $4) AS r LIMIT $4`
}

// endedOfEach selects the latest ended runs of each job of the batch. The order begins with the job, which is the same
// for all, and a range of one job takes the place of an equation: so PostgreSQL follows the index of jobs. Of an app with
// few runs it knows no better than of one with many, for which it would follow the primary key, with the runs of
// all apps.
func (p *postgres) endedOfEach(conditions, limit string) string {
	return ` SELECT r.* FROM b CROSS JOIN LATERAL (
		SELECT * FROM (` + endedRuns + `) AS r WHERE r.job_id >= b.id AND r.job_id <= b.id` + conditions +
		strings.Replace(limit, `ORDER BY `, `ORDER BY r.job_id DESC, `, 1) + `) AS r` + limit
}

// endedOfEachKey makes a query of its own of each key, so that PostgreSQL looks into one day for it, and never joins whole days.
func (p *postgres) endedOfEachKey(is string) string {
	return ` SELECT r.* FROM b CROSS JOIN LATERAL (SELECT * FROM (` + endedRuns + `) AS r WHERE ` + is + ` LIMIT 1) AS r`
}

// latestOfEach selects the latest rows of each job of a batch. The order begins with the job for the reason that endedOfEach has.
func (p *postgres) latestOfEach(columns, table, at, conditions string, limit int) string {
	return ` SELECT r.* FROM b CROSS JOIN LATERAL (SELECT ` + columns + ` FROM ` + table + ` AS r WHERE r.job_id >= b.id AND r.job_id <= b.id
		AND ` + conditions + ` ORDER BY r.job_id DESC, ` + at + ` DESC FETCH FIRST ` + strconv.Itoa(limit) + ` ROWS WITH TIES) AS r`
}
