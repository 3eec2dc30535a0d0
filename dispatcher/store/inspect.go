package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sys/unix"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/store/reads"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
)

// Inspection examines a database that may lack a schema, rights or everything else. It changes nothing, and nodes may
// use the database at the same time.
type Inspection struct {
	db *sql.DB // nil: a file that does not exist yet
	a  db.Address
}

// Inspect connects to a database. A missing SQLite file is not an error if it can be made.
func Inspect(ctx context.Context, database string, login db.Login) (*Inspection, error) {
	a, err := db.ParseAddress(database)
	if err != nil {
		return nil, err
	}
	a.Login = login
	i := &Inspection{a: a}
	if a.Path != "" {
		err = i.openFile()
	} else {
		err = i.openServer()
	}
	if err != nil || i.db == nil {
		return i, err
	}
	if err := i.db.PingContext(ctx); err != nil {
		return nil, errors.Join(err, i.db.Close())
	}
	return i, nil
}

func (i *Inspection) openServer() error {
	config, err := db.PoolConfig(i.a)
	if err != nil {
		return err
	}
	db.NameNothing(config.ConnConfig) // it may be a pooler
	i.db = stdlib.OpenDB(*config.ConnConfig, stdlib.OptionBeforeConnect(config.BeforeConnect))
	i.db.SetMaxOpenConns(1)
	return nil
}

func (i *Inspection) openFile() error {
	if err := db.CheckFileSystem(i.a.Path, db.FileSystem); err != nil {
		return err
	}
	if _, err := os.Stat(i.a.Path); errors.Is(err, fs.ErrNotExist) {
		_, err := os.Stat(filepath.Dir(i.a.Path))
		return err
	}
	var err error
	i.db, err = sql.Open("sqlite", "file:"+(&url.URL{Path: filepath.ToSlash(i.a.Path)}).EscapedPath()+
		"?mode=rw&_pragma=busy_timeout(5000)&_pragma=query_only(1)")
	return err
}

// Close ends the connection.
func (i *Inspection) Close() error {
	if i.db == nil {
		return nil
	}
	return i.db.Close()
}

// Server returns the name of the database software, and the user of this connection.
func (i *Inspection) Server(ctx context.Context) (string, error) {
	query := `SELECT 'PostgreSQL ' || current_setting('server_version') || ' as user ' || current_user`
	switch {
	case i.db == nil:
		return "SQLite, a new file", nil
	case i.a.Path != "":
		query = `SELECT 'SQLite ' || sqlite_version()`
	}
	name, _, err := db.First(ctx, i.db, db.ScanText, query)
	return name, err
}

// Rights reports missing rights that a node needs: it makes and drops tables, in migrations and for each day of the
// ledger.
func (i *Inspection) Rights(ctx context.Context) error {
	if i.a.Path != "" {
		dir := filepath.Dir(i.a.Path)
		if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			return fmt.Errorf("write to directory %s: %w", dir, err)
		}
		for _, file := range []string{i.a.Path, i.a.Path + ".lock", i.a.Path + "-wal", i.a.Path + "-shm"} {
			if err := unix.Access(file, unix.R_OK|unix.W_OK); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("write to %s: %w", file, err)
			}
		}
		return writeProbe(dir)
	}
	// Making a table and rolling it back is more reliable than a list of privileges.
	tx, err := i.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, statement := range []string{
		`CREATE TABLE carillon_doctor (day BIGINT NOT NULL) PARTITION BY RANGE (day)`,
		`CREATE TABLE carillon_doctor_1 PARTITION OF carillon_doctor FOR VALUES FROM (1) TO (2)`,
		`DROP TABLE carillon_doctor`,
	} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create a table: %w", err)
		}
	}
	foreign, err := db.Collect(ctx, tx, db.ScanText, foreignTables)
	if err != nil {
		return fmt.Errorf("read the owners of the tables: %w", err)
	}
	if len(foreign) > 0 {
		return fmt.Errorf("the user owns neither %s nor their owner's rights; "+
			"only an owner can change a table or drop a day of it", strings.Join(foreign, ", "))
	}
	return nil
}

