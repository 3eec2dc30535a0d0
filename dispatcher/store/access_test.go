package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// hashesOf returns the hashes of secrets in an entry, by path.
func hashesOf(t *testing.T, raw json.RawMessage) map[string]string {
	t.Helper()
	var job struct{ Target target.Target }
	if err := json.Unmarshal(raw, &job); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	hashes := map[string]string{}
	for path, secret := range target.Secrets(job.Target) {
		hashes[path] = secret.Value.Reveal()
	}
	return hashes
}

func auditLog(t *testing.T, s *store.Store, query access.AuditQuery) []access.AuditEntry {
	t.Helper()
	query.Limit, query.OldestFirst = 1000, true
	page, err := s.AuditEntries(t.Context(), query)
	must(t, err)
	return page.Entries
}

// The audit log shows that a secret was replaced and which secrets are equal, but never a secret.
func TestAuditLogShowsSecretsAsHashes(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s := openWith(t, database, sealKeys(t, "a"))
		put(t, s, secretJob(value(first), value("hunter2")))
		kept := target.Secret{Stored: true}
		put(t, s, secretJob(kept, value("hunter3")))
		put(t, s, secretJob(kept, value("hunter2")))
		must(t, s.DeleteJob(t.Context(), "demo", "ping", input.Change{}))
		log := auditLog(t, s, access.AuditQuery{Subject: "job ping"})
		if len(log) != 4 || log[0].Before != nil || log[3].After != nil {
			t.Fatalf("the log has %+v", log)
		}
		made, rotated, back := hashesOf(t, log[0].After), hashesOf(t, log[1].After), hashesOf(t, log[2].After)
		for _, hash := range made {
			if !regexp.MustCompile(`^hash:[0-9a-f]{8}$`).MatchString(hash) {
				t.Errorf("a secret is shown as %q", hash)
			}
		}
		if rotated[tokenPath] == made[tokenPath] || back[tokenPath] != made[tokenPath] {
			t.Errorf("hashes of a token, another, and the first again: %s, %s, %s", made[tokenPath], rotated[tokenPath], back[tokenPath])
		}
		if rotated[signingPath] != made[signingPath] || made[signingPath] == made[tokenPath] {
			t.Errorf("hashes of a secret that is kept: %s, then %s; of another: %s", made[signingPath], rotated[signingPath], made[tokenPath])
		}
		for i, want := range []map[string]string{1: made, 2: rotated, 3: back} {
			if i > 0 && hashesOf(t, log[i].Before)[tokenPath] != want[tokenPath] {
				t.Errorf("entry %d: before %s, want %s", i, log[i].Before, want[tokenPath])
			}
		}
		text, err := json.Marshal(log)
		must(t, err)
		if strings.Contains(string(text), "hunter") || strings.Contains(string(text), first) {
			t.Errorf("the log holds a secret: %s", text)
		}
	})
}

// Two installations hash the same secret differently, so their hashes cannot be compared.
func TestInstallationsHashSecretsDifferently(t *testing.T) {
	t.Parallel()
	hash := func(database string) string {
		s := openWith(t, database, sealKeys(t, "a"))
		put(t, s, secretJob(value(first), value("hunter2")))
		return hashesOf(t, auditLog(t, s, access.AuditQuery{Subject: "job ping"})[0].After)[tokenPath]
	}
	if a, b := hash(sqlitetest.New(t)), hash(sqlitetest.New(t)); a == b {
		t.Errorf("both hash the secret as %s", a)
	}
}

// Every query of the audit log reads a page in order from an index.
func TestAuditLogIsReadFromItsIndexes(t *testing.T) {
	t.Parallel()
	fill := `INSERT INTO audit_log (at, id, actor, token_id, action, app, subject, revision, refused)
		WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 20000)
		SELECT 1777000000000 + n, n, 'actor ' || (n % 50), 'id ' || (n % 50), 'put', 'app ' || (n % 50), 'job ' || (n % 50), 1,
			CASE WHEN n % 50 = 0 THEN 'forbidden' ELSE '' END FROM n`
	yes := true
	for name, open := range map[string]func(*testing.T) *store.Store{
		"SQLite":     func(t *testing.T) *store.Store { return open(t, sqlitetest.New(t)) },
		"PostgreSQL": func(t *testing.T) *store.Store { return open(t, pgtest.New(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			must(t, store.Exec(t.Context(), s, fill))
			must(t, store.Exec(t.Context(), s, "ANALYZE"))
			page := input.Page{Limit: 100, Cursor: access.AuditID(may1, 7)}
			for index, query := range map[string]access.AuditQuery{
				"audit_log_app":     {Apps: []string{"app 1"}, Page: page},
				"audit_log_app ":    {Apps: []string{"app 1", "app 2"}, Page: page},
				"audit_log_subject": {Subject: "job 1", Page: page},
				"audit_log_actor":   {Actor: "id 1", Page: page},
				"audit_log_token":   {Actor: "id 1", Page: page},
				"audit_log_refused": {Refused: &yes, Page: page},
				"audit_log":         {Page: page},
			} {
				plan, err := store.ExplainAuditLog(t.Context(), s, query)
				must(t, err)
				if !strings.Contains(plan, strings.TrimSpace(index)) || strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "SCAN audit_log") {
					t.Errorf("%s is not read from %s:\n%s", name, index, plan)
				}
			}
		})
	}
}

