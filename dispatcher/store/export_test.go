package store

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Mask is mask.
func Mask(database string) string { return mask(database) }

// Missing returns what a node looks for on a new connection and does not find.
func Missing(ctx context.Context, s dispatcher.Store, conn *pgx.Conn) (string, error) {
	return s.(*store).seen.missing(ctx, conn)
}

// ExplainDue returns the plan of the window poll.
func ExplainDue(ctx context.Context, s dispatcher.Store, args ...any) (string, error) {
	own := s.(*store)
	return own.explain(ctx, own.hot.due.parts[0], append(args, own.batch([]string{})...))
}

// ExplainEnded returns the plan of the search for fixed delays that are to be armed.
func ExplainEnded(ctx context.Context, s dispatcher.Store) (string, error) {
	own := s.(*store)
	return own.explain(ctx, own.hot.ended.parts[0], []any{int64(500)})
}

// ExplainRetries returns the plan of the search for retrying runs that are due at now.
func ExplainRetries(ctx context.Context, s dispatcher.Store, now int64) (string, error) {
	own := s.(*store)
	args := []any{int64(0), int64(1) << 60, int64(1), int64(1), now, int64(500), int64(0)}
	return own.explain(ctx, own.hot.retriable.parts[0], append(args, own.batch([]string{""}, []string{""})...))
}

// ExplainAbandoned returns the plans of the searches for runs that nobody works on and for those
// that dead nodes have begun.
func ExplainAbandoned(ctx context.Context, s dispatcher.Store) (string, error) {
	own := s.(*store)
	all := []any{int64(0), int64(math.MaxInt64)}
	adopt, err := own.explain(ctx, own.hot.adoptable.parts[0],
		slices.Concat(all, []any{int64(1), int64(1), int64(0), int64(500), int64(0)}, own.batch([]string{""}, []string{""})))
	if err != nil {
		return "", err
	}
	failLost, err := own.explain(ctx, own.hot.forfeitable.parts[0], slices.Concat(all, []any{int64(0), int64(500)}, own.batch([]int64{0})))
	return adopt + failLost, err
}

// ExplainRun returns the plan of finding a run by its key.
func ExplainRun(ctx context.Context, s dispatcher.Store, key dispatcher.RunKey) (string, error) {
	return s.(*store).explain(ctx, runQuery(oneRun), []any{key.ScheduledAt.UnixMilli(), key.TriggerID, int64(key.Kind.Code())})
}

// ExplainRecord returns the plan of recording.
func ExplainRecord(ctx context.Context, s dispatcher.Store, records []dispatcher.Record) (string, error) {
	own := s.(*store)
	return own.explain(ctx, own.hot.record.parts[0], own.dated(outcomes(records)...))
}

// Partitions returns the names of the partitions of PostgreSQL, by day.
func Partitions(ctx context.Context, s dispatcher.Store) (names []string, err error) {
	all, err := partitions(ctx, s.(*store).read)
	for _, one := range all {
		names = append(names, one.name())
	}
	return names, err
}

// Count returns the number that a query returns.
func Count(ctx context.Context, s dispatcher.Store, query string) (int64, error) {
	n, _, err := first(ctx, s.(*store).read, scanInt, query)
	return n, err
}

// PutCalendarMeanwhile is PutCalendar, with do between its plan and its transaction.
func PutCalendarMeanwhile(ctx context.Context, s dispatcher.Store, calendar dispatcher.Calendar, change dispatcher.Change, do func()) (dispatcher.Calendar, error) {
	own := s.(*store)
	plan, err := own.plan(ctx, calendar, change)
	if err != nil {
		return dispatcher.Calendar{}, err
	}
	do()
	stored, _, err := own.putPlanned(ctx, calendar, plan, change)
	return stored, err
}

// PurgeMeanwhile is Purge of a node that freezes once it has the lock, calls do, and wakes when
// its time has passed.
func PurgeMeanwhile(ctx context.Context, s dispatcher.Store, node dispatcher.NodeID, now time.Time, do func(wake time.Time)) (dispatcher.Purged, error) {
	c, err := s.(*store).cleaner(ctx, node, now)
	if err != nil {
		return dispatcher.Purged{}, err
	}
	c.now = now.Add(cleanUpTime)
	do(c.now)
	t := purge{cleaner: *c}
	err = errors.Join(t.run(ctx, c.now), c.end(ctx))
	return t.result, err
}

func (s *store) explain(ctx context.Context, query string, args []any) (string, error) {
	explain := "EXPLAIN "
	if s.single() {
		explain = "EXPLAIN QUERY PLAN "
	}
	var plan strings.Builder
	_, err := s.run(ctx, read(explain+query), args, func(row scanner) error {
		var line string
		var node, parent, unused int
		columns := []any{&line}
		if s.single() {
			columns = []any{&node, &parent, &unused, &line}
		}
		err := row.Scan(columns...)
		plan.WriteString(line + "\n")
		return err
	})
	return plan.String(), err
}

// Exec runs a statement on the store's database.
func Exec(ctx context.Context, s dispatcher.Store, statement string) error {
	_, err := s.(*store).write.ExecContext(ctx, statement)
	return err
}

// Statement returns a hot statement of PostgreSQL as a page shows it, a clause a line.
func Statement(name string) (string, bool) {
	all := (&postgres{}).statements()
	hot, ok := map[string]statement{"due": all.due, "claim": all.claim, "record": all.record, "adopt": all.adopt}[name]
	if !ok {
		return "", false
	}
	clauses := strings.NewReplacer(" WHERE ", "\nWHERE ", " INSERT INTO ", "\nINSERT INTO ", " UPDATE runs ", "\nUPDATE runs ",
		" RETURNING ", "\nRETURNING ", " ORDER BY ", "\nORDER BY ", ", c AS (", ",\nc AS (", ", l AS (", ",\nl AS (")
	var lines []string
	for line := range strings.Lines(clauses.Replace(hot.parts[0])) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n"), true
}
