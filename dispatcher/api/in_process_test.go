package api_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// inProcess makes a request under a token, on behalf of a browser at 192.0.2.7.
func (w *world) inProcess(token access.APIToken, method, path, body string) (status int, text string) {
	w.t.Helper()
	from := httptest.NewRequest(http.MethodGet, "/console/", nil)
	from.RemoteAddr = "192.0.2.7:1234"
	from.Header.Set("X-Request-Id", "visit-1")
	r, err := http.NewRequestWithContext(w.t.Context(), method, "http://console.invalid"+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("If-None-Match", "*")
	}
	response, err := w.api.(*api.API).As(from, token).RoundTrip(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if got := response.Header.Get("X-Request-Id"); got != "visit-1" {
		w.t.Errorf("%s %s has the request id %q, want that of the browser's request", method, path, got)
	}
	return response.StatusCode, string(raw)
}

func TestRequestInProcessIsCheckedLikeABearer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	past := time.Now().Add(-time.Minute)
	bound := access.APIToken{ID: "1", Name: "ann", TokenSpec: access.TokenSpec{Scopes: writes, Apps: []string{"crm"}}}
	for name, tt := range map[string]struct {
		token              access.APIToken
		method, path, body string
		want               int
	}{
		"its own token":        {bound, "GET", "/v1/token", "", 200},
		"an app of its own":    {bound, "PUT", "/v1/apps/crm", `{}`, 201},
		"an app of others":     {bound, "GET", "/v1/apps/shop", "", 403},
		"a route of the fleet": {bound, "GET", "/v1/nodes", "", 403},
		"without the scope": {access.APIToken{ID: "2", Name: "ben", TokenSpec: access.TokenSpec{Scopes: reads}},
			"PUT", "/v1/apps/shop", `{}`, 403},
		"an expired token": {access.APIToken{ID: "3", Name: "cid",
			TokenSpec: access.TokenSpec{Scopes: writes, ExpiresAt: &past}}, "GET", "/v1/token", "", 401},
		"no token":             {access.APIToken{}, "GET", "/v1/apps", "", 403},
		"an unknown parameter": {bound, "GET", "/v1/apps?limits=1", "", 400},
	} {
		if got, text := w.inProcess(tt.token, tt.method, tt.path, tt.body); got != tt.want {
			t.Errorf("%s: status %d, want %d: %s", name, got, tt.want, text)
		}
	}
	page, err := w.store.AuditEntries(t.Context(), access.AuditQuery{Subject: "app crm", Page: input.Page{Limit: 10}})
	if err != nil || len(page.Entries) != 1 {
		t.Fatalf("entries of the audit log: %+v, %v", page, err)
	}
	if e := page.Entries[0]; e.Actor != "ann" || e.TokenID != "1" || e.Address != "192.0.2.7" || e.RequestID != "visit-1" {
		t.Errorf("the audit log names %s %s at %s in %s", e.Actor, e.TokenID, e.Address, e.RequestID)
	}
}

func TestCallersOnTheNetworkCannotChooseTheirToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	token := access.APIToken{ID: "1", Name: "ann", TokenSpec: access.TokenSpec{Scopes: access.Scopes()}}
	type key struct{}
	raw, err := json.Marshal(token)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/v1/token", nil)
	for _, header := range []string{"Asker", "X-Token", "X-Carillon-Token", "asKey"} {
		r.Header.Set(header, string(raw))
	}
	got := httptest.NewRecorder()
	w.api.ServeHTTP(got, r.WithContext(context.WithValue(r.Context(), key{}, token)))
	if got.Code != http.StatusUnauthorized {
		t.Errorf("status %d: %s", got.Code, got.Body)
	}
	// The token of the context overrides that of a header, and a transport without one takes the header's.
	from := httptest.NewRequest(http.MethodGet, "/console/", nil)
	sent := httptest.NewRequest(http.MethodGet, "/v1/token", nil)
	sent.Header.Set("Authorization", "Bearer "+w.token)
	for name, transport := range map[string]http.RoundTripper{
		"ann": w.api.(*api.API).As(from, token), "admin": w.api.(*api.API).Bearer(from),
	} {
		response, err := transport.RoundTrip(sent)
		if err != nil {
			t.Fatal(err)
		}
		var own access.APIToken
		if err := json.NewDecoder(response.Body).Decode(&own); err != nil || own.Name != name {
			t.Errorf("the request was served as %q, %v, want %s", own.Name, err, name)
		}
		_ = response.Body.Close()
	}
}
