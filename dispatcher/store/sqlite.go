package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/carillon-dev/carillon/dispatcher"
)

// sqlite is the flavor of SQLite: one process, one writer.
type sqlite struct {
	write *sql.DB
	read  *sql.DB
	hub   *hub
	guard *os.File // holds the lock for as long as it is open; nil next to a node
	// shared tells that several nodes of this process use the database.
	shared bool

	mu       sync.Mutex
	prepared map[string]*sql.Stmt // the parts of hot statements that were run
}

func openSQLite(ctx context.Context, a address, o Options) (_ *store, err error) {
	if err := checkFileSystem(a.path, fileSystem); err != nil {
		return nil, err
	}
	var guard *os.File // closing a nil one is a harmless error
	if !o.AlongsideNode {
		if guard, err = lockFile(a.path + ".lock"); err != nil {
			return nil, err
		}
	}
	// Closing the database removes the log. It is there after a crash, or while a node is at work.
	log, err := os.Stat(a.path + "-wal")
	crashed := !o.AlongsideNode && err == nil && log.Size() > 0
	// FULL: after a loss of power nothing that was committed is missing, so no fire comes twice.
	const pragmas = `_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)`
	file := "file:" + (&url.URL{Path: filepath.ToSlash(a.path)}).EscapedPath() + "?"
	write, err := sql.Open("sqlite", file+pragmas+"&_txlock=immediate")
	if err != nil {
		return nil, errors.Join(err, guard.Close())
	}
	write.SetMaxOpenConns(1)
	if err := write.PingContext(ctx); err != nil { // makes the file, which readers cannot
		return nil, errors.Join(err, write.Close(), guard.Close())
	}
	if crashed {
		if err := checkFile(ctx, write, a.path); err != nil {
			return nil, errors.Join(err, write.Close(), guard.Close())
		}
	}
	read, err := sql.Open("sqlite", file+pragmas+"&_pragma=query_only(1)")
	if err != nil {
		return nil, errors.Join(err, write.Close(), guard.Close())
	}
	read.SetMaxOpenConns(4)
	read.SetMaxIdleConns(4) // to open one takes longer than to read
	flavor := &sqlite{write: write, read: read, hub: newHub(), guard: guard, shared: o.Shared, prepared: map[string]*sql.Stmt{}}
	rollbacks := &rollbackDetector{database: flavor, mark: flavor.mark}
	return &store{write: write, read: read, heartbeat: write, rollbacks: rollbacks, flavor: flavor}, nil
}

// rows uses jsonb_each, which hands each row on as it was parsed: json_each writes it out as
// text, to be parsed again, which cost a claim and its record a tenth more CPU.
func (s *sqlite) rows(now, first int, extra string, columns ...column) string {
	values := make([]string, len(columns))
	for i, c := range columns {
		values[i] = fmt.Sprintf("value ->> %d AS %s", i, c.name)
	}
	present := "0"
	if now != 0 {
		present = "$" + strconv.Itoa(now)
	}
	if extra != "" {
		extra += ", "
	}
	return `WITH n AS MATERIALIZED (SELECT CASE WHEN ` + present + ` = 0 THEN ` + sqliteMillis + ` ELSE ` + present + ` END AS now),
		b AS MATERIALIZED (SELECT u.*, ` + extra + `n.now, TRUE AS yes, FALSE AS no
			FROM (SELECT ` + strings.Join(values, ", ") + ` FROM jsonb_each($` + strconv.Itoa(first) + `)) AS u CROSS JOIN n)`
}

// sqliteMillis is the clock of this machine.
const sqliteMillis = `CAST(unixepoch('subsec') * 1000 AS INTEGER)`

