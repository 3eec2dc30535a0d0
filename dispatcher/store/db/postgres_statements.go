package db

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// How statements guide PostgreSQL's planner. Live runs and claims come and go, so its statistics often show empty
// tables, although these hold rows that a long snapshot protects from removal. The planner would then read a whole
// table and join it to the batch row by row. So each statement goes from the batch to the tables by key:
//
//   - b is MATERIALIZED, which hides constants; conditions on a large table compare it with columns of b.
//   - few makes it expect a single row in b, or in the chosen runs, so that it begins there.
//   - A join by the key of a run compares one column with an array. It uses the index as well, and cannot be
//     a merge join, for which the planner would think of reading the index from end to end.
//   - An order that equals the primary key's is by a sum, for the same reason.

// few is true. The planner guesses that each half of it is true for one row in 200.
func few(name string, typ columnType) string {
	same, again := name+` + 0`, name+` - 0`
	if typ == Text {
		same, again = name+` || ''`, `'' || `+name
	}
	return `(` + name + ` = ` + same + `) IS NOT FALSE AND (` + name + ` = ` + again + `) IS NOT FALSE`
}

func (p *Postgres) SeemingFew(column string) string { return ` AND ` + few(column, Bigint) }

func (p *Postgres) Rows(now, first int, extra string, columns ...Column) string {
	arrays := make([]string, len(columns))
	for i, c := range columns {
		arrays[i] = fmt.Sprintf("$%d::%s[]", first+i, c.Type)
	}
	if extra != "" {
		extra += ", "
	}
	present := PostgresMillis
	if now != 0 {
		n := strconv.Itoa(now)
		present = `CASE WHEN $` + n + `::bigint = 0 THEN ` + PostgresMillis + ` ELSE $` + n + ` END`
	}
	return `WITH n AS MATERIALIZED (SELECT ` + present + ` AS now),
		b AS MATERIALIZED (SELECT u.*, ` + extra + `n.now, TRUE AS yes, FALSE AS no
			FROM unnest(` + strings.Join(arrays, ", ") + `) AS u(` + names(columns) + `) CROSS JOIN n
			WHERE ` + few(`u.`+columns[0].Name, columns[0].Type) + `)`
}

func (p *Postgres) Batch(columns ...any) []any { return columns }

func (p *Postgres) In(n int) string { return ` = ANY ($` + strconv.Itoa(n) + `::bigint[])` }

func (p *Postgres) SameRun(r, at, trigger, kind string) string {
	return ` ` + r + `.scheduled_at = ANY (ARRAY[` + at + `]) AND ` + r + `.trigger_id = ` + trigger + ` AND ` + r + `.kind = ` + kind
}

// RunsOf is a separate query for the same reason as EachRun: cut keeps it so.
func (p *Postgres) RunsOf(node, conditions, cut string) string {
	return ` CROSS JOIN LATERAL (SELECT r.* FROM live_runs AS r WHERE r.node = ` + node + ` AND ` + NotParked +
		` AND ` + conditions + cut + `) AS r`
}

// EachRun is a separate query, which PostgreSQL does not merge into the outer query because it locks rows. Otherwise
// PostgreSQL would begin with the live runs when it expects none, and go from their jobs to the batch.
func (p *Postgres) EachRun(conditions string) string {
	return ` CROSS JOIN LATERAL (SELECT r.* FROM live_runs AS r WHERE` + OfBatch(p) + ` AND ` + conditions +
		p.LockRows(LockToDelete+SkipLockedRows) + `) AS r`
}

func (p *Postgres) EachFirst(columns, joined, conditions, order string) string {
	return `SELECT w.* FROM a CROSS JOIN LATERAL (SELECT ` + columns + ` FROM live_runs AS r` + joined + `
		WHERE ` + conditions + ` ORDER BY ` + order + ` LIMIT $3) AS w`
}

