package console_test

import (
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/console"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// session returns the value of the session's cookie in a response; empty: it sets none.
func (p page) session() string {
	for _, cookie := range p.Cookies() {
		if strings.HasSuffix(cookie.Name, "carillon") {
			return cookie.Value
		}
	}
	return ""
}

// audit returns the actors and actions of the audit log, earliest first.
func (w *trial) audit() (all []string) {
	w.t.Helper()
	entries, err := w.store.AuditEntries(w.t.Context(), access.AuditQuery{OldestFirst: true, Page: input.Page{Limit: 100}})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range entries.Entries {
		all = append(all, e.Actor+" "+e.Action)
		if e.Actor != "system" && (e.Address == "" || e.RequestID == "") {
			w.t.Errorf("the entry %+v has no address or no request", e)
		}
	}
	return all
}

func TestDeepLinkSurvivesLogin(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	b := w.browse()
	asked := b.get("apps?note=a%2Fb")
	if to := asked.Header.Get("Location"); asked.StatusCode != http.StatusSeeOther || to != "./login?next=apps%3Fnote%3Da%252Fb" {
		t.Fatalf("a page without a session: status %d to %q", asked.StatusCode, to)
	}
	login := b.get("login?next=" + url.QueryEscape("apps?note=a%2Fb"))
	if !strings.Contains(login.text, `name="next" value="apps?note=a%2Fb"`) {
		t.Errorf("the login does not keep where to go:\n%s", login.text)
	}
	got := b.post("login", url.Values{"token": {w.token("ann", reads())}, "next": {"apps?note=a%2Fb"}})
	if to := got.Header.Get("Location"); got.StatusCode != http.StatusSeeOther || to != "./apps?note=a%2Fb" {
		t.Errorf("after the login: status %d to %q", got.StatusCode, to)
	}
	if shown := b.get("apps?note=a%2Fb"); shown.StatusCode != http.StatusOK {
		t.Errorf("the page after the login has status %d", shown.StatusCode)
	}
}

func TestLoginLeadsOnlyIntoTheConsole(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	secret := w.token("ann", reads())
	for _, next := range []string{
		"//evil.example", `\\evil.example`, `/\evil.example`, "https://evil.example", "javascript:alert(1)", "/etc",
		"///evil.example", "apps//evil",
		"../../evil", "./../evil", "%2e%2e/evil", "%5c%5cevil", "\t//evil.example",
		"ht\ntp://evil", "apps#x", "user@evil.example/..", "login?next=x", "logout",
		strings.Repeat("a", 10_000), "data:text/html,x", "http:evil", "apps\x00",
	} {
		got := w.browse().post("login", url.Values{"token": {secret}, "next": {next}})
		if to := got.Header.Get("Location"); to != "./" {
			t.Errorf("next %.40q leads to %q, want the first page", next, to)
		}
	}
}

func TestLoginRefusesBadTokens(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	b := w.browse()
	for name, token := range map[string]string{
		"nothing": "", "an unknown one": "carillon_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "a JSON Web Token": "a.b.c",
		"a long one": strings.Repeat("x", 1000),
	} {
		got := b.post("login", url.Values{"token": {token}})
		if got.StatusCode != http.StatusUnauthorized || got.session() != "" || token != "" && strings.Contains(got.text, token) {
			t.Errorf("login with %s: status %d, session %q:\n%s", name, got.StatusCode, got.session(), got.text)
		}
	}
	limited := 0
	for range 70 {
		if got := b.post("login", url.Values{"token": {"carillon_guess"}}); got.StatusCode == http.StatusTooManyRequests {
			limited++
		}
	}
	if limited == 0 {
		t.Error("nobody stops who guesses tokens")
	}
	if strings.Contains(w.logs.String(), "carillon_guess") {
		t.Error("the log holds a token")
	}
}

func TestUnknownCookiesAreLimited(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	value := strings.Repeat("A", 43)
	for i := range 100 {
		got := w.browse().send(http.MethodGet, "apps", nil, map[string]string{"Cookie": "carillon=" + value})
		if got.StatusCode == http.StatusTooManyRequests {
			return
		}
		if got.StatusCode != http.StatusSeeOther {
			t.Fatalf("request %d with an unknown cookie: status %d", i, got.StatusCode)
		}
	}
	t.Error("nobody stops who guesses cookies")
}

func TestLoginMakesANewSession(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	b := w.browse()
	secret := w.token("ann", reads())
	fixed := strings.Repeat("A", 43)
	first := b.send(http.MethodPost, "login", url.Values{"token": {secret}}, map[string]string{"Cookie": "carillon=" + fixed}).session()
	second := b.post("login", url.Values{"token": {secret}}).session()
	if first == "" || second == "" || first == second || first == fixed {
		t.Errorf("two logins gave the sessions %q and %q after %q, want new ones", first, second, fixed)
	}
	if raw := w.logs.String(); strings.Contains(raw, first) || strings.Contains(raw, secret) {
		t.Error("the log holds a cookie or a token")
	}
}

func TestLogoutEndsTheSessionEverywhere(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	secret := w.token("ann", reads())
	b := w.browse()
	cookie := b.post("login", url.Values{"token": {secret}}).session()
	copied := func() int {
		return w.browse().send(http.MethodGet, "apps", nil, map[string]string{"Cookie": "carillon=" + cookie}).StatusCode
	}
	if got := copied(); got != http.StatusOK {
		t.Fatalf("the session in another browser: status %d", got)
	}
	other := w.browse()
	other.post("login", url.Values{"token": {secret}})
	if got := b.post("logout", url.Values{}); got.Header.Get("Location") != "./login" {
		t.Errorf("logout leads to %q", got.Header.Get("Location"))
	}
	if got := copied(); got != http.StatusSeeOther {
		t.Errorf("the session after its logout: status %d, want the login", got)
	}
	if got := other.get("apps").StatusCode; got != http.StatusOK {
		t.Errorf("another session after the logout: status %d", got)
	}
	third := w.browse()
	third.post("login", url.Values{"token": {secret}})
	third.post("logout", url.Values{"everywhere": {"true"}})
	if got := other.get("apps").StatusCode; got != http.StatusSeeOther {
		t.Errorf("another session after all were ended: status %d, want the login", got)
	}
	want := "system create, ann login, ann login, ann logout, ann login, ann logout, ann logout"
	if got := strings.Join(w.audit(), ", "); got != want {
		t.Errorf("audit log: %s, want %s", got, want)
	}
}

func TestRevokedTokenEndsItsSessions(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	b := w.browse()
	b.post("login", url.Values{"token": {w.token("ann", reads())}})
	if err := w.store.DeleteToken(t.Context(), "ann", input.Change{Actor: "system"}); err != nil {
		t.Fatal(err)
	}
	if got := b.get("apps").StatusCode; got != http.StatusSeeOther {
		t.Errorf("status %d, want the login", got)
	}
}

func TestCookiesMatchTheScheme(t *testing.T) {
	t.Parallel()
	for scheme, want := range map[string]string{"https": "__Host-carillon", "http": "carillon"} {
		w := newTrial(t, func(o *console.Options) { o.URL = &url.URL{Scheme: scheme, Host: "ops.example.com"} })
		got := w.browse().post("login", url.Values{"token": {w.token("ann", reads())}})
		if len(got.Cookies()) != 1 {
			t.Fatalf("%s: %d cookies, want one", scheme, len(got.Cookies()))
		}
		cookie := got.Cookies()[0]
		if cookie.Name != want || !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode || cookie.Secure != (scheme == "https") ||
			cookie.Path != "/" || cookie.Domain != "" || cookie.MaxAge != int(12*time.Hour/time.Second) {
			t.Errorf("%s: cookie %+v", scheme, cookie)
		}
		other := map[string]string{"https": "carillon=", "http": "__Host-carillon="}[scheme] + cookie.Value
		if got := w.browse().send(http.MethodGet, "apps", nil, map[string]string{"Cookie": other}); got.StatusCode != http.StatusSeeOther {
			t.Errorf("%s: the cookie of the other scheme is accepted: status %d", scheme, got.StatusCode)
		}
	}
}

func TestFormWithoutASessionLeadsBackToItsPage(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	b := w.browse()
	for referer, want := range map[string]string{
		w.server.URL + "/console/apps/billing?x=1": "../../login?ended=true&next=apps%2Fbilling%3Fx%3D1",
		"https://evil.example/console/apps":        "../../login?ended=true",
		w.server.URL + "/elsewhere":                "../../login?ended=true",
		w.server.URL + "/console//evil.example":    "../../login?ended=true",
		"":                                         "../../login?ended=true",
	} {
		got := b.send(http.MethodPost, "apps/billing/disable", url.Values{}, map[string]string{
			"Sec-Fetch-Site": "same-origin", "Referer": referer})
		if to := got.Header.Get("Location"); got.StatusCode != http.StatusSeeOther || to != want {
			t.Errorf("a form of %q: status %d to %q, want %q", referer, got.StatusCode, to, want)
		}
	}
	if text := b.get("login?ended=true").text; !strings.Contains(text, "Your session has ended. Nothing was changed.") {
		t.Errorf("the login does not say that the session has ended:\n%s", text)
	}
}

func TestRefreshKeepsNoSessionAlive(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	used := func(b *browser, header map[string]string) (changed bool) {
		t.Helper()
		value, err := base64.RawURLEncoding.DecodeString(sessionOf(t, b))
		if err != nil {
			t.Fatal(err)
		}
		hash := sha256.Sum256(value)
		w.ageSession(hash, 59*time.Minute)
		before, err := w.store.Session(t.Context(), hash, time.Now(), false)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.send(http.MethodGet, "apps", nil, header); got.StatusCode != http.StatusOK {
			t.Fatalf("status %d, want 200", got.StatusCode)
		}
		after, err := w.store.Session(t.Context(), hash, time.Now(), false)
		if err != nil {
			t.Fatal(err)
		}
		return !after.UsedAt.Equal(before.UsedAt)
	}
	b := w.signedIn(reads())
	for _, header := range []map[string]string{{"Carillon-Refresh": "true"}, {"Sec-Fetch-Dest": "empty"}} {
		if used(b, header) {
			t.Errorf("a refresh with %v lengthens the session", header)
		}
	}
	if !used(b, map[string]string{"Sec-Fetch-Dest": "document"}) {
		t.Error("a person who opens a page does not lengthen the session")
	}
}

// sessionOf returns the cookie of the session of a browser.
func sessionOf(t *testing.T, b *browser) string {
	t.Helper()
	at, err := url.Parse(b.w.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, cookie := range b.Jar.Cookies(at) {
		if cookie.Name == "carillon" {
			return cookie.Value
		}
	}
	t.Fatal("the browser has no session")
	return ""
}

// ageSession moves the last use of a session into the past.
func (w *trial) ageSession(hash [32]byte, by time.Duration) {
	w.t.Helper()
	db, err := sql.Open("sqlite", w.file)
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	// $1 latest use, $2 hash
	if _, err := db.ExecContext(w.t.Context(), `UPDATE sessions SET used_at = $1 WHERE hash = $2`, time.Now().Add(-by).UnixMilli(),
		hex.EncodeToString(hash[:])); err != nil {
		w.t.Fatal(err)
	}
}
