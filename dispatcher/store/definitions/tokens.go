package definitions

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

const tokenColumns = `id, name, description, hash, scopes, apps, expires_at, last_used_at, rotated_until, revision, created_at`

func scanToken(row db.Scanner) (access.APIToken, error) {
	var token access.APIToken
	var hash string
	if err := row.Scan(&token.ID, &token.Name, &token.Description, &hash, db.JSONColumn(&token.Scopes), db.JSONColumn(&token.Apps),
		db.OptionalColumn(&token.ExpiresAt), db.OptionalColumn(&token.LastUsedAt), db.OptionalColumn(&token.RotatedUntil),
		&token.Revision, db.InstantColumn(&token.CreatedAt)); err != nil {
		return token, fmt.Errorf("token %s: %w", token.Name, err)
	}
	if _, err := hex.Decode(token.Hash[:], []byte(hash)); err != nil {
		return token, fmt.Errorf("token %s: hash: %w", token.Name, err)
	}
	if len(token.Apps) == 0 {
		token.Apps = nil // earlier builds stored an empty list for a token bound to no app
	}
	return token, nil
}

// CreateToken stores a token on behalf of the system.
func (s *Store) CreateToken(ctx context.Context, token access.APIToken) error {
	by := input.Change{Actor: "system", IfAbsent: true, Now: token.CreatedAt}
	return s.dispatch.Change(ctx, by, func(ctx context.Context, t *dispatch.Tx) error {
		_, err := createToken(ctx, t, token.Normal())
		return err
	})
}

// createToken inserts a token; ErrPrecondition if its name is taken.
func createToken(ctx context.Context, t *dispatch.Tx, token access.APIToken) (access.APIToken, error) {
	// $1 id, $2 name, $3 description, $4 hash, $5 scopes, $6 apps, $7 when it expires, $8 now
	const insert = `INSERT INTO api_tokens (id, name, description, hash, scopes, apps, expires_at, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING RETURNING ` + tokenColumns
	stored, created, err := db.First(ctx, t, scanToken, insert, token.ID, token.Name, token.Description,
		hex.EncodeToString(token.Hash[:]), db.JSONColumn(token.Scopes), db.JSONColumn(token.Apps), db.OptionalColumn(&token.ExpiresAt),
		t.At.UnixMilli())
	if err != nil {
		return token, err
	}
	if !created {
		return token, fmt.Errorf("token %s exists: %w", token.Name, dispatcher.ErrPrecondition)
	}
	return stored, auditToken(ctx, t, "create", access.APIToken{}, stored)
}

// PutToken creates a token, or changes everything but its secret.
func (s *Store) PutToken(ctx context.Context, token access.APIToken, change input.Change) (access.APIToken, bool, error) {
	if err := token.Validate(); err != nil {
		return access.APIToken{}, false, err
	}
	r := tokenChange(token.Name, change, true)
	r.Decide = func(b access.TokensBefore, now time.Time) (access.APIToken, error) { return b.Put(token, change, now) }
	r.Write = func(ctx context.Context, t *dispatch.Tx, b access.TokensBefore, decided access.APIToken) (access.APIToken, error) {
		if old, exists := b.Named(token.Name); exists {
			// $1 name, $2 description, $3 scopes, $4 apps, $5 when it expires
			const update = `UPDATE api_tokens SET description = $2, scopes = $3, apps = $4, expires_at = $5, revision = revision + 1
				WHERE name = $1 RETURNING ` + tokenColumns
			stored, _, err := db.First(ctx, t, scanToken, update, decided.Name, decided.Description, db.JSONColumn(decided.Scopes),
				db.JSONColumn(decided.Apps), db.OptionalColumn(&decided.ExpiresAt))
			if err != nil {
				return decided, err
			}
			return stored, auditToken(ctx, t, "put", old, stored)
		}
		return createToken(ctx, t, decided)
	}
	stored, before, err := Redefine(ctx, s, change, r)
	_, existed := before.Named(token.Name)
	return stored, err == nil && !existed, err
}