func (p *Postgres) EachFirstEnds(conditions, order, lock string) string {
	return `SELECT e.* FROM a CROSS JOIN LATERAL (SELECT e.* FROM pending_ends AS e
		WHERE ` + conditions + ` ORDER BY ` + order + ` LIMIT (SELECT max(a.share) FROM a)` + lock + `) AS e`
}

// ForUpdate does not lock the keys of a row, so the check of a foreign key, as when a misfire of a job is inserted,
// does not wait for it. FOR UPDATE made that a deadlock.
func (p *Postgres) ForUpdate() string { return " FOR NO KEY UPDATE" }

func (p *Postgres) LockRows(mode string) string {
	if !p.Has.Has(SkipLocked) {
		return strings.TrimSuffix(mode, SkipLockedRows)
	}
	return mode
}

func (p *Postgres) ClaimColumns() string { return `trigger_ids, scheduled_at, job_ids, revisions` }

func (p *Postgres) ClaimValues() string {
	return `array_agg(c.id), array_agg(c.run_at), array_agg(c.job_id), array_agg(c.revision)`
}

func (p *Postgres) ClaimedFires() string {
	return `SELECT c.token, c.node, c.claimed_at, u.trigger_id, u.scheduled_at, u.job_id, u.revision FROM claims AS c
		CROSS JOIN LATERAL unnest(c.trigger_ids, c.scheduled_at, c.job_ids, c.revisions) AS u(trigger_id, scheduled_at, job_id, revision)`
}

// ClaimFence deletes the claims with no fires left, and locks the others.
func (p *Postgres) ClaimFence() string {
	return `,
		k AS MATERIALIZED (SELECT token FROM claims WHERE token` + p.In(1) + ` ORDER BY token FOR KEY SHARE),
		d AS (DELETE FROM claims WHERE token` + p.In(2) + ` RETURNING token),
		f AS (SELECT token FROM k UNION ALL SELECT token FROM d)`
}

func (p *Postgres) ThenClose(s Statement) Statement { return s }

func (p *Postgres) DeleteChosen(condition string) string {
	return ` DELETE FROM live_runs AS r USING c WHERE` + OfChosen(p) + ` AND ` + condition
}

func (p *Postgres) Edges() string {
	const of = `(SELECT` + ContenderColumns + ` FROM live_runs AS r WHERE r.job_id = b.id AND r.kind < 16 AND r.node <> -3
		ORDER BY r.scheduled_at + 0`
	return p.Rows(0, 2, "", IDColumns...) + ` SELECT r.* FROM b CROSS JOIN LATERAL (` + of + `, r.trigger_id, r.kind LIMIT $1)
		UNION ALL ` + of + ` DESC, r.trigger_id DESC, r.kind DESC LIMIT $1)) AS r`
}

// Steps are one statement. All its parts see the tables as they were before it. The chosen rows are locked, so they
// do not change meanwhile.
func (p *Postgres) Steps(_ int, with, choose, lock string, counted int, effects ...string) Statement {
	text, last := with+Chosen(choose), len(effects)-1
	if lock != "" {
		if lock != LockedThere {
			choose += ` FOR UPDATE OF r` + strings.TrimPrefix(p.LockRows(lock), LockToDelete)
		}
		text = with + `, chosen AS MATERIALIZED (` + choose + `),
		c AS MATERIALIZED (SELECT * FROM chosen WHERE ` + few("of_trigger", Bigint) + `)`
	}
	if counted > 1 {
		effects = append(effects, ` SELECT 1 FROM c`)
		last++
	}
	for i, effect := range effects[:last] {
		text += `, e` + strconv.Itoa(i+1) + ` AS (` + effect + `)`
	}
	return Writing(text + effects[last])
}

