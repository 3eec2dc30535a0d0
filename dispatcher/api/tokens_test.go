package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/api/oidc"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/oidctest"
)

const oneToken = "/v1/tokens/ci"

func bearer(secret string) string { return "Authorization: Bearer " + secret }

func TestTokenIsMadeUsedChangedAndRevoked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	created := w.must(http.StatusCreated, "PUT", oneToken, `{"scopes":["write","read"],"apps":["crm"],"description":"of the pipeline"}`)
	made := into[access.IssuedToken](created)
	if !strings.HasPrefix(made.Secret, "carillon_") || made.ID == "" || made.Revision != 1 || made.CreatedAt.IsZero() ||
		!cmp.Equal(made.Scopes, []access.Scope{"read", "write"}) {
		t.Errorf("created %+v", made.APIToken)
	}
	if got := created.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("a response with a secret has Cache-Control %q", got)
	}
	w.must(http.StatusOK, "GET", oneApp, "", bearer(made.Secret))

	for _, path := range []string{oneToken, "/v1/tokens"} {
		if got := w.must(http.StatusOK, "GET", path, ""); strings.Contains(got.Body.String(), "carillon_") {
			t.Errorf("GET %s shows a secret: %s", path, got.Body)
		}
	}
	changed := into[access.IssuedToken](w.must(http.StatusOK, "PUT", oneToken, `{"scopes":["read"],"apps":["shop"]}`, `If-Match: "1"`))
	if changed.Secret != "" || changed.ID != made.ID || changed.Revision != 2 {
		t.Errorf("changed %+v", changed)
	}
	w.do("GET", oneApp, "", bearer(made.Secret)).refused(http.StatusForbidden, " forbidden")
	w.do("PUT", oneToken, `{"scopes":["read"]}`, "If-None-Match: *").refused(http.StatusPreconditionFailed, " name_taken")

	w.must(http.StatusNoContent, "DELETE", oneToken, "", `If-Match: "2"`)
	w.do("GET", "/v1/apps", "", bearer(made.Secret)).refused(http.StatusUnauthorized, " unauthorized")
	w.do("GET", oneToken, "").refused(http.StatusNotFound, " not_found")
	again := into[access.IssuedToken](w.must(http.StatusCreated, "PUT", oneToken, `{"scopes":["read"]}`))
	if again.ID == made.ID || again.Secret == made.Secret {
		t.Errorf("the name is used again with id %s and secret of before", again.ID)
	}
}

func TestTokensAreChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	for body, problems := range map[string][]string{
		`{}`:                                                                  {"/scopes required"},
		`{"scopes":["read","all"]}`:                                           {"/scopes/1 enum"},
		`{"scopes":["admin"],"apps":["a"]}`:                                   {"/scopes/0 token_admin"},
		`{"scopes":["read"],"apps":["A B"]}`:                                  {"/apps/0 name_format"},
		`{"scopes":["read"],"apps":[]}`:                                       {"/apps required"},
		`{"scopes":["read"],"name":"other"}`:                                  {"/name name_mismatch"},
		`{"scopes":["read"],"secret":"x"}`:                                    {"/secret json_unknown_field"},
		`{"scopes":["read"],"expires_at":"2020-01-01T00:00:00Z"}`:             {"/expires_at at_past"},
		`{"scopes":["read"],"expires_at":"tomorrow"}`:                         {"/expires_at time_invalid"},
		`{"scopes":["read"],"apps":["` + strings.Repeat(`a","`, 100) + `a"]}`: {"/apps too_many"},
	} {
		got := w.do("PUT", oneToken, body)
		got.refused(got.Code, problems...)
		if got.Code < 400 || got.Code >= 500 {
			t.Errorf("%.60s is accepted with %d", body, got.Code)
		}
	}
	for body, problem := range map[string]string{
		`{"overlap":"721h"}`:                    "/overlap duration_max",
		`{"expires_at":"2020-01-01T00:00:00Z"}`: "/expires_at at_past", `{"hash":"x"}`: "/hash json_unknown_field",
	} {
		w.must(http.StatusOK, "GET", "/v1/tokens/admin", "")
		got := w.do("POST", "/v1/tokens/admin/rotate", body)
		got.refused(got.Code, problem)
	}
	w.do("POST", "/v1/tokens/nosuch/rotate", "").refused(http.StatusNotFound, " not_found")
	w.do("GET", "/v1/tokens/NO", "").refused(http.StatusNotFound, " not_found")
}

