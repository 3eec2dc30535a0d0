package console_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api/oidc"
	"github.com/carillon-dev/carillon/dispatcher/console"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/test/oidctest"
)

// issuer is an issuer at which a person signs in.
type issuer struct {
	*oidctest.Issuer
	// claims replace those of the ID token.
	claims map[string]any
	// asked is the form of the latest exchange.
	asked url.Values
	fails bool
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{Issuer: oidctest.New(t), claims: map[string]any{}}
	handle := func(w http.ResponseWriter, r *http.Request) bool {
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			_ = json.NewEncoder(w).Encode(map[string]string{
				"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
			})
		case "/token":
			_ = r.ParseForm()
			i.asked = r.PostForm
			w.Header().Set("Content-Type", "application/json")
			if i.fails {
				w.WriteHeader(http.StatusBadRequest)
				_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_grant", "error_description": "a secret of the issuer"})
				return true
			}
			jwt := i.Sign(jose.ES256, i.Claims("ann", time.Now(), i.claims))
			_ = json.NewEncoder(w).Encode(map[string]string{"access_token": "x", "token_type": "Bearer", "id_token": jwt})
		default:
			return false
		}
		return true
	}
	i.Handle.Store(&handle)
	return i
}

// login returns the console's login at the issuer. Ann may read billing, if her group permits it.
func (i *issuer) login(t *testing.T, scopes ...access.Scope) *oidc.Login {
	t.Helper()
	login, err := oidc.NewLogin(oidc.Options{Issuer: i.URL, Rules: oidc.Rules{
		{Claims: map[string]string{"groups": "ops"}, Scopes: scopes, Apps: []string{"billing"}},
	}}, oidc.LoginOptions{Client: "console", Secret: "client-secret", Scopes: []string{"groups"}})
	if err != nil {
		t.Fatal(err)
	}
	return login
}

// sso is a console with an issuer.
func sso(t *testing.T) (*trial, *issuer) {
	t.Helper()
	i := newIssuer(t)
	w := newTrial(t, func(o *console.Options) {
		o.Login, o.URL = i.login(t, access.ScopeRead), &url.URL{Scheme: "http", Host: "ops.example.com", Path: "/ops"}
	})
	return w, i
}

// begin goes to the issuer, and returns the console's request to it.
func (b *browser) begin(next string) url.Values {
	b.w.t.Helper()
	got := b.get("login/oidc?next=" + url.QueryEscape(next))
	to, err := url.Parse(got.Header.Get("Location"))
	if err != nil || got.StatusCode != http.StatusSeeOther {
		b.w.t.Fatalf("the beginning of a login: status %d to %q: %s", got.StatusCode, got.Header.Get("Location"), got.text)
	}
	return to.Query()
}

