package store_test

import (
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// onBothDatabases runs a test on a new database of each kind.
func onBothDatabases(t *testing.T, test func(t *testing.T, database string)) {
	t.Helper()
	for name, make := range map[string]func(testing.TB) string{
		"SQLite": sqlitetest.New, "PostgreSQL": func(t testing.TB) string { return pgtest.New(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, make(t))
		})
	}
}

// sealKeys returns keys, each of 32 equal letters.
func sealKeys(t *testing.T, letters string) *seal.Keys {
	t.Helper()
	var all []string
	for _, letter := range letters {
		all = append(all, base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(letter), 32))))
	}
	keys, err := seal.Parse(strings.Join(all, ","))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func openWith(t *testing.T, database string, keys *seal.Keys) *store.Store {
	t.Helper()
	return openAs(t, database, store.Options{Keys: keys})
}

const (
	first, other = "whsec_Zmlyc3QgZmlyc3QgZmlyc3QgZmlyc3QgZmlyc3Qg", "whsec_b3RoZXIgb3RoZXIgb3RoZXIgb3RoZXIgb3RoZXIg"
	tokenPath    = "/webhook/auth/bearer/token"
	signingPath  = "/webhook/signing/secrets/current"
)

func value(text string) target.Secret {
	return target.Secret{Value: input.NewSensitive(text)}
}

// secretJob returns a job with these secrets.
func secretJob(signing, token target.Secret) dispatcher.Job {
	w := target.Webhook{
		URL: "https://example.com/", Method: "POST", Timeout: target.DefaultTimeout,
		Auth:    &target.Auth{Bearer: &target.BearerAuth{Token: token}},
		Signing: &target.Signing{Secrets: map[string]target.Secret{"current": signing}},
	}
	return dispatcher.Job{App: "demo", Name: "ping", JobSpec: dispatcher.JobSpec{Enabled: true, Target: target.Target{Webhook: &w}}}
}

func put(t *testing.T, s *store.Store, job dispatcher.Job) dispatcher.Job {
	t.Helper()
	if _, _, err := s.PutApp(t.Context(), access.App{Name: "demo", AppSpec: access.AppSpec{Enabled: true}}, input.Change{}); err != nil {
		t.Fatal(err)
	}
	stored, _, err := s.PutJob(t.Context(), job, input.Change{})
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// opened returns the values of a job's secrets as a node gets them.
func opened(t *testing.T, s *store.Store) map[string]string {
	t.Helper()
	return openedOf(t, s, run.JobID("demo", "ping"))
}

func openedOf(t *testing.T, s *store.Store, id int64) map[string]string {
	t.Helper()
	jobs, err := s.JobsByID(t.Context(), []int64{id})
	if err != nil || len(jobs) != 1 || jobs[0].Err != nil {
		t.Fatalf("jobs = %+v, %v", jobs, err)
	}
	values := map[string]string{}
	for path, secret := range target.Secrets(jobs[0].Target) {
		values[path] = secret.Value.Reveal()
	}
	return values
}

func TestOnlyNodesGetSecrets(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s := openWith(t, database, sealKeys(t, "a"))
		kept, reference := target.Secret{Stored: true}, target.Secret{Reference: "env:SECRET_DEMO_X"}
		stored := put(t, s, secretJob(value(first), value("hunter2")))
		read, err := s.Job(t.Context(), "demo", "ping")
		if err != nil {
			t.Fatal(err)
		}
		for what, job := range map[string]dispatcher.Job{"put": stored, "read": read} {
			if diff := cmp.Diff(map[string]target.Secret{tokenPath: kept, signingPath: kept}, target.Secrets(job.Target)); diff != "" {
				t.Errorf("secrets as %s (-want +got):\n%s", what, diff)
			}
		}
		for _, step := range []struct {
			what           string
			signing, token target.Secret
			want           map[string]string
		}{
			{"as they were given", kept, kept, map[string]string{signingPath: first, tokenPath: "hunter2"}},
			{"one replaced", kept, value("hunter3"), map[string]string{signingPath: first, tokenPath: "hunter3"}},
			{"one by reference", value(other), reference, map[string]string{signingPath: other, tokenPath: ""}},
			{"given again", kept, value("hunter4"), map[string]string{signingPath: other, tokenPath: "hunter4"}},
		} {
			put(t, s, secretJob(step.signing, step.token))
			if diff := cmp.Diff(step.want, opened(t, s)); diff != "" {
				t.Errorf("%s: values (-want +got):\n%s", step.what, diff)
			}
		}
		put(t, s, secretJob(reference, reference))
		if _, _, err := s.PutJob(t.Context(), secretJob(reference, kept),
			input.Change{}); problemOf(err) != "/target"+tokenPath+"/stored secret_missing" {
			t.Errorf("to keep what is not there = %v", err)
		}
		put(t, s, secretJob(reference, value("hunter5")))
		if err := s.DeleteJob(t.Context(), "demo", "ping", input.Change{}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.PutJob(t.Context(), secretJob(reference, kept),
			input.Change{}); problemOf(err) != "/target"+tokenPath+"/stored secret_missing" {
			t.Errorf("to keep what a deleted job had = %v", err)
		}
	})
}