func (p *Postgres) Execute(ctx context.Context, hot Statement, args []any, scan func(Scanner) error) (affected int64, err error) {
	if len(hot.Parts) > 1 {
		err = pgx.BeginFunc(ctx, p.Pool, func(tx pgx.Tx) error {
			affected = 0
			for i, part := range hot.Parts {
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
	affected, err = p.query(ctx, hot.Parts[0], args, scan)
	var e *pgconn.PgError
	if len(hot.OrElse) > 0 && errors.As(err, &e) && e.Code == "23505" { // unique_violation
		return p.query(ctx, hot.OrElse[0], args, scan)
	}
	return affected, err
}

func (p *Postgres) query(ctx context.Context, statement string, args []any, scan func(Scanner) error) (int64, error) {
	args = slices.Concat([]any{p.mode}, args)
	rows, err := patiently(ctx, func() (pgx.Rows, error) {
		if conn, ok := ctx.Value(oneConnection{}).(*pgxpool.Conn); ok {
			return conn.Query(ctx, statement, args...)
		}
		return p.Pool.Query(ctx, statement, args...)
	})
	if err != nil {
		return 0, err
	}
	return scanRows(rows, scan)
}

// oneConnection is the key of the connection in a context.
type oneConnection struct{}

func (p *Postgres) OnOneConnection(ctx context.Context) (on context.Context, release func(), err error) {
	conn, err := patiently(ctx, func() (*pgxpool.Conn, error) { return p.Pool.Acquire(ctx) })
	if err != nil {
		return nil, nil, err
	}
	return context.WithValue(ctx, oneConnection{}, conn), conn.Release, nil
}

// scanRows calls scan, which may be nil, for each row, and returns the number of rows returned or affected.
func scanRows(rows pgx.Rows, scan func(Scanner) error) (int64, error) {
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

// DeadOfEach selects the latest dead letters of each job of the batch.
func (p *Postgres) DeadOfEach(conditions, limit string) string {
	return ` SELECT r.* FROM b CROSS JOIN LATERAL (` + DeadRuns + ` AND r.job_id >= b.id AND r.job_id <= b.id` + conditions +
		strings.Replace(limit, `ORDER BY `, `ORDER BY r.job_id DESC, `, 1) + `) AS r` + limit
}

func (p *Postgres) ForShare() string { return " FOR SHARE" }

// ExpiredOfJobs selects expired runs of the jobs of a batch, with one index lookup for each job.
// $1 before when they have ended, $2 and $3 bounds of their instants, $4 limit
func (p *Postgres) ExpiredOfJobs() string {
	// Without these seemingly redundant bounds PostgreSQL would begin with all runs of the day.
	return ` SELECT r.scheduled_at, r.trigger_id, r.kind FROM b
	CROSS JOIN LATERAL (SELECT * FROM runs AS r WHERE r.job_id >= b.id AND r.job_id <= b.id` + ExpiredIn + `
		ORDER BY r.job_id, r.scheduled_at, r.trigger_id, r.kind LIMIT $4) AS r LIMIT $4`
}

// EndedOfEach selects the latest ended runs of each job of the batch. The order begins with the job, which is
// constant, and a range of one job replaces an equation: so PostgreSQL follows the index of jobs. It cannot tell an
// app with few runs from one with many, where it would follow the primary key through the runs of all apps.
func (p *Postgres) EndedOfEach(conditions, limit string) string {
	return ` SELECT r.* FROM b CROSS JOIN LATERAL (
		SELECT * FROM (` + EndedRuns + `) AS r WHERE r.job_id >= b.id AND r.job_id <= b.id` + conditions +
		strings.Replace(limit, `ORDER BY `, `ORDER BY r.job_id DESC, `, 1) + `) AS r` + limit
}

// EndedOfEachKey makes a separate query for each key, so PostgreSQL searches only its day and never joins whole days.
func (p *Postgres) EndedOfEachKey(is string) string {
	return ` SELECT r.* FROM b CROSS JOIN LATERAL (SELECT * FROM (` + EndedRuns + `) AS r WHERE ` + is + ` LIMIT 1) AS r`
}

// LatestOfEach selects the latest rows of each job of a batch. The order begins with the job as in EndedOfEach.
func (p *Postgres) LatestOfEach(columns, table, at, conditions string, limit int) string {
	return ` SELECT r.* FROM b CROSS JOIN LATERAL (SELECT ` + columns + ` FROM ` + table + ` AS r WHERE r.job_id >= b.id AND r.job_id <= b.id
		AND ` + conditions + ` ORDER BY r.job_id DESC, ` + at + ` DESC FETCH FIRST ` + strconv.Itoa(limit) + ` ROWS WITH TIES) AS r`
}

// arrayCodec encodes the columns of a batch. The codec of pgx takes each element out of its slice as an any, which
// costs an allocation for each value of each fire; it stays for all other values.
type arrayCodec struct{ *pgtype.ArrayCodec }

func (c arrayCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		element := c.ElementType.OID
		switch value.(type) {
		case []int64:
			if element == pgtype.Int8OID {
				return arrayPlan[int64]{element, 8, appendBigint}
			}
		case []*int64:
			if element == pgtype.Int8OID {
				return arrayPlan[*int64]{element, 8, appendOptionalBigint}
			}
		case []int32:
			if element == pgtype.Int4OID {
				return arrayPlan[int32]{element, 4, appendInteger}
			}
		case []bool:
			if element == pgtype.BoolOID {
				return arrayPlan[bool]{element, 1, appendBoolean}
			}
		case []string:
			if element == pgtype.TextOID {
				return arrayPlan[string]{element, 0, appendText}
			}
		}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

// encodeArrays makes a connection encode the columns of batches with arrayCodec.
func encodeArrays(types *pgtype.Map) {
	for _, oid := range []uint32{pgtype.Int8ArrayOID, pgtype.Int4ArrayOID, pgtype.BoolArrayOID, pgtype.TextArrayOID} {
		if array, ok := types.TypeForOID(oid); ok {
			if codec, ok := array.Codec.(*pgtype.ArrayCodec); ok {
				types.RegisterType(&pgtype.Type{Name: array.Name, OID: oid, Codec: arrayCodec{codec}})
			}
		}
	}
}

// arrayPlan encodes an array of one dimension.
type arrayPlan[T any] struct {
	element uint32 // type
	size    int    // of an element, if all have the same size
	// append appends an element after its length, which is -1 for NULL.
	append func([]byte, T) []byte
}

// Encode appends an array in the binary format. A nil slice is NULL.
func (p arrayPlan[T]) Encode(value any, buf []byte) ([]byte, error) {
	elements := value.([]T)
	if elements == nil {
		return nil, nil
	}
	const header, length = 20, 4
	if need := header + len(elements)*(length+p.size); cap(buf)-len(buf) < need {
		buf = append(make([]byte, 0, 4*(len(buf)+need)), buf...) // other columns follow
	}
	dimensions := min(1, len(elements))
	buf = binary.BigEndian.AppendUint32(buf, uint32(dimensions))
	buf = binary.BigEndian.AppendUint32(buf, 0) // 1 would only announce NULLs
	buf = binary.BigEndian.AppendUint32(buf, p.element)
	if dimensions == 0 {
		return buf, nil
	}
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(elements)))
	buf = binary.BigEndian.AppendUint32(buf, 1) // the first index
	for _, one := range elements {
		buf = p.append(buf, one)
	}
	return buf, nil
}

func appendBigint(buf []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(buf, 8), uint64(n))
}

func appendOptionalBigint(buf []byte, n *int64) []byte {
	if n == nil {
		return binary.BigEndian.AppendUint32(buf, 1<<32-1)
	}
	return appendBigint(buf, *n)
}

func appendInteger(buf []byte, n int32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(buf, 4), uint32(n))
}

func appendBoolean(buf []byte, yes bool) []byte {
	value := byte(0)
	if yes {
		value = 1
	}
	return append(binary.BigEndian.AppendUint32(buf, 1), value)
}

func appendText(buf []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint32(buf, uint32(len(text))), text...)
}
