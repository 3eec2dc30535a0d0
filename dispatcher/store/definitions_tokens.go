package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
)

const tokenColumns = `name, hash, scope, apps, created_at`

func scanToken(row scanner) (dispatcher.APIToken, error) {
	var token dispatcher.APIToken
	var hash, apps string
	if err := row.Scan(&token.Name, &hash, &token.Scope, &apps, instantColumn(&token.CreatedAt)); err != nil {
		return token, err
	}
	if _, err := hex.Decode(token.Hash[:], []byte(hash)); err != nil {
		return token, fmt.Errorf("token %s: hash: %w", token.Name, err)
	}
	if err := json.Unmarshal([]byte(apps), &token.Apps); err != nil {
		return token, fmt.Errorf("token %s: apps: %w", token.Name, err)
	}
	return token, nil
}

// CreateToken stores an API token.
func (s *store) CreateToken(ctx context.Context, token dispatcher.APIToken) error {
	apps, err := json.Marshal(token.Apps)
	if err != nil {
		return err
	}
	by := dispatcher.Change{Actor: "system", Now: token.CreatedAt}
	return s.change(ctx, by, func(ctx context.Context, t *tx) error {
		// $1 name, $2 hash, $3 scope, $4 apps, $5 now
		const insert = `INSERT INTO api_tokens (name, hash, scope, apps, created_at) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT DO NOTHING`
		n, err := t.execute(ctx, insert, token.Name, hex.EncodeToString(token.Hash[:]), token.Scope, string(apps), t.now.UnixMilli())
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("token %s exists: %w", token.Name, dispatcher.ErrPrecondition)
		}
		return t.audit(ctx, "create", "", "token "+token.Name, 0)
	})
}

// TokenByHash returns the token with a hash.
func (s *store) TokenByHash(ctx context.Context, hash [32]byte) (dispatcher.APIToken, error) {
	// $1 hash
	token, found, err := first(ctx, s.read, scanToken, `SELECT `+tokenColumns+` FROM api_tokens WHERE hash = $1`, hex.EncodeToString(hash[:]))
	if err == nil && !found {
		err = fmt.Errorf("token: %w", dispatcher.ErrNotFound)
	}
	return token, err
}

// Tokens returns all tokens, by name.
func (s *store) Tokens(ctx context.Context) ([]dispatcher.APIToken, error) {
	return collect(ctx, s.read, scanToken, `SELECT `+tokenColumns+` FROM api_tokens ORDER BY name`)
}

// DeleteToken revokes a token.
func (s *store) DeleteToken(ctx context.Context, name string) error {
	return s.change(ctx, dispatcher.Change{Actor: "system"}, func(ctx context.Context, t *tx) error {
		// $1 name
		n, err := t.execute(ctx, `DELETE FROM api_tokens WHERE name = $1`, name)
		if err != nil {
			return err
		}
		if n == 0 {
			return dispatcher.NotFound("token", name)
		}
		return t.audit(ctx, "delete", "", "token "+name, 0)
	})
}
