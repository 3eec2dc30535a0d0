package definitions

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

func sessionTests() tests {
	return tests{
		"a session lives as long as its token and its use":             testSessions,
		"a session of an identity keeps what the rules permitted":      testIdentitySessions,
		"sessions of a token are bounded, and the least used one ends": testSessionBound,
		"ended sessions are purged":                                    testSessionPurge,
	}
}

// aSession returns a session that begins at T0.
func aSession(id string, token access.APIToken) access.Session {
	return access.Session{
		ID: id, Hash: [32]byte{1, id[0], byte(len(id)), id[len(id)-1]}, Token: token,
		CreatedAt: fixture.T0, UsedAt: fixture.T0, EndsAt: fixture.T0.Add(access.SessionLife),
	}
}

// entries returns the audit log of sessions, earliest first.
func (f *wing) entries(t *testing.T) (all []string) {
	t.Helper()
	page, err := f.AuditEntries(t.Context(), access.AuditQuery{OldestFirst: true, Page: input.Page{Limit: 100}})
	f.Must(err)
	for _, e := range page.Entries {
		if e.Action == "login" || e.Action == "logout" {
			all = append(all, e.Actor+" "+e.Action+" "+e.Subject)
		}
	}
	return all
}

func testSessions(t *testing.T, f *wing) {
	ctx := t.Context()
	by := input.Change{Actor: "ann", Now: fixture.T0}
	token := aToken("1", "ann", access.ScopeRead)
	f.Must(f.CreateToken(ctx, token))
	session := aSession("s1", token)
	f.Must(f.CreateSession(ctx, session, by))
	f.Must(f.CreateSession(ctx, aSession("s2", token), by))
	f.Must(f.CreateSession(ctx, aSession("s3", token), by))

	got, err := f.Session(ctx, session.Hash, fixture.T0.Add(59*time.Second), true)
	f.Must(err)
	if diff := cmp.Diff(session, got); diff != "" {
		t.Error("a session that was just used (-want +got):\n" + diff)
	}
	_, err = f.Session(ctx, [32]byte{9}, fixture.T0, true)
	fixture.WantError(t, "a session that there never was", err, dispatcher.ErrNotFound)

	// A page that refreshes itself does not extend it.
	got, err = f.Session(ctx, session.Hash, fixture.T0.Add(59*time.Minute), false)
	f.Must(err)
	fixture.WantDiff(t, "a session that nobody uses", session, got)
	_, err = f.Session(ctx, aSession("s2", token).Hash, fixture.T0.Add(59*time.Minute), false)
	f.Must(err)

	// Its use is recorded, and extends its idle time.
	used := fixture.T0.Add(59 * time.Minute)
	session.UsedAt = used
	if got, err = f.Session(ctx, session.Hash, used, true); err != nil || !got.UsedAt.Equal(used) {
		t.Errorf("a session that is used again: %+v, %v, want used at %s", got, err, used)
	}
	_, err = f.Session(ctx, session.Hash, used.Add(59*time.Minute), true)
	f.Must(err)
	_, err = f.Session(ctx, aSession("s2", token).Hash, fixture.T0.Add(time.Hour), true)
	fixture.WantError(t, "a session that nobody used for an hour", err, dispatcher.ErrNotFound)
	for now := fixture.T0.Add(2 * time.Hour); now.Before(session.EndsAt); now = now.Add(30 * time.Minute) {
		_, err = f.Session(ctx, session.Hash, now, true)
		f.Must(err)
	}
	_, err = f.Session(ctx, session.Hash, session.EndsAt, true)
	fixture.WantError(t, "a session at its end", err, dispatcher.ErrNotFound)

	f.Must(f.EndSession(ctx, "s3", by))
	f.Must(f.EndSession(ctx, "s3", by))
	_, err = f.Session(ctx, aSession("s3", token).Hash, fixture.T0, true)
	fixture.WantError(t, "a session that was ended", err, dispatcher.ErrNotFound)
	if n, err := f.EndSessions(ctx, token.ID, by); err != nil || n != 2 {
		t.Errorf("%d sessions ended, %v, want 2", n, err)
	}
	want := []string{
		"ann login session s1", "ann login session s2", "ann login session s3", "ann logout session s3", "ann logout session s1",
		"ann logout session s2",
	}
	if diff := cmp.Diff(want[:4], f.entries(t)[:4]); diff != "" || len(f.entries(t)) != len(want) {
		t.Errorf("audit log %v, want %v in some order of the last two", f.entries(t), want)
	}

	f.Must(f.CreateSession(ctx, session, by))
	f.Must(f.DeleteToken(ctx, "ann", input.Change{}))
	_, err = f.Session(ctx, session.Hash, fixture.T0, true)
	fixture.WantError(t, "a session whose token was revoked", err, dispatcher.ErrNotFound)

	expires := fixture.T0.Add(time.Minute)
	token = aToken("2", "ben", access.ScopeRead)
	token.ExpiresAt = &expires
	f.Must(f.CreateToken(ctx, token))
	session = aSession("s4", token)
	f.Must(f.CreateSession(ctx, session, by))
	_, err = f.Session(ctx, session.Hash, expires.Add(-time.Second), true)
	f.Must(err)
	_, err = f.Session(ctx, session.Hash, expires, true)
	fixture.WantError(t, "a session whose token expired", err, dispatcher.ErrNotFound)
}