// tokenChange is a change of one token while all others are locked: two requests must not each leave the other's token
// as the last admin. Only a PUT may name a missing token.
func tokenChange(name string, by input.Change, put bool) Redefinition[access.TokensBefore, access.APIToken, access.APIToken] {
	return Redefinition[access.TokensBefore, access.APIToken, access.APIToken]{
		Load: func(ctx context.Context, from Source) (b access.TokensBefore, err error) {
			b.All, err = db.Collect(ctx, from, scanToken, `SELECT `+tokenColumns+` FROM api_tokens ORDER BY id`+from.Lock)
			if one, exists := b.Named(name); err == nil && (exists || put) {
				err = dispatch.Allow(by, one.Revision)
			}
			return b, err
		},
	}
}

// RotateToken replaces the secret of a token.
func (s *Store) RotateToken(ctx context.Context, name string, rotation access.TokenRotation, change input.Change) (
	stored access.APIToken, err error) {
	if err := rotation.Validate(); err != nil {
		return stored, err
	}
	stored, _, err = directly(ctx, s, change, Redefinition[access.APIToken, access.APIToken, access.APIToken]{
		Load: func(ctx context.Context, from Source) (access.APIToken, error) {
			old, err := findToken(ctx, from, name, from.Lock)
			if err == nil {
				err = dispatch.Allow(change, old.Revision)
			}
			return old, err
		},
		Decide: func(old access.APIToken, now time.Time) (access.APIToken, error) { return old.Rotated(rotation, now) },
		Write: func(ctx context.Context, t *dispatch.Tx, old, next access.APIToken) (access.APIToken, error) {
			// $1 name, $2 new hash, $3 until when the old one works, $4 when the token expires
			const rotate = `UPDATE api_tokens SET rotated_hash = hash, rotated_until = $3, hash = $2, expires_at = $4, revision = revision + 1
			WHERE name = $1 RETURNING ` + tokenColumns
			stored, _, err := db.First(ctx, t, scanToken, rotate, name, hex.EncodeToString(next.Hash[:]), next.RotatedUntil.UnixMilli(),
				db.OptionalColumn(&next.ExpiresAt))
			if err != nil {
				return stored, err
			}
			return stored, auditToken(ctx, t, "rotate", old, stored)
		},
	})
	return stored, err
}

// Token returns the token with this name.
func (s *Store) Token(ctx context.Context, name string) (access.APIToken, error) {
	return findToken(ctx, s.db.Read, name, "")
}

func findToken(ctx context.Context, q db.Querier, name, lock string) (access.APIToken, error) {
	// $1 name
	token, found, err := db.First(ctx, q, scanToken, `SELECT `+tokenColumns+` FROM api_tokens WHERE name = $1`+lock, name)
	return token, db.OrNotFound(found, err, "token", name)
}

// TokenByHash returns the token with the hash of its secret or of its previous secret.
func (s *Store) TokenByHash(ctx context.Context, hash [32]byte) (access.APIToken, error) {
	// $1 hash
	const find = `SELECT ` + tokenColumns + ` FROM api_tokens WHERE hash = $1 OR rotated_hash = $1`
	token, found, err := db.First(ctx, s.db.Read, scanToken, find, hex.EncodeToString(hash[:]))
	if err == nil && !found {
		err = fmt.Errorf("token: %w", dispatcher.ErrNotFound)
	}
	return token, err
}

// Tokens returns a page of tokens, by name.
func (s *Store) Tokens(ctx context.Context, page input.Page) ([]access.APIToken, error) {
	// $1 last name of the page before, $2 limit
	const list = `SELECT ` + tokenColumns + ` FROM api_tokens WHERE name > $1 ORDER BY name LIMIT $2`
	return db.Collect(ctx, s.db.Read, scanToken, list, page.Cursor, page.Limit)
}

