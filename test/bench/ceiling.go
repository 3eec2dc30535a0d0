package main

import (
	"context"
	"database/sql"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-resty/resty/v2"
	"github.com/jackc/pgx/v5/pgxpool"
)

// bareBatch is how many fires a statement of the bare ceiling claims or records.
const bareBatch = 500

// bareSQL is the minimal work of a scheduler in a database: it advances a trigger, inserts a run
// and finishes it, in batches. Its tables have one index besides the primary key.
type bareSQL struct {
	claim, record func(ctx context.Context, ids []int64, next int64) error
	close         func()
	own           []bareShare // by connection
}

const bareTables = `
	CREATE TABLE bare_triggers (id BIGINT NOT NULL PRIMARY KEY, next_fire BIGINT);
	CREATE INDEX bare_due ON bare_triggers (next_fire) WHERE next_fire IS NOT NULL;
	CREATE TABLE bare_runs (trigger_id BIGINT NOT NULL, scheduled_at BIGINT NOT NULL, state TEXT NOT NULL, ended_at BIGINT);
	CREATE UNIQUE INDEX bare_once ON bare_runs (trigger_id, scheduled_at);`

// newBareSQL creates the tables with that many triggers.
func (s *space) newBareSQL(ctx context.Context, triggers int) (*bareSQL, error) {
	if s.pool == nil {
		return s.newBareSQLite(ctx, triggers)
	}
	if _, err := s.pool.Exec(ctx, `DROP TABLE IF EXISTS bare_triggers, bare_runs;`+bareTables); err != nil {
		return nil, err
	}
	// $1 number
	const fill = `INSERT INTO bare_triggers SELECT id, 0 FROM generate_series(0, CAST($1 AS bigint) - 1) AS id`
	if _, err := s.pool.Exec(ctx, fill, triggers); err != nil {
		return nil, err
	}
	if _, err := s.pool.Exec(ctx, `ANALYZE bare_triggers`); err != nil {
		return nil, err
	}
	config := s.pool.Config()
	config.MaxConns = 2
	// As in Carillon's own connections: the batch is small compared with the table.
	config.ConnConfig.RuntimeParams["enable_hashjoin"] = "off"
	config.ConnConfig.RuntimeParams["enable_mergejoin"] = "off"
	config.ConnConfig.RuntimeParams["jit"] = "off"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	// $1 ids, $2 the instant that is claimed
	const claim = `WITH c AS (UPDATE bare_triggers AS t SET next_fire = $2 + 1 FROM unnest($1::bigint[]) AS b(id)
			WHERE t.id = b.id AND t.next_fire = $2 RETURNING t.id)
		INSERT INTO bare_runs (trigger_id, scheduled_at, state) SELECT id, $2, 'claimed' FROM c`
	const record = `UPDATE bare_runs AS r SET state = 'succeeded', ended_at = $2 FROM unnest($1::bigint[]) AS b(id)
		WHERE r.trigger_id = b.id AND r.scheduled_at = $2`
	run := func(statement string) func(context.Context, []int64, int64) error {
		return func(ctx context.Context, ids []int64, next int64) error {
			_, err := pool.Exec(ctx, statement, ids, next)
			return err
		}
	}
	return &bareSQL{own: shares(triggers, 2), claim: run(claim), record: run(record), close: pool.Close}, nil
}

