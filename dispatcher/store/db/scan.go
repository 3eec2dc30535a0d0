package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Instant turns a column into a time.
func Instant(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// Optional turns a column that may be NULL into a time or nil.
func Optional(ms *int64) *time.Time {
	if ms == nil {
		return nil
	}
	t := Instant(*ms)
	return &t
}

// Zeroable returns the time that t points to, the zero time if it is nil.
func Zeroable(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// OrNull turns a time into a parameter: NULL if it is zero.
func OrNull(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}

// Times is a column of times, NULL where they are zero. The values share one array: each fire has three, and separate
// allocations would be a third of all allocations of a fire.
type Times struct {
	Cells  []*int64
	values []int64
}

// NewTimes returns Times with room for rows.
func NewTimes(rows int) Times { return Times{make([]*int64, 0, rows), make([]int64, 0, rows)} }

// Add adds a time.
func (t *Times) Add(one time.Time) {
	if one.IsZero() {
		t.Cells = append(t.Cells, nil)
		return
	}
	t.values = append(t.values, one.UnixMilli())
	t.Cells = append(t.Cells, &t.values[len(t.values)-1])
}

// OrNullAt is OrNull for a time that may be nil.
func OrNullAt(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	return OrNull(*t)
}

// DueOr returns when a fire is due: at its instant, unless due is set. The result is zero only if the instant is.
func DueOr(instant, due time.Time) time.Time {
	if instant.IsZero() || due.IsZero() {
		return instant
	}
	return due
}

// OrZero turns a time into a parameter: 0 if it is zero, which stands for the database's clock.
func OrZero(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Scanner is a row.
type Scanner interface{ Scan(dest ...any) error }

// Querier is a database or a transaction.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// WiderRow is a row with further columns before and after those that its scan function knows.
type WiderRow struct {
	Scanner
	Before, After []any
}

// Scan scans the row.
func (w WiderRow) Scan(dest ...any) error {
	return w.Scanner.Scan(slices.Concat(w.Before, dest, w.After)...)
}

// Collect returns all rows of a query; the rows are closed when it returns.
func Collect[T any](ctx context.Context, q Querier, scan func(Scanner) (T, error), query string, args ...any) ([]T, error) {
	var all []T
	err := EachRow(ctx, q, func(row Scanner) error {
		one, err := scan(row)
		all = append(all, one)
		return err
	}, query, args...)
	if err != nil {
		return nil, err
	}
	return all, nil
}

// ReadRows returns all rows of a query. refs returns the scan destinations of a row.
func ReadRows[T any](ctx context.Context, q Querier, refs func(*T) []any, query string, args ...any) ([]T, error) {
	return Collect(ctx, q, func(row Scanner) (one T, err error) {
		err = row.Scan(refs(&one)...)
		return one, err
	}, query, args...)
}

// EachRow calls scan for each row of a query; the rows are closed when it returns.
func EachRow(ctx context.Context, q Querier, scan func(Scanner) error, query string, args ...any) error {
	ctx, cancel := Bound(ctx, OtherTimeout)
	defer cancel()
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	return each(rows, scan)
}

// ReadMap returns the rows of a query of two columns as a map from the first to the second.
func ReadMap[K comparable, V any](ctx context.Context, q Querier, query string, args ...any) (map[K]V, error) {
	all := map[K]V{}
	err := EachRow(ctx, q, func(row Scanner) error {
		var key K
		var value V
		err := row.Scan(&key, &value)
		all[key] = value
		return err
	}, query, args...)
	return all, err
}

// ReadRow scans the first row of a query, and returns false if there is none.
func ReadRow(ctx context.Context, q Querier, into []any, query string, args ...any) (found bool, err error) {
	err = EachRow(ctx, q, func(row Scanner) error {
		if found {
			return nil
		}
		found = true
		return row.Scan(into...)
	}, query, args...)
	return found && err == nil, err
}

// each calls scan for each of rows, which are closed when it returns.
func each(rows *sql.Rows, scan func(Scanner) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// First returns the first row of a query; found is false if it has no rows.
func First[T any](ctx context.Context, q Querier, scan func(Scanner) (T, error), query string, args ...any) (T, bool, error) {
	all, err := Collect(ctx, q, scan, query, args...)
	if err != nil || len(all) == 0 {
		var none T
		return none, false, err
	}
	return all[0], true, nil
}

// OrNotFound returns the error of a query, or ErrNotFound if it found nothing.
func OrNotFound(found bool, err error, kind, name string) error {
	if err == nil && !found {
		return dispatcher.NotFound(kind, name)
	}
	return err
}

// Affect runs a statement and returns how many rows it affected.
func Affect(ctx context.Context, q Querier, statement string, args ...any) (int64, error) {
	result, err := q.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// LockOf restricts a flavor's lock, unless it is empty, to the rows of a table.
func LockOf(lock, table string) string {
	if lock == "" {
		return ""
	}
	return lock + " OF " + table
}

// ScanInt scans a row of one number.
func ScanInt(row Scanner) (n int64, err error) {
	err = row.Scan(&n)
	return n, err
}

// ScanText scans a row of one text.
func ScanText(row Scanner) (text string, err error) {
	err = row.Scan(&text)
	return text, err
}

// Millis turns a column into a duration.
func Millis(ms int64) input.Duration {
	return input.Duration(time.Duration(ms) * time.Millisecond)
}

// ToMillis turns a duration into a parameter.
func ToMillis(d input.Duration) int64 { return d.Std().Milliseconds() }

// Conditions collects conditions and their parameters. Adding to a copy does not change the original.
type Conditions struct {
	Text string
	Args []any
}

// Add adds a condition; each %s in it stands for a parameter.
func (w *Conditions) Add(condition string, args ...any) {
	names := make([]any, len(args))
	for i := range args {
		names[i] = "$" + strconv.Itoa(len(w.Args)+i+1)
	}
	w.Args = append(w.Args[:len(w.Args):len(w.Args)], args...)
	w.Text += fmt.Sprintf(" AND "+condition, names...)
}

// OrClock returns now, or the database's clock if now is zero, to the millisecond.
func (d *DB) OrClock(ctx context.Context, now time.Time) (time.Time, error) {
	var err error
	if now.IsZero() {
		now, err = d.Now(ctx, d.Read)
	}
	return now.UTC().Truncate(time.Millisecond), err
}

// WallClock is the clock of this process without its monotonic part, which stands still while a machine is suspended.
func WallClock() time.Time { return time.Now().Round(0) } //nolint:forbidigo // measures how long something was kept

// ScanNullInt scans a number that may be NULL.
func ScanNullInt(row Scanner) (n *int64, err error) { return n, row.Scan(&n) }

// sizedRow counts the bytes of text in a row.
type sizedRow struct {
	Scanner
	bytes *int
}

// Scan scans the row, and counts.
func (s sizedRow) Scan(dest ...any) error {
	err := s.Scanner.Scan(dest...)
	for _, d := range dest {
		if text, ok := d.(*string); ok {
			*s.bytes += len(*text)
		}
	}
	return err
}

// errEnough ends the reading of a page.
var errEnough = errors.New("enough")

// CollectPage is Collect for a page. With ErrPageBytes it returns the items up to the one that exceeds the page's
// limit of bytes. further returns the bytes of an item in addition to its row; it may be nil.
func CollectPage[T any](ctx context.Context, q Querier, page input.Page, scan func(Scanner) (T, error), further func(T) int,
	query string, args ...any) (all []T, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	bytes := 0
	err = each(rows, func(row Scanner) error {
		if page.Bytes > 0 && bytes > page.Bytes {
			return errEnough // there is one more
		}
		one, err := scan(sizedRow{row, &bytes})
		all = append(all, one)
		if further != nil {
			bytes += further(one)
		}
		return err
	})
	if errors.Is(err, errEnough) {
		return all, dispatcher.ErrPageBytes
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}

// TriggerBytes is the approximate size of a trigger in a list of jobs.
const TriggerBytes = 1 << 10

// unreadable is the reason why a stored definition cannot be decoded. The rest of its row is readable.
type unreadable struct{ error }

func (u unreadable) Unwrap() error { return u.error }

// AsUnreadable marks an error as one of the definition and not of its row.
func AsUnreadable(err error) error { return unreadable{err} }

// IsUnreadable reports whether an error was marked by AsUnreadable.
func IsUnreadable(err error) bool { return errors.As(err, new(unreadable)) }

// EvenUnreadable is a scan that passes to note why a definition cannot be decoded, and continues with the rest.
func EvenUnreadable[T any](scan func(Scanner) (T, error), note func(*T, error)) func(Scanner) (T, error) {
	return func(row Scanner) (T, error) {
		found, err := scan(row)
		if IsUnreadable(err) {
			note(&found, err)
			err = nil
		}
		return found, err
	}
}
