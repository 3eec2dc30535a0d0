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

// Shared parts of the hot statements. They rely on these names: b is the batch, n holds now (see Flavor.Rows), c are
// the chosen runs, t a trigger's clock, r a run.

// Statement is a hot statement. Its parts are one transaction; each has the same parameters.
type Statement struct {
	Parts []string
	reads bool // changes nothing
	// OrElse is run instead if the first part finds a row that it was to insert; that part has then changed nothing.
	// nil: this is an error. Allowing for such a row in each insert with ON CONFLICT makes PostgreSQL insert it
	// tentatively first: a record cost a sixth more.
	OrElse []string
	// Now is the number of the parameter that holds now, for a statement of several parts that share it.
	Now int
	// counted are the parts whose rows count as affected; none: the last.
	counted []int
}

// counts reports whether the rows of a part count as affected.
func (s Statement) counts(part int) bool {
	if len(s.counted) == 0 {
		return part == len(s.Parts)-1
	}
	return slices.Contains(s.counted, part)
}

// Within bounds the attempts r by the days of the batch, so that the planner ignores the other partitions: planning
// for a month of them made claim and record together up to 1.6 times as slow.
//
// The ORs are redundant. For two plain bounds on a young partition, which has no
// statistics, the planner guesses that they leave one row in 200, and begins with the
// partition and not with the batch: both together were six times as slow. It recognises no pair
// of bounds in ORs, but prunes partitions by them.
// $1 first day, $2 end of the last
const Within = ` AND (r.scheduled_at >= $1 OR r.scheduled_at > $1) AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)`

// OfBatch joins the batch to the rows r of its runs.
func OfBatch(f Flavor) string { return f.SameRun("r", "b.scheduled_at", "b.trigger_id", "b.kind") }

// OfChosen joins the chosen runs to their rows r.
func OfChosen(f Flavor) string { return f.SameRun("r", "c.of_at", "c.of_trigger", "c.of_kind") }

// parked are the states of live runs that no node holds and that wait for a time, not for a node. They are not in
// live_runs_node; these texts are also the conditions of the indexes.
const parked = `('retrying', 'waiting_callback')`

// IsParked selects the live runs r in these states, and NotParked the others.
const (
	IsParked  = `r.state IN ` + parked
	NotParked = `r.state NOT IN ` + parked
)

// Fence joins the batch to the live runs r, and keeps only those that the caller holds, in the attempt that it holds
// them for.
func Fence(f Flavor) string {
	return OfBatch(f) + ` AND r.token = b.token AND r.attempt = b.attempt`
}

// How rows are locked, where databases lock rows: LockToDelete waits for rows locked by others, LockToKeep only for those
// locked to be deleted, SkipLocked leaves them out, and LockedThere means that their query has locked them.
const (
	LockToDelete   = " FOR UPDATE"
	LockToKeep     = " FOR KEY SHARE"
	SkipLockedRows = " SKIP LOCKED"
	LockedThere    = " LOCKED"
)

// Chosen makes a common table expression c of a query or of a statement that returns rows.
func Chosen(query string) string { return `, c AS (` + query + `)` }

// Reading is a statement that changes nothing.
func Reading(part string) Statement { return Statement{Parts: []string{part}, reads: true} }

// Writing is a statement of parts.
func Writing(parts ...string) Statement { return Statement{Parts: parts} }

// WritingAt is Writing for parts that share now, in the parameter with that number.
func WritingAt(now int, parts ...string) Statement {
	return Statement{Parts: parts, Now: now}
}

// A run is in one of three places: in runs when it is over; else in live_runs, or it is a fire of a claim that is in
// neither table yet. Each of the following selects the runs of one place, named r, with the same columns.
const (
	EndedRuns = `SELECT r.scheduled_at, r.trigger_id, r.kind, r.job_id, r.revision, coalesce(r.state, 'succeeded') AS state,
		r.attempt, r.node, r.ended_at - r.claimed_ms AS claimed_at, r.ended_at - r.started_ms AS started_at, r.ended_at,
		CAST(NULL AS BIGINT) AS next_attempt_at, r.http_status, coalesce(r.class, '') AS class, coalesce(r.error, '') AS error,
		'' AS waits_for, '' AS waits_at, CAST(NULL AS BIGINT) AS probe_at, CAST(NULL AS TEXT) AS callback, coalesce(r.waited, '') AS waited
		FROM runs AS r`

	UnendedRuns = `SELECT r.scheduled_at, r.trigger_id, r.kind, r.job_id, r.revision, r.state, r.attempt, r.node, r.claimed_at,
		r.started_at, CAST(NULL AS BIGINT) AS ended_at, CASE WHEN r.waits_for = 0 THEN r.next_attempt_at END AS next_attempt_at,
		r.http_status, r.class, r.error, coalesce((SELECT h.host FROM host_waits AS h WHERE h.id = r.waits_for), '') AS waits_for,
		CASE WHEN r.node = -1 THEN coalesce((SELECT s.endpoint FROM slots AS s WHERE s.job_id = r.job_id
			AND s.scheduled_at = r.scheduled_at AND s.trigger_id = r.trigger_id AND s.kind = r.kind AND s.node = -1), '')
			ELSE '' END AS waits_at,
		(SELECT h.probe_at FROM host_waits AS h WHERE h.id = r.waits_for AND h.pause > 0) AS probe_at, r.callback, r.waited
		FROM live_runs AS r`
)

// IsDead is the condition of the index runs_dead on rows r of the history. Other runs are not in that index.
const IsDead = `r.state IN ('failed', 'timed_out', 'lost')`

// DeadRuns selects the dead letters of the history.
const DeadRuns = EndedRuns + ` WHERE ` + IsDead

// ExpiredIn is the condition of the runs r between $2 and $3 that ended before $1.
const ExpiredIn = ` AND r.scheduled_at >= $2 AND r.scheduled_at < $3 AND r.ended_at < $1`

// ContenderColumns are a contender of a live run r.
const ContenderColumns = ` r.job_id, r.scheduled_at, r.trigger_id, r.kind, r.node, r.token, r.attempt`
