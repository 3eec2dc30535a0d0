package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// checkDatabase connects, and reports how long that took.
func (e *examination) checkDatabase(ctx context.Context, check string) {
	if err := e.DatabaseFlag.Check(); err != nil {
		e.skip(check, "its flags are invalid")
		return
	}
	began := time.Now()
	at := maskPassword(e.Database)
	found, err := store.Inspect(ctx, e.Database, e.login())
	if err != nil {
		e.add(check, HealthFail, at+": "+err.Error(), e.databaseAction(err))
		return
	}
	e.database = found
	server, err := found.Server(ctx)
	if err != nil {
		e.add(check, HealthFail, at+": "+err.Error(), e.databaseAction(err))
		return
	}
	e.ok(check, "%s: %s, connected in %s", at, server, time.Since(began).Round(100*time.Microsecond))
}

// checkNotifications connects to the server for notifications, if it is a different one.
func (e *examination) checkNotifications(ctx context.Context, check string) {
	if e.NotifyDatabase == "" || e.notifyFlag.check(e.DatabaseFlag) != nil {
		return
	}
	at := maskPassword(e.NotifyDatabase)
	found, err := store.Inspect(ctx, e.NotifyDatabase, e.login())
	if err != nil {
		e.add(check, HealthFail, at+": "+err.Error(), e.databaseAction(err))
		return
	}
	_ = found.Close() // nothing was written
	e.ok(check, "%s: connected", at)
}

// databaseAction returns the remedy for a database that cannot be used.
func (e *examination) databaseAction(err error) string {
	var refused *pgconn.PgError
	switch {
	case db.DiskFull(err):
		return e.diskAction()
	case errors.As(err, &refused) && strings.HasPrefix(refused.Code, "28") && e.DatabaseAuth == rdsIAM:
		return "enable IAM authentication, GRANT rds_iam to the user, and allow rds-db:connect for it"
	case errors.As(err, &refused) && strings.HasPrefix(refused.Code, "28"):
		return "correct user and password: --database-password-file, CARILLON_DATABASE_PASSWORD, or passfile in the URL"
	case errors.As(err, &refused) && refused.Code == "3D000":
		return "create the database, or correct its name"
	case errors.As(err, &refused) && strings.HasPrefix(refused.Code, "53"):
		return "free connections, or raise max_connections: a node needs 7"
	case strings.Contains(err.Error(), "certificate"):
		return "name the root certificate of the server with sslrootcert, and the host as its certificate does"
	case errors.Is(err, fs.ErrNotExist):
		return "create the directory"
	case !isPostgres(e.Database):
		return "let this user write a file on a disk of this machine; if the file is damaged, restore a backup"
	case db.Unreachable(err):
		return "check host and port, name resolution, security group or firewall, and that the server runs"
	}
	return "correct --database (CARILLON_DATABASE)"
}

// diskAction returns the remedy for a full disk of the database.
func (e *examination) diskAction() string {
	if isPostgres(e.Database) {
		return "enlarge the volume of the database, or free space on it"
	}
	return "free space on that disk"
}

// checkRights checks that the user has the rights of a node.
func (e *examination) checkRights(ctx context.Context, check string) {
	err := e.database.Rights(ctx)
	switch {
	case db.DiskFull(err):
		e.fail(check, err, e.diskAction())
	case err != nil && isPostgres(e.Database):
		e.fail(check, err, "as an administrator: ALTER DATABASE ... OWNER TO the user, GRANT CREATE ON SCHEMA, or REASSIGN OWNED to it")
	case err != nil:
		e.fail(check, err, "give the file and its directory to the user of the node")
	default:
		e.ok(check, "the user can create, change and drop what a node needs")
	}
}

func (e *examination) checkSchema(ctx context.Context, check string) {
	v, err := e.database.Schema(ctx)
	migrate := "run carillon migrate, or leave out --no-migrate"
	switch {
	case err != nil:
		e.fail(check, err, "restore a backup if the database is damaged")
	case v.TooNew():
		e.fail(check, fmt.Errorf("version %d is of a newer Carillon; this one knows %d at most", v.Have, v.Newest), "install the newer version")
	case v.Have == 0 && e.Migrate:
		e.ok(check, "none yet; the first start creates version %d", v.Newest)
	case v.Have == 0:
		e.fail(check, errors.New("none, and the node is not to create it"), migrate)
	case v.Have < v.Newest && e.Migrate:
		e.ok(check, "version %d; the next start updates it to %d", v.Have, v.Newest)
	case v.Have < v.Newest:
		e.fail(check, fmt.Errorf("version %d is older than %d, and the node is not to update it", v.Have, v.Newest), migrate)
	default:
		e.schema = true
		e.ok(check, "version %d, newest known %d", v.Have, v.Newest)
	}
}

