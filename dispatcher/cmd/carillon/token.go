package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api"
)

// tokenCommand manages the bearer tokens of the API, directly in the database, so it needs no token itself.
type tokenCommand struct {
	Create tokenCreateCommand `cmd:"" help:"Create a token and print it. It is not shown again."`
	List   tokenListCommand   `cmd:"" help:"List the tokens, without their secrets."`
	Delete tokenDeleteCommand `cmd:"" help:"Revoke a token."`
}

// tokenCreateCommand creates a token.
type tokenCreateCommand struct {
	databaseFlag
	Name  string             `required:"" help:"Name of the token, shown in the audit log."`
	Scope []dispatcher.Scope `default:"read,run,write" placeholder:"SCOPE,..." help:"What the token allows: read, run, write, metrics, admin. None includes another."`
	Apps  []string           `placeholder:"APP,..." help:"Apps that the token is bound to. Default: all apps and the node routes."`
}

// Validate checks the token.
func (t *tokenCreateCommand) Validate() error {
	return errors.Join(t.databaseFlag.Validate(), flagProblems(t.token().Validate()))
}

func (t *tokenCreateCommand) token() dispatcher.APIToken {
	return dispatcher.APIToken{Name: t.Name, Scopes: t.Scope, Apps: t.Apps}
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
	s, err := t.open(ctx, nil)
	if err != nil {
		// The database may be new: the first token is often created before the first start.
		if err := t.migrate(ctx); err != nil {
			return err
		}
		if s, err = t.open(ctx, nil); err != nil {
			return err
		}
	}
	defer s.Close()
	secret, err := createToken(ctx, s, t.token())
	if errors.Is(err, dispatcher.ErrPrecondition) {
		return fmt.Errorf("token %s exists; choose another name, or delete it first with: carillon token delete --name %s",
			dispatcher.Echo(t.Name), t.Name)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.out, secret)
	return err
}

// createToken stores a new token and returns its secret.
func createToken(ctx context.Context, s dispatcher.Store, token dispatcher.APIToken) (string, error) {
	secret, hash := api.NewToken()
	token.ID = strings.ToLower(rand.Text())
	token.Hash, token.CreatedAt = hash, time.Now()
	if err := s.CreateToken(ctx, token); err != nil {
		return "", fmt.Errorf("create token: %w", err)
	}
	return secret, nil
}

// joined lists scopes as the flag takes them.
func joined(scopes []dispatcher.Scope) string {
	list := make([]string, len(scopes))
	for i, scope := range scopes {
		list[i] = string(scope)
	}
	return strings.Join(list, ",")
}

// tokenListCommand lists tokens.
type tokenListCommand struct {
	databaseFlag
}

// Run lists the tokens.
func (t *tokenListCommand) Run(ctx context.Context, c console) error {
	return t.in(ctx, func(s dispatcher.Store) error {
		tokens, err := s.Tokens(ctx, dispatcher.Page{Limit: 1000})
		if err != nil {
			return err
		}
		table := newTable(c, "NAME\tSCOPES\tAPPS\tCREATED")
		for _, token := range tokens {
			apps := cmp.Or(strings.Join(token.Apps, ","), "all")
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", token.Name, joined(token.Scopes), apps, token.CreatedAt.Format(time.RFC3339))
		}
		return table.Flush()
	})
}

// tokenDeleteCommand revokes a token.
type tokenDeleteCommand struct {
	databaseFlag
	Name string `required:"" help:"Name of the token."`
}

// Run revokes the token.
func (t *tokenDeleteCommand) Run(ctx context.Context) error {
	return t.in(ctx, func(s dispatcher.Store) error {
		return s.DeleteToken(ctx, t.Name, dispatcher.Change{Actor: "command line"})
	})
}
