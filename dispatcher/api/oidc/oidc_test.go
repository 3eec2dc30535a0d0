package oidc_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api/oidc"
	"github.com/carillon-dev/carillon/test/oidctest"
)

// rules permit the subject "main" to write, and all subjects of one repository to read.
var rules = oidc.Rules{
	{Claims: map[string]string{"sub": main}, Scopes: []access.Scope{access.ScopeWrite}, Apps: []string{"billing"}},
	{Claims: map[string]string{"sub": "repo:acme/billing:*"}, Scopes: []access.Scope{access.ScopeRead}, Apps: []string{"billing"}},
}

const (
	main  = "repo:acme/billing:ref:refs/heads/main"
	other = "repo:acme/billing:pull_request"
)

// trial is an issuer, from the view of a node.
type trial struct {
	*oidc.Issuer
	from *oidctest.Issuer
	now  time.Time
	logs *bytes.Buffer
}

func newTrial(tb testing.TB) *trial {
	tb.Helper()
	from := oidctest.New(tb)
	logs := &bytes.Buffer{}
	log := slog.New(slog.NewTextHandler(logs, nil))
	i, err := oidc.New(oidc.Options{Issuer: from.URL, Audience: oidctest.Audience, Rules: rules, Logger: log})
	if err != nil {
		tb.Fatal(err)
	}
	return &trial{Issuer: i, from: from, now: time.Now().Truncate(time.Second), logs: logs}
}

func (w *trial) signed(algorithm jose.SignatureAlgorithm, replaced map[string]any) string {
	return w.from.Sign(algorithm, w.from.Claims(main, w.now, replaced))
}

// isBad reports whether an error means that a JWT is not accepted.
func isBad(err error) bool {
	var bad interface{ BadToken() string }
	return errors.As(err, &bad)
}

func TestTokenOfTheIssuerIsItsIdentity(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	for _, algorithm := range []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA} {
		got, err := w.Identify(t.Context(), w.signed(algorithm, map[string]any{"aud": []string{"x", oidctest.Audience}}), w.now)
		if err != nil {
			t.Errorf("%s: %v", algorithm, err)
			continue
		}
		expires := w.now.Add(5 * time.Minute).UTC()
		want := access.APIToken{ID: got.ID, Name: main,
			TokenSpec: access.TokenSpec{Scopes: rules[0].Scopes, Apps: rules[0].Apps, ExpiresAt: &expires}}
		if diff := cmp.Diff(want, got); diff != "" || !strings.HasPrefix(got.ID, "oidc:") {
			t.Errorf("%s: (-want +got):\n%s", algorithm, diff)
		}
	}
	first, err := w.Identify(t.Context(), w.from.Sign(jose.ES256, w.from.Claims(other, w.now, nil)), w.now)
	second, err2 := w.Identify(t.Context(), w.signed(jose.ES256, nil), w.now)
	if err := errors.Join(err, err2); err != nil || first.ID == second.ID || !cmp.Equal(first.Scopes, rules[1].Scopes) {
		t.Errorf("two subjects are %+v and %+v, %v, want the second rule for the first", first, second, err)
	}
	if got := w.from.Fetches.Load(); got != 1 {
		t.Errorf("keys were fetched %d times, want once", got)
	}
}

