package invoke_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestClientSecretIsEncodedAsTheTokenEndpointExpects(t *testing.T) {
	t.Parallel()
	const secret = "pä:ss w0rd+&=%"
	i := withSecrets(t, map[string]string{"secret": secret})
	to, requests := recorder(t)
	server := newTokenServer(t, func(n int32, w http.ResponseWriter, r *http.Request) {
		id, password := r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
		if name, encoded, basic := r.BasicAuth(); basic && password == "" {
			id, _ = url.QueryUnescape(name)
			password, _ = url.QueryUnescape(encoded)
		}
		if r.Method != http.MethodPost || id != "a:b/c" || password != secret || r.Header.Get("Accept") != "application/json" ||
			r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" || r.Header.Get("Carillon-App") != "" {
			say(w, http.StatusUnauthorized, `{"error":"invalid_client"}`)
			return
		}
		issue(w, n)
	})
	for _, how := range []target.OAuth2ClientAuth{"", target.ClientAuthBasic, target.ClientAuthPost} {
		client := clientOf(server.URL)
		client.ClientID, client.ClientAuth = "a:b/c", how
		if o := i.Invoke(t.Context(), withToken(to, client)); o.State != run.Succeeded {
			t.Errorf("client_auth %q: outcome = %+v", how, o)
			continue
		}
		if got := (<-requests).header.Get("Authorization"); !strings.HasPrefix(got, "Bearer token-") {
			t.Errorf("client_auth %q: Authorization = %q", how, got)
		}
	}
}

// newKey returns a key as PEM, and its public half.
func newKey(t *testing.T, key crypto.Signer, err error) (string, crypto.PublicKey) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})), key.Public()
}

// The server verifies the signature with the public key, and the claims by RFC 7523.
func TestTokenEndpointVerifiesTheJWTOfAClient(t *testing.T) {
	t.Parallel()
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ec, ecPublic := newKey(t, p256, err)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	longer, longerPublic := newKey(t, p384, err)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	rs, rsPublic := newKey(t, rsaKey, err)
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	ed, edPublic := newKey(t, edKey, err)
	i := withSecrets(t, map[string]string{"ec": ec, "longer": longer, "rsa": rs, "ed": ed})
	to, requests := recorder(t)
	for algorithm, tt := range map[target.AssertionAlgorithm]struct {
		file   string
		public crypto.PublicKey
	}{
		"": {"rsa", rsPublic}, target.AlgorithmRS256: {"rsa", rsPublic}, target.AlgorithmPS256: {"rsa", rsPublic},
		target.AlgorithmES256: {"ec", ecPublic}, target.AlgorithmES384: {"longer", longerPublic},
		target.AlgorithmEdDSA: {"ed", edPublic},
	} {
		var problem string
		seen := map[string]bool{}
		server := newTokenServer(t, nil)
		server.respond = func(n int32, w http.ResponseWriter, r *http.Request) {
			if problem = wrongAssertion(r, tt.public, server.URL+"/token", seen); problem != "" {
				say(w, http.StatusBadRequest, `{"error":"invalid_client"}`)
				return
			}
			say(w, http.StatusOK, `{"access_token":"a-token","expires_in":0}`)
		}
		key := secretFile(tt.file)
		client := &target.OAuth2Auth{TokenURL: server.URL + "/token", ClientID: "billing", KeyID: "key-1",
			ClientAuth: target.ClientAuthPrivateKeyJWT, PrivateKey: &key, Algorithm: algorithm}
		for range 2 { // each with a JWT of its own
			if o := i.Invoke(t.Context(), withToken(to, client)); o.State != run.Succeeded {
				t.Fatalf("algorithm %q: outcome = %+v: %s", algorithm, o, problem)
			}
			if got := (<-requests).header.Get("Authorization"); got != "Bearer a-token" {
				t.Errorf("algorithm %q: Authorization = %q", algorithm, got)
			}
		}
	}
}

// wrongAssertion returns the problem of the JWT in a request for a token. seen are the ids of those before.
func wrongAssertion(r *http.Request, public crypto.PublicKey, audience string, seen map[string]bool) string {
	form := r.PostForm
	if form.Get("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" || form.Has("client_secret") ||
		r.Header.Get("Authorization") != "" {
		return "not a request with a JWT alone: " + form.Encode()
	}
	signed, err := jose.ParseSignedCompact(form.Get("client_assertion"), []jose.SignatureAlgorithm{
		jose.RS256, jose.PS256, jose.ES256, jose.ES384, jose.EdDSA})
	if err != nil {
		return err.Error()
	}
	text, err := signed.Verify(public)
	if err != nil {
		return err.Error()
	}
	var claims struct {
		Issuer  string `json:"iss"`
		Subject string `json:"sub"`
		For     string `json:"aud"`
		ID      string `json:"jti"`
		From    int64  `json:"nbf"`
		Until   int64  `json:"exp"`
	}
	now := time.Now().Unix()
	if err := json.Unmarshal(text, &claims); err != nil || claims.Issuer != "billing" || claims.Subject != "billing" ||
		claims.For != audience || claims.ID == "" || seen[claims.ID] || claims.From > now || claims.Until <= now || claims.Until > now+300 {
		return string(text)
	}
	seen[claims.ID] = true
	if header := signed.Signatures[0].Protected; header.KeyID != "key-1" || header.ExtraHeaders["typ"] != "JWT" {
		return "the header names another key or type"
	}
	return ""
}

func TestKeyThatDoesNotSignIsNotUsed(t *testing.T) {
	t.Parallel()
	small, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // it is refused
	weak, _ := newKey(t, small, err)
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ec, _ := newKey(t, p256, err)
	i := withSecrets(t, map[string]string{"weak": weak, "ec": ec, "text": "hunter2"})
	to, requests := recorder(t)
	server := newTokenServer(t, nil)
	for file, says := range map[string]string{
		"weak": "has 1024 bits; the minimum is 2048", "ec": "does not sign with \"RS256\"", "text": "is not PEM", "none": "no such file",
	} {
		key := secretFile(file)
		client := &target.OAuth2Auth{TokenURL: server.URL, ClientID: "billing", PrivateKey: &key,
			ClientAuth: target.ClientAuthPrivateKeyJWT}
		o := i.Invoke(t.Context(), withToken(to, client))
		if o.Class != run.ClassSecret || !o.NotSent || !strings.Contains(o.Error, "oauth2 private_key") ||
			!strings.Contains(o.Error, says) || strings.Contains(o.Error, "hunter2") {
			t.Errorf("%s: outcome = %+v, want class secret that says %s", file, o, says)
		}
	}
	if n, asked := len(requests), server.asked.Load(); n != 0 || asked != 0 {
		t.Errorf("%d requests to the target and %d to the token endpoint, want none", n, asked)
	}
}
