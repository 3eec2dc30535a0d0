package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// A dump, or another long snapshot, keeps the rows of runs that have ended from being removed, while statistics say
// that there are none: PostgreSQL then thinks that to read the whole table costs less than to look for each run of a
// batch.
func TestLiveRunsAreFoundByKeyDuringALongSnapshot(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	s := openWithout(t, database)
	conn, err := pgx.Connect(t.Context(), database)
	must(t, err)
	defer conn.Close(t.Context())
	const rows = `INSERT INTO live_runs
		(app_id, scheduled_at, trigger_id, job_id, revision, node, token, attempt, kind, state, next_attempt_at, retry_until)
		SELECT 1, %[1]d + i, i, i %% 100, 1, 1, 1, 1, 1, CASE WHEN i %% 2 = 0 THEN 'claimed' ELSE 'retrying' END, %[1]d, %[1]d
		FROM generate_series(1, 40000) AS i`
	must(t, store.Exec(t.Context(), s, fmt.Sprintf(rows, may1.UnixMilli())))
	snapshot, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	must(t, err)
	_, err = snapshot.Exec(t.Context(), `SELECT count(*) FROM live_runs`)
	must(t, err)
	must(t, store.Exec(t.Context(), s, `DELETE FROM live_runs`))
	must(t, store.Exec(t.Context(), s, `VACUUM live_runs`))
	const misled = `SELECT count(*) FROM pg_class WHERE relname = 'live_runs' AND reltuples = 0 AND relpages > 100`
	if count(t, s, misled) != 1 {
		t.Fatal("the table has not become what this test is about")
	}
	// These concern all live runs, all broadcasts and all shards.
	all := map[string]bool{"rollback_skip": true, "broadcasts_done": true, "broadcasts_orphaned": true}
	for name, hot := range store.HotStatements("postgres", may1.UnixMilli()) {
		for _, part := range hot.Parts {
			plan, err := store.PostgresPlan(t.Context(), s, part, many(hot.Args))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if line := readsAll(plan); line != "" && !all[name] {
				t.Errorf("%s reads all live runs: %s\n%s", name, line, plan)
			}
		}
	}
}

// readsAll returns the line of a plan that reads the live runs otherwise than by their whole key, or by an index
// that leads to those of some node, job or time. The first entry of an index may be read: from there, a statement looks
// for the next app. PostgreSQL 15 gives that a condition (IS NOT NULL), 18 knows that it always holds.
func readsAll(plan string) string {
	lines := strings.Split(plan, "\n")
	for i, line := range lines {
		switch {
		case !strings.Contains(line, " on live_runs") || !strings.Contains(line, "Scan"):
		case strings.Contains(line, "using live_runs_pkey"):
			if cond := lines[i+1]; !strings.Contains(cond, "Index Cond") || !strings.Contains(cond, "kind = ") {
				return line
			}
		case strings.Contains(line, "Seq Scan"):
			return line
		case strings.Contains(lines[i+1], "Index Cond"), strings.Contains(lines[i+1], "Recheck Cond"):
		case strings.Contains(line, "Index Only Scan") && strings.HasSuffix(lines[i-1], "->  Limit") && !strings.Contains(lines[i+1], "Filter"):
		default:
			return line
		}
	}
	return ""
}

// many makes batches of 500 rows of the examples.
func many(args []any) []any {
	all := make([]any, len(args))
	for i, arg := range args {
		switch column := arg.(type) {
		case []int64:
			all[i] = repeated(column)
		case []int32:
			all[i] = repeated(column)
		case []bool:
			all[i] = repeated(column)
		case []string:
			all[i] = repeated(column)
		default:
			all[i] = arg
		}
	}
	return all
}

func repeated[T any](column []T) []T {
	all := make([]T, 500)
	for i := range all {
		all[i] = column[i%len(column)]
	}
	return all
}
