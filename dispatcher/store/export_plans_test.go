package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// Queries are the queries that a store sends outside of transactions.
type Queries struct {
	mu   sync.Mutex
	sent []Query
}

// Query is one query.
type Query struct {
	Text string
	args []any
}

// Watch makes a store record its queries. Call it before using the store.
func Watch(s *Store) *Queries {
	watched := &Queries{}
	switch f := s.db.Flavor.(type) {
	case *db.SQLite:
		unwatched := s.db.Read
		s.db.Read = sql.OpenDB(watchedConnector{named{unwatched.Driver(), f.File}, watched})
		s.db.Read.SetMaxOpenConns(4)
		f.Read = s.db.Read
		_ = unwatched.Close()
	case *db.Postgres: // the connections that are not watched are those that write
		s.db.Read = sql.OpenDB(watchedConnector{stdlib.GetPoolConnector(f.Pool), watched})
		s.db.Read.SetMaxIdleConns(0)
	}
	return watched
}

// Take returns the queries since the previous call.
func (q *Queries) Take() []Query {
	q.mu.Lock()
	defer q.mu.Unlock()
	sent := q.sent
	q.sent = nil
	return sent
}

// named connects to a database by its name.
type named struct {
	driver driver.Driver
	name   string
}

func (n named) Connect(context.Context) (driver.Conn, error) { return n.driver.Open(n.name) }
func (n named) Driver() driver.Driver                        { return n.driver }

// watchedConnector makes connections that note queries.
type watchedConnector struct {
	driver.Connector
	queries *Queries
}

func (c watchedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return watchedConn{conn, c.queries}, err
}

// watchedConn is a connection that notes queries.
type watchedConn struct {
	driver.Conn
	queries *Queries
}

// QueryContext notes a query and sends it.
func (c watchedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	values := make([]any, len(args))
	for i, arg := range args {
		values[i] = arg.Value
	}
	c.queries.mu.Lock()
	c.queries.sent = append(c.queries.sent, Query{query, values})
	c.queries.mu.Unlock()
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

// ExecContext sends a statement.
func (c watchedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

// BeginTx begins a transaction.
func (c watchedConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
}

// CheckNamedValue lets the driver check values.
func (c watchedConn) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip
}

// ReadThrough returns those of the given tables that a query reads from the beginning or the end, with the plan. A
// query with a limit may do that in the order of an index. On PostgreSQL the plan is made with index scans preferred,
// so that a small database shows which scans no index can avoid.
func ReadThrough(ctx context.Context, s *Store, query Query, tables []string) (map[string]string, error) {
	if s.db.Single() {
		return s.readThrough(ctx, query, tables)
	}
	tx, err := s.db.Write.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `SET LOCAL enable_seqscan = off`); err != nil {
		return nil, err
	}
	plan, err := db.Collect(ctx, tx, db.ScanText, "EXPLAIN (COSTS OFF) "+query.Text, query.args...)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for i, line := range plan {
		_, on, is := strings.Cut(line, " on ")
		if !is || !strings.Contains(line, "Scan") || strings.Contains(line, "Bitmap Index") {
			continue
		}
		name := strings.Fields(on)[0]
		at := slices.IndexFunc(tables, func(table string) bool {
			return name == table || strings.HasPrefix(name, table+"_2") || name == table+"_default"
		})
		bounded := i+1 < len(plan) && strings.Contains(plan[i+1], "Cond:")
		if at < 0 || bounded || !strings.Contains(line, "Seq Scan") && limited(plan[:i], line) {
			continue
		}
		found[tables[at]] = strings.Join(plan, "\n")
	}
	return found, nil
}

// limited reports whether a line of a plan is below a limit.
func limited(before []string, line string) bool {
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ->")) }
	deep := indent(line)
	for _, above := range slices.Backward(before) {
		if at := indent(above); at < deep {
			if deep = at; strings.HasPrefix(strings.TrimLeft(above, " ->"), "Limit") {
				return true
			}
		}
	}
	return false
}

// readThrough is ReadThrough for SQLite. It reads the instructions of the query's program: a cursor set to the
// beginning or the end of a table or of one of its indexes reads it through.
func (s *Store) readThrough(ctx context.Context, query Query, tables []string) (map[string]string, error) {
	type root struct{ table, name string }
	roots := map[int64]root{}
	if _, err := db.Collect(ctx, s.db.Write, func(row db.Scanner) (struct{}, error) {
		var page int64
		var r root
		err := row.Scan(&page, &r.table, &r.name)
		roots[page] = r
		return struct{}{}, err
	}, `SELECT rootpage, tbl_name, name FROM sqlite_master WHERE rootpage > 0`); err != nil {
		return nil, err
	}
	type instruction struct {
		code   string
		p1, p2 int64
	}
	program, err := db.Collect(ctx, s.db.Write, func(row db.Scanner) (i instruction, err error) {
		var address, p3, p5 int64
		var p4, comment any
		err = row.Scan(&address, &i.code, &i.p1, &i.p2, &p3, &p4, &p5, &comment)
		return i, err
	}, "EXPLAIN "+query.Text, query.args...)
	if err != nil {
		return nil, err
	}
	found, open := map[string]string{}, map[int64]root{}
	for _, i := range program {
		switch i.code {
		case "OpenRead":
			open[i.p1] = roots[i.p2]
		case "OpenEphemeral", "OpenPseudo", "SorterOpen", "OpenAutoindex", "OpenDup":
			delete(open, i.p1)
		case "Rewind", "Last":
			r, is := open[i.p1]
			// Without a condition, a limit also bounds a read in the order of the table's key.
			first := strings.Contains(query.Text, "FROM "+r.table+" AS r ORDER BY r.scheduled_at LIMIT")
			limited := strings.Contains(query.Text, "LIMIT") && (r.table != r.name || first)
			if is && slices.Contains(tables, r.table) && !limited {
				plan, err := s.explain(ctx, query.Text, query.args)
				if err != nil {
					return nil, err
				}
				found[r.table] = fmt.Sprintf("%s of %s\n%s", i.code, r.name, plan)
			}
		}
	}
	return found, nil
}