// The credentials of a caller, and the responses.
func TestEachStateOfATokenPermitsOnlyItsRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	past, soon := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	newExpiring := func(name string, expires *time.Time) string {
		secret, hash := access.NewToken()
		if err := w.store.CreateToken(t.Context(), access.APIToken{ID: name + "-id", Name: name, Hash: hash,
			TokenSpec: access.TokenSpec{Scopes: writes,
				Apps: []string{"crm"}, ExpiresAt: expires}, TokenStatus: access.TokenStatus{CreatedAt: past.Add(-time.Hour)}}); err != nil {
			t.Fatal(err)
		}
		return secret
	}
	rotate := func(name, body string) string {
		return into[access.IssuedToken](w.must(http.StatusOK, "POST", "/v1/tokens/"+name+"/rotate", body)).Secret
	}
	overlapped, old, revoked := newExpiring("overlapped", nil), newExpiring("old", &soon), newExpiring("revoked", nil)
	w.must(http.StatusNoContent, "DELETE", "/v1/tokens/revoked", "", "If-Match: *")
	unknown, _ := access.NewToken()
	for name, tt := range map[string]struct {
		secret string
		status int
		reason string
	}{
		"none":                                {"", 401, ""},
		"unknown":                             {unknown, 401, "unknown"},
		"of no prefix":                        {"eyJ.eyJ.x", 401, "unknown"},
		"expired":                             {newExpiring("expired", &past), 401, "expired"},
		"about to expire":                     {newExpiring("expiring", &soon), 200, ""},
		"revoked":                             {revoked, 401, "unknown"},
		"rotated":                             {rotate("overlapped", ""), 200, ""},
		"rotated, within the overlap":         {overlapped, 200, ""},
		"rotated without an overlap":          {rotate("old", `{"overlap":"0s"}`), 200, ""},
		"rotated out":                         {old, 401, "rotated_out"},
		"of another app":                      {w.newToken("foreign", writes, "shop"), 403, ""},
		"without the scope":                   {w.newToken("narrow", []access.Scope{access.ScopeRun}), 403, ""},
		"of an admin who is not allowed read": {w.newToken("operator", []access.Scope{access.ScopeAdmin}), 403, ""},
	} {
		w.logs.Reset()
		got := w.do("GET", oneApp, "", bearer(tt.secret), "X-Request-Id: same")
		if got.Code != tt.status {
			t.Errorf("a token that is %s gets %d, want %d: %s", name, got.Code, tt.status, got.Body)
		}
		if tt.status == 401 {
			got.refused(401, " unauthorized")
			got.says("a valid bearer token is needed")
		}
		if logs := w.logs.String(); tt.secret != "" && strings.Contains(logs, tt.secret) {
			t.Errorf("the log holds the token that is %s", name)
		} else if tt.reason != "" && name != "unknown" && name != "of no prefix" && name != "revoked" &&
			!strings.Contains(logs, "reason="+tt.reason) {
			t.Errorf("the log does not say that the token is %s: %s", tt.reason, logs)
		}
	}
}

func TestTokenCannotGiveAScopeThatItsMakerLacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.must(http.StatusCreated, "PUT", oneToken, `{"scopes":["read","write"]}`)
	operator := bearer(w.newToken("operator", []access.Scope{access.ScopeAdmin, access.ScopeRead}))
	w.must(http.StatusCreated, "PUT", "/v1/tokens/reader", `{"scopes":["read"]}`, operator)
	w.do("PUT", "/v1/tokens/writer", `{"scopes":["read","write","metrics"]}`, operator).
		refused(http.StatusForbidden, "/scopes/1 forbidden", "/scopes/2 forbidden")
	w.do("PUT", "/v1/tokens/reader", `{"scopes":["write"]}`, operator, "If-Match: *").refused(http.StatusForbidden, "/scopes/0 forbidden")
	w.do("POST", oneToken+"/rotate", "", operator).refused(http.StatusForbidden, " forbidden")
	w.must(http.StatusOK, "PUT", oneToken, `{"scopes":["read"]}`, operator, "If-Match: *")
	w.must(http.StatusOK, "POST", oneToken+"/rotate", "", operator)
}

func TestLastAdminStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	got := w.do("DELETE", "/v1/tokens/admin", "", "If-Match: *")
	got.refused(http.StatusConflict, " token_last_admin")
	got.says("carillon token create --name NAME --scope admin")
	w.do("PUT", "/v1/tokens/admin", `{"scopes":["read"]}`, "If-Match: *").refused(http.StatusConflict, " token_last_admin")
	w.must(http.StatusCreated, "PUT", "/v1/tokens/second", `{"scopes":["admin"]}`)
	w.must(http.StatusNoContent, "DELETE", "/v1/tokens/admin", "", "If-Match: *")
}

