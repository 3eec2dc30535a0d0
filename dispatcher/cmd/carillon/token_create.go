package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/cmd/carillon/node"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// tokenCreateCommand creates a token.
type tokenCreateCommand struct {
	apiFlags
	outputFlags
	Database string `env:"CARILLON_DATABASE,DATABASE_URL" placeholder:"URL" help:"Make the token in this database, without another token: postgres://user@host/name, or sqlite:PATH."`
	node.LoginFlags
	DatabaseWithout []string       `env:"CARILLON_DATABASE_WITHOUT" hidden:""` // for tests
	Name            string         `required:"" help:"Name of the token, shown in the audit log."`
	Description     string         `placeholder:"TEXT" help:"What the token is for."`
	Scope           []access.Scope `default:"read,run,write" placeholder:"SCOPE,..." help:"What the token allows: read, run, write, register, metrics, export, import, admin. None includes another."`
	Apps            []string       `placeholder:"APP,..." help:"Apps that the token is bound to. Default: all apps and the node routes."`
	ExpiresIn       input.Duration `default:"0s" placeholder:"DURATION" help:"How long the token works, such as 2160h. 0s: until it is revoked."`
}

// Validate checks the token.
func (t *tokenCreateCommand) Validate() error {
	return errors.Join(checkExpiresIn(t.ExpiresIn), flagProblems(t.token(time.Time{}).Validate()), t.checkDatabase())
}

// mostExpiresIn is far, but its instants can still be written.
const mostExpiresIn = 100 * 365 * 24 * time.Hour

func checkExpiresIn(in input.Duration) error {
	if in.Std() < 0 || in.Std() > mostExpiresIn {
		return fmt.Errorf("--expires-in: %s is not between 0s and %s", in, mostExpiresIn)
	}
	return nil
}

// expiry returns when a token expires that is made now; nil: never.
func expiry(in input.Duration, now time.Time) *time.Time {
	if in == 0 {
		return nil
	}
	at := now.Add(in.Std()).UTC().Truncate(time.Millisecond)
	return &at
}

func (t *tokenCreateCommand) token(now time.Time) access.APIToken {
	return access.APIToken{Name: t.Name, Description: t.Description, Scopes: t.Scope, Apps: t.Apps, ExpiresAt: expiry(t.ExpiresIn, now)}
}

// flagProblems names flags where problems name fields.
func flagProblems(err error) error {
	var problems input.Problems
	if !errors.As(err, &problems) {
		return err
	}
	for i := range problems {
		field, _, _ := strings.Cut(strings.TrimPrefix(problems[i].Path, "/"), "/")
		problems[i].Path = "--" + strings.TrimSuffix(field, "s")
		if field == "apps" {
			problems[i].Path = "--apps"
		}
	}
	return problems
}

// Run creates the token, and prints its secret.
func (t *tokenCreateCommand) Run(ctx context.Context, c console) error {
	issued, err := t.create(ctx, t.token(time.Now()))
	if errors.Is(err, dispatcher.ErrPrecondition) {
		return fmt.Errorf("token %s exists; choose another name, or revoke it first with: carillon token revoke %s: %w",
			input.Echo(t.Name), t.Name, dispatcher.ErrPrecondition)
	}
	if err != nil {
		return err
	}
	return printSecret(t.outputFlags, c, issued)
}

// printSecret prints a token that is new: for people only its secret, which they hand on.
func printSecret(o outputFlags, c console, issued access.IssuedToken) error {
	if o.Output != outputTable {
		return printObject(o, c, issued, nil)
	}
	_, err := fmt.Fprintln(c.out, issued.Secret)
	return err
}

func (t *tokenCreateCommand) database() node.DatabaseFlag {
	return node.DatabaseFlag{Database: t.Database, LoginFlags: t.LoginFlags, DatabaseWithout: t.DatabaseWithout}
}

// checkDatabase checks the database if the token is made there.
func (t *tokenCreateCommand) checkDatabase() error {
	if t.Database == "" {
		return nil
	}
	return t.database().Validate()
}

// inDatabase tells where the token is made. A database on the command line comes before an API, and the variable of a
// database, which operators of nodes have set, before the current context.
func (t *tokenCreateCommand) inDatabase() (bool, error) {
	named := t.onCommandLine["database"]
	for _, flag := range []string{"endpoint", "context"} {
		if named && t.onCommandLine[flag] {
			return false, &usageError{fmt.Errorf("--database and --%s: give one of them", flag)}
		}
	}
	return named || t.Database != "" && t.Endpoint == "" && t.Token == "" && t.Context == "", nil
}

// create makes the token.
func (t *tokenCreateCommand) create(ctx context.Context, token access.APIToken) (access.IssuedToken, error) {
	inDatabase, err := t.inDatabase()
	if err != nil {
		return access.IssuedToken{}, err
	}
	if !inDatabase {
		c, err := t.client(ctx)
		if err != nil {
			return access.IssuedToken{}, fmt.Errorf("%w\nthe first token is made with --database URL (CARILLON_DATABASE)", err)
		}
		return c.PutToken(ctx, token, client.Condition{Absent: true})
	}
	database := t.database()
	s, err := database.Open(ctx, nil)
	if err != nil { // the first token is often created before the first start
		if err := database.MigrateSchema(ctx); err != nil {
			return access.IssuedToken{}, err
		}
		if s, err = database.Open(ctx, nil); err != nil {
			return access.IssuedToken{}, err
		}
	}
	defer s.Close()
	return createToken(ctx, s, token)
}

// createToken stores a new token.
func createToken(ctx context.Context, s *store.Store, token access.APIToken) (access.IssuedToken, error) {
	secret, hash := access.NewToken()
	token.ID, token.Hash = access.NewTokenID(), hash
	by := byCommandLine()
	by.IfAbsent = true
	stored, _, err := s.PutToken(ctx, token, by)
	if err != nil {
		return access.IssuedToken{}, fmt.Errorf("create token: %w", err)
	}
	return access.IssuedToken{APIToken: stored, Secret: secret}, nil
}

// byCommandLine is who changes a database directly.
func byCommandLine() input.Change { return input.Change{Actor: "command line"} }
