package node

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/platform"
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

// without returns the capabilities of the database that must not be used.
func (f DatabaseFlag) without() db.Capabilities {
	parsed, _ := db.ParseCapabilities(f.DatabaseWithout) // Check has validated it
	return parsed
}

// Check refuses any value but a database URL, and unsuitable logins. The message never shows a
// password. All commands with this flag call it.
func (f DatabaseFlag) Check() error {
	if _, err := db.ParseCapabilities(f.DatabaseWithout); err != nil {
		return fmt.Errorf("--database-without (CARILLON_DATABASE_WITHOUT): %w", err)
	}
	if file, ok := strings.CutPrefix(f.Database, "sqlite:"); ok && file != "" || isPostgres(f.Database) {
		given := f.given()
		switch {
		case len(given) == 0:
			return nil
		case len(given) > 1:
			return errors.New(strings.Join(given, " and ") + " exclude each other; set one")
		case !isPostgres(f.Database):
			return fmt.Errorf("%s: only PostgreSQL asks for a password; leave it out", given[0])
		}
		problems := []error{f.checkURL(databaseName, f.Database)}
		if f.DatabasePasswordFile != "" {
			if _, err := readPassword(f.DatabasePasswordFile); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", passwordFileName, err))
			}
		}
		return errors.Join(problems...)
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

// maskPassword quotes a database without its passwords: before the host, and in the parameters of a
// URL or of the key=value form. It shows nothing of other values, because a password may stand
// anywhere in them.
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

// maskPairs is maskPassword for the form "host=db password=x", and returns otherwise for any other
// form. It does not show values with quotes either, because a quoted value may contain blanks.
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

// Open opens the database for an operator's command; nodes may use it at the same time. keys may be nil.
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

// In opens the database for an operator's command and calls do with it.
func (f DatabaseFlag) In(ctx context.Context, do func(*store.Store) error) error {
	s, err := f.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	return do(s)
}

// wrap adds the flag and the database to an error, and advice if RDS refuses the user.
func (f DatabaseFlag) wrap(err error) error {
	err = fmt.Errorf(databaseName+" %s: %w", maskPassword(f.Database), err)
	var refused *pgconn.PgError
	if f.DatabaseAuth == rdsIAM && errors.As(err, &refused) && strings.HasPrefix(refused.Code, "28") {
		err = fmt.Errorf("%w; rds-iam needs IAM authentication enabled on the database, GRANT rds_iam to its user, "+
			"and rds-db:connect for that user in the role of this machine", err)
	}
	return &InvalidError{err}
}

// LoginFlags configure the login to PostgreSQL, in addition to the URL.
type LoginFlags struct {
	DatabaseAuth         string `env:"CARILLON_DATABASE_AUTH" default:"url" enum:"url,rds-iam" help:"How to log in to the database: as its URL says (url), or by tokens of Amazon RDS (rds-iam)."`
	DatabasePassword     string `env:"CARILLON_DATABASE_PASSWORD" placeholder:"PASSWORD" help:"Password of the database user, if the URL holds none. Use the variable: other users of the machine can see flags."`
	DatabasePasswordFile string `env:"CARILLON_DATABASE_PASSWORD_FILE" placeholder:"FILE" help:"File with this password, read again for each connection."`
}

const rdsIAM = "rds-iam"

// The names of flags in messages.
const (
	databaseName     = "--database (CARILLON_DATABASE)"
	authName         = "--database-auth (CARILLON_DATABASE_AUTH)"
	passwordName     = "--database-password (CARILLON_DATABASE_PASSWORD)"
	passwordFileName = "--database-password-file (CARILLON_DATABASE_PASSWORD_FILE)"
)

// given returns the names of the flags that replace a password in the URL.
func (f LoginFlags) given() (names []string) {
	if f.DatabaseAuth == rdsIAM {
		names = append(names, authName+"=rds-iam")
	}
	if f.DatabasePassword != "" {
		names = append(names, passwordName)
	}
	if f.DatabasePasswordFile != "" {
		names = append(names, passwordFileName)
	}
	return names
}

// checkURL refuses a URL with a password if a flag sets one, and a URL that would expose tokens.
func (f LoginFlags) checkURL(flag, database string) error {
	given := f.given()
	if len(given) != 1 {
		return nil
	}
	var problems []error
	if inURL := passwordInURL(database); inURL != "" {
		problems = append(problems, fmt.Errorf("%s and the %s in %s exclude each other; leave the latter out", given[0], inURL, flag))
	}
	if f.DatabaseAuth == rdsIAM {
		problems = append(problems, checkTokens(flag, database))
	}
	return errors.Join(problems...)
}

// passwordInURL names the part of a URL that is a password or refers to one, or returns "".
func passwordInURL(database string) string {
	head, query, _ := strings.Cut(database, "?")
	_, rest, _ := strings.Cut(head, "://")
	authority, _, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 && strings.Contains(authority[:at], ":") {
		return "password"
	}
	for part := range strings.SplitSeq(query, "&") {
		if name, _, _ := strings.Cut(part, "="); name == "password" || name == "passfile" {
			return name
		}
	}
	return ""
}

// checkTokens checks that connections to a database do not expose tokens.
func checkTokens(flag, database string) error {
	config, err := pgconn.ParseConfig(database)
	if err != nil {
		return nil //nolint:nilerr // the store reports it without the URL
	}
	_, query, _ := strings.Cut(database, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	var problems []error
	if !strings.Contains(strings.TrimSuffix(database, query), "@") && values.Get("user") == "" {
		problems = append(problems, fmt.Errorf("%s: with rds-iam, name the database user: postgres://USER@HOST:5432/NAME", flag))
	}
	if mode := values.Get("sslmode"); mode != "" && mode != "verify-full" {
		problems = append(problems, fmt.Errorf("%s: rds-iam needs sslmode=verify-full, which is also the default; "+
			"sslmode=%s would give the token to any server that asks", flag, mode))
	}
	for _, at := range append([]*pgconn.FallbackConfig{{Host: config.Host}}, config.Fallbacks...) {
		if strings.HasPrefix(at.Host, "/") || strings.HasPrefix(at.Host, "@") {
			problems = append(problems, fmt.Errorf("%s: rds-iam needs the name of a host; %s is a socket", flag, input.Echo(at.Host)))
			break
		}
	}
	return errors.Join(problems...)
}

// login returns the store's login options.
func (f LoginFlags) login() db.Login {
	switch {
	case f.DatabaseAuth == rdsIAM:
		tokens := &platform.RDSTokens{}
		return db.Login{
			Password: func(ctx context.Context, at db.Server) (string, error) {
				return tokens.Token(ctx, at.Host, at.Port, at.User)
			},
			Roots: platform.RDSRoots(),
		}
	case f.DatabasePassword != "":
		return db.Login{Password: func(context.Context, db.Server) (string, error) { return f.DatabasePassword, nil }}
	case f.DatabasePasswordFile != "":
		return db.Login{Password: func(context.Context, db.Server) (string, error) { return readPassword(f.DatabasePasswordFile) }}
	}
	return db.Login{}
}

// readPassword reads a password from a file, without the newline at its end.
func readPassword(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return "", fmt.Errorf("%s holds no password", input.Echo(file))
	}
	return password, nil
}