func TestPersonSignsInAtTheIssuer(t *testing.T) {
	t.Parallel()
	w, i := sso(t)
	for _, app := range []string{"billing", "shop"} {
		if _, _, err := w.store.PutApp(t.Context(), access.App{Name: app,
			AppSpec: access.AppSpec{Enabled: true}}, input.Change{Actor: "system"}); err != nil {
			t.Fatal(err)
		}
	}
	b := w.browse()
	asked := b.begin("apps?note=1")
	if asked.Get("redirect_uri") != "http://ops.example.com/ops/console/login/callback" || asked.Get("code_challenge_method") != "S256" ||
		asked.Get("scope") != "openid groups" || asked.Get("client_id") != "console" || asked.Get("response_type") != "code" {
		t.Errorf("the console asks %v", asked)
	}
	i.claims = map[string]any{"aud": "console", "nonce": asked.Get("nonce"), "groups": []string{"dev", "ops"}}
	back := b.get("login/callback?code=the-code&state=" + asked.Get("state"))
	if back.StatusCode != http.StatusSeeOther || back.Header.Get("Location") != "../apps?note=1" || back.session() == "" {
		t.Fatalf("the callback has status %d to %q:\n%s", back.StatusCode, back.Header.Get("Location"), back.text)
	}
	if i.asked.Get("code") != "the-code" || len(i.asked.Get("code_verifier")) < 43 {
		t.Errorf("the issuer was asked %v", i.asked)
	}
	got := b.get("apps")
	if got.StatusCode != http.StatusOK || !strings.Contains(got.text, "billing") || strings.Contains(got.text, "shop") ||
		!strings.Contains(got.text, ">ann<") {
		t.Errorf("the page of ann: status %d:\n%s", got.StatusCode, got.text)
	}
	if log := strings.Join(w.audit(), ", "); log != "system put, system put, ann login" {
		t.Errorf("audit log: %s", log)
	}
	if again := b.get("login/callback?code=the-code&state=" + asked.Get("state")); again.StatusCode != http.StatusForbidden {
		t.Errorf("the same callback a second time: status %d", again.StatusCode)
	}
	for _, secret := range []string{"client-secret", "the-code", asked.Get("state"), back.session()} {
		if strings.Contains(w.logs.String(), secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
}

// stated returns a query with the state of the console's request.
func stated(query string) func(url.Values) string {
	return func(asked url.Values) string { return query + "&state=" + asked.Get("state") }
}

func TestLoginsOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	w, i := sso(t)
	for name, tt := range map[string]struct {
		claims   map[string]any
		callback func(asked url.Values) string
		status   int
		cookies  bool
		fails    bool
	}{
		"another state":            {callback: func(url.Values) string { return "code=x&state=y" }, status: 403, cookies: true},
		"no state":                 {callback: func(url.Values) string { return "code=x" }, status: 403, cookies: true},
		"begun in another browser": {callback: stated("code=x"), status: 403},
		"of another issuer":        {callback: stated("code=x&iss=https://evil.example"), status: 403, cookies: true},
		"refused by the issuer":    {callback: stated("error=access_denied"), status: 403, cookies: true},
		"for another login":        {claims: map[string]any{"nonce": "other"}, status: 403, cookies: true},
		"for another client":       {claims: map[string]any{"aud": "other"}, status: 403, cookies: true},
		"given to another client":  {claims: map[string]any{"azp": "other"}, status: 403, cookies: true},
		"that no rule fits":        {claims: map[string]any{"groups": "dev"}, status: 403, cookies: true},
		"that has expired":         {claims: map[string]any{"exp": 1}, status: 403, cookies: true},
		"with a wrong code":        {fails: true, status: 502, cookies: true},
	} {
		b := w.browse()
		asked := b.begin("")
		i.claims, i.fails = map[string]any{"aud": "console", "nonce": asked.Get("nonce"), "groups": "ops"}, tt.fails
		for claim, value := range tt.claims {
			i.claims[claim] = value
		}
		query := "code=x&state=" + asked.Get("state")
		if tt.callback != nil {
			query = tt.callback(asked)
		}
		if !tt.cookies {
			b = w.browse()
		}
		if got := b.get("login/callback?" + query); got.StatusCode != tt.status || got.session() != "" {
			t.Errorf("a login %s: status %d, session %q, want %d and none", name, got.StatusCode, got.session(), tt.status)
		}
	}
	if strings.Contains(w.logs.String(), "a secret of the issuer") {
		t.Error("the log holds what the issuer responded")
	}
}

func TestSessionEndsWhenTheRulesChange(t *testing.T) {
	t.Parallel()
	w, i := sso(t)
	b := w.browse()
	asked := b.begin("")
	i.claims = map[string]any{"aud": "console", "nonce": asked.Get("nonce"), "groups": "ops"}
	cookie := b.get("login/callback?code=x&state=" + asked.Get("state")).session()
	pages, err := console.New(console.Options{API: w.api, Sessions: w.store, Login: i.login(t, access.ScopeRead, access.ScopeWrite),
		URL: &url.URL{Scheme: "http", Host: "ops.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := b.get("apps").StatusCode; got != http.StatusOK {
		t.Fatalf("before the change: status %d", got)
	}
	w.server.Config.Handler = pages
	got := w.browse().send(http.MethodGet, "apps", nil, map[string]string{"Cookie": "carillon=" + cookie})
	if got.StatusCode != http.StatusSeeOther {
		t.Errorf("after the change: status %d, want the login", got.StatusCode)
	}
}