func testIdentitySessions(t *testing.T, f *wing) {
	ctx := t.Context()
	session := aSession("s1", access.APIToken{
		ID: "oidc:1", Name: "ann@example.com", TokenSpec: access.TokenSpec{Scopes: []access.Scope{access.ScopeRead}, Apps: []string{"shop"},
			ExpiresAt: new(fixture.T0.Add(time.Hour))},
	})
	session.Rules = "rules-1"
	f.Must(f.CreateSession(ctx, session, input.Change{Actor: "ann@example.com", TokenID: "oidc:1", Now: fixture.T0}))
	got, err := f.Session(ctx, session.Hash, fixture.T0, true)
	f.Must(err)
	if diff := cmp.Diff(session, got); diff != "" {
		t.Error("session (-want +got):\n" + diff)
	}
	if n, err := f.EndSessions(ctx, "oidc:1", input.Change{Now: fixture.T0}); err != nil || n != 1 {
		t.Errorf("%d sessions of the identity ended, %v, want 1", n, err)
	}
}

func testSessionBound(t *testing.T, f *wing) {
	ctx := t.Context()
	token := aToken("1", "ann", access.ScopeRead)
	f.Must(f.CreateToken(ctx, token))
	begin := func(i int) access.Session {
		session := aSession(fmt.Sprintf("%c", 'a'+i), token)
		f.Must(f.CreateSession(ctx, session, input.Change{Now: fixture.T0.Add(time.Duration(i) * time.Second)}))
		return session
	}
	first, second := begin(0), begin(1)
	_, err := f.Session(ctx, first.Hash, fixture.T0.Add(2*time.Minute),
		true) // the second is now the least recently used one
	f.Must(err)
	for i := 2; i <= access.MaxTokenSessions; i++ {
		begin(i)
	}
	_, err = f.Session(ctx, first.Hash, fixture.T0.Add(3*time.Minute), true)
	f.Must(err)
	_, err = f.Session(ctx, second.Hash, fixture.T0.Add(3*time.Minute), true)
	fixture.WantError(t, "the least used session of a token that has too many", err, dispatcher.ErrNotFound)
	log := f.entries(t)
	if last := log[len(log)-1]; last != " logout session b" {
		t.Errorf("the audit log ends with %q, want that session b ended", last)
	}
}

func testSessionPurge(t *testing.T, f *wing) {
	ctx := t.Context()
	token := aToken("1", "ann", access.ScopeRead)
	f.Must(f.CreateToken(ctx, token))
	idle, used := aSession("idle", token), aSession("used", token)
	for _, session := range []access.Session{idle, used} {
		f.Must(f.CreateSession(ctx, session, input.Change{Now: fixture.T0}))
	}
	_, err := f.Session(ctx, used.Hash, fixture.T0.Add(30*time.Minute), true)
	f.Must(err)
	f.PurgeAll(fixture.T0.Add(time.Hour))
	if _, err = f.Session(ctx, idle.Hash, fixture.T0, true); err == nil { // by its own time it would still be valid
		t.Error("the purge left a session that nobody has used for an hour")
	}
	_, err = f.Session(ctx, used.Hash, fixture.T0.Add(time.Hour), true)
	f.Must(err)
}
