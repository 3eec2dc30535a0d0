package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// instant turns a column into a time.
func instant(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// optional turns a column that may be NULL into a time or nil.
func optional(ms *int64) *time.Time {
	if ms == nil {
		return nil
	}
	t := instant(*ms)
	return &t
}

// zeroable returns the time that t points to, the zero time if it is nil.
func zeroable(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// orNull turns a time into a parameter: NULL if it is zero.
func orNull(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}

// times is a column of times, NULL where they are zero. The values lie in one array: each fire has three, and one allocation for
// each would be a third of all that a fire makes.
type times struct {
	cells  []*int64
	values []int64
}

func newTimes(rows int) times { return times{make([]*int64, 0, rows), make([]int64, 0, rows)} }

func (t *times) add(one time.Time) {
	if one.IsZero() {
		t.cells = append(t.cells, nil)
		return
	}
	t.values = append(t.values, one.UnixMilli())
	t.cells = append(t.cells, &t.values[len(t.values)-1])
}

// orNullAt is orNull for a time that may be nil.
func orNullAt(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	return orNull(*t)
}

// dueOr is when a fire is due: at its instant, unless due says otherwise. It is zero exactly if the instant is.
func dueOr(instant, due time.Time) time.Time {
	if instant.IsZero() || due.IsZero() {
		return instant
	}
	return due
}

// orZero turns a time into a parameter: 0 if it is zero, which stands for the database's clock.
func orZero(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// scanner is a row.
type scanner interface{ Scan(dest ...any) error }

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// wider is a row that has columns before and after those which its scan function knows.
type widerRow struct {
	scanner
	before, after []any
}

func (w widerRow) Scan(dest ...any) error {
	return w.scanner.Scan(slices.Concat(w.before, dest, w.after)...)
}

// collect returns all rows of a query; the rows are closed when it returns.
func collect[T any](ctx context.Context, q querier, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	var all []T
	err = each(rows, func(row scanner) error {
		one, err := scan(row)
		all = append(all, one)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// each calls scan for each of rows, which are closed when it returns.
func each(rows *sql.Rows, scan func(scanner) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// first returns the first row of a query, or false.
func first[T any](ctx context.Context, q querier, scan func(scanner) (T, error), query string, args ...any) (T, bool, error) {
	all, err := collect(ctx, q, scan, query, args...)
	if err != nil || len(all) == 0 {
		var none T
		return none, false, err
	}
	return all[0], true, nil
}

// affect runs a statement and returns how many rows it affected.
func affect(ctx context.Context, q querier, statement string, args ...any) (int64, error) {
	result, err := q.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// lockOf makes a flavor's lock, unless it is empty, one of the rows of a table.
func lockOf(lock, table string) string {
	if lock == "" {
		return ""
	}
	return lock + " OF " + table
}

// scanInt scans a row of one number.
func scanInt(row scanner) (n int64, err error) {
	err = row.Scan(&n)
	return n, err
}

// scanText scans a row of one text.
func scanText(row scanner) (text string, err error) {
	err = row.Scan(&text)
	return text, err
}

// millis turns a column into a duration.
func millis(ms int64) input.Duration {
	return input.Duration(time.Duration(ms) * time.Millisecond)
}

// toMillis turns a duration into a parameter.
func toMillis(d input.Duration) int64 { return d.Std().Milliseconds() }

// conditions collects conditions and their parameters. Copies may be added to apart from each other.
type conditions struct {
	text string
	args []any
}

// add adds a condition; each %s in it stands for a parameter.
func (w *conditions) add(condition string, args ...any) {
	names := make([]any, len(args))
	for i := range args {
		names[i] = "$" + strconv.Itoa(len(w.args)+i+1)
	}
	w.args = append(w.args[:len(w.args):len(w.args)], args...)
	w.text += fmt.Sprintf(" AND "+condition, names...)
}

// orClock returns now, or the time of the database's clock if now is zero, to the millisecond.
func (d *DB) orClock(ctx context.Context, now time.Time) (time.Time, error) {
	var err error
	if now.IsZero() {
		now, err = d.clock(ctx, d.read)
	}
	return now.UTC().Truncate(time.Millisecond), err
}

// wallClock is this process's, without its monotonic part, which stands still while a machine
// is suspended.
func wallClock() time.Time { return time.Now().Round(0) } //nolint:forbidigo // measures how long something was kept

func scanNullInt(row scanner) (n *int64, err error) { return n, row.Scan(&n) }