// fillSessions stores count sessions for tokens of these apps, each last used a millisecond after the previous one.
func fillSessions(t *testing.T, s *store.Store, apps string, count int, now time.Time) {
	t.Helper()
	must(t, store.Exec(t.Context(), s, fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO sessions (id, hash, token_id, rules, apps, created_at, used_at, ends_at)
		SELECT '%[2]s-' || i, '%[2]s-' || i, '%[2]s-' || i / 20, '', '%[3]s', %[4]d, %[4]d + i, %[5]d FROM n`, count, apps+"x", apps,
		now.UnixMilli(), now.Add(access.SessionLife).UnixMilli())))
}

// A login succeeds when all sessions are taken. It ends the least recently used session of an app above its share.
func TestFullSessionsEndOneOfTheLargestGroup(t *testing.T) {
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

// People read pages while nothing can be written, such as on a full disk.
func TestSessionIsFoundWhileTheDatabaseRefusesWrites(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		database func(testing.TB) string
		refuse   string
	}{
		"SQLite": {sqlitetest.New, `PRAGMA query_only = ON`},
		"PostgreSQL": {func(t testing.TB) string { return pgtest.New(t) }, `CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql
			AS $$ BEGIN RAISE 'could not extend file' USING ERRCODE = '53100'; END $$;
			CREATE TRIGGER full_disk BEFORE UPDATE ON sessions FOR EACH ROW EXECUTE FUNCTION full_disk()`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, now := open(t, tt.database(t)), time.Now().UTC().Truncate(time.Millisecond)
			token := access.APIToken{ID: "1", Name: "ann", Hash: [32]byte{1}, TokenSpec: access.TokenSpec{Scopes: []access.Scope{access.ScopeRead}}}
			must(t, s.CreateToken(t.Context(), token))
			session := access.Session{ID: "s", Hash: [32]byte{2}, Token: token, EndsAt: now.Add(access.SessionLife)}
			must(t, s.CreateSession(t.Context(), session, input.Change{Actor: "ann", Now: now}))
			must(t, store.Exec(t.Context(), s, tt.refuse))
			found, err := s.Session(t.Context(), session.Hash, now.Add(2*access.SessionRenewal), true)
			if err != nil || found.ID != session.ID {
				t.Errorf("found %+v, %v, want the session", found, err)
			}
		})
	}
}

// An earlier build stored [] for a token bound to no app. Such a token is shown so that it can be put again unchanged.
func TestTokenOfAnEarlierBuildCanBePutUnchanged(t *testing.T) {
	t.Parallel()
	s := open(t, sqlitetest.New(t))
	must(t, s.CreateToken(t.Context(), access.APIToken{
		ID: "1", Name: "ci", Hash: [32]byte{1}, TokenSpec: access.TokenSpec{Scopes: []access.Scope{access.ScopeRead}},
	}))
	must(t, store.Exec(t.Context(), s, `UPDATE api_tokens SET apps = '[]'`))
	token, err := s.Token(t.Context(), "ci")
	must(t, err)
	if err := token.Validate(); err != nil || token.Apps != nil {
		t.Errorf("the token is bound to %v, and %v; want it bound to none, and valid", token.Apps, err)
	}
}

// The key of callbacks survives each change of the key-encryption keys. It is readable without them only until some
// are configured.
func TestCallbackKeyIsSealedOnceThereAreKeys(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		read := func(letters string) []byte {
			t.Helper()
			var keys *seal.Keys
			if letters != "" {
				keys = sealKeys(t, letters)
			}
			s := openWith(t, database, keys)
			key, err := s.CallbackKey(t.Context())
			must(t, err)
			must(t, s.Close())
			return key
		}
		plain := read("")
		if diff := cmp.Diff(plain, read("a")); diff != "" {
			t.Errorf("the key after there are keys (-before +after):\n%s", diff)
		}
		if _, err := store.Open(t.Context(), database, store.Options{}); !errors.Is(err, dispatcher.ErrKeyMissing) {
			t.Errorf("open without the keys: got error %v, want ErrKeyMissing", err)
		}
		both := openWith(t, database, sealKeys(t, "ba"))
		if n, err := both.RewrapSecrets(t.Context(), input.Change{Actor: "test"}); n != 1 || err != nil {
			t.Errorf("rewrapped %d, %v; want the key of callbacks", n, err)
		}
		must(t, both.Close())
		after := openWith(t, database, sealKeys(t, "b"))
		key, err := after.CallbackKey(t.Context())
		must(t, err)
		if diff := cmp.Diff(plain, key); diff != "" {
			t.Errorf("the key under another key (-before +after):\n%s", diff)
		}
	})
}
