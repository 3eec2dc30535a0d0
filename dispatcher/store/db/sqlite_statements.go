package db

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Rows uses jsonb_each, which passes each row on as parsed: json_each writes it as text to be parsed again, which cost
// a claim and its record a tenth more CPU.
func (s *SQLite) Rows(now, first int, extra string, columns ...Column) string {
	values := make([]string, len(columns))
	for i, c := range columns {
		values[i] = fmt.Sprintf("value ->> %d AS %s", i, c.Name)
	}
	present := "0"
	if now != 0 {
		present = "$" + strconv.Itoa(now)
	}
	if extra != "" {
		extra += ", "
	}
	return `WITH n AS MATERIALIZED (SELECT CASE WHEN ` + present + ` = 0 THEN ` + SQLiteMillis + ` ELSE ` + present + ` END AS now),
		b AS MATERIALIZED (SELECT u.*, ` + extra + `n.now, TRUE AS yes, FALSE AS no
			FROM (SELECT ` + strings.Join(values, ", ") + ` FROM jsonb_each($` + strconv.Itoa(first) + `)) AS u CROSS JOIN n)`
}

// SeemingFew is empty: SQLite joins tables in the order in which they are written.
func (s *SQLite) SeemingFew(string) string { return "" }

// Batch writes the rows as one JSON array of arrays.
func (s *SQLite) Batch(columns ...any) []any {
	rows := reflect.ValueOf(columns[0]).Len()
	b := make([]byte, 0, 2+rows*len(columns)*16)
	b = append(b, '[')
	for i := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		for j, column := range columns {
			b = append(b, "[,"[min(j, 1)])
			b = appendJSON(b, column, i)
		}
		b = append(b, ']')
	}
	return []any{string(append(b, ']'))}
}

func (s *SQLite) In(n int) string {
	return ` IN (SELECT value ->> 0 FROM jsonb_each($` + strconv.Itoa(n) + `))`
}

func (s *SQLite) SameRun(r, at, trigger, kind string) string {
	return ` ` + r + `.scheduled_at = ` + at + ` AND ` + r + `.trigger_id = ` + trigger + ` AND ` + r + `.kind = ` + kind
}

func (s *SQLite) RunsOf(node, conditions, _ string) string {
	return ` CROSS JOIN live_runs AS r ON r.node = ` + node + ` AND ` + NotParked + ` AND ` + conditions
}

func (s *SQLite) EachRun(conditions string) string {
	return ` JOIN live_runs AS r ON` + OfBatch(s) + ` AND ` + conditions
}

// EachFirst finds keys first, as Edges does.
func (s *SQLite) EachFirst(columns, joined, conditions, order string) string {
	from := ` CROSS JOIN live_runs AS r` + joined
	return `SELECT ` + columns + ` FROM a` + from + ` WHERE j.id = r.job_id AND (r.scheduled_at, r.trigger_id, r.kind) IN (
		SELECT r.scheduled_at, r.trigger_id, r.kind FROM live_runs AS r` + joined + `
		WHERE ` + conditions + ` ORDER BY ` + order + ` LIMIT $3)`
}

func (s *SQLite) EachFirstEnds(conditions, order, _ string) string {
	const key = `e.ended_at, e.trigger_id, e.scheduled_at, e.kind`
	return `SELECT e.* FROM a CROSS JOIN pending_ends AS e WHERE (` + key + `) IN (SELECT ` + key + ` FROM pending_ends AS e
		WHERE ` + conditions + ` ORDER BY ` + order + ` LIMIT (SELECT max(a.share) FROM a))`
}

func (s *SQLite) LockRows(string) string { return "" }

func (s *SQLite) ClaimColumns() string { return `fires` }

func (s *SQLite) ClaimValues() string {
	return `json_group_array(json_array(c.id, c.run_at, c.job_id, c.revision))`
}

func (s *SQLite) ClaimedFires() string {
	return `SELECT c.token, c.node, c.claimed_at, u.value ->> 0 AS trigger_id, u.value ->> 1 AS scheduled_at, u.value ->> 2 AS job_id,
		u.value ->> 3 AS revision FROM claims AS c CROSS JOIN jsonb_each(c.fires) AS u`
}

// ClaimFence has all claims: no other process can delete one meanwhile.
func (s *SQLite) ClaimFence() string { return `, f AS (SELECT token FROM claims)` }

// ThenClose deletes the claims with all fires recorded. It skips runs that are recorded again.
func (s *SQLite) ThenClose(record Statement) Statement {
	if record.OrElse != nil {
		record.Parts, record.OrElse = record.OrElse, nil
	}
	if len(record.counted) == 0 {
		record.counted = []int{len(record.Parts) - 1}
	}
	record.Parts = append(record.Parts, `DELETE FROM claims WHERE token`+s.In(2))
	return record
}

func (s *SQLite) DeleteChosen(condition string) string {
	return ` DELETE FROM live_runs
	WHERE (scheduled_at, trigger_id, kind) IN (SELECT c.of_at, c.of_trigger, c.of_kind FROM c WHERE ` + condition + `)`
}