// DueBuffers returns how many pages of PostgreSQL a read of due triggers touches.
func DueBuffers(ctx context.Context, s *Store, query dispatcher.DueQuery) (int, error) {
	return s.buffers(ctx, s.Hot.Due.Of(query).Parts[0], s.DueArgs(query))
}

// OverdueAppsBuffers does the same for the search for overdue apps, by a node without labels.
func OverdueAppsBuffers(ctx context.Context, s *Store, now time.Time) (int, error) {
	args := append([]any{now.UnixMilli(), int64(0), int64(0)}, s.db.Batch(dispatch.DueListsOf(nil, nil, nil)...)...)
	return s.buffers(ctx, s.db.Rows(1, 4, "", dispatch.DueLists...)+dispatch.OverdueApps, args)
}

// AdoptionBuffers does the same for a search for runs that no node works on.
func AdoptionBuffers(ctx context.Context, s *Store, now time.Time) (pages int, err error) {
	none := s.db.Batch([]int64{0})
	dead := append([]any{now.UnixMilli()}, none...)
	ids, err := db.Collect(ctx, s.db.Read, db.ScanInt, s.Hot.Unfold.Dead, dead...)
	if err != nil {
		return 0, err
	}
	look := s.LookArgs(dispatcher.AdoptQuery{Node: 1, Limit: 500, Now: now}, []string{""}, []string{""})
	for query, args := range map[string][]any{
		s.Hot.Unfold.Dead:       dead,
		s.Hot.Unfold.Abandoned:  {ids, int64(dispatch.ClaimsAtOnce)},
		s.Hot.Idle.Parts[0]:     look,
		s.Hot.FailLost.Parts[0]: append([]any{now.UnixMilli(), int64(500)}, none...),
	} {
		if query == s.Hot.Unfold.Abandoned && len(ids) == 0 {
			continue
		}
		n, err := s.buffers(ctx, query, args)
		if err != nil {
			return 0, err
		}
		pages += n
	}
	return pages, nil
}

// RetriesBuffers does the same for a search for retries due at from or later.
func RetriesBuffers(ctx context.Context, s *Store, from, now time.Time) (int, error) {
	query := dispatcher.AdoptQuery{Node: 1, Limit: 500, Now: now, Retries: true, From: from}
	return s.buffers(ctx, s.Hot.DueRetries.Parts[0], s.LookArgs(query, []string{""}, []string{""}))
}

// touched matches the pages of the whole statement, which EXPLAIN prints first.
var touched = regexp.MustCompile(`Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?`)

func (s *Store) buffers(ctx context.Context, query string, args []any) (pages int, err error) {
	var plan strings.Builder
	_, err = s.db.Execute(ctx, db.Reading("EXPLAIN (ANALYZE, BUFFERS) "+query), args, func(row db.Scanner) error {
		line, err := db.ScanText(row)
		plan.WriteString(line + "\n")
		return err
	})
	if err != nil {
		return 0, err
	}
	found := touched.FindStringSubmatch(plan.String())
	if found == nil {
		return 0, fmt.Errorf("no buffers in plan\n%s", plan.String())
	}
	for _, text := range found[1:] {
		n, _ := strconv.Atoi(text) // empty: none
		pages += n
	}
	return pages, nil
}

// TurnsBuffers does the same for a search in turns of apps, for retries or for runs that no node works on.
func TurnsBuffers(ctx context.Context, s *Store, now time.Time, retries bool) (int, error) {
	statement, args := s.lookByTurns(now, retries)
	return s.buffers(ctx, statement, args)
}

// ExplainTurns returns the plan of that search.
func ExplainTurns(ctx context.Context, s *Store, retries bool) (string, error) {
	statement, args := s.lookByTurns(time.UnixMilli(1), retries)
	return s.explain(ctx, statement, args)
}

func (s *Store) lookByTurns(now time.Time, retries bool) (string, []any) {
	args := s.LookArgs(dispatcher.AdoptQuery{Node: 2, Limit: 500, Now: now, Retries: retries}, []string{""}, []string{""})
	if retries {
		return s.Hot.RetriesByTurns.Parts[0], args
	}
	return s.Hot.Idle.Parts[0], args
}
