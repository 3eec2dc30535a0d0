package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/alecthomas/kong"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

// tokenAccess is where a command finds the tokens: the API, or the database. What is given as a flag comes before
// what is given as a variable, and the endpoint of the API before the database.
type tokenAccess struct {
	Database string `env:"CARILLON_DATABASE,DATABASE_URL" placeholder:"URL" help:"Manage the tokens in this database, without a token: postgres://user@host/name, or sqlite:PATH."`
	loginFlags
	DatabaseWithout []string `env:"CARILLON_DATABASE_WITHOUT" hidden:""` // for tests
	Endpoint        string   `env:"CARILLON_ENDPOINT" placeholder:"URL" help:"Manage the tokens by the API of any node. Default without --database: http://127.0.0.1:8080."`
	Token           string   `env:"CARILLON_TOKEN" help:"API token with scope admin. Prefer the variable: other users of the machine can see flags."`
	clientTLSFlags
	byAPI bool
}

// AfterApply decides where the tokens are, once flags and variables are read.
func (t *tokenAccess) AfterApply(parsed *kong.Context) error {
	given := map[string]bool{}
	for _, step := range parsed.Path {
		if step.Flag != nil {
			given[step.Flag.Name] = true
		}
	}
	switch {
	case given["database"] && given["endpoint"]:
		return errors.New("--database and --endpoint: give one of them")
	case given["database"]:
	case t.Endpoint != "":
		t.byAPI = true
	case t.Database == "" && t.Token != "":
		t.byAPI, t.Endpoint = true, "http://127.0.0.1:8080"
	case t.Database == "":
		return errors.New("give --database URL (CARILLON_DATABASE), or --endpoint URL (CARILLON_ENDPOINT) with a token; " +
			"the first token is made with --database")
	}
	if t.byAPI && t.Token == "" {
		return errors.New("--token (CARILLON_TOKEN): is required with --endpoint; the first token is made with --database")
	}
	if !t.byAPI {
		return t.database().Validate()
	}
	return nil
}

func (t *tokenAccess) database() databaseFlag {
	return databaseFlag{Database: t.Database, loginFlags: t.loginFlags, DatabaseWithout: t.DatabaseWithout}
}

// tokenManager manages tokens.
type tokenManager interface {
	create(ctx context.Context, token dispatcher.APIToken) (dispatcher.IssuedToken, error)
	list(ctx context.Context) ([]dispatcher.APIToken, error)
	show(ctx context.Context, name string) (dispatcher.APIToken, error)
	rotate(ctx context.Context, name string, rotation dispatcher.TokenRotation) (dispatcher.IssuedToken, error)
	revoke(ctx context.Context, name string) error
}

// with calls do with the tokens. migrate updates the schema of a database that cannot be opened: the first token is often
// created before the first start.
func (t *tokenAccess) with(ctx context.Context, migrate bool, do func(tokenManager) error) error {
	if t.byAPI {
		c, err := t.newClient(t.Endpoint, t.Token)
		if err != nil {
			return err
		}
		return do(apiTokens{c})
	}
	database := t.database()
	s, err := database.open(ctx, nil)
	if err != nil && migrate {
		if err := database.migrate(ctx); err != nil {
			return err
		}
		s, err = database.open(ctx, nil)
	}
	if err != nil {
		return err
	}
	defer s.Close()
	return do(storedTokens{s})
}

// storedTokens are the tokens of a database.
type storedTokens struct{ store dispatcher.Store }

// byCommandLine is who changes tokens in the database.
func byCommandLine() dispatcher.Change { return dispatcher.Change{Actor: "command line"} }

func (s storedTokens) create(ctx context.Context, token dispatcher.APIToken) (dispatcher.IssuedToken, error) {
	secret, hash := api.NewToken()
	token.ID, token.Hash = api.NewTokenID(), hash
	by := byCommandLine()
	by.IfAbsent = true
	stored, _, err := s.store.PutToken(ctx, token, by)
	if err != nil {
		return dispatcher.IssuedToken{}, fmt.Errorf("create token: %w", err)
	}
	return dispatcher.IssuedToken{APIToken: stored, Secret: secret}, nil
}

// createToken stores a new token and returns its secret.
func createToken(ctx context.Context, s dispatcher.Store, token dispatcher.APIToken) (string, error) {
	issued, err := storedTokens{s}.create(ctx, token)
	return issued.Secret, err
}

func (s storedTokens) list(ctx context.Context) ([]dispatcher.APIToken, error) {
	return allTokens(func(page dispatcher.Page) ([]dispatcher.APIToken, bool, error) {
		tokens, err := s.store.Tokens(ctx, page)
		return tokens, len(tokens) == page.Limit, err
	})
}

func (s storedTokens) show(ctx context.Context, name string) (dispatcher.APIToken, error) {
	return s.store.Token(ctx, name)
}

func (s storedTokens) rotate(ctx context.Context, name string, rotation dispatcher.TokenRotation) (dispatcher.IssuedToken, error) {
	secret, hash := api.NewToken()
	rotation.Hash = hash
	stored, err := s.store.RotateToken(ctx, name, rotation, byCommandLine())
	if errors.Is(err, dispatcher.ErrConflict) {
		err = fmt.Errorf("%w; give it a later expiry with --expires-in", err)
	}
	return dispatcher.IssuedToken{APIToken: stored, Secret: secret}, err
}

func (s storedTokens) revoke(ctx context.Context, name string) error {
	return s.store.DeleteToken(ctx, name, byCommandLine())
}

// apiTokens are the tokens of an installation, by its API.
type apiTokens struct{ client *client.Client }

func (a apiTokens) create(ctx context.Context, token dispatcher.APIToken) (dispatcher.IssuedToken, error) {
	return a.client.PutToken(ctx, token, client.Condition{Absent: true})
}

func (a apiTokens) list(ctx context.Context) ([]dispatcher.APIToken, error) {
	return allTokens(func(page dispatcher.Page) ([]dispatcher.APIToken, bool, error) {
		tokens, err := a.client.Tokens(ctx, page)
		return tokens.Items, tokens.Next != "", err
	})
}

func (a apiTokens) show(ctx context.Context, name string) (dispatcher.APIToken, error) {
	return a.client.Token(ctx, name)
}

func (a apiTokens) rotate(ctx context.Context, name string, rotation dispatcher.TokenRotation) (dispatcher.IssuedToken, error) {
	return a.client.RotateToken(ctx, name, rotation)
}

// revoke names the revision that it has seen, so that it does not revoke another token that took the name.
func (a apiTokens) revoke(ctx context.Context, name string) error {
	token, err := a.client.Token(ctx, name)
	if err != nil {
		return err
	}
	return a.client.DeleteToken(ctx, name, client.Condition{Revision: token.Revision})
}

// allTokens reads page after page, while there are more.
func allTokens(read func(dispatcher.Page) ([]dispatcher.APIToken, bool, error)) (all []dispatcher.APIToken, err error) {
	page := dispatcher.Page{Limit: 500}
	for {
		tokens, more, err := read(page)
		if err != nil {
			return nil, err
		}
		all = append(all, tokens...)
		if !more || len(tokens) == 0 {
			return all, nil
		}
		page.Cursor = tokens[len(tokens)-1].Name
	}
}
