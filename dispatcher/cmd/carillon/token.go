package main

import (
	"cmp"
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

// tokenCommand manages the API's bearer tokens. The first one is created in the database, without a token.
type tokenCommand struct {
	Create tokenCreateCommand `cmd:"" help:"Create a token and print it. It is not shown again." example:"carillon token create --name ci --scope read,write --apps billing"`
	List   tokenListCommand   `cmd:"" aliases:"ls" help:"List the tokens, without their secrets." example:"carillon token list"`
	Show   tokenShowCommand   `cmd:"" aliases:"describe" help:"Show a token, without its secret." example:"carillon token show ci"`
	Rotate tokenRotateCommand `cmd:"" help:"Give a token another secret and print it. The old one works for a while." example:"carillon token rotate ci --overlap 1h"`
	Revoke tokenRevokeCommand `cmd:"" help:"Revoke a token, which stops working at once." example:"carillon token revoke ci"`
}

// joined formats scopes as the flag accepts them.
func joined(scopes []access.Scope) string {
	list := make([]string, len(scopes))
	for i, scope := range scopes {
		list[i] = string(scope)
	}
	return strings.Join(list, ",")
}

func instantOr(at *time.Time, none string) string {
	if at == nil {
		return none
	}
	return at.Format(time.RFC3339)
}

func expiryOf(token access.APIToken, now time.Time) string {
	text := instantOr(token.ExpiresAt, "never")
	if token.Expired(now) {
		text += " (expired)"
	}
	return text
}

type tokenListCommand struct {
	apiFlags
	outputFlags
}

func (t *tokenListCommand) Run(ctx context.Context, c console, api *client.Client) error {
	all, _, err := allPages(0, func(page input.Page) (client.List[access.APIToken], error) { return api.Tokens(ctx, page) })
	if err != nil {
		return err
	}
	titles := "NAME\tSCOPES\tAPPS\tEXPIRES\tLAST USED\tCREATED"
	return printList(t.outputFlags, c, all, titles, func(token access.APIToken) []any {
		return []any{token.Name, joined(token.Scopes), cmp.Or(strings.Join(token.Apps, ","), "all"), expiryOf(token, time.Now()),
			instantOr(token.LastUsedAt, "never"), instantOr(&token.CreatedAt, "")}
	})
}

type tokenFlags struct {
	apiFlags
	outputFlags
	Name string `arg:"" help:"Name of the token."`
}

type tokenShowCommand struct{ tokenFlags }

func (t *tokenShowCommand) Run(ctx context.Context, c console, api *client.Client) error {
	token, err := api.Token(ctx, t.Name)
	if err != nil {
		return err
	}
	return printObject(t.outputFlags, c, token, func(l *lines) {
		l.add("name", token.Name)
		l.add("id", token.ID)
		l.add("description", token.Description)
		l.add("scopes", joined(token.Scopes))
		l.add("apps", cmp.Or(strings.Join(token.Apps, ","), "all"))
		l.add("expires", expiryOf(token, time.Now()))
		l.add("last used", instantOr(token.LastUsedAt, "never"))
		l.add("created", token.CreatedAt)
		l.add("old secret works until", instantOr(token.RotatedUntil, "never rotated"))
	})
}

type tokenRotateCommand struct {
	tokenFlags
	Overlap   input.Duration `default:"24h" help:"How long the old secret still works, 0s to 720h."`
	ExpiresIn input.Duration `default:"0s" placeholder:"DURATION" help:"How long the token works from now on. 0s: it keeps its expiry."`
}

func (t *tokenRotateCommand) Validate() error {
	return errors.Join(checkExpiresIn(t.ExpiresIn),
		flagProblems(access.TokenRotation{Overlap: t.Overlap}.Validate()))
}

func (t *tokenRotateCommand) Run(ctx context.Context, c console, api *client.Client) error {
	rotation := access.TokenRotation{Overlap: t.Overlap, ExpiresAt: expiry(t.ExpiresIn, time.Now())}
	issued, err := api.RotateToken(ctx, t.Name, rotation)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.err, "the old secret of token %s works until %s\n", plain(t.Name), instantOr(issued.RotatedUntil, "now"))
	return printSecret(t.outputFlags, c, issued)
}

type tokenRevokeCommand struct {
	apiFlags
	Name string `arg:"" help:"Name of the token."`
}

// Run revokes the token. It names the revision that it has read, so that it does not revoke a new token of that name.
func (t *tokenRevokeCommand) Run(ctx context.Context, api *client.Client) error {
	token, err := api.Token(ctx, t.Name)
	if err != nil {
		return err
	}
	return api.DeleteToken(ctx, t.Name, client.Condition{Revision: token.Revision})
}

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

func (t *tokenCreateCommand) Validate() error {
	return errors.Join(checkExpiresIn(t.ExpiresIn), flagProblems(t.token(time.Time{}).Validate()), t.checkDatabase())
}

// mostExpiresIn keeps expiry times within four-digit years.
const mostExpiresIn = 100 * 365 * 24 * time.Hour

func checkExpiresIn(in input.Duration) error {
	if in.Std() < 0 || in.Std() > mostExpiresIn {
		return fmt.Errorf("--expires-in: %s is not between 0s and %s", in, mostExpiresIn)
	}
	return nil
}

// expiry returns when a token that is created now expires; nil means never.
func expiry(in input.Duration, now time.Time) *time.Time {
	if in == 0 {
		return nil
	}
	at := now.Add(in.Std()).UTC().Truncate(time.Millisecond)
	return &at
}

func (t *tokenCreateCommand) token(now time.Time) access.APIToken {
	return access.APIToken{Name: t.Name,
		TokenSpec: access.TokenSpec{Description: t.Description, Scopes: t.Scope, Apps: t.Apps, ExpiresAt: expiry(t.ExpiresIn, now)}}
}

// flagProblems replaces the names of fields in problems by flags.
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

// printSecret prints a new token; for people only its secret, which they pass on.
func printSecret(o outputFlags, c console, issued access.IssuedToken) error {
	return printSaid(o, c, issued, issued.Secret)
}

func (t *tokenCreateCommand) database() node.DatabaseFlag {
	return node.DatabaseFlag{Database: t.Database, LoginFlags: t.LoginFlags, DatabaseWithout: t.DatabaseWithout}
}

// checkDatabase checks the database flags if the token is created there.
func (t *tokenCreateCommand) checkDatabase() error {
	if t.Database == "" {
		return nil
	}
	return t.database().Check()
}

// inDatabase reports whether to create the token in the database. A database flag precedes an API,
// and the database variable, which operators of nodes set, precedes the current context.
func (t *tokenCreateCommand) inDatabase() (bool, error) {
	named := t.onCommandLine["database"]
	for _, flag := range []string{"endpoint", "context"} {
		if named && t.onCommandLine[flag] {
			return false, &usageError{fmt.Errorf("--database and --%s: give one of them", flag)}
		}
	}
	return named || t.Database != "" && t.Endpoint == "" && t.Token == "" && t.Context == "", nil
}

func (t *tokenCreateCommand) create(ctx context.Context, token access.APIToken) (access.IssuedToken, error) {
	inDatabase, err := t.inDatabase()
	if err != nil {
		return access.IssuedToken{}, err
	}
	if !inDatabase {
		c, err := t.ProvideClient(ctx)
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

// byCommandLine is the actor of direct changes to a database.
func byCommandLine() input.Change { return input.Change{Actor: "command line"} }
