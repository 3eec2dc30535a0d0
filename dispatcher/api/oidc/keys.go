package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// keyInterval is how often keys are fetched, and keyRetry how often after a failure.
	keyInterval = time.Hour
	keyRetry    = time.Minute
	// keyLife is how long keys are used after the last successful fetch.
	keyLife = 24 * time.Hour
	// unknownKeyInterval is the least time between fetches for JWTs that name unknown keys, and noKeyInterval the same
	// while there are no keys at all.
	unknownKeyInterval = time.Minute
	noKeyInterval      = 5 * time.Second
	// fetchTime bounds a fetch: a request may wait for it.
	fetchTime = 5 * time.Second
	// maxDocument and maxKeys bound the responses of an issuer.
	maxDocument = 1 << 20 // bytes
	maxKeys     = 100
	// minRSABits is the least size of an RSA key.
	minRSABits = 2048
)

// keySet is the keys of an issuer at a time.
type keySet struct {
	keys []jose.JSONWebKey
	at   time.Time
	// authorize and exchange are the endpoints for the login of people and the exchange of codes; empty: not published.
	authorize, exchange string
}

// find returns the key that a header names. A header without a name fits only if one key has its algorithm.
func (s *keySet) find(kid, algorithm string) (*jose.JSONWebKey, bool) {
	if s == nil {
		return nil, false
	}
	var found *jose.JSONWebKey
	for i := range s.keys {
		key := &s.keys[i]
		if kid != "" && key.KeyID != kid || !verifies(key, algorithm) {
			continue
		}
		if found != nil {
			return nil, false
		}
		found = key
	}
	return found, found != nil
}

func verifies(key *jose.JSONWebKey, algorithm string) bool {
	if key.Algorithm != "" && key.Algorithm != algorithm {
		return false
	}
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		return algorithm == string(jose.RS256)
	case *ecdsa.PublicKey:
		curve := map[string]string{"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}[algorithm]
		return curve != "" && public.Curve.Params().Name == curve
	case ed25519.PublicKey:
		return algorithm == string(jose.EdDSA)
	}
	return false
}

// newHTTPClient returns a client that follows no redirect.
func newHTTPClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
			MaxResponseHeaderBytes: 64 << 10, MaxIdleConns: 2, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("it redirects, which is not followed") },
	}
}

// checkURL refuses URLs without https. Plain HTTP is for tests on this machine.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Fragment != "":
		return errors.New("it is not a URL such as https://issuer.example.com")
	case u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname()):
		return nil
	}
	return errors.New("it must begin with https://")
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// fetch gets the keys that the issuer publishes now.
func (i *Issuer) fetch(ctx context.Context, now time.Time) (*keySet, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	var discovery struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
		// For the login of people.
		Authorize string `json:"authorization_endpoint"`
		Exchange  string `json:"token_endpoint"`
	}
	if err := i.get(ctx, strings.TrimSuffix(i.url, "/")+"/.well-known/openid-configuration", &discovery); err != nil {
		return nil, err
	}
	if discovery.Issuer != i.url {
		return nil, fmt.Errorf("the discovery document is that of issuer %q, not of %q", discovery.Issuer, i.url)
	}
	if err := checkURL(discovery.Keys); err != nil {
		return nil, fmt.Errorf("jwks_uri %q: %w", discovery.Keys, err)
	}
	var published struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := i.get(ctx, discovery.Keys, &published); err != nil {
		return nil, err
	}
	set := &keySet{keys: usable(published.Keys), at: now, authorize: discovery.Authorize, exchange: discovery.Exchange}
	if len(set.keys) == 0 {
		return nil, fmt.Errorf("%s holds no key for RS256, ES256, ES384, ES512 or EdDSA", discovery.Keys)
	}
	return set, nil
}

// usable returns the keys for signatures of the accepted algorithms. Others are not an error: issuers publish keys for
// other uses, too.
func usable(published []json.RawMessage) (keys []jose.JSONWebKey) {
	for _, raw := range published[:min(len(published), maxKeys)] {
		var key jose.JSONWebKey
		if json.Unmarshal(raw, &key) != nil || !key.Valid() || !key.IsPublic() || key.Use != "" && key.Use != "sig" {
			continue
		}
		if public, is := key.Key.(*rsa.PublicKey); is && public.N.BitLen() < minRSABits {
			continue
		}
		keys = append(keys, key)
	}
	return keys
}

// get reads a JSON document.
func (i *Issuer) get(ctx context.Context, at string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	response, err := i.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s returns status %d", at, response.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxDocument+1))
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	if len(text) > maxDocument {
		return fmt.Errorf("%s is larger than %d bytes", at, maxDocument)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}
