package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// tokenCommand manages the bearer tokens of the API. Each command asks the API, or goes directly to the database, which
// needs no token: the first one can be made only there.
type tokenCommand struct {
	Create tokenCreateCommand `cmd:"" help:"Create a token and print it. It is not shown again."`
	List   tokenListCommand   `cmd:"" help:"List the tokens, without their secrets."`
	Show   tokenShowCommand   `cmd:"" help:"Show a token, without its secret."`
	Rotate tokenRotateCommand `cmd:"" help:"Give a token another secret and print it. The old one works for a while."`
	Revoke tokenRevokeCommand `cmd:"" help:"Revoke a token, which stops working at once."`
}

// tokenCreateCommand creates a token.
type tokenCreateCommand struct {
	tokenAccess
	Name        string              `required:"" help:"Name of the token, shown in the audit log."`
	Description string              `placeholder:"TEXT" help:"What the token is for."`
	Scope       []dispatcher.Scope  `default:"read,run,write" placeholder:"SCOPE,..." help:"What the token allows: read, run, write, metrics, admin. None includes another."`
	Apps        []string            `placeholder:"APP,..." help:"Apps that the token is bound to. Default: all apps and the node routes."`
	ExpiresIn   dispatcher.Duration `default:"0s" placeholder:"DURATION" help:"How long the token works, such as 2160h. 0s: until it is revoked."`
}

// Validate checks the token.
func (t *tokenCreateCommand) Validate() error {
	return errors.Join(checkExpiresIn(t.ExpiresIn), flagProblems(t.token(time.Time{}).Validate()))
}

// mostExpiresIn is far, but its instants can still be written.
const mostExpiresIn = 100 * 365 * 24 * time.Hour

func checkExpiresIn(in dispatcher.Duration) error {
	if in.Std() < 0 || in.Std() > mostExpiresIn {
		return fmt.Errorf("--expires-in: %s is not between 0s and %s", in, mostExpiresIn)
	}
	return nil
}

// expiry returns when a token expires that is made now; nil: never.
func expiry(in dispatcher.Duration, now time.Time) *time.Time {
	if in == 0 {
		return nil
	}
	at := now.Add(in.Std()).UTC().Truncate(time.Millisecond)
	return &at
}

func (t *tokenCreateCommand) token(now time.Time) dispatcher.APIToken {
	return dispatcher.APIToken{Name: t.Name, Description: t.Description, Scopes: t.Scope, Apps: t.Apps, ExpiresAt: expiry(t.ExpiresIn, now)}
}

// flagProblems names flags where problems name fields.
func flagProblems(err error) error {
	var problems dispatcher.Problems
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

// Run creates the token.
func (t *tokenCreateCommand) Run(ctx context.Context, c console) error {
	return t.with(ctx, true, func(tokens tokenManager) error {
		issued, err := tokens.create(ctx, t.token(time.Now()))
		if errors.Is(err, dispatcher.ErrPrecondition) {
			return fmt.Errorf("token %s exists; choose another name, or revoke it first with: carillon token revoke --name %s",
				dispatcher.Echo(t.Name), t.Name)
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(c.out, issued.Secret)
		return err
	})
}

// joined lists scopes as the flag takes them.
func joined(scopes []dispatcher.Scope) string {
	list := make([]string, len(scopes))
	for i, scope := range scopes {
		list[i] = string(scope)
	}
	return strings.Join(list, ",")
}

// instantOr writes an instant to the second, or what stands for none.
func instantOr(at *time.Time, none string) string {
	if at == nil {
		return none
	}
	return at.Format(time.RFC3339)
}

// expiryOf says when a token expires, and whether it has.
func expiryOf(token dispatcher.APIToken, now time.Time) string {
	text := instantOr(token.ExpiresAt, "never")
	if token.Expired(now) {
		text += " (expired)"
	}
	return text
}

// tokenListCommand lists tokens.
type tokenListCommand struct{ tokenAccess }

// Run lists the tokens.
func (t *tokenListCommand) Run(ctx context.Context, c console) error {
	return t.with(ctx, false, func(tokens tokenManager) error {
		all, err := tokens.list(ctx)
		if err != nil {
			return err
		}
		table := newTable(c, "NAME\tSCOPES\tAPPS\tEXPIRES\tLAST USED\tCREATED")
		for _, token := range all {
			apps := cmp.Or(strings.Join(token.Apps, ","), "all")
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", token.Name, joined(token.Scopes), apps, expiryOf(token, time.Now()),
				instantOr(token.LastUsedAt, "never"), token.CreatedAt.Format(time.RFC3339))
		}
		return table.Flush()
	})
}

// tokenFlags name one token.
type tokenFlags struct {
	tokenAccess
	Name string `required:"" help:"Name of the token."`
}

// tokenShowCommand shows a token.
type tokenShowCommand struct{ tokenFlags }

// Run shows the token.
func (t *tokenShowCommand) Run(ctx context.Context, c console) error {
	return t.with(ctx, false, func(tokens tokenManager) error {
		token, err := tokens.show(ctx, t.Name)
		if err != nil {
			return err
		}
		table := newTable(c, "name\t"+token.Name)
		for _, line := range [][2]string{
			{"id", token.ID}, {"description", plain(token.Description)}, {"scopes", joined(token.Scopes)},
			{"apps", cmp.Or(strings.Join(token.Apps, ","), "all")}, {"expires", expiryOf(token, time.Now())},
			{"last used", instantOr(token.LastUsedAt, "never")}, {"created", token.CreatedAt.Format(time.RFC3339)},
			{"old secret works until", instantOr(token.RotatedUntil, "never rotated")},
		} {
			fmt.Fprintf(table, "%s\t%s\n", line[0], line[1])
		}
		return table.Flush()
	})
}

// tokenRotateCommand rotates a token.
type tokenRotateCommand struct {
	tokenFlags
	Overlap   dispatcher.Duration `default:"24h" help:"How long the old secret still works, 0s to 720h."`
	ExpiresIn dispatcher.Duration `default:"0s" placeholder:"DURATION" help:"How long the token works from now on. 0s: it keeps its expiry."`
}

// Validate checks the times.
func (t *tokenRotateCommand) Validate() error {
	return errors.Join(checkExpiresIn(t.ExpiresIn),
		flagProblems(dispatcher.TokenRotation{Overlap: t.Overlap}.Validate()))
}

// Run rotates the token.
func (t *tokenRotateCommand) Run(ctx context.Context, c console) error {
	return t.with(ctx, false, func(tokens tokenManager) error {
		rotation := dispatcher.TokenRotation{Overlap: t.Overlap, ExpiresAt: expiry(t.ExpiresIn, time.Now())}
		issued, err := tokens.rotate(ctx, t.Name, rotation)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.err, "the old secret of token %s works until %s\n", t.Name, instantOr(issued.RotatedUntil, "now"))
		_, err = fmt.Fprintln(c.out, issued.Secret)
		return err
	})
}

// tokenRevokeCommand revokes a token.
type tokenRevokeCommand struct{ tokenFlags }

// Run revokes the token.
func (t *tokenRevokeCommand) Run(ctx context.Context) error {
	return t.with(ctx, false, func(tokens tokenManager) error { return tokens.revoke(ctx, t.Name) })
}