// UseTokens records the last use of tokens. Not all nodes that serve a token write it: a node skips a token with a use
// recorded less than a minute before.
func (s *Store) UseTokens(ctx context.Context, used map[string]time.Time) error {
	return s.dispatch.Change(ctx, input.Change{}, func(ctx context.Context, t *dispatch.Tx) error {
		// $1 id, $2 when it was used, $3 a minute before
		const use = `UPDATE api_tokens SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $3)`
		for _, id := range slices.Sorted(maps.Keys(used)) { // in order, so that no two nodes wait for each other
			at := used[id]
			if _, err := t.Affect(ctx, use, id, at.UnixMilli(), at.Add(-time.Minute).UnixMilli()); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeleteToken revokes a token.
func (s *Store) DeleteToken(ctx context.Context, name string, change input.Change) error {
	r := tokenChange(name, change, false)
	r.Decide = func(b access.TokensBefore, now time.Time) (access.APIToken, error) {
		return b.Delete(name, change, now)
	}
	r.Write = func(ctx context.Context, t *dispatch.Tx, _ access.TokensBefore, old access.APIToken) (access.APIToken, error) {
		// $1 id
		if _, err := t.Affect(ctx, `DELETE FROM api_tokens WHERE id = $1`, old.ID); err != nil {
			return old, err
		}
		return old, auditToken(ctx, t, "delete", old, access.APIToken{})
	}
	_, _, err := Redefine(ctx, s, change, r)
	return err
}

// auditToken adds a change of a token to the audit log. A token without id means none.
func auditToken(ctx context.Context, t *dispatch.Tx, action string, before, after access.APIToken) error {
	c := dispatch.AuditEntry{Action: action, Subject: "token " + cmp.Or(after.Name, before.Name), Revision: after.Revision}
	return auditSides(ctx, t, c, [2]access.APIToken{before, after}, func(token access.APIToken) (any, error) {
		if token.ID == "" {
			return nil, nil
		}
		parts, err := dispatch.PartsOf(token)
		dispatch.Without(parts, "created_at", "last_used_at", "revision")
		return parts, err
	})
}

const sessionColumns = `id, hash, token_id, identity, rules, created_at, used_at, ends_at`

// scanSession scans a session. Its token has only an id, except in a session of an identity.
func scanSession(row db.Scanner) (access.Session, error) {
	var s access.Session
	var hash, tokenID string
	if err := row.Scan(&s.ID, &hash, &tokenID, db.JSONColumn(&s.Token), &s.Rules, db.InstantColumn(&s.CreatedAt), db.InstantColumn(&s.UsedAt),
		db.InstantColumn(&s.EndsAt)); err != nil {
		return s, err
	}
	s.Token.ID = tokenID
	_, err := hex.Decode(s.Hash[:], []byte(hash))
	return s, err
}

// CreateSession stores a session, and ends others if there are too many.
func (s *Store) CreateSession(ctx context.Context, session access.Session, change input.Change) error {
	var identity *string
	if session.Rules != "" {
		raw, err := json.Marshal(session.Token)
		if err != nil {
			return fmt.Errorf("session of %s: %w", session.Token.Name, err)
		}
		identity = dispatch.OrNullText(raw)
	}
	apps := slices.Sorted(slices.Values(session.Token.Apps))
	return s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		// $1 id, $2 hash, $3 token, $4 identity, $5 rules, $6 now, $7 when it ends, $8 apps
		const insert = `INSERT INTO sessions (` + sessionColumns + `, apps) VALUES ($1, $2, $3, $4, $5, $6, $6, $7, $8)`
		if _, err := t.Affect(ctx, insert, session.ID, hex.EncodeToString(session.Hash[:]), session.Token.ID, identity, session.Rules,
			t.At.UnixMilli(), session.EndsAt.UnixMilli(), strings.Join(apps, ",")); err != nil {
			return err
		}
		if err := t.Audit(ctx, "login", "", sessionSubject(session.ID), 0); err != nil {
			return err
		}
		// $1 token, $2 the new session, $3 how many others stay
		const surplus = `DELETE FROM sessions WHERE token_id = $1 AND id <> $2 AND id NOT IN (
			SELECT id FROM sessions WHERE token_id = $1 AND id <> $2 ORDER BY used_at DESC, id DESC LIMIT $3) RETURNING id`
		ended, err := db.Collect(ctx, t, db.ScanText, surplus, session.Token.ID, session.ID, access.MaxTokenSessions-1)
		if err != nil {
			return err
		}
		further, err := endSurplusSessions(ctx, t, session.ID)
		return errors.Join(err, auditEnded(ctx, t, append(ended, further...)))
	})
}

// endSurplusSessions ends one session if there are more than MaxSessions with the new one; MaxSessions documents which.
func endSurplusSessions(ctx context.Context, t *dispatch.Tx, created string) ([]string, error) {
	// $1 most
	const full = `SELECT 1 FROM sessions LIMIT 1 OFFSET $1`
	if _, more, err := db.First(ctx, t, db.ScanInt, full, access.MaxSessions); err != nil || !more {
		return nil, err
	}
	type group struct {
		apps  string
		count int
	}
	groups, err := db.ReadRows(ctx, t, func(g *group) []any { return []any{&g.apps, &g.count} },
		`SELECT apps, count(*) FROM sessions GROUP BY apps ORDER BY count(*) DESC, apps`)
	if err != nil || len(groups) == 0 {
		return nil, err
	}
	largest := groups[0].apps
	if all := slices.IndexFunc(groups, func(g group) bool { return g.apps == "" }); all >= 0 && len(groups) > 1 {
		switch {
		case groups[all].count > access.MaxSessions/2:
			largest = ""
		case all == 0:
			largest = groups[1].apps
		}
	}
	// $1 apps, $2 the new session
	const end = `DELETE FROM sessions WHERE id IN (
		SELECT id FROM sessions WHERE apps = $1 AND id <> $2 ORDER BY used_at, id LIMIT 1) RETURNING id`
	return db.Collect(ctx, t, db.ScanText, end, largest, created)
}

// auditEnded adds to the audit log that a login ended other sessions.
func auditEnded(ctx context.Context, t *dispatch.Tx, ids []string) error {
	for _, id := range ids {
		if err := t.Audit(ctx, "logout", "", sessionSubject(id), 0); err != nil {
			return err
		}
	}
	return nil
}

func sessionSubject(id string) string { return "session " + id }

// Session returns the session with a hash, and records its use.
func (s *Store) Session(ctx context.Context, hash [32]byte, now time.Time, used bool) (access.Session, error) {
	none := fmt.Errorf("session: %w", dispatcher.ErrNotFound)
	if now.IsZero() {
		var err error
		if now, err = s.db.Now(ctx, s.db.Read); err != nil {
			return access.Session{}, err
		}
	}
	// $1 hash
	const find = `SELECT ` + sessionColumns + ` FROM sessions WHERE hash = $1`
	session, found, err := db.First(ctx, s.db.Read, scanSession, find, hex.EncodeToString(hash[:]))
	if err == nil && !found {
		err = none
	}
	if err != nil {
		return access.Session{}, err
	}
	if session.Rules == "" {
		// $1 id
		const ofID = `SELECT ` + tokenColumns + ` FROM api_tokens WHERE id = $1`
		if session.Token, found, err = db.First(ctx, s.db.Read, scanToken, ofID, session.Token.ID); err != nil {
			return access.Session{}, err
		}
	}
	if !found || session.Ended(now) {
		return access.Session{}, none
	}
	if used && now.Sub(session.UsedAt) >= access.SessionRenewal {
		session.UsedAt = now.UTC().Truncate(time.Millisecond)
		// One of several simultaneous requests writes.
		err = s.dispatch.Change(ctx, input.Change{Now: session.UsedAt}, func(ctx context.Context, t *dispatch.Tx) error {
			// $1 id, $2 now, $3 the latest use that is to be recorded again
			const use = `UPDATE sessions SET used_at = $2 WHERE id = $1 AND used_at <= $3`
			_, err := t.Affect(ctx, use, session.ID, t.At.UnixMilli(), t.At.Add(-access.SessionRenewal).UnixMilli())
			return err
		})
		if db.RefusesWrites(err) != nil {
			err = nil // pages can still be read
		}
	}
	return session, err
}

// EndSession ends a session.
func (s *Store) EndSession(ctx context.Context, id string, change input.Change) error {
	return s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		// $1 id
		ended, err := t.Affect(ctx, `DELETE FROM sessions WHERE id = $1`, id)
		if err != nil || ended == 0 {
			return err
		}
		return t.Audit(ctx, "logout", "", sessionSubject(id), 0)
	})
}

// EndSessions ends all sessions of a token or of an identity.
func (s *Store) EndSessions(ctx context.Context, tokenID string, change input.Change) (ended int, err error) {
	err = s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		// $1 token
		ids, err := db.Collect(ctx, t, db.ScanText, `DELETE FROM sessions WHERE token_id = $1 RETURNING id`, tokenID)
		ended = len(ids)
		if err != nil {
			return err
		}
		return auditEnded(ctx, t, ids)
	})
	return ended, err
}