func TestTokenRoutesNeedAnUnboundAdmin(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	var most []access.Scope
	for _, scope := range access.Scopes() {
		if scope != access.ScopeAdmin {
			most = append(most, scope)
		}
	}
	for _, token := range []string{w.newToken("most", most), w.newToken("bound", access.Scopes(), "crm")} {
		for _, request := range []string{"GET /v1/tokens", "GET /v1/tokens/admin", "PUT /v1/tokens/x", "DELETE /v1/tokens/most",
			"POST /v1/tokens/admin/rotate"} {
			method, path, _ := strings.Cut(request, " ")
			w.do(method, path, `{"scopes":["read"]}`, bearer(token)).refused(http.StatusForbidden, " forbidden")
		}
	}
}

// None of the following waits for the database.
func TestOutageEndsWithTheTokensExpiry(t *testing.T) {
	t.Parallel()
	// A slow machine may need longer than the life of the token to use it twice; then a token lives twice as long.
	for life := 2 * time.Second; !outageEndsWithTheExpiry(t, life); life *= 2 {
		if life > patience {
			t.Fatal("no token was used before it expired")
		}
	}
}

// outageEndsWithTheExpiry uses a token with a life, and reports whether it did so before the token expired.
func outageEndsWithTheExpiry(t *testing.T, life time.Duration) (used bool) {
	t.Helper()
	w := newWorld(t, api.Options{})
	secrets := map[string]string{}
	expires := time.Now().Add(life)
	for name, at := range map[string]*time.Time{"lasting": nil, "short": &expires} {
		secret, hash := access.NewToken()
		secrets[name] = bearer(secret)
		if err := w.store.CreateToken(t.Context(), access.APIToken{ID: name, Name: name, Hash: hash,
			TokenSpec: access.TokenSpec{Scopes: []access.Scope{access.ScopeMetrics}, ExpiresAt: at}}); err != nil {
			t.Fatal(err)
		}
	}
	until, cancel := context.WithDeadline(t.Context(), expires)
	defer cancel()
	before := []reply{w.do("GET", "/metrics", "", secrets["lasting"]), w.do("GET", "/metrics", "", secrets["short"])}
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	before = append(before, w.do("GET", "/metrics", "", secrets["short"]))
	used = until.Err() == nil
	for _, got := range before {
		if used && got.Code != http.StatusOK {
			t.Errorf("%s: status %d before the token expires, want 200", got.request, got.Code)
		}
	}
	<-until.Done()
	w.do("GET", "/metrics", "", secrets["short"]).refused(http.StatusUnauthorized, " unauthorized")
	if used {
		w.must(http.StatusOK, "GET", "/metrics", "", secrets["lasting"])
	}
	return used
}