func TestClaimsAreChecked(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	at := func(d time.Duration) int64 { return w.now.Add(d).Unix() }
	for name, tt := range map[string]struct {
		claim string
		value any
		ok    bool
	}{
		"expired within the leeway":        {"exp", at(-59 * time.Second), true},
		"expired":                          {"exp", at(-time.Minute), false},
		"without an expiry":                {"exp", nil, false},
		"an expiry as text":                {"exp", "2030", false},
		"an expiry out of reach":           {"exp", 1e300, false},
		"a negative expiry":                {"exp", -1, false},
		"an expiry with a fraction":        {"exp", float64(at(0)) + 0.5, true},
		"valid soon, within the leeway":    {"nbf", at(59 * time.Second), true},
		"not valid yet":                    {"nbf", at(61 * time.Second), false},
		"without a beginning":              {"nbf", nil, true},
		"of the future":                    {"iat", at(61 * time.Second), false},
		"of another issuer":                {"iss", "https://example.com", false},
		"of the issuer and a slash":        {"iss", w.from.URL + "/", false},
		"without an issuer":                {"iss", nil, false},
		"for others":                       {"aud", "https://example.com", false},
		"for a list of others":             {"aud", []any{"x", 1, map[string]any{}}, false},
		"for no audience":                  {"aud", nil, false},
		"for a list in a list":             {"aud", []any{[]any{oidctest.Audience}}, false},
		"without a subject":                {"sub", nil, false},
		"a subject with a line break":      {"sub", "repo:acme/billing:\nx", false},
		"a subject that no rule fits":      {"sub", "repo:acme/billing-fake:x", false},
		"a subject that is too long":       {"sub", "repo:acme/billing:" + strings.Repeat("x", 1000), false},
		"a claim without a rule":           {"email", "a@example.com", true},
		"a subject that a list is made of": {"sub", []string{main}, false},
	} {
		_, err := w.Identify(t.Context(), w.signed(jose.ES256, map[string]any{tt.claim: tt.value}), w.now)
		if (err == nil) != tt.ok || err != nil && !isBad(err) {
			t.Errorf("a token that is %s gives %v, want accepted %v", name, err, tt.ok)
		}
	}
}

func TestForgedTokensAreRefused(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	claims := w.from.Claims(main, w.now, nil)
	mine, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(algorithm jose.SignatureAlgorithm, key any, header map[string]any) string {
		return oidctest.SignWith(t, algorithm, key, claims, header)
	}
	var public *rsa.PublicKey
	for _, key := range w.from.Published().Keys {
		if k, is := key.Key.(*rsa.PublicKey); is {
			public = k
		}
	}
	spki, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	good := w.signed(jose.ES256, nil)
	parts := strings.Split(good, ".")
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	payload, err := json.Marshal(w.from.Claims(main, w.now, map[string]any{"sub": main + " "}))
	if err != nil {
		t.Fatal(err)
	}
	for name, jwt := range map[string]string{
		"signed by none":                       encode(`{"alg":"none"}`) + "." + parts[1] + ".",
		"signed by None":                       encode(`{"alg":"None"}`) + "." + parts[1] + "." + parts[2],
		"signed with HMAC and the public key":  sign(jose.HS256, jose.JSONWebKey{Key: spki, KeyID: "RS256-1"}, nil),
		"signed with another key of that name": sign(jose.ES256, jose.JSONWebKey{Key: mine, KeyID: "ES256-1"}, nil),
		"signed with another key, no name":     sign(jose.ES256, mine, nil),
		"signed with a key of its header": oidctest.SignWith(t, jose.ES256, jose.JSONWebKey{Key: mine, KeyID: "mine"}, claims,
			map[string]any{"jku": "https://example.com/keys", "jwk": jose.JSONWebKey{Key: mine.Public(), KeyID: "mine"}}),
		"of an algorithm that is not accepted": encode(`{"alg":"PS256","kid":"RS256-1"}`) + "." + parts[1] + "." + parts[2],
		"with an extension": encode(`{"alg":"ES256","kid":"ES256-1","crit":["b64"],"b64":true}`) + "." +
			parts[1] + "." + parts[2],
		"of another type":             encode(`{"alg":"ES256","kid":"ES256-1","typ":"logout+jwt"}`) + "." + parts[1] + "." + parts[2],
		"with other claims":           parts[0] + "." + base64.RawURLEncoding.EncodeToString(payload) + "." + parts[2],
		"without its signature":       parts[0] + "." + parts[1] + ".",
		"cut":                         good[:len(good)-2],
		"of five parts":               good + ".x.y",
		"with claims that are a list": parts[0] + "." + encode(`["`+w.from.URL+`"]`) + "." + parts[2],
		"too large":                   good + strings.Repeat("A", 16<<10),
		"empty":                       "", "dots": "..",
	} {
		if got, err := w.Identify(t.Context(), jwt, w.now); !isBad(err) || !cmp.Equal(got, access.APIToken{}) {
			t.Errorf("a token that is %s gives %+v, %v, want that it is bad", name, got, err)
		} else if len(parts[1]) > 0 && strings.Contains(err.Error(), parts[1]) {
			t.Errorf("the error about a token that is %s holds it: %v", name, err)
		}
	}
	if _, err := w.Identify(t.Context(), good, w.now); err != nil {
		t.Errorf("the token that the others were made of: %v", err)
	}
}