// withoutCapability is a node's replacement for each capability.
var withoutCapability = map[db.Capability]string{
	db.Notifications:   "nodes look for changes once a second",
	db.DayPartitions:   "old history is deleted row by row",
	db.SkipLocked:      "nodes wait for rows that another node is about to take",
	db.SessionSettings: "a wait for a lock ends with the deadline of its call, and the planner may choose slower plans",
	db.Identity:        "a restore is noticed only by nodes that were at work before it",
}

// checkCapabilities reports the capabilities of PostgreSQL that the database lacks. A node works without them.
func (e *examination) checkCapabilities(ctx context.Context, check string) {
	if !isPostgres(e.Database) {
		return
	}
	has, err := e.database.Capabilities(ctx, e.without())
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "42501" { // insufficient_privilege
		e.skip(check, "the user may create nothing")
		return
	}
	if err != nil {
		e.fail(check, err, "see the check of the database")
		return
	}
	var lacks []string
	for _, one := range db.AllCapabilities().Without(has) {
		lacks = append(lacks, fmt.Sprintf("%s (%s)", one, withoutCapability[one]))
	}
	if len(lacks) > 0 {
		e.add(check, HealthWarn, "the database lacks "+strings.Join(lacks, ", "), "see docs/reference/databases.md")
		return
	}
	e.ok(check, "%s", has)
}

// A node warns above the first offset, and is not ready above the second.
const (
	warnOffset = time.Second
	failOffset = 30 * time.Second
)

// checkClock compares the clock of this machine with the database's.
func (e *examination) checkClock(ctx context.Context, check string) {
	if !isPostgres(e.Database) {
		e.ok(check, "the database uses the clock of this machine")
		return
	}
	ahead, took, err := e.database.Clock(ctx, time.Now)
	if err != nil {
		e.fail(check, err, "see the check of the database")
		return
	}
	direction := "ahead of"
	if ahead < 0 {
		direction = "behind"
	}
	detail := fmt.Sprintf("%s %s that of the database, to within %s",
		ahead.Abs().Round(time.Millisecond), direction, took.Round(time.Millisecond/10))
	const action = "synchronise the clocks with NTP; fires go by the clock of the database"
	switch offset := ahead.Abs() - took/2; {
	case offset > failOffset:
		e.add(check, HealthFail, detail, action)
	case offset > warnOffset:
		e.add(check, HealthWarn, detail, action)
	default:
		e.add(check, HealthOK, detail, "")
	}
}

// shownAside is how many rows and ended runs checkSetAside shows, and how many alerts checkAlerts names.
const shownAside = 3

// checkSetAside reports rows that made their batches fail, and ended runs with followers that could
// not be started. Other rows do not wait for them.
func (e *examination) checkSetAside(ctx context.Context, check string) {
	if !e.schema {
		e.skip(check, "the database has no schema to read")
		return
	}
	rows, count, err := e.database.SetAside(ctx, shownAside)
	switch {
	case err != nil:
		e.fail(check, err, "see the check of the database")
	case count == 0:
		e.ok(check, "no row made its batch fail")
	}
	for _, row := range rows {
		what := cmp.Or(row.Item, "missed fires")
		if row.Run != "" {
			what = "run " + row.Run
		}
		detail := fmt.Sprintf("1 of %d rows that are set aside: %s of job %s/%s, by work %s, tried %s, again at %s: %s",
			count, what, row.App, row.Job, row.Work, input.Count(row.Tries, "time"), input.FormatInstant(row.TryAt), row.Problem)
		e.add(check, HealthWarn, detail, "mend the row that the error is about, or cancel the run; it is tried again by itself")
	}
}

// checkAlerts reports whether notifications of alerts arrive, and link to the console.
func (e *examination) checkAlerts(ctx context.Context, check string) {
	if !e.schema {
		e.skip(check, "the database has no schema to read")
		return
	}
	alerts, undelivered, err := e.database.Alerts(ctx, shownAside)
	switch {
	case err != nil:
		e.fail(check, err, "see the check of the database")
		return
	case len(undelivered) > 0:
		e.add(check, HealthWarn, "the latest notification is not delivered, of alerts such as "+strings.Join(undelivered, ", "),
			"carillon alert events APP says why; correct the destination, and send carillon alert test")
	}
	if alerts > 0 && e.ConsoleURL == "" {
		e.add(check, HealthWarn, fmt.Sprintf("alerts declared: %d; notifications of a node with these flags do not link to "+
			"run, job and alert", alerts), "give --console-url (CARILLON_CONSOLE_URL) to all nodes; if they have it, give it to doctor, too")
		return
	}
	e.ok(check, "alerts declared: %d", alerts)
}
