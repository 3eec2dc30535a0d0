package node

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
)

// DatabaseFlag is the database of definitions and ledger.
type DatabaseFlag struct {
	Database string `env:"CARILLON_DATABASE,DATABASE_URL" required:"" placeholder:"URL" help:"Database: postgres://user@host/name, or sqlite:PATH for a single node."`
	LoginFlags
	// For tests.
	DatabaseWithout []string `env:"CARILLON_DATABASE_WITHOUT" hidden:"" placeholder:"CAPABILITY,..." help:"What to use PostgreSQL without: notifications, partitions, skip-locked, session-settings, identity."`
}

// without returns the capabilities that the database is to be used without.
func (f DatabaseFlag) without() db.Capabilities {
	parsed, _ := db.ParseCapabilities(f.DatabaseWithout) // Validate has tried
	return parsed
}

// Validate refuses any value but a database URL, and logins that do not fit it. The message never shows a
// password. It holds for all commands that have this flag.
func (f DatabaseFlag) Validate() error {
	if _, err := db.ParseCapabilities(f.DatabaseWithout); err != nil {
		return fmt.Errorf("--database-without (CARILLON_DATABASE_WITHOUT): %w", err)
	}
	if file, ok := strings.CutPrefix(f.Database, "sqlite:"); ok && file != "" || isPostgres(f.Database) {
		return f.LoginFlags.check(databaseName, f.Database)
	}
	if f.Database == "" {
		return errors.New(databaseName + ": is required; set postgres://user@host/name, or sqlite:PATH for a single node")
	}
	return fmt.Errorf(databaseName+": %s is not postgres://user@host/name or sqlite:PATH", maskPassword(f.Database))
}

func isPostgres(database string) bool {
	scheme, rest, _ := strings.Cut(database, "://")
	return (scheme == "postgres" || scheme == "postgresql") && rest != ""
}

// maskPassword quotes a database without its passwords: the one before the host, and those in the
// parameters of a URL or of the key=value form. Of any other value nothing is shown, because a password may
// stand anywhere in it.
func maskPassword(database string) string {
	const withheld = "the value (not shown: it may hold a password)"
	if path, ok := strings.CutPrefix(database, "sqlite:"); ok && !strings.ContainsAny(path, "@?") {
		return input.Echo(database)
	}
	u, err := url.Parse(database)
	if err != nil || u.Host == "" || strings.Contains(u.Path+u.Fragment, "@") {
		return maskPairs(database, withheld)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return withheld
	}
	if _, has := u.User.Password(); has {
		u.User = url.UserPassword(u.User.Username(), masked)
	}
	for key := range query {
		if isPassword(key) {
			query.Set(key, masked)
		}
	}
	if u.RawQuery != "" {
		u.RawQuery = query.Encode()
	}
	return input.Echo(strings.ReplaceAll(u.String(), url.QueryEscape(masked), masked))
}

const masked = "***"

func isPassword(key string) bool { return strings.Contains(strings.ToLower(key), "pass") }

// maskPairs is maskPassword for the form "host=db password=x"; it returns otherwise for any other form. A
// quoted value may hold blanks, so a value with quotes is not shown either.
func maskPairs(database, otherwise string) string {
	fields := strings.Fields(database)
	for i, field := range fields {
		key, value, paired := strings.Cut(field, "=")
		notInKey := func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }
		if !paired || strings.ContainsAny(value, `'"\@`) || strings.ContainsFunc(key, notInKey) {
			return otherwise
		}
		if isPassword(key) {
			fields[i] = key + "=" + masked
		}
	}
	if len(fields) == 0 {
		return input.Echo("")
	}
	return input.Echo(strings.Join(fields, " "))
}

// Open opens the database for a command of the operator; nodes may use it at the same time. The keys may be nil.
func (f DatabaseFlag) Open(ctx context.Context, keys *seal.Keys) (*store.Store, error) {
	s, err := store.Open(ctx, f.Database, store.Options{
		Options: db.Options{AlongsideNode: true, Login: f.login(), Without: f.without()}, Keys: keys})
	if err != nil {
		return nil, f.wrap(err)
	}
	return s, nil
}

// MigrateSchema updates the schema.
func (f DatabaseFlag) MigrateSchema(ctx context.Context) error {
	if err := store.MigrateAs(ctx, f.Database, f.login(), f.without()...); err != nil {
		return f.wrap(err)
	}
	return nil
}

// In calls do with the database, opened for a command of the operator.
func (f DatabaseFlag) In(ctx context.Context, do func(*store.Store) error) error {
	s, err := f.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	return do(s)
}

// wrap names the flag and the database of an error, and says what RDS wants of a user that it refuses.
func (f DatabaseFlag) wrap(err error) error {
	err = fmt.Errorf(databaseName+" %s: %w", maskPassword(f.Database), err)
	var refused *pgconn.PgError
	if f.DatabaseAuth == rdsIAM && errors.As(err, &refused) && strings.HasPrefix(refused.Code, "28") {
		err = fmt.Errorf("%w; rds-iam needs IAM authentication enabled on the database, GRANT rds_iam to its user, "+
			"and rds-db:connect for that user in the role of this machine", err)
	}
	return &InvalidError{err}
}