// batch writes the rows as one JSON array of arrays.
func (s *sqlite) batch(columns ...any) []any {
	rows := length(columns)
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

func (s *sqlite) lock() string { return "" }

// clock is this process's own: SQLite has no other, and shows only milliseconds of it.
func (s *sqlite) clock(context.Context, querier) (time.Time, error) {
	return time.Now().UTC().Truncate(time.Microsecond), nil //nolint:forbidigo // the database's clock is this one
}

func (s *sqlite) statements() statements {
	all := common(s)
	claim, settle := s.rows(3, 5, claimExtra, advanceColumns...), s.rows(3, 5, settleExtra, settleColumns...)
	const matching = ` FROM b JOIN trigger_clock AS t ON` + advanceMatches
	all.claim = writeAt(3,
		claim+chosen(`SELECT `+claimedRow+matching)+insertRuns,
		claim+` `+advance,
	)
	all.settle = writeAt(3,
		settle+chosen(`SELECT `+settledRow+matching)+insertDecisions,
		settle+chosen(`SELECT `+settledRow+matching)+insertRuns,
		settle+` `+advanceSettled,
	)
	adopt := s.rows(5, 8, "", adoptColumns...) + chosen(adoptable(""))
	all.adoptable = read(adopt + adoptableSpan)
	all.adopt = writeAt(5, adopt+insertLost, adopt+adoptRuns)
	failLost := s.rows(3, 5, "", idColumns...) + chosen(begunByDeadNodes(""))
	all.lostRuns = read(failLost + chosenSpan)
	all.failLost = writeAt(3, failLost+insertLost, failLost+failLostRuns)
	left := s.rows(3, 5, "", idColumns...) + chosen(skippableRuns(""))
	all.rollbackSkippable, all.rollbackSkip = read(left+chosenSpan), writeAt(3, left+insertLost, left+skipRolledBackRuns)
	failed := s.rows(0, 3, "", againColumns...) + chosen(again)
	all.again = write(failed+insertFailed, failed+retryRuns)
	retry, over := s.rows(5, 8, "", adoptColumns...)+chosen(dueRetries("")), s.rows(3, 5, "", idColumns...)+chosen(expiredRetries(""))
	all.dueRetries, all.adoptRetries = read(retry+adoptableSpan), write(retry+adoptRuns)
	all.expiredRetries, all.giveUp = read(over+chosenSpan), write(over+giveUpRuns)
	return all
}

func (s *sqlite) run(ctx context.Context, hot statement, args []any, scan func(scanner) error) (affected int64, err error) {
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
	for _, part := range parts {
		part = tx.StmtContext(ctx, part) //nolint:sqlclosecheck // the end of the transaction closes it
		if scan == nil {
			result, err := part.ExecContext(ctx, args...)
			if err != nil {
				return 0, err
			}
			if affected, err = result.RowsAffected(); err != nil {
				return 0, err
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

// prepare returns the parts of a statement, which each connection parses once: for a few rows, as
// most batches have, that took longer than to execute them. It is for before a transaction, which
// would keep the only connection.
func (s *sqlite) prepare(ctx context.Context, hot statement) ([]*sql.Stmt, error) {
	db := s.write
	if hot.reads {
		db = s.read
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := make([]*sql.Stmt, len(hot.parts))
	for i, part := range hot.parts {
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

// fixNow gives all parts of a statement the same now. If each read the clock, a fire that
// becomes due between two parts would be advanced by the one and get no run from the other.
func (s *sqlite) fixNow(ctx context.Context, tx *sql.Tx, hot statement, args []any) ([]any, error) {
	if hot.now == 0 || args[hot.now-1] != int64(0) {
		return args, nil
	}
	now, err := s.clock(ctx, tx)
	if err != nil {
		return nil, err
	}
	args = slices.Clone(args) // the caller's are used again by a retry, which has its own now
	args[hot.now-1] = now.UnixMilli()
	return args, nil
}

func (s *sqlite) sendNotifications(context.Context, *sql.Tx, []dispatcher.Notification) error {
	return nil
}

func (s *sqlite) committed(notifications []dispatcher.Notification) { s.hub.publish(notifications) }

func (s *sqlite) listen(ctx context.Context, notification func(dispatcher.Notification)) error {
	s.hub.listen(ctx, notification)
	return nil
}

func (s *sqlite) limitLockWait(context.Context, *sql.Tx) error { return nil }

func (s *sqlite) rotatePartitions(context.Context, cleaner, int64, int64) (int, error) { return 0, nil }

func (s *sqlite) unpartitioned() string { return "runs" }

// transient is false: the lock that would be busy is this process's own, and it waits for it.
func (s *sqlite) transient(error) bool { return false }

func (s *sqlite) single() bool { return !s.shared }

func (s *sqlite) close() error {
	if s.guard == nil {
		return nil
	}
	// A child that was forked and has not yet executed its program shares the lock and would
	// keep it beyond Close.
	_ = unix.Flock(int(s.guard.Fd()), unix.LOCK_UN)
	if err := s.guard.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// checkTime bounds the check of a file, so that a large one does not keep a node from its work:
// what is read within it is checked.
const checkTime = 3 * time.Second

// checkFile looks after a crash whether the file is sound. A ledger that is not, as after a disk
// that lied about what it had written, must not fire.
func checkFile(ctx context.Context, db *sql.DB, path string) error {
	within, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	problems, err := collect(within, db, scanText, `PRAGMA quick_check(10)`)
	switch {
	case within.Err() != nil && ctx.Err() == nil:
		return nil
	case err != nil: // what is beyond listing
		problems = []string{err.Error()}
	case len(problems) == 1 && problems[0] == "ok":
		return nil
	}
	return fmt.Errorf("%s is damaged: %s; restore a backup of it, or save what can be read with sqlite3's .recover",
		path, strings.Join(problems, "; "))
}

// lockFile makes and locks a file, or says which one is in the way.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		err = errors.Join(err, f.Close())
		return nil, fmt.Errorf("%s is locked: another process uses this database; stop it, or use PostgreSQL for several nodes: %w", path, err)
	}
	return f, nil
}