// A user who may declare jobs but does not know a secret cannot redirect it to their own server.
func TestSecretsStayWithTheOriginTheyWereGivenFor(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s := openWith(t, database, sealKeys(t, "a"))
		kept := target.Secret{Stored: true}
		to := func(url string, signing, token target.Secret) dispatcher.Job {
			job := secretJob(signing, token)
			job.Target.Webhook.URL = url
			return job
		}
		put(t, s, to("https://Example.com/a", value(first), value("hunter2")))
		for _, url := range []string{
			"http://example.com/a", "https://example.com:8443/a", "https://example.com.evil.test/a",
			"https://evil.test/https://example.com/a", "https://evil.test?x=https://example.com",
		} {
			_, _, err := s.PutJob(t.Context(), to(url, kept, kept), input.Change{})
			var problems input.Problems
			if !errors.As(err, &problems) || len(problems) != 2 || problems[0].Code != "secret_origin" ||
				problems[0].Path != "/target"+tokenPath+"/stored" || problems[1].Path != "/target"+signingPath+"/stored" {
				t.Errorf("moved to %s = %v, want secret_origin of both", url, err)
			}
			if text := fmt.Sprint(err); !strings.Contains(text, "value_version") || !strings.Contains(text, "https://example.com") {
				t.Errorf("moved to %s = %q, want whence and the way out", url, text)
			}
		}
		_, _, err := s.PutJob(t.Context(), to("https://other.test/", kept, value("hunter3")), input.Change{})
		if problemOf(err) != "/target"+signingPath+"/stored secret_origin" {
			t.Errorf("moved with one of two values = %v", err)
		}
		for _, url := range []string{"https://example.com/b?c=d", "https://EXAMPLE.com:443"} {
			put(t, s, to(url, kept, kept))
			if diff := cmp.Diff(map[string]string{signingPath: first, tokenPath: "hunter2"}, opened(t, s)); diff != "" {
				t.Errorf("values at %s (-want +got):\n%s", url, diff)
			}
		}
		put(t, s, to("https://other.test/", value(other), value("hunter3")))
		if diff := cmp.Diff(map[string]string{signingPath: other, tokenPath: "hunter3"}, opened(t, s)); diff != "" {
			t.Errorf("values that moved along (-want +got):\n%s", diff)
		}
		if n, err := s.RewrapSecrets(t.Context(), input.Change{Actor: "test"}); n != 0 || err != nil {
			t.Errorf("rewrapped %d, %v", n, err)
		}
	})
}