// writeProbe writes a small file and removes it: a full disk refuses that, and a node would not get on.
func writeProbe(dir string) error {
	file, err := os.CreateTemp(dir, ".carillon-probe-")
	if err == nil {
		_, err = file.Write(make([]byte, probeBytes))
		err = errors.Join(err, file.Sync(), file.Close(), os.Remove(file.Name()))
	}
	var disk unix.Statfs_t
	switch {
	case err == nil:
		return nil
	case unix.Statfs(dir, &disk) != nil:
		return fmt.Errorf("write to directory %s: %w", dir, err)
	default:
		free := uint64(disk.Bavail) * uint64(disk.Bsize) //nolint:gosec,unconvert // the types differ by platform
		return fmt.Errorf("write to directory %s, in which %d bytes are free: %w", dir, free, err)
	}
}

// probeBytes is about what a transaction of a node writes.
const probeBytes = 64 << 10

// foreignTables lists the tables of Carillon, except the days of the ledger, that another role owns.
const foreignTables = `SELECT c.relname || ' (of ' || pg_get_userbyid(c.relowner) || ')' FROM pg_class AS c
	WHERE c.relnamespace = CAST(quote_ident(current_schema()) AS regnamespace) AND c.relkind IN ('r', 'p') AND NOT c.relispartition
		AND NOT pg_has_role(c.relowner, 'USAGE') AND c.relname IN ('goose_db_version', 'goose_lock', 'installation', 'apps', 'jobs',
		'app_pauses', 'app_usage', 'app_bytes', 'secrets', 'triggers', 'trigger_clock', 'label_sets', 'claims', 'live_runs',
		'host_waits', 'runs', 'attempts', 'responses', 'broadcasts', 'slots', 'misfires', 'nodes', 'locks', 'calendars',
		'trigger_revisions', 'calendar_revisions', 'audit_log', 'endpoint_groups', 'endpoints', 'api_tokens', 'sessions',
		'notifications', 'run_inputs', 'set_aside', 'backfills', 'backfill_runs', 'bulk_actions', 'alerts', 'alert_states', 'alert_events',
		'followers', 'pending_ends', 'carried_states', 'objectives', 'objective_triggers', 'objective_pending', 'objective_counts',
		'run_statistics', 'app_failures', 'zone_data')
	ORDER BY c.relname`

