package console_test

import (
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/console"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

func TestWritesOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	b := w.signedIn(writes())
	for name, tt := range map[string]struct {
		header map[string]string
		want   int
	}{
		"of this site":                 {map[string]string{"Sec-Fetch-Site": "same-origin"}, http.StatusSeeOther},
		"typed by a person":            {map[string]string{"Sec-Fetch-Site": "none"}, http.StatusSeeOther},
		"of another site":              {map[string]string{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		"of a site of this domain":     {map[string]string{"Sec-Fetch-Site": "same-site"}, http.StatusForbidden},
		"of a foreign origin":          {map[string]string{"Origin": "https://evil.example"}, http.StatusForbidden},
		"of no origin":                 {map[string]string{"Origin": "null"}, http.StatusForbidden},
		"of this origin":               {map[string]string{"Origin": w.server.URL}, http.StatusSeeOther},
		"of this host, another scheme": {map[string]string{"Origin": strings.Replace(w.server.URL, "http:", "https:", 1)}, http.StatusSeeOther},
	} {
		if got := b.send(http.MethodPost, "settings", url.Values{"theme": {"dark"}}, tt.header); got.StatusCode != tt.want {
			t.Errorf("a form %s: status %d, want %d", name, got.StatusCode, tt.want)
		}
	}
}

func TestResponsesHaveTheirHeaders(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	b := w.signedIn(reads())
	asset := regexp.MustCompile(`assets/console-[0-9a-f]+\.css`).FindString(b.get("apps").text)
	for at, cache := range map[string]string{
		"apps": "no-store", "login?next=apps": "no-store", "nothing": "no-store", asset: "public, max-age=31536000, immutable",
	} {
		got := b.get(at)
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
				"form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
			"Cache-Control": cache,
		} {
			if value := got.Header.Get(name); value != want {
				t.Errorf("%s: %s: %q, want %q", at, name, value, want)
			}
		}
		if regexp.MustCompile(`<[^>]+ (style|on[a-z]+)=|<style|<script>`).MatchString(got.text) {
			t.Errorf("%s has what the policy forbids:\n%s", at, got.text)
		}
	}
}

func TestUnservedMethodsAndPathsGetAPage(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	b := w.signedIn(writes())
	for _, tt := range []struct {
		method, at string
		status     int
		allow      string
	}{
		{"GET", "nothing", 404, ""}, {"POST", "apps", 405, "GET, HEAD"}, {"DELETE", "login", 405, "GET, HEAD, POST"},
		{"GET", "logout", 405, "POST"},
		{"GET", "settings", 405, "POST"}, {"GET", "apps/", 404, ""}, {"GET", "apps//x", 404, ""}, {"GET", "a/../apps", 404, ""},
		{"GET", "assets/x.css", 404, ""},
		{"GET", "login/oidc", 404, ""}, {"GET", "login/callback?code=x&state=y", 404, ""}, {"HEAD", "apps", 200, ""},
		{"GET", "apps?" + strings.Repeat("x", 9000), 414, ""},
	} {
		got := b.send(tt.method, tt.at, nil, map[string]string{"Sec-Fetch-Site": "same-origin"})
		if got.StatusCode != tt.status || got.Header.Get("Allow") != tt.allow || !strings.HasPrefix(got.Header.Get("Content-Type"), "text/html") {
			t.Errorf("%s %.40s: status %d, Allow %q, %s; want %d, %q and a page", tt.method, tt.at, got.StatusCode, got.Header.Get("Allow"),
				got.Header.Get("Content-Type"), tt.status, tt.allow)
		}
		if tt.method == "HEAD" && got.text != "" {
			t.Errorf("HEAD %s has a body", tt.at)
		}
	}
	if got := b.post("settings", url.Values{"next": {strings.Repeat("x", 100<<10)}}); got.StatusCode != http.StatusBadRequest {
		t.Errorf("a form that is too large: status %d", got.StatusCode)
	}
}

// dump returns all rows of all tables as text, without the use of sessions and tokens, which reading records.
func (w *trial) dump() string {
	w.t.Helper()
	db, err := sql.Open("sqlite", w.file)
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	rows := func(query string) (all []string) {
		found, err := db.QueryContext(w.t.Context(), query)
		if err != nil {
			w.t.Fatal(err)
		}
		defer found.Close()
		columns, err := found.Columns()
		if err != nil {
			w.t.Fatal(err)
		}
		for found.Next() {
			values, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			if err := found.Scan(into...); err != nil {
				w.t.Fatal(err)
			}
			line := ""
			for i, name := range columns {
				if name != "used_at" && name != "last_used_at" {
					line += fmt.Sprintf("%s=%v ", name, values[i])
				}
			}
			all = append(all, line)
		}
		if err := found.Err(); err != nil {
			w.t.Fatal(err)
		}
		return all
	}
	var b strings.Builder
	for _, line := range rows(`SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name`) {
		table := strings.TrimSpace(strings.TrimPrefix(line, "name="))
		lines := rows(`SELECT * FROM "` + table + `"`)
		slices.Sort(lines)
		fmt.Fprintf(&b, "%s\n%s\n", table, strings.Join(lines, "\n"))
	}
	return b.String()
}

var linkPattern = regexp.MustCompile(`href="([^"]+)"`)

func TestReadingChangesNoRow(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	for _, app := range []string{"billing", "shop"} {
		if _, _, err := w.store.PutApp(t.Context(), access.App{Name: app, AppSpec: access.AppSpec{Enabled: true}}, input.Change{}); err != nil {
			t.Fatal(err)
		}
	}
	b := w.signedIn(access.Scopes())
	before := w.dump()
	seen, queue := map[string]bool{}, []string{"", "apps"}
	for len(queue) > 0 && len(seen) < 200 {
		at := queue[0]
		queue = queue[1:]
		if seen[at] {
			continue
		}
		seen[at] = true
		got := b.get(at)
		if got.StatusCode >= http.StatusInternalServerError {
			t.Errorf("%s: status %d:\n%s", at, got.StatusCode, got.text)
		}
		for _, found := range linkPattern.FindAllStringSubmatch(got.text, -1) {
			to, err := got.Request.URL.Parse(strings.ReplaceAll(found[1], "&amp;", "&"))
			if err != nil {
				t.Errorf("%s has the link %q: %v", at, found[1], err)
				continue
			}
			if below, is := strings.CutPrefix(to.RequestURI(), "/console/"); is && !strings.HasPrefix(below, "assets/") {
				queue = append(queue, below)
			} else if to.Host != got.Request.URL.Host {
				t.Errorf("%s links to %s", at, to)
			}
		}
	}
	if after := w.dump(); after != before {
		t.Errorf("reading %d pages has changed\n%s\nto\n%s", len(seen), before, after)
	}
}

func TestReaderMayNotWrite(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	b := w.signedIn(reads())
	for _, action := range console.Actions() {
		at := regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(action.Path, "x")
		if got := b.post(at, url.Values{}); action.Needs != access.ScopeRead && got.StatusCode != http.StatusForbidden {
			t.Errorf("POST %s as a reader: status %d, want 403", at, got.StatusCode)
		}
		foreign := b.send(http.MethodPost, at, url.Values{}, map[string]string{"Sec-Fetch-Site": "cross-site"})
		if got := foreign; got.StatusCode != http.StatusForbidden {
			t.Errorf("POST %s of another site: status %d, want 403", at, got.StatusCode)
		}
	}
}

func TestClientCertificateIsNeededWhereTheAPINeedsOne(t *testing.T) {
	t.Parallel()
	w := newTrial(t, func(o *console.Options) { o.ClientCertificates = true })
	for _, at := range []string{"login", "apps", "assets/x.css"} {
		if got := w.browse().get(at); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s without a certificate: status %d", at, got.StatusCode)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/console/login", nil)
	r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{}}}
	got := httptest.NewRecorder()
	w.server.Config.Handler.ServeHTTP(got, r)
	if got.Code != http.StatusOK {
		t.Errorf("with a certificate: status %d", got.Code)
	}
}

