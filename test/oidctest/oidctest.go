// Package oidctest serves an OpenID Connect issuer for tests, with real keys.
package oidctest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Audience is the audience of the issuer's tokens.
const Audience = "https://carillon.test"

// Issuer is an issuer with one key per algorithm.
type Issuer struct {
	*httptest.Server
	tb   testing.TB
	keys atomic.Pointer[map[jose.SignatureAlgorithm]key]
	// Handle, if set, may respond in place of the issuer; it then returns true.
	Handle atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
	// Fetches counts the requests for keys.
	Fetches atomic.Int32
}

type key struct {
	id      string
	private crypto.Signer
}

// New starts an issuer that ends with the test.
func New(tb testing.TB) *Issuer {
	tb.Helper()
	i := &Issuer{tb: tb}
	i.Rotate("1")
	i.Server = httptest.NewServer(http.HandlerFunc(i.serve))
	tb.Cleanup(i.Close)
	return i
}

// Rotate replaces all keys, and appends a suffix to their names.
func (i *Issuer) Rotate(suffix string) {
	i.tb.Helper()
	keys := map[jose.SignatureAlgorithm]key{}
	var err error
	add := func(algorithm jose.SignatureAlgorithm, private crypto.Signer, failed error) {
		if failed != nil {
			err = failed
		}
		keys[algorithm] = key{string(algorithm) + "-" + suffix, private}
	}
	small, failed := rsa.GenerateKey(rand.Reader, 2048)
	add(jose.RS256, small, failed)
	for algorithm, curve := range map[jose.SignatureAlgorithm]elliptic.Curve{
		jose.ES256: elliptic.P256(), jose.ES384: elliptic.P384(), jose.ES512: elliptic.P521(),
	} {
		private, failed := ecdsa.GenerateKey(curve, rand.Reader)
		add(algorithm, private, failed)
	}
	_, edwards, failed := ed25519.GenerateKey(rand.Reader)
	add(jose.EdDSA, edwards, failed)
	if err != nil {
		i.tb.Fatal(err)
	}
	i.keys.Store(&keys)
}

func (i *Issuer) serve(w http.ResponseWriter, r *http.Request) {
	if handle := i.Handle.Load(); handle != nil && (*handle)(w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	case "/keys":
		i.Fetches.Add(1)
		_ = json.NewEncoder(w).Encode(i.Published())
	default:
		http.NotFound(w, r)
	}
}

// Published returns the public keys.
func (i *Issuer) Published() jose.JSONWebKeySet {
	var set jose.JSONWebKeySet
	for algorithm, k := range *i.keys.Load() {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.private.Public(), KeyID: k.id, Algorithm: string(algorithm), Use: "sig"})
	}
	return set
}

// Claims returns the claims of a valid token of a subject, with some replaced; nil removes a claim.
func (i *Issuer) Claims(subject string, now time.Time, replaced map[string]any) map[string]any {
	claims := map[string]any{
		"iss": i.URL, "aud": Audience, "sub": subject, "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(),
	}
	maps.Copy(claims, replaced)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	return claims
}

// Sign signs claims with the issuer's key for an algorithm.
func (i *Issuer) Sign(algorithm jose.SignatureAlgorithm, claims map[string]any) string {
	i.tb.Helper()
	k := (*i.keys.Load())[algorithm]
	return SignWith(i.tb, algorithm, jose.JSONWebKey{Key: k.private, KeyID: k.id}, claims, nil)
}

// SignWith signs claims with any key, and adds fields to the header.
func SignWith(tb testing.TB, algorithm jose.SignatureAlgorithm, key any, claims map[string]any, header map[string]any) string {
	tb.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		tb.Fatal(err)
	}
	options := &jose.SignerOptions{}
	for name, value := range header {
		options = options.WithHeader(jose.HeaderKey(name), value)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options.WithType("JWT"))
	if err != nil {
		tb.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		tb.Fatal(err)
	}
	compact, err := signed.CompactSerialize()
	if err != nil {
		tb.Fatal(err)
	}
	return compact
}