// A client secret is bound to the token endpoint and to the target that receives the token.
func TestClientSecretsStayWithTheirTokenEndpoint(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s := openWith(t, database, sealKeys(t, "a"))
		kept := target.Secret{Stored: true}
		to := func(url, tokenURL string, signing, secret target.Secret) dispatcher.Job {
			job := secretJob(signing, secret)
			job.Target.Webhook.URL = url
			job.Target.Webhook.Auth = &target.Auth{OAuth2: &target.OAuth2Auth{TokenURL: tokenURL, ClientID: "a", ClientSecret: &secret}}
			return job
		}
		const here, login, clientSecret = "https://example.com/", "https://login.example.com/token", "/webhook/auth/oauth2/client_secret"
		put(t, s, to(here, login, value(first), value("hunter2")))
		for url, tokenURL := range map[string]string{
			here: "https://evil.test/token", "https://EXAMPLE.com/b": "http://login.example.com/token",
			"https://example.com:443": "https://login.example.com:8443/",
		} {
			_, _, err := s.PutJob(t.Context(), to(url, tokenURL, kept, kept), input.Change{})
			if problemOf(err) != "/target"+clientSecret+"/stored secret_origin" || !strings.Contains(fmt.Sprint(err), "login.example.com") {
				t.Errorf("tokens from %s = %v, want secret_origin of the client secret alone", tokenURL, err)
			}
		}
		_, _, err := s.PutJob(t.Context(), to("https://evil.test/", login, value(first), kept), input.Change{})
		if problemOf(err) != "/target"+clientSecret+"/stored secret_origin" {
			t.Errorf("tokens to another target = %v, want secret_origin", err)
		}
		put(t, s, to(here+"b", login+"/v2?a=b", kept, kept))
		if diff := cmp.Diff(map[string]string{signingPath: first, clientSecret: "hunter2"}, opened(t, s)); diff != "" {
			t.Errorf("values at another path (-want +got):\n%s", diff)
		}
		put(t, s, to(here, "https://evil.test/token", kept, value("hunter3")))
		if diff := cmp.Diff(map[string]string{signingPath: first, clientSecret: "hunter3"}, opened(t, s)); diff != "" {
			t.Errorf("values at another token endpoint (-want +got):\n%s", diff)
		}
		must(t, s.Close())
		again := openWith(t, database, sealKeys(t, "ba"))
		if n, err := again.RewrapSecrets(t.Context(), input.Change{Actor: "test"}); n != 2 || err != nil {
			t.Errorf("rewrapped %d, %v, want both", n, err)
		}
		if diff := cmp.Diff(map[string]string{signingPath: first, clientSecret: "hunter3"}, opened(t, again)); diff != "" {
			t.Errorf("values under another key (-want +got):\n%s", diff)
		}
	})
}

func problemOf(err error) string {
	var problems input.Problems
	if !errors.As(err, &problems) || len(problems) != 1 {
		return fmt.Sprint(err)
	}
	return problems[0].Path + " " + problems[0].Code
}

func TestSecretsNeedTheirKeys(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		without := openWith(t, database, nil)
		put(t, without, secretJob(target.Secret{Reference: "env:SECRET_DEMO_X"}, target.Secret{Reference: "file:demo/x"}))
		if _, _, err := without.PutJob(t.Context(), secretJob(value(first), target.Secret{Reference: "file:demo/x"}),
			input.Change{}); problemOf(err) != "/target"+signingPath+"/value secret_keys" {
			t.Errorf("a value without a key = %v", err)
		}
		_ = without.Close()
		s := openWith(t, database, sealKeys(t, "a"))
		put(t, s, secretJob(value(first), value("hunter2")))
		_ = s.Close()
		for name, keys := range map[string]*seal.Keys{"no key": nil, "another key": sealKeys(t, "b")} {
			if _, err := store.Open(t.Context(), database, store.Options{Keys: keys}); !errors.Is(err, dispatcher.ErrKeyMissing) {
				t.Errorf("opened with %s: %v, want that a key is missing", name, err)
			}
		}
		// A tool without the keys sees no values of secrets.
		tool, err := store.Open(t.Context(), database, store.Options{Options: db.Options{AlongsideNode: true}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{signingPath: "", tokenPath: ""}, opened(t, tool)); diff != "" {
			t.Errorf("values without the key (-want +got):\n%s", diff)
		}
		_ = tool.Close()

		both := openWith(t, database, sealKeys(t, "ba"))
		for _, want := range []int{2, 0} {
			if n, err := both.RewrapSecrets(t.Context(), input.Change{Actor: "test"}); n != want || err != nil {
				t.Errorf("rewrapped %d, %v, want %d", n, err, want)
			}
		}
		_ = both.Close()
		if diff := cmp.Diff(map[string]string{signingPath: first, tokenPath: "hunter2"},
			opened(t, openWith(t, database, sealKeys(t, "b")))); diff != "" {
			t.Errorf("values under the new key (-want +got):\n%s", diff)
		}
	})
}

