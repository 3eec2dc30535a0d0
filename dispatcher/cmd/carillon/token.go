package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// tokenCommand manages the bearer tokens of the API. The first one is made in the database, which needs no token.
type tokenCommand struct {
	Create tokenCreateCommand `cmd:"" help:"Create a token and print it. It is not shown again." example:"carillon token create --name ci --scope read,write --apps billing"`
	List   tokenListCommand   `cmd:"" help:"List the tokens, without their secrets." example:"carillon token list"`
	Show   tokenShowCommand   `cmd:"" help:"Show a token, without its secret." example:"carillon token show ci"`
	Rotate tokenRotateCommand `cmd:"" help:"Give a token another secret and print it. The old one works for a while." example:"carillon token rotate ci --overlap 1h"`
	Revoke tokenRevokeCommand `cmd:"" help:"Revoke a token, which stops working at once." example:"carillon token revoke ci"`
}

// joined lists scopes as the flag takes them.
func joined(scopes []access.Scope) string {
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
func expiryOf(token access.APIToken, now time.Time) string {
	text := instantOr(token.ExpiresAt, "never")
	if token.Expired(now) {
		text += " (expired)"
	}
	return text
}

// tokenListCommand lists tokens.
type tokenListCommand struct {
	apiFlags
	outputFlags
}

// Run lists the tokens.
func (t *tokenListCommand) Run(ctx context.Context, c console) error {
	api, err := t.client(ctx)
	if err != nil {
		return err
	}
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

// tokenFlags name one token.
type tokenFlags struct {
	apiFlags
	outputFlags
	Name string `arg:"" help:"Name of the token."`
}

// tokenShowCommand shows a token.
type tokenShowCommand struct{ tokenFlags }

// Run shows the token.
func (t *tokenShowCommand) Run(ctx context.Context, c console) error {
	api, err := t.client(ctx)
	if err != nil {
		return err
	}
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

// tokenRotateCommand rotates a token.
type tokenRotateCommand struct {
	tokenFlags
	Overlap   input.Duration `default:"24h" help:"How long the old secret still works, 0s to 720h."`
	ExpiresIn input.Duration `default:"0s" placeholder:"DURATION" help:"How long the token works from now on. 0s: it keeps its expiry."`
}

// Validate checks the times.
func (t *tokenRotateCommand) Validate() error {
	return errors.Join(checkExpiresIn(t.ExpiresIn),
		flagProblems(access.TokenRotation{Overlap: t.Overlap}.Validate()))
}

// Run rotates the token.
func (t *tokenRotateCommand) Run(ctx context.Context, c console) error {
	api, err := t.client(ctx)
	if err != nil {
		return err
	}
	rotation := access.TokenRotation{Overlap: t.Overlap, ExpiresAt: expiry(t.ExpiresIn, time.Now())}
	issued, err := api.RotateToken(ctx, t.Name, rotation)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.err, "the old secret of token %s works until %s\n", plain(t.Name), instantOr(issued.RotatedUntil, "now"))
	return printSecret(t.outputFlags, c, issued)
}

// tokenRevokeCommand revokes a token.
type tokenRevokeCommand struct {
	apiFlags
	Name string `arg:"" help:"Name of the token."`
}

// Run revokes the token. It names the revision that it has seen, so that it does not revoke another token that took the name.
func (t *tokenRevokeCommand) Run(ctx context.Context) error {
	api, err := t.client(ctx)
	if err != nil {
		return err
	}
	token, err := api.Token(ctx, t.Name)
	if err != nil {
		return err
	}
	return api.DeleteToken(ctx, t.Name, client.Condition{Revision: token.Revision})
}