func TestKeysAreRotatedAndFetchedWithALimit(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	old := w.signed(jose.ES256, nil)
	if _, err := w.Identify(t.Context(), old, w.now); err != nil {
		t.Fatal(err)
	}
	w.from.Rotate("2")
	fresh := w.signed(jose.ES256, nil)
	for range 10 {
		if _, err := w.Identify(t.Context(), fresh, w.now.Add(59*time.Second)); !isBad(err) {
			t.Fatalf("an unknown key within a minute gives %v, want that it is bad", err)
		}
	}
	if got := w.from.Fetches.Load(); got != 1 {
		t.Errorf("keys were fetched %d times, want once", got)
	}
	if _, err := w.Identify(t.Context(), fresh, w.now.Add(time.Minute)); err != nil {
		t.Errorf("the new key after a minute: %v", err)
	}
	if _, err := w.Identify(t.Context(), old, w.now.Add(time.Minute)); !isBad(err) {
		t.Errorf("the old key gives %v, want that it is bad", err)
	}
	if got := w.from.Fetches.Load(); got != 2 {
		t.Errorf("keys were fetched %d times, want twice", got)
	}
}

func TestUnreachableIssuerIsAskedOnceForAllRequests(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	jwt := w.signed(jose.RS256, nil)
	release, asked := make(chan struct{}), make(chan struct{}, 100)
	hang := func(http.ResponseWriter, *http.Request) bool {
		asked <- struct{}{}
		<-release
		return true // an empty body is not a discovery document
	}
	w.from.Handle.Store(&hang)
	var all sync.WaitGroup
	errs := make(chan error, 20)
	for range 20 {
		all.Go(func() {
			_, err := w.Identify(t.Context(), jwt, w.now)
			errs <- err
		})
	}
	<-asked
	close(release)
	all.Wait()
	close(errs)
	for err := range errs {
		if err == nil || isBad(err) {
			t.Errorf("without keys: %v, want an error that is not about the token", err)
		}
	}
	if w.Warning(w.now) == "" {
		t.Error("nobody is warned that the issuer does not answer")
	}
	w.from.Handle.Store(nil)
	if _, err := w.Identify(t.Context(), jwt, w.now.Add(5*time.Second)); err != nil {
		t.Errorf("when the issuer is back: %v", err)
	}
	if got := w.Warning(w.now); got != "" {
		t.Errorf("when the issuer is back, the warning is %q", got)
	}
	// It is down again. Its keys are used for a day.
	gone := func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "", http.StatusBadGateway)
		return true
	}
	w.from.Handle.Store(&gone)
	later := w.now.Add(23 * time.Hour)
	if _, err := w.Identify(t.Context(), w.from.Sign(jose.RS256, w.from.Claims(main, later, nil)), later); err != nil {
		t.Errorf("a known key, the issuer being down: %v", err)
	}
	later = w.now.Add(25 * time.Hour)
	if _, err := w.Identify(t.Context(), w.from.Sign(jose.RS256, w.from.Claims(main, later, nil)), later); err == nil || isBad(err) {
		t.Errorf("a key that was last seen a day ago gives %v, want an error that is not about the token", err)
	}
}

