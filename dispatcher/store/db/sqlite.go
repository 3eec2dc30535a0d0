package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sys/unix"
	driver "modernc.org/sqlite" // registers the driver "sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// SQLite is the flavor of SQLite: one process, one writer.
type SQLite struct {
	write *sql.DB
	Read  *sql.DB
	File  string // for further readers
	hub   *hub
	guard *os.File // holds the lock while it is open; nil next to a node
	// shared means that several nodes of this process use the database.
	shared bool

	mu       sync.Mutex
	prepared map[string]*sql.Stmt // the parts of hot statements that have run
}

// OpenSQLite opens a file, and creates it if it is missing.
func OpenSQLite(ctx context.Context, a Address, o Options) (_ *DB, err error) {
	if err := errors.Join(checkKind(a.Path), CheckFileSystem(a.Path, FileSystem)); err != nil {
		return nil, err
	}
	var guard *os.File // closing a nil file is a harmless error
	if !o.AlongsideNode {
		if guard, err = lockFile(a.Path + ".lock"); err != nil {
			return nil, err
		}
	}
	created, err := createFile(a.Path)
	if err != nil {
		return nil, errors.Join(err, guard.Close())
	}
	defer func() {
		if err != nil && created {
			err = errors.Join(err, removeEmpty(a.Path))
		}
	}()
	// Closing the database removes the log. The log exists after a crash, or while a node is running.
	log, err := os.Stat(a.Path + "-wal")
	crashed := !o.AlongsideNode && err == nil && log.Size() > 0
	// FULL: a power failure loses no commits, so no fire comes twice.
	const pragmas = `_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)`
	file := "file:" + (&url.URL{Path: filepath.ToSlash(a.Path)}).EscapedPath() + "?"
	write, err := sql.Open("sqlite", file+pragmas+"&_txlock=immediate")
	if err != nil {
		return nil, errors.Join(err, guard.Close())
	}
	write.SetMaxOpenConns(1)
	if err := write.PingContext(ctx); err != nil { // prepares the file; readers cannot
		return nil, errors.Join(err, write.Close(), guard.Close())
	}
	if crashed {
		if err := checkFile(ctx, write, a.Path); err != nil {
			return nil, errors.Join(err, write.Close(), guard.Close())
		}
	}
	readers := file + pragmas + "&_pragma=query_only(1)"
	read, err := openReaders(readers)
	if err != nil {
		return nil, errors.Join(err, write.Close(), guard.Close())
	}
	flavor := &SQLite{write: write, Read: read, File: readers, hub: &hub{listeners: map[*listener]struct{}{}}, guard: guard,
		shared: o.Shared, prepared: map[string]*sql.Stmt{}}
	return &DB{Write: write, Read: read, Heartbeats: write, Flavor: flavor}, nil
}

// openReaders opens connections that only read.
func openReaders(database string) (*sql.DB, error) {
	read, err := sql.Open("sqlite", database)
	if err != nil {
		return nil, err
	}
	read.SetMaxOpenConns(4)
	read.SetMaxIdleConns(4) // opening one takes longer than reading
	return read, nil
}

// SQLiteMillis is the clock of this machine.
const SQLiteMillis = `CAST(unixepoch('subsec') * 1000 AS INTEGER)`

func (s *SQLite) ForUpdate() string { return "" }

// Now returns the clock of this process, which SQLite uses too, but only to the millisecond.
func (s *SQLite) Now(context.Context, Querier) (time.Time, error) {
	return time.Now().UTC().Truncate(time.Microsecond), nil //nolint:forbidigo // the database's clock is this one
}

func (s *SQLite) SendNotifications(context.Context, *sql.Tx, []dispatcher.Notification) error {
	return nil
}

func (s *SQLite) Committed(notifications []dispatcher.Notification) { s.hub.publish(notifications) }

func (s *SQLite) Listen(ctx context.Context, notification func(dispatcher.Notification)) error {
	s.hub.listen(ctx, notification)
	return nil
}

func (s *SQLite) LimitLockWait(context.Context, *sql.Tx) error { return nil }

func (s *SQLite) LimitsLockWait() bool { return true }

func (s *SQLite) DaysAhead(context.Context, Querier, int64) (*int, error) { return nil, nil }

func (s *SQLite) RotatePartitions(context.Context, Querier, tryChange, int64, int64) (int, error) {
	return 0, nil
}

func (s *SQLite) Unpartitioned() string { return "runs" }

func (s *SQLite) ByDay() bool { return false }

// Transient is false: only this process takes the lock, and it waits for it.
func (s *SQLite) Transient(error) bool { return false }

func (s *SQLite) OfData(err error) bool {
	if e, is := errors.AsType[*driver.Error](err); is {
		switch e.Code() & 0xff {
		case lib.SQLITE_ERROR: // of values, as of JSON, but also of a schema that another version has; no code tells them apart
			return !strings.Contains(e.Error(), "no such ")
		case lib.SQLITE_TOOBIG, lib.SQLITE_CONSTRAINT, lib.SQLITE_MISMATCH, lib.SQLITE_RANGE:
			return true
		}
		return false
	}
	return !connectionLost(err)
}

// DiskFull reports whether an error means that the disk of the database is full.
func DiskFull(err error) bool {
	if refused, is := errors.AsType[*pgconn.PgError](err); is {
		// disk_full, or what a connection gets that cannot write its first cache file (relcache.c of PostgreSQL)
		return refused.Code == "53100" || strings.HasPrefix(refused.Message, "could not write init file")
	}
	e, is := errors.AsType[*driver.Error](err)
	return is && e.Code()&0xff == lib.SQLITE_FULL || errors.Is(err, unix.ENOSPC)
}

