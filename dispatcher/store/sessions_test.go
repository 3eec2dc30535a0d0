package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// fillSessions stores count sessions of tokens of one app, or of all apps, each used a millisecond after the one before.
func fillSessions(t *testing.T, s *store.Store, apps string, count int, now time.Time) {
	t.Helper()
	must(t, store.Exec(t.Context(), s, fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO sessions (id, hash, token_id, rules, apps, created_at, used_at, ends_at)
		SELECT '%[2]s-' || i, '%[2]s-' || i, '%[2]s-' || i / 20, '', '%[3]s', %[4]d, %[4]d + i, %[5]d FROM n`, count, apps+"x", apps,
		now.UnixMilli(), now.Add(access.SessionLife).UnixMilli())))
}

// A login succeeds when all sessions are taken, and ends the least used one of those that have more than their share.
func TestFullSessionsEndOneOfThoseWithTheMost(t *testing.T) {
	t.Parallel()
	const most, half = access.MaxSessions, access.MaxSessions / 2
	for name, tt := range map[string]struct {
		sessions map[string]int
		login    []string
		ends     string
	}{
		"a login of all apps ends one of the app that took them": {map[string]int{"big": most}, nil, "bigx-1"},
		"a login of another app, too":                            {map[string]int{"big": most - 1, "shop": 1}, []string{"shop"}, "bigx-1"},
		"the app that took them ends its own":                    {map[string]int{"big": most - 10, "": 10}, []string{"big"}, "bigx-1"},
		"half of them are kept for those of all apps": {map[string]int{"": half, "big": half - 1, "shop": 1},
			[]string{"shop"}, "bigx-1"},
		"those of all apps, which have more than half, end their own": {map[string]int{"": half + 1, "shop": half - 1}, []string{"shop"}, "x-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBothDatabases(t, func(t *testing.T, database string) {
				s, now := open(t, database), may1
				for apps, count := range tt.sessions {
					fillSessions(t, s, apps, count, now)
				}
				session := access.Session{ID: "new", Hash: [32]byte{7}, EndsAt: now.Add(time.Hour),
					Token: access.APIToken{ID: "t", Name: "ann", TokenSpec: access.TokenSpec{Apps: tt.login}}}
				must(t, s.CreateSession(t.Context(), session, input.Change{Actor: "ann", Now: now}))
				if got := count(t, s, `SELECT count(*) FROM sessions`); got != most {
					t.Errorf("there are %d sessions, want %d", got, most)
				}
				if got := count(t, s, `SELECT count(*) FROM sessions WHERE id = 'new'`); got != 1 {
					t.Error("the login was refused")
				}
				page, err := s.AuditEntries(t.Context(), access.AuditQuery{Page: input.Page{Limit: 1}})
				must(t, err)
				if len(page.Entries) != 1 || page.Entries[0].Action != "logout" || page.Entries[0].Subject != "session "+tt.ends {
					t.Errorf("the audit log ends with %+v, want the end of session %s", page.Entries, tt.ends)
				}
			})
		})
	}
}