// Write access to the database without a key is not enough to read secrets: a row copied to another job does not open,
// nor does one of a job with a changed origin.
func TestSecretsDoNotOpenForAnotherJob(t *testing.T) {
	t.Parallel()
	database := sqlitetest.New(t)
	s := openWith(t, database, sealKeys(t, "a"))
	put(t, s, secretJob(value(first), value("hunter2")))
	db, err := sql.Open("sqlite", strings.TrimPrefix(database, "sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	// One after the other: SQLite checks the key for each row.
	for _, swap := range []string{`UPDATE secrets SET path = 'x' WHERE path = $1`, `UPDATE secrets SET path = $1 WHERE path <> 'x'`} {
		if _, err := db.ExecContext(t.Context(), swap, tokenPath); err != nil {
			t.Fatal(err)
		}
	}
	if got := opened(t, s)[tokenPath]; got != "" {
		t.Errorf("the signing secret opens as token: %q", got)
	}
	put(t, s, secretJob(value(first), value("hunter2")))
	if _, err := db.ExecContext(t.Context(), `UPDATE jobs SET target = replace(target, 'example.com', 'evil.test')`); err != nil {
		t.Fatal(err)
	}
	if got := opened(t, s); got[tokenPath] != "" || got[signingPath] != "" {
		t.Errorf("secrets open for another host: %q", got)
	}
}

// Write access to the database without a key cannot undo a rotation: a copy of a secret's row from before its
// replacement does not open, neither for the same job nor for one that was deleted and declared again.
func TestReplacedSecretDoesNotOpenWhenItsRowIsPutBack(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s := openWith(t, database, sealKeys(t, "a"))
		put(t, s, secretJob(value(first), value("hunter2")))
		driver, dsn := "pgx", database
		if file, isFile := strings.CutPrefix(database, "sqlite:"); isFile {
			driver, dsn = "sqlite", file+"?_pragma=busy_timeout(5000)"
		}
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.ExecContext(t.Context(), `CREATE TABLE copied AS SELECT * FROM secrets`); err != nil {
			t.Fatal(err)
		}
		putBack := func() {
			t.Helper()
			for _, statement := range []string{`DELETE FROM secrets WHERE path = $1`, `INSERT INTO secrets SELECT * FROM copied WHERE path = $1`} {
				if _, err := db.ExecContext(t.Context(), statement, tokenPath); err != nil {
					t.Fatal(err)
				}
			}
		}
		kept := target.Secret{Stored: true}
		for what, replace := range map[string]func(){
			"replaced": func() { put(t, s, secretJob(kept, value("hunter3"))) },
			"replaced by a reference and given again": func() {
				put(t, s, secretJob(kept, target.Secret{Reference: "env:SECRET_DEMO_X"}))
				put(t, s, secretJob(kept, value("hunter4")))
			},
			"deleted and declared again": func() {
				if err := s.DeleteJob(t.Context(), "demo", "ping", input.Change{}); err != nil {
					t.Fatal(err)
				}
				put(t, s, secretJob(value(first), value("hunter5")))
			},
		} {
			replace()
			putBack()
			if diff := cmp.Diff(map[string]string{signingPath: first, tokenPath: ""}, opened(t, s)); diff != "" {
				t.Errorf("%s, with the old row: values (-want +got):\n%s", what, diff)
			}
		}
		put(t, s, secretJob(kept, value("hunter6")))
		if diff := cmp.Diff(map[string]string{signingPath: first, tokenPath: "hunter6"}, opened(t, s)); diff != "" {
			t.Errorf("given again: values (-want +got):\n%s", diff)
		}
	})
}

