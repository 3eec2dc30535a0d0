package api_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// patience is how long a test waits: longer than any machine takes.
const patience = 5 * time.Minute

// world is an API over a fresh SQLite database, and a token for everything.
type world struct {
	t     testing.TB
	store *store.Store
	api   http.Handler
	token string
	file  string        // of the database, if that is SQLite
	raw   *sql.DB       // direct access past the store; nil until it is needed
	logs  *bytes.Buffer // safe to read between requests, which tests make one at a time
}

func newWorld(t testing.TB, o api.Options) *world {
	t.Helper()
	return newWorldOver(t, o, store.Options{})
}

// newWorldOver is newWorld over a store with options.
func newWorldOver(t testing.TB, o api.Options, of store.Options) *world {
	t.Helper()
	file := filepath.Join(t.TempDir(), "carillon.db")
	w := newWorldAt(t, o, of, sqlitetest.At(t, file))
	w.file = file
	return w
}

// newWorldAt is newWorldOver with a database that is migrated.
func newWorldAt(t testing.TB, o api.Options, of store.Options, dsn string) *world {
	t.Helper()
	s, err := store.Open(t.Context(), dsn, of)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	w := &world{t: t, store: s, logs: &bytes.Buffer{}}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if o.Limits.TokenCache == 0 {
		o.Limits.TokenCache = -1 // the test's changes of the store apply at once
	}
	w.api = api.New(s, o)
	w.token = w.newToken("admin", access.Scopes())
	return w
}

// Scopes of tokens.
var (
	reads  = []access.Scope{access.ScopeRead}
	writes = []access.Scope{access.ScopeRead, access.ScopeRun, access.ScopeWrite}
)

func (w *world) newToken(name string, scopes []access.Scope, apps ...string) string {
	w.t.Helper()
	secret, hash := access.NewToken()
	token := access.APIToken{ID: name, Name: name, Hash: hash, TokenSpec: access.TokenSpec{Scopes: scopes, Apps: apps}}
	if err := w.store.CreateToken(w.t.Context(), token); err != nil {
		w.t.Fatal(err)
	}
	return secret
}

// reply is a response, read.
type reply struct {
	*httptest.ResponseRecorder
	t       testing.TB
	request string // for messages
}

// do makes a request; headers are "Name: value", and "Name:" leaves a header out. A write that needs a condition has
// the current revision, unless headers set another If-Match.
func (w *world) do(method, target, body string, headers ...string) reply {
	w.t.Helper()
	got := w.once(method, target, body, headers...)
	named := slices.ContainsFunc(headers, func(h string) bool { return strings.HasPrefix(h, "If-") })
	if got.Code == http.StatusPreconditionRequired && !named {
		return w.once(method, target, body, append([]string{"If-Match: *"}, headers...)...)
	}
	return got
}

// finerTime is a time of a response that is finer than a millisecond.
var finerTime = regexp.MustCompile(`"[a-z_]+":"[0-9T:-]{19}\.[0-9]{4,}(Z|[+-][0-9:]{5})"`)

func (w *world) once(method, target, body string, headers ...string) reply {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), method, target, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+w.token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ":")
		r.Header.Del(name)
		if value = strings.TrimSpace(value); value != "" {
			r.Header.Add(name, value)
		}
	}
	recorder := httptest.NewRecorder()
	w.api.ServeHTTP(recorder, r)
	if fine := finerTime.FindString(recorder.Body.String()); fine != "" {
		w.t.Errorf("%s %s responds with %s, want times to the millisecond", method, target, fine)
	}
	return reply{recorder, w.t, fmt.Sprintf("%s %.80s %.200s %q", method, target, body, headers)}
}

// must is do for a request that must return a status.
func (w *world) must(status int, method, target, body string, headers ...string) reply {
	w.t.Helper()
	got := w.do(method, target, body, headers...)
	if got.Code != status {
		w.t.Fatalf("%s %s = %d, want %d: %s", method, target, got.Code, status, got.Body)
	}
	return got
}

// problems returns the problems of a problem document as "path code", and checks its form.
func (r reply) problems() []string {
	r.t.Helper()
	var p struct {
		Type, Title string
		Status      int
		RequestID   string `json:"request_id"`
		Errors      input.Problems
	}
	if err := json.Unmarshal(r.Body.Bytes(), &p); err != nil {
		r.t.Fatalf("response %d is not JSON: %v: %.200s", r.Code, err, r.Body)
	}
	if got := r.Header().Get("Content-Type"); got != "application/problem+json" {
		r.t.Errorf("problem has Content-Type %q", got)
	}
	if p.Type != "about:blank" || p.Title != http.StatusText(r.Code) || p.Status != r.Code || len(p.Errors) == 0 ||
		p.RequestID == "" || p.RequestID != r.Header().Get("X-Request-Id") {
		r.t.Errorf("problem of status %d, X-Request-Id %q is %+v", r.Code, r.Header().Get("X-Request-Id"), p)
	}
	var problems []string
	for _, f := range p.Errors {
		if f.Message == "" || len(f.Message) > 400 {
			r.t.Errorf("problem %s %s has a message of %d bytes", f.Path, f.Code, len(f.Message))
		}
		problems = append(problems, f.Path+" "+f.Code)
	}
	return problems
}

// refused checks status and all problems of a response.
func (r reply) refused(status int, problems ...string) {
	r.t.Helper()
	got := r.problems()
	slices.Sort(got)
	slices.Sort(problems)
	// One value may break one rule in two places.
	if diff := cmp.Diff(problems, slices.Compact(got)); r.Code != status || diff != "" {
		r.t.Errorf("%s: status %d, want %d; problems (-want +got):\n%s\n%.300s", r.request, r.Code, status, diff, r.Body)
	}
}

// says looks for a text in a response.
func (r reply) says(words string) {
	r.t.Helper()
	if !strings.Contains(r.Body.String(), words) {
		r.t.Errorf("%s: want %q in %s", r.request, words, r.Body)
	}
}

// into decodes a successful response.
func into[T any](r reply) T {
	r.t.Helper()
	var v T
	if err := json.Unmarshal(r.Body.Bytes(), &v); err != nil {
		r.t.Fatalf("response %d: %v: %.200s", r.Code, err, r.Body)
	}
	return v
}

const (
	oneApp      = "/v1/apps/crm"
	oneJob      = "/v1/apps/crm/jobs/sync"
	dryBackfill = `{"dry_run":true,"from":"2026-01-01T00:00:00Z","to":"2026-01-03T23:59:59Z"}`
	dryBulk     = `{"dry_run":true,"action":"run_jobs"}`
	// validJob fires once a day, so that no test meets a fire.
	validJob = `{"target":{"webhook":{"url":"https://example.com/hook"}},"triggers":{"nightly":{"expression":"0 0 2 * * ?","timezone":"UTC"}}}`
)

// declare creates an app and a job.
func (w *world) declare() {
	w.t.Helper()
	w.must(http.StatusCreated, "PUT", oneApp, `{}`)
	w.must(http.StatusCreated, "PUT", oneJob, validJob)
}

// register adds a live node.
func (w *world) register(ctx context.Context, id run.NodeID) {
	w.t.Helper()
	now, err := w.store.Clock(ctx)
	if err == nil {
		err = w.store.Register(ctx, dispatcher.Node{ID: id, Name: "n", Version: "v", State: dispatcher.NodeActive,
			StartedAt: now, NodeHeartbeat: dispatcher.NodeHeartbeat{HeartbeatAt: now}}, now)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}