// Edges finds keys first: SQLite has no LATERAL, but can search a list that depends on b.
func (s *SQLite) Edges() string {
	const of = `SELECT` + ContenderColumns + ` FROM b CROSS JOIN live_runs AS r WHERE (r.scheduled_at, r.trigger_id, r.kind) IN (
		SELECT x.scheduled_at, x.trigger_id, x.kind FROM live_runs AS x WHERE x.job_id = b.id AND x.kind < 16 AND x.node <> -3
			ORDER BY x.scheduled_at + 0`
	return s.Rows(0, 2, "", IDColumns...) + of + `, x.trigger_id, x.kind LIMIT $1)
		UNION ALL ` + of + ` DESC, x.trigger_id DESC, x.kind DESC LIMIT $1)`
}

// Steps are one statement each. So a step must not change values by which later steps choose, unless it ends them.
func (s *SQLite) Steps(now int, with, choose, _ string, counted int, effects ...string) Statement {
	all := Statement{Now: now}
	for i, effect := range effects {
		all.Parts = append(all.Parts, with+Chosen(choose)+effect)
		if i >= len(effects)-counted {
			all.counted = append(all.counted, i)
		}
	}
	return all
}

func (s *SQLite) Execute(ctx context.Context, hot Statement, args []any, scan func(Scanner) error) (affected int64, err error) {
	parts, err := s.prepare(ctx, hot)
	if err != nil {
		return 0, err
	}
	if hot.reads {
		rows, err := parts[0].QueryContext(ctx, args...)
		if err != nil {
			return 0, err
		}
		return 0, each(rows, scan)
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	if args, err = s.fixNow(ctx, tx, hot, args); err != nil {
		return 0, err
	}
	for i, part := range parts {
		part = tx.StmtContext(ctx, part) //nolint:sqlclosecheck // the end of the transaction closes it
		if scan == nil {
			result, err := part.ExecContext(ctx, args...)
			if err != nil {
				return 0, err
			}
			n, err := result.RowsAffected()
			if err != nil {
				return 0, err
			}
			if hot.counts(i) {
				affected += n
			}
			continue
		}
		rows, err := part.QueryContext(ctx, args...)
		if err != nil {
			return 0, err
		}
		if err := each(rows, scan); err != nil {
			return 0, err
		}
	}
	return affected, tx.Commit()
}

// OnOneConnection does nothing: only one connection writes, and it lasts as long as the process.
func (s *SQLite) OnOneConnection(ctx context.Context) (on context.Context, release func(), err error) {
	return ctx, func() {}, nil
}

// prepare returns the parts of a statement, which each connection parses once: for the few rows of most batches parsing
// took longer than executing. Call it before a transaction, which occupies the only connection.
func (s *SQLite) prepare(ctx context.Context, hot Statement) ([]*sql.Stmt, error) {
	db := s.write
	if hot.reads {
		db = s.Read
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := make([]*sql.Stmt, len(hot.Parts))
	for i, part := range hot.Parts {
		if s.prepared[part] == nil {
			statement, err := db.PrepareContext(ctx, part) //nolint:sqlclosecheck // it is for all calls to come; the end of db closes it
			if err != nil {
				return nil, err
			}
			s.prepared[part] = statement
		}
		parts[i] = s.prepared[part]
	}
	return parts, nil
}

// fixNow gives all parts of a statement the same now. If each part read the clock, a fire due between two parts would
// be advanced by the first and get no run from the second.
func (s *SQLite) fixNow(ctx context.Context, tx *sql.Tx, hot Statement, args []any) ([]any, error) {
	if hot.Now == 0 || args[hot.Now-1] != int64(0) {
		return args, nil
	}
	now, err := s.Now(ctx, tx)
	if err != nil {
		return nil, err
	}
	args = slices.Clone(args) // a retry uses the caller's again, with its own now
	args[hot.Now-1] = now.UnixMilli()
	return args, nil
}

// DeadOfEach works without LATERAL, as EndedOfEach does.
func (s *SQLite) DeadOfEach(conditions, limit string) string {
	return ` SELECT r.* FROM b CROSS JOIN (` + DeadRuns + `) AS r WHERE r.job_id = b.id` + conditions + limit
}

func (s *SQLite) ForShare() string { return "" }

func (s *SQLite) ExpiredOfJobs() string {
	return ` SELECT r.scheduled_at, r.trigger_id, r.kind FROM b CROSS JOIN runs AS r WHERE r.job_id = b.id` + ExpiredIn + ` LIMIT $4`
}

// EndedOfEach works without LATERAL: CROSS JOIN makes it begin with the jobs.
func (s *SQLite) EndedOfEach(conditions, limit string) string {
	return ` SELECT r.* FROM b CROSS JOIN (` + EndedRuns + `) AS r WHERE r.job_id = b.id` + conditions + limit
}

// EndedOfEachKey works without LATERAL: CROSS JOIN makes it begin with the keys.
func (s *SQLite) EndedOfEachKey(is string) string {
	return ` SELECT r.* FROM b CROSS JOIN (` + EndedRuns + `) AS r WHERE ` + is
}

// LatestOfEach finds the oldest of the latest rows of each job first, without LATERAL. $1 is before all of them.
func (s *SQLite) LatestOfEach(columns, table, at, conditions string, limit int) string {
	oldest := `SELECT ` + at + ` FROM ` + table + ` AS r WHERE r.job_id = b.id AND ` + conditions +
		` ORDER BY ` + at + ` DESC LIMIT 1 OFFSET ` + strconv.Itoa(limit-1)
	return ` SELECT ` + columns + ` FROM b CROSS JOIN ` + table + ` AS r WHERE r.job_id = b.id
		AND ` + at + ` >= coalesce((` + oldest + `), $1) AND ` + conditions
}