func (s *space) newBareSQLite(ctx context.Context, triggers int) (*bareSQL, error) {
	const pragmas = `?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_txlock=immediate`
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(filepath.Join(s.dir, "bare.db"))+pragmas)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	const drop = `DROP TABLE IF EXISTS bare_triggers; DROP TABLE IF EXISTS bare_runs;`
	if _, err := db.ExecContext(ctx, drop+bareTables); err != nil {
		return nil, err
	}
	// $1 number
	const fill = `WITH RECURSIVE n(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM n WHERE id + 1 < $1)
		INSERT INTO bare_triggers SELECT id, 0 FROM n`
	if _, err := db.ExecContext(ctx, fill, triggers); err != nil {
		return nil, err
	}
	run := func(statements ...string) func(context.Context, []int64, int64) error {
		return func(ctx context.Context, ids []int64, next int64) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			for _, statement := range statements {
				if _, err := tx.ExecContext(ctx, statement, numbers(ids), next); err != nil {
					return err
				}
			}
			return tx.Commit()
		}
	}
	// $1 ids, $2 the instant that is claimed. The plus keeps SQLite from the index, where one
	// entry in many batches is wanted.
	return &bareSQL{own: shares(triggers, 1), close: func() { _ = db.Close() },
		claim: run(
			`INSERT INTO bare_runs (trigger_id, scheduled_at, state)
				SELECT t.id, $2, 'claimed' FROM json_each($1) AS b JOIN bare_triggers AS t ON t.id = b.value WHERE +t.next_fire = $2`,
			`UPDATE bare_triggers AS t SET next_fire = $2 + 1 FROM json_each($1) AS b WHERE t.id = b.value AND +t.next_fire = $2`),
		record: run(`UPDATE bare_runs AS r SET state = 'succeeded', ended_at = $2 FROM json_each($1) AS b
			WHERE r.trigger_id = b.value AND r.scheduled_at = $2`),
	}, nil
}

// numbers formats a JSON array.
func numbers(ids []int64) string {
	var b strings.Builder
	for i, id := range ids {
		b.WriteByte("[,"[min(i, 1)])
		b.WriteString(strconv.FormatInt(id, 10))
	}
	b.WriteByte(']')
	return b.String()
}

// measure claims and records for that long.
func (s *bareSQL) measure(ctx context.Context, span time.Duration) (float64, error) {
	return together(len(s.own), span, func(connection int, until time.Time) (done int, err error) {
		for own := &s.own[connection]; time.Now().Before(until); done += bareBatch {
			ids, next := own.take()
			if err := s.claim(ctx, ids, next); err != nil {
				return done, err
			}
			if err := s.record(ctx, ids, next); err != nil {
				return done, err
			}
		}
		return done, nil
	})
}

// bareShare has the triggers of one connection, which it claims round after round.
type bareShare struct {
	first, count int64
	at, next     int64
}

// take returns the next batch, and its scheduled time.
func (s *bareShare) take() (ids []int64, next int64) {
	if s.at+bareBatch > s.count {
		s.at = 0
		s.next++
	}
	ids = make([]int64, bareBatch)
	for i := range ids {
		ids[i] = s.first + s.at + int64(i)
	}
	s.at += bareBatch
	return ids, s.next
}

// shares divides triggers among connections.
func shares(triggers, connections int) []bareShare {
	own := make([]bareShare, connections)
	for i := range own {
		own[i].count = int64(triggers / connections)
		own[i].first = int64(i) * own[i].count
	}
	return own
}

// together runs work in several goroutines for a time, and returns the total rate per second.
func together(goroutines int, span time.Duration, work func(goroutine int, until time.Time) (int, error)) (float64, error) {
	began := time.Now()
	var total atomic.Int64
	var first atomic.Pointer[error]
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			done, err := work(g, began.Add(span))
			total.Add(int64(done))
			if err != nil {
				first.CompareAndSwap(nil, &err)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	if err := first.Load(); err != nil {
		return 0, *err
	}
	return float64(total.Load()) / took.Seconds(), nil
}

// bareHTTP sends a body of 256 bytes to a receiver, with resty alone.
func bareHTTP(url string) measure {
	client := resty.NewWithClient(newHTTPClient(bareClients))
	return func(ctx context.Context, span time.Duration) (float64, error) {
		return together(bareClients, span, func(_ int, until time.Time) (done int, err error) {
			for time.Now().Before(until) {
				response, err := client.R().SetContext(ctx).SetHeader("Content-Type", "application/json").SetBody(payload).Post(url)
				if err != nil {
					return done, err
				}
				if response.IsError() {
					return done, errResponse(response.StatusCode())
				}
				done++
			}
			return done, nil
		})
	}
}

// bareClients is how many requests of the ceiling are in flight: more did not increase the rate.
const bareClients = 64
