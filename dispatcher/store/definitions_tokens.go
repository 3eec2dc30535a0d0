package store

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
)

const tokenColumns = `id, name, description, hash, scopes, apps, expires_at, last_used_at, rotated_until, created_at`

func scanToken(row scanner) (dispatcher.APIToken, error) {
	var token dispatcher.APIToken
	var hash, scopes, apps string
	if err := row.Scan(&token.ID, &token.Name, &token.Description, &hash, &scopes, &apps, optionalColumn(&token.ExpiresAt),
		optionalColumn(&token.LastUsedAt), optionalColumn(&token.RotatedUntil), instantColumn(&token.CreatedAt)); err != nil {
		return token, err
	}
	if _, err := hex.Decode(token.Hash[:], []byte(hash)); err != nil {
		return token, fmt.Errorf("token %s: hash: %w", token.Name, err)
	}
	if err := json.Unmarshal([]byte(scopes), &token.Scopes); err != nil {
		return token, fmt.Errorf("token %s: scopes: %w", token.Name, err)
	}
	if err := json.Unmarshal([]byte(apps), &token.Apps); err != nil {
		return token, fmt.Errorf("token %s: apps: %w", token.Name, err)
	}
	return token, nil
}

// CreateToken stores an API token.
func (s *store) CreateToken(ctx context.Context, token dispatcher.APIToken) error {
	scopes, err := json.Marshal(token.Scopes)
	if err != nil {
		return err
	}
	apps, err := json.Marshal(token.Apps)
	if err != nil {
		return err
	}
	by := dispatcher.Change{Actor: "system", Now: token.CreatedAt}
	return s.change(ctx, by, func(ctx context.Context, t *tx) error {
		// $1 id, $2 name, $3 description, $4 hash, $5 scopes, $6 apps, $7 when it expires, $8 now
		const insert = `INSERT INTO api_tokens (id, name, description, hash, scopes, apps, expires_at, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING`
		n, err := t.execute(ctx, insert, token.ID, token.Name, token.Description, hex.EncodeToString(token.Hash[:]), string(scopes),
			string(apps), optionalColumn(&token.ExpiresAt), t.now.UnixMilli())
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("token %s exists: %w", token.Name, dispatcher.ErrPrecondition)
		}
		return t.auditToken(ctx, "create", dispatcher.APIToken{}, token)
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
		token, found, err := first(ctx, t, scanToken, `DELETE FROM api_tokens WHERE name = $1 RETURNING `+tokenColumns, name)
		if err != nil {
			return err
		}
		if !found {
			return dispatcher.NotFound("token", name)
		}
		return t.auditToken(ctx, "delete", token, dispatcher.APIToken{})
	})
}

// auditToken adds a change of a token to the audit log. One without id is none.
func (t *tx) auditToken(ctx context.Context, action string, before, after dispatcher.APIToken) (err error) {
	c := auditEntry{action: action, subject: "token " + cmp.Or(after.Name, before.Name)}
	for _, side := range []struct {
		token dispatcher.APIToken
		into  *any
	}{{before, &c.before}, {after, &c.after}} {
		if side.token.ID == "" {
			continue
		}
		parts, err := partsOf(side.token)
		if err != nil {
			return fmt.Errorf("audit %s %s: %w", c.action, c.subject, err)
		}
		without(parts, "created_at", "last_used_at", "revision")
		*side.into = parts
	}
	return t.auditChange(ctx, c)
}