func TestJSONWebTokensWorkNextToStoredOnes(t *testing.T) {
	t.Parallel()
	from := oidctest.New(t)
	rules := oidc.Rules{{Claims: map[string]string{"sub": "repo:acme/crm:*"}, Scopes: writes, Apps: []string{"crm"}}}
	issuer, err := oidc.New(oidc.Options{Issuer: from.URL, Audience: oidctest.Audience, Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, api.Options{Identities: issuer})
	w.declare()
	now := time.Now()
	jwt := from.Sign(jose.ES256, from.Claims("repo:acme/crm:ref:refs/heads/main", now, nil))
	w.must(http.StatusOK, "PUT", oneApp, `{"description":"by a pipeline"}`, bearer(jwt), "If-Match: *")
	w.do("PUT", "/v1/apps/shop", `{}`, bearer(jwt)).refused(http.StatusForbidden, " forbidden")
	w.do("GET", "/v1/nodes", "", bearer(jwt)).refused(http.StatusForbidden, " forbidden")
	w.do("PUT", "/v1/tokens/x", `{"scopes":["read"]}`, bearer(jwt)).refused(http.StatusForbidden, " forbidden")

	bad := map[string]string{
		"jwt: it has expired":           from.Sign(jose.ES256, from.Claims("repo:acme/crm:x", now.Add(-time.Hour), nil)),
		"jwt: no rule fits its claims":  from.Sign(jose.ES256, from.Claims("repo:acme/other:x", now, nil)),
		"jwt: its audience is another":  from.Sign(jose.ES256, from.Claims("repo:acme/crm:x", now, map[string]any{"aud": "x"})),
		"jwt: its signature is wrong":   jwt[:len(jwt)-4] + "AAAA",
		"jwt: it is of another issuer":  from.Sign(jose.ES256, from.Claims("repo:acme/crm:x", now, map[string]any{"iss": "x"})),
		"jwt: its form or its algorith": "eyJhbGciOiJub25lIn0.e30.",
	}
	for reason, token := range bad {
		got := w.do("GET", oneApp, "", bearer(token), "X-Request-Id: same")
		got.refused(http.StatusUnauthorized, " unauthorized")
		got.says("a valid bearer token is needed")
		if logs := w.logs.String(); !strings.Contains(logs, reason) {
			t.Errorf("the log does not say %q", reason)
		} else if strings.Contains(logs, strings.Split(token, ".")[1]) {
			t.Errorf("the log holds the claims of a token: %s", reason)
		}
	}
	from.Close()
	w.must(http.StatusOK, "GET", oneApp, "")
	w.must(http.StatusOK, "GET", oneApp, "", bearer(jwt))
}

func TestUnreachableIssuerStopsItsOwnTokensOnly(t *testing.T) {
	t.Parallel()
	from := oidctest.New(t)
	issuer, err := oidc.New(oidc.Options{Issuer: from.URL, Audience: oidctest.Audience,
		Rules: oidc.Rules{{Claims: map[string]string{"sub": "x"}, Scopes: reads}}})
	if err != nil {
		t.Fatal(err)
	}
	jwt := from.Sign(jose.RS256, from.Claims("x", time.Now(), nil))
	from.Close()
	w := newWorld(t, api.Options{Identities: issuer})
	got := w.do("GET", "/v1/apps", "", bearer(jwt))
	got.refused(http.StatusServiceUnavailable, " unavailable")
	got.says("the issuer of the token does not answer")
	w.must(http.StatusOK, "GET", "/v1/apps", "")
}

func TestClientCertificateIsNeededInAdditionToAToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{ClientCertificates: true})
	got := w.do("GET", "/v1/apps", "")
	got.refused(http.StatusUnauthorized, " unauthorized")
	got.says("a client certificate")
	for _, end := range []string{"complete", "fail", "heartbeat"} { // with the token of an attempt
		got := w.do("POST", "/v1/runs/run/"+end, "", bearer(run.CallbackToken(make([]byte, 32), "event", 1)))
		got.refused(http.StatusUnauthorized, " unauthorized")
		got.says("a client certificate")
	}
	for _, path := range []string{"/livez", "/readyz", "/version", "/openapi.json"} {
		w.must(http.StatusOK, "GET", path, "", "Authorization:")
	}
}

func TestReadinessListsWarningsForOperators(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{Warnings: func() []string { return []string{"the certificate expires"} }})
	w.must(http.StatusOK, "GET", "/readyz", "").says(`"warnings":["the certificate expires"]`)
}

func TestUseOfTokensIsRecordedInTheBackground(t *testing.T) {
	t.Parallel()
	w, began := newWorld(t, api.Options{}), time.Now().Truncate(time.Millisecond)
	used := func() *time.Time {
		return into[access.APIToken](w.must(http.StatusOK, "GET", "/v1/tokens/admin", "")).LastUsedAt
	}
	if at := used(); at != nil {
		t.Errorf("the use is recorded at once, at %s", at)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	w.api.(*api.API).Run(ended) // it records the rest when it ends
	now := time.Now()
	if at := used(); at == nil || at.Before(began) || at.After(now) {
		t.Errorf("the last use is %v, want one between %s and %s", at, began, now)
	}
}

// Operators decide about moves of apps, so they give export and import without having them. All other scopes are given
// by their holders. A token with write, for the owner of an app, neither exports nor imports it.
func TestOperatorsGiveExportAndImport(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	operator := bearer(w.newToken("operator", []access.Scope{access.ScopeAdmin}))
	w.must(http.StatusCreated, "PUT", "/v1/tokens/mover", `{"scopes":["export","import"],"apps":["crm"]}`, operator)
	w.do("PUT", "/v1/tokens/owner", `{"scopes":["write","import"]}`, operator).refused(http.StatusForbidden, "/scopes/0 forbidden")
	for name, scopes := range map[string][]access.Scope{
		"owner": {access.ScopeRead, access.ScopeRun, access.ScopeWrite}, "operator2": {access.ScopeAdmin},
	} {
		token := bearer(w.newToken(name, scopes))
		w.do("GET", "/v1/apps/crm/export", "", token).refused(http.StatusForbidden, " forbidden")
		w.do("POST", "/v1/apps/crm/import", `{}`, token).refused(http.StatusForbidden, " forbidden")
	}
}