// Capabilities returns what the database has, except capabilities in without.
func (i *Inspection) Capabilities(ctx context.Context, without db.Capabilities) (has db.Capabilities, err error) {
	if i.a.Path != "" {
		return db.AllCapabilities(), nil
	}
	version, err := i.Schema(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := i.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	err = conn.Raw(func(driver any) error {
		has, err = db.Probe(ctx, driver.(*stdlib.Conn).Conn(), without)
		return err
	})
	if err = errors.Join(err, conn.Close()); err != nil || version.Have > 0 {
		return has, err
	}
	// The first migration is still to come, and makes partitions and tables to lock.
	byDay, err := db.Partitioned(ctx, i.db, without)
	if byDay {
		has = append(has, db.DayPartitions)
	}
	if !without.Has(db.SkipLocked) {
		has = append(has, db.SkipLocked)
	}
	return has, err
}

// SchemaVersion is the version of the schema of a database, with the newest one that this program knows.
type SchemaVersion struct {
	Have, Newest int64 // Have is 0 without a schema
}

// TooNew reports whether a newer program has changed the schema so that this one cannot use it.
func (v SchemaVersion) TooNew() bool { return v.Have > v.Newest && v.Have/family > v.Newest/family }

// Schema reads the version.
func (i *Inspection) Schema(ctx context.Context) (v SchemaVersion, err error) {
	_, scripts := scriptsOf(i.a)
	if v.Newest, err = newest(scripts); err != nil || i.db == nil {
		return v, err
	}
	query := `SELECT count(*) FROM pg_class WHERE oid = to_regclass('goose_db_version')`
	if i.a.Path != "" {
		query = `SELECT count(*) FROM sqlite_master WHERE name = 'goose_db_version'`
	}
	there, _, err := db.First(ctx, i.db, db.ScanInt, query)
	if err != nil || there == 0 {
		return v, err
	}
	v.Have, err = appliedVersion(ctx, i.db)
	return v, err
}

// Clock reads the database's clock. It returns how far this machine's clock, read with now, is ahead of it, and the
// response time. Of three readings the quickest counts.
func (i *Inspection) Clock(ctx context.Context, now func() time.Time) (ahead, took time.Duration, err error) {
	if i.a.Path != "" {
		return 0, 0, nil // it is the same clock
	}
	for range 3 {
		asked := now()
		database, err := (&db.Postgres{}).Now(ctx, i.db)
		if err != nil {
			return 0, 0, err
		}
		if this := now().Sub(asked); took == 0 || this < took {
			took, ahead = this, asked.Round(0).Add(this/2).Sub(database)
		}
	}
	return ahead, took, nil
}

// MissingKeys returns the ids of the keys that stored secrets need and keys lack, and the number of stored secrets.
func (i *Inspection) MissingKeys(ctx context.Context, keys *seal.Keys) (missing []string, stored int64, err error) {
	if i.db == nil {
		return nil, 0, nil
	}
	if missing, err = definitions.MissingKeys(ctx, i.db, keys); err != nil {
		return nil, 0, err
	}
	stored, _, err = db.First(ctx, i.db, db.ScanInt, `SELECT count(*) FROM secrets`)
	return missing, stored, err
}

// Alerts returns how many alerts are declared, and the first, at most limit, whose latest notification is not delivered.
func (i *Inspection) Alerts(ctx context.Context, limit int) (count int64, undelivered []string, err error) {
	if i.db == nil {
		return 0, nil, nil
	}
	if count, _, err = db.First(ctx, i.db, db.ScanInt, `SELECT count(*) FROM alerts WHERE deleted_at IS NULL`); err != nil {
		return 0, nil, err
	}
	// $1 limit
	undelivered, err = db.Collect(ctx, i.db, db.ScanText, `SELECT p.name || '/' || d.name || ' (' || d.state || ')'
		FROM (`+reads.UndeliveredAlerts+`) AS d JOIN apps AS p ON p.id = d.app_id WHERE d.state IS NOT NULL ORDER BY 1 LIMIT $1`, limit)
	return count, undelivered, err
}

// SetAside returns the earliest rows and ends that are set aside, at most limit of each, and their total number.
func (i *Inspection) SetAside(ctx context.Context, limit int) (aside []dispatcher.SetAside, count int64, err error) {
	if i.db == nil {
		return nil, 0, nil
	}
	if aside, err = db.Collect(ctx, i.db, dispatch.ScanSetAside, dispatch.SetAsideRows(time.Unix(0, 0), "")+` LIMIT $1`, limit); err != nil {
		return nil, 0, err
	}
	// $1 limit
	const earliest = `SELECT * FROM pending_ends WHERE try_at > 0 ORDER BY ended_at, trigger_id, scheduled_at, kind LIMIT $1`
	found, err := db.Collect(ctx, i.db, dispatch.ScanPendingEnd, dispatch.PendingEnds(earliest), limit)
	if err != nil {
		return nil, 0, err
	}
	for _, end := range found {
		aside = append(aside, end.SetAside())
	}
	count, _, err = db.First(ctx, i.db, db.ScanInt, `SELECT (SELECT count(*) FROM pending_ends WHERE try_at > 0)
		+ (SELECT count(*) FROM (`+dispatch.SetAsideRows(time.Unix(0, 0), "")+`) AS x)`)
	return aside, count, err
}