func TestDocumentsOfTheIssuerAreChecked(t *testing.T) {
	t.Parallel()
	elsewhere := oidctest.New(t)
	for name, documents := range map[string]func(w *trial) (discovery, keys string){
		"of another issuer": func(w *trial) (string, string) {
			return `{"issuer":"https://example.com","jwks_uri":"` + w.from.URL + `/keys"}`, ""
		},
		"with keys by plain HTTP": func(w *trial) (string, string) {
			return `{"issuer":"` + w.from.URL + `","jwks_uri":"http://example.com/keys"}`, ""
		},
		"with keys in a file": func(w *trial) (string, string) {
			return `{"issuer":"` + w.from.URL + `","jwks_uri":"file:///etc/passwd"}`, ""
		},
		"redirected": func(*trial) (string, string) { return "redirect", "" },
		"no JSON":    func(*trial) (string, string) { return "<html>", "" },
		"endless":    func(*trial) (string, string) { return `"` + strings.Repeat("x", 2<<20) + `"`, "" },
		"no keys":    func(*trial) (string, string) { return "", `{"keys":[]}` },
		"small keys": func(*trial) (string, string) { return "", smallKey(t) },
		"keys for encryption": func(w *trial) (string, string) {
			set := w.from.Published()
			for i := range set.Keys {
				set.Keys[i].Use = "enc"
			}
			text, _ := json.Marshal(set)
			return "", string(text)
		},
		"secret keys": func(*trial) (string, string) { return "", `{"keys":[{"kty":"oct","k":"c2VjcmV0","kid":"RS256-1"}]}` },
	} {
		w := newTrial(t)
		discovery, keys := documents(w)
		handle := func(rw http.ResponseWriter, r *http.Request) bool {
			switch text := map[bool]string{true: discovery, false: keys}[strings.HasPrefix(r.URL.Path, "/.well-known")]; text {
			case "":
				return false
			case "redirect":
				http.Redirect(rw, r, elsewhere.URL+r.URL.Path, http.StatusFound)
			default:
				fmt.Fprint(rw, text)
			}
			return true
		}
		w.from.Handle.Store(&handle)
		if _, err := w.Identify(t.Context(), w.signed(jose.RS256, nil), w.now); err == nil || isBad(err) {
			t.Errorf("documents that are %s give %v, want an error that is not about the token", name, err)
		}
	}
	if got := elsewhere.Fetches.Load(); got != 0 {
		t.Errorf("a redirect was followed %d times", got)
	}
}

func smallKey(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"keys": []any{map[string]string{"kty": "RSA", "kid": "RS256-1", "e": "AQAB",
		"n": base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte{0xff}, 128))}}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestIssuersAreChecked(t *testing.T) {
	t.Parallel()
	for _, issuer := range []string{"", "example.com", "http://example.com", "https://u:p@example.com", "https://example.com?x",
		"https://example.com#x"} {
		if _, err := oidc.New(oidc.Options{Issuer: issuer, Audience: "x", Rules: rules}); err == nil {
			t.Errorf("issuer %q is accepted", issuer)
		}
	}
	if _, err := oidc.New(oidc.Options{Issuer: "https://example.com/path", Audience: "x", Rules: rules}); err != nil {
		t.Error(err)
	}
	if _, err := oidc.New(oidc.Options{Issuer: "https://example.com", Rules: rules}); err == nil {
		t.Error("no audience is accepted")
	}
}

// The issuer signs only with its own keys: every other JWT is bad, and none makes the check fail in another way.
func FuzzIdentify(f *testing.F) {
	w := newTrial(f)
	good := w.signed(jose.ES256, nil)
	if _, err := w.Identify(f.Context(), good, w.now); err != nil {
		f.Fatal(err)
	}
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	for _, seed := range []string{good, w.signed(jose.RS256, nil), w.signed(jose.EdDSA, nil), "..", "a.b.c", "eyJhbGciOiJub25lIn0.e30."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, jwt string) {
		got, err := w.Identify(t.Context(), jwt, w.now)
		if err == nil && got.Name != main {
			t.Errorf("accepted as %+v", got)
		}
		if err != nil && !isBad(err) {
			t.Errorf("neither good nor bad: %v", err)
		}
	})
}
