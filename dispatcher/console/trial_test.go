package console_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/console"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// trial is a node's API and console over a fresh SQLite database.
type trial struct {
	t      *testing.T
	store  *store.Store
	api    *api.API
	server *httptest.Server
	logs   *safeBuffer
	file   string // of the database
}

// safeBuffer is a buffer that several requests may write at once.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(part []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(part)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// newTrial starts a console; change may change its options.
func newTrial(t *testing.T, change ...func(*console.Options)) *trial {
	t.Helper()
	file := filepath.Join(t.TempDir(), "carillon.db")
	s, err := store.Open(t.Context(), sqlitetest.At(t, file), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	w := &trial{t: t, store: s, logs: &safeBuffer{}, file: file}
	log := slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.api = api.New(s, api.Options{Logger: log, Limits: gate.Limits{TokenCache: -1}})
	o := console.Options{API: w.api, Sessions: s, Version: "1.2.3", Logger: log}
	for _, one := range change {
		one(&o)
	}
	pages, err := console.New(o)
	if err != nil {
		t.Fatal(err)
	}
	w.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if pages.Path(r) {
			pages.ServeHTTP(rw, r)
			return
		}
		w.api.ServeHTTP(rw, r)
	}))
	t.Cleanup(w.server.Close)
	return w
}

// Scopes of tokens.
func reads() []access.Scope { return []access.Scope{access.ScopeRead} }
func writes() []access.Scope {
	return []access.Scope{access.ScopeRead, access.ScopeRun, access.ScopeWrite}
}

// token stores a token and returns its secret.
func (w *trial) token(name string, scopes []access.Scope, apps ...string) string {
	w.t.Helper()
	secret, hash := access.NewToken()
	token := access.APIToken{ID: name, Name: name, Hash: hash, TokenSpec: access.TokenSpec{Scopes: scopes, Apps: apps}}
	if err := w.store.CreateToken(w.t.Context(), token); err != nil {
		w.t.Fatal(err)
	}
	return secret
}

// browser is a person's browser. It follows no redirect by itself, and sends the usual headers with a form.
type browser struct {
	*http.Client
	w *trial
}

// page is a response, read.
type page struct {
	*http.Response
	text string
}

// browse returns a browser without a session.
func (w *trial) browse() *browser {
	jar, _ := cookiejar.New(nil) // never fails
	return &browser{w: w, Client: &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}}
}

// signedIn returns a browser with a session of a new token.
func (w *trial) signedIn(scopes []access.Scope, apps ...string) *browser {
	w.t.Helper()
	b := w.browse()
	token := w.token(strings.ToLower(strings.Trim(strings.Join(apps, "-")+"-"+string(scopes[len(scopes)-1]), "-")), scopes, apps...)
	if got := b.post("login", url.Values{"token": {token}}); got.StatusCode != http.StatusSeeOther {
		w.t.Fatalf("login: status %d, %s", got.StatusCode, got.text)
	}
	return b
}

// get gets a page below the console.
func (b *browser) get(at string) page {
	b.w.t.Helper()
	return b.send(http.MethodGet, at, nil, nil)
}

// post sends a form, like a page of the console.
func (b *browser) post(at string, form url.Values) page {
	b.w.t.Helper()
	return b.send(http.MethodPost, at, form, map[string]string{"Sec-Fetch-Site": "same-origin"})
}

func (b *browser) send(method, at string, form url.Values, header map[string]string) page {
	b.w.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(b.w.t.Context(), method, b.w.server.URL+"/console/"+at, body)
	if err != nil {
		b.w.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	response, err := b.Do(r)
	if err != nil {
		b.w.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		b.w.t.Fatal(err)
	}
	return page{response, string(text)}
}