// RefusesWrites returns how an error says that a database refuses writes for now, and what to do; nil for other errors.
func RefusesWrites(err error) error {
	refused, is := errors.AsType[*pgconn.PgError](err)
	file, of := errors.AsType[*driver.Error](err)
	switch {
	case DiskFull(err):
		return input.Refuse(input.CodeUnavailable, "the disk of the database is full; free space, and the node goes on by itself")
	case errors.Is(err, errReadOnly), is && refused.Code == readOnly, of && file.Code()&0xff == lib.SQLITE_READONLY:
		return input.Refuse(input.CodeUnavailable,
			"the database is read-only; make it writable, or lead the node to its primary, and the node goes on by itself")
	}
	return nil
}

func (s *SQLite) Single() bool { return !s.shared }

func (s *SQLite) close() error {
	if s.guard == nil {
		return nil
	}
	// A forked child that has not yet executed its program shares the lock and would keep it beyond Close.
	_ = unix.Flock(int(s.guard.Fd()), unix.LOCK_UN)
	if err := s.guard.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// checkTime limits the check of a file, so that a large file does not delay its node: it checks as much as it can read
// in this time.
const checkTime = 3 * time.Second

// checkFile checks a file for damage after a crash. A damaged ledger, as after a disk that lied about its writes, must
// not fire.
func checkFile(ctx context.Context, db *sql.DB, path string) error {
	within, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	problems, err := Collect(within, db, ScanText, `PRAGMA quick_check(10)`)
	switch {
	case within.Err() != nil && ctx.Err() == nil:
		return nil
	case err != nil: // the check itself fails because of the damage
		problems = []string{err.Error()}
	case len(problems) == 1 && problems[0] == "ok":
		return nil
	}
	return fmt.Errorf("%s is damaged: %s; restore a backup of it, or save what can be read with sqlite3's .recover",
		path, strings.Join(problems, "; "))
}

// The lock file holds the mark of the rollback detection (see markFormat), followed by the id of the last process that
// locked it.
const (
	mostMark = 64 // bytes
	mostPID  = 20
)

// lockFile makes and locks a file, or names the process that has locked it.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		err = errors.Join(err, f.Close())
		return nil, fmt.Errorf("%s is locked: another process (pid %s) uses this database; stop it, or use PostgreSQL for several nodes: %w",
			path, holderOf(path), err)
	}
	_, _ = f.WriteAt(fmt.Appendf(nil, "%-*d\n", mostPID, os.Getpid()), mostMark) // only for messages
	return f, nil
}

// holderOf returns the id of the process that locked a file, for a message; empty if it has not been written yet.
func holderOf(path string) string {
	text, err := os.ReadFile(path)
	if err != nil || len(text) < mostMark {
		return "unknown"
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[mostMark:min(len(text), mostMark+mostPID)])))
	if err != nil {
		return "unknown"
	}
	return strconv.Itoa(pid)
}

// hub distributes notifications of a database that only one process uses.
type hub struct {
	mu        sync.Mutex
	listeners map[*listener]struct{}
}

// listener is one call of Listen.
type listener struct {
	heard  chan dispatcher.Notification
	missed chan struct{} // some did not fit into heard
}

// publish never waits. A listener that is far behind loses notifications, as the contract allows, and gets one that
// anything may have changed instead.
func (h *hub) publish(notifications []dispatcher.Notification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		for _, notification := range notifications {
			select {
			case l.heard <- notification:
			default:
				select {
				case l.missed <- struct{}{}:
				default:
				}
			}
		}
	}
}

// listen calls notification until ctx ends, first with an empty one, because earlier ones were not heard.
func (h *hub) listen(ctx context.Context, notification func(dispatcher.Notification)) {
	mine := &listener{heard: make(chan dispatcher.Notification, 256), missed: make(chan struct{}, 1)}
	h.mu.Lock()
	h.listeners[mine] = struct{}{}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.listeners, mine)
	}()
	notification(dispatcher.Notification{})
	for {
		select {
		case <-ctx.Done():
			return
		case <-mine.missed:
			notification(dispatcher.Notification{})
		case one := <-mine.heard:
			notification(one)
		}
	}
}

// createFile makes the file of a new database for its owner only, whatever the umask. SQLite gives its log and its index
// the mode of the database. An existing file is not even opened: closing it would release the locks of another store of
// this process. created is true if the file was missing.
func createFile(path string) (created bool, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

// checkKind refuses a path to anything but a file, before files are made next to it.
func checkKind(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // it will be made
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory; name a file in it, such as %s", path, filepath.Join(path, "carillon.db"))
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file (%s); name the file of a database, or one that does not exist yet", path, info.Mode().Type())
	}
	return nil
}

// removeEmpty removes the file of a database that could not be made, as on a full disk. The next start would treat it
// as a database that lost everything.
func removeEmpty(path string) error {
	if info, err := os.Stat(path); err == nil && info.Size() == 0 {
		return os.Remove(path)
	}
	return nil
}

// ExposedFiles lists the files of a SQLite database that other users may read or write; nil for other databases.
func ExposedFiles(database string) (exposed []string) {
	a, err := ParseAddress(database)
	if err != nil || a.Path == "" {
		return nil
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if info, err := os.Stat(a.Path + suffix); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
			exposed = append(exposed, a.Path+suffix)
		}
	}
	return exposed
}