// A rename leaves secrets with their job only, even if another job gets the old name.
func TestSecretsOutliveARename(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s := openWith(t, database, sealKeys(t, "a"))
		put(t, s, secretJob(value(first), value("hunter2")))
		renamed, err := s.RenameJob(t.Context(), "demo", "ping", dispatcher.JobRename{Name: "pong"}, input.Change{})
		must(t, err)
		put(t, s, secretJob(value(other), value("hunter3")))
		check := func(what string, s *store.Store) {
			t.Helper()
			for id, want := range map[int64]map[string]string{
				renamed.Key():               {signingPath: first, tokenPath: "hunter2"},
				run.JobID("demo", "ping~2"): {signingPath: other, tokenPath: "hunter3"},
			} {
				if diff := cmp.Diff(want, openedOf(t, s, id)); diff != "" {
					t.Errorf("%s: values (-want +got):\n%s", what, diff)
				}
			}
		}
		check("after the rename", s)
		kept := secretJob(target.Secret{Stored: true}, target.Secret{Stored: true})
		kept.Name, kept.Description = "pong", "changed"
		put(t, s, kept)
		check("after a PUT that keeps them", s)
		_ = s.Close()
		both := openWith(t, database, sealKeys(t, "ba"))
		if n, err := both.RewrapSecrets(t.Context(), input.Change{Actor: "test"}); n != 4 || err != nil {
			t.Errorf("rewrapped %d, %v, want 4", n, err)
		}
		_ = both.Close()
		check("under another key", openWith(t, database, sealKeys(t, "b")))
	})
}

// The signing secret of a delivery belongs to its attached job, and the job that declares it keeps it like its own.
func TestSecretsOfDeliveriesAreKept(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s := openWith(t, database, sealKeys(t, "a"))
		kept, at := target.Secret{Stored: true}, "/on_failure"+signingPath
		to := func(url string, signing target.Secret) dispatcher.Job {
			job := secretJob(value(first), value("hunter2"))
			hook := &target.FollowWebhook{URL: url, Signing: &target.Signing{Secrets: map[string]target.Secret{"current": signing}}}
			job.OnFailure = &dispatcher.Follow{FollowDestination: target.FollowDestination{Webhook: hook}}
			return job
		}
		check := func(what string, job dispatcher.Job, want string) {
			t.Helper()
			if got := target.Secrets(job)[at]; got != kept {
				t.Errorf("%s: secret %+v, want it stored", what, got)
			}
			if got := openedOf(t, s, job.Attached(run.OnFailure).Key()); got[signingPath] != want {
				t.Errorf("%s: the node gets %q, want %s", what, got, want)
			}
		}
		check("given", put(t, s, to("https://a.example.com/", value(other))), other)
		check("kept", put(t, s, to("https://a.example.com/b", kept)), other)
		if _, _, err := s.PutJob(t.Context(), to("https://evil.test/", kept), input.Change{}); problemOf(err) != at+"/stored secret_origin" {
			t.Errorf("moved to another host = %v", err)
		}
		check("given for another host", put(t, s, to("https://b.example.com/", value(first))), first)
		read, err := s.Job(t.Context(), "demo", "ping")
		must(t, err)
		check("read", read, first)
		put(t, s, secretJob(value(first), value("hunter2")))
		if _, _, err := s.PutJob(t.Context(), to("https://b.example.com/", kept), input.Change{}); problemOf(err) != at+"/stored secret_missing" {
			t.Errorf("to keep what is not there = %v", err)
		}
	})
}