func TestConsoleWorksBelowAPrefix(t *testing.T) {
	t.Parallel()
	w := newTrial(t, func(o *console.Options) {
		o.URL = &url.URL{Scheme: "http", Host: "ops.example.com", Path: "/ops/carillon"}
	})
	b := w.signedIn(reads())
	for _, prefix := range []string{"", "/ops/carillon"} {
		for at, want := range map[string]string{"/": "console/", "/console": "console/", "/console/apps": "", "/console/settings": ""} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.server.URL+prefix+at, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := b.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(got.Body)
			_ = got.Body.Close()
			if to := got.Header.Get("Location"); to != want {
				t.Errorf("%s%s leads to %q, want %q", prefix, at, to, want)
			}
			for _, found := range linkPattern.FindAllStringSubmatch(string(text), -1) {
				if link := found[1]; strings.HasPrefix(link, "/") || strings.Contains(link, "://") {
					t.Errorf("%s%s has the link %q, which is not relative", prefix, at, link)
				}
			}
		}
	}
	got := httptest.NewRecorder()
	w.server.Config.Handler.ServeHTTP(got, httptest.NewRequest(http.MethodGet, "/elsewhere/console/apps", nil))
	if got.Code != http.StatusNotFound || got.Header().Get("Content-Security-Policy") != "" {
		t.Errorf("another prefix: status %d, want the API's 404", got.Code)
	}
}

func TestNodeWithoutDatabaseShowsIt(t *testing.T) {
	t.Parallel()
	pages, err := console.New(console.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"/console/", "/console/jobs", "/console/login"} {
		got := httptest.NewRecorder()
		pages.ServeHTTP(got, httptest.NewRequest(http.MethodGet, at, nil))
		if got.Code != http.StatusServiceUnavailable || !strings.Contains(got.Body.String(), "waiting for its database") {
			t.Errorf("%s: status %d:\n%s", at, got.Code, got.Body)
		}
	}
}
