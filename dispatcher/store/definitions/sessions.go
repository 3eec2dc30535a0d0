package definitions

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

const sessionColumns = `id, hash, token_id, identity, rules, created_at, used_at, ends_at`

// scanSession scans a session. Its token has only an id, except in a session of an identity.
func scanSession(row db.Scanner) (access.Session, error) {
	var s access.Session
	var hash, tokenID string
	var identity *string
	if err := row.Scan(&s.ID, &hash, &tokenID, &identity, &s.Rules, db.InstantColumn(&s.CreatedAt), db.InstantColumn(&s.UsedAt),
		db.InstantColumn(&s.EndsAt)); err != nil {
		return s, err
	}
	if identity != nil {
		if err := json.Unmarshal([]byte(*identity), &s.Token); err != nil {
			return s, fmt.Errorf("session %s: identity: %w", s.ID, err)
		}
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
