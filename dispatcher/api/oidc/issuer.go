package oidc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/go-jose/go-jose/v4"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Options are an operator's settings of an issuer.
type Options struct {
	// Issuer is its URL, as in the claim iss. Audience must be in the claim aud.
	Issuer, Audience string
	Rules            Rules
	Logger           *slog.Logger // default slog.Default()
}

// Issuer checks JWTs of one issuer.
type Issuer struct {
	url, audience string
	rules         Rules
	log           *slog.Logger
	client        *http.Client

	mu       sync.Mutex
	keys     *keySet       // nil: none were fetched
	tried    time.Time     // when the latest fetch began
	fetching chan struct{} // closed when the fetch ends; nil: none is under way
	failed   error         // of the latest fetch
}

// New returns an issuer. It fetches nothing; see Run.
func New(o Options) (*Issuer, error) {
	if err := checkURL(o.Issuer); err != nil {
		return nil, fmt.Errorf("issuer %s: %w", input.Echo(o.Issuer), err)
	}
	if strings.Contains(o.Issuer, "?") {
		return nil, fmt.Errorf("issuer %s: it has a query, which no issuer has", input.Echo(o.Issuer))
	}
	if o.Audience == "" {
		return nil, errors.New("audience: is required; choose one for this installation, such as its URL, and have tokens issued for it")
	}
	if err := o.Rules.validate(); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Issuer{url: o.Issuer, audience: o.Audience, rules: o.Rules, log: o.Logger, client: newHTTPClient()}, nil
}

// Run keeps the keys fresh until ctx ends.
func (i *Issuer) Run(ctx context.Context) {
	defer i.client.CloseIdleConnections()
	for pause := time.Duration(0); backoff.Sleep(ctx, pause); {
		pause = keyInterval
		if err := i.refresh(ctx, time.Now()); err != nil && ctx.Err() == nil { //nolint:forbidigo // a loop
			i.log.WarnContext(ctx, "keys of the OIDC issuer not fetched", "issuer", i.url, "err", err)
			pause = keyRetry
		}
	}
}

// Warning returns an action that the operator must take about the issuer, or an empty text.
func (i *Issuer) Warning(now time.Time) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.failed == nil:
		return ""
	case i.keys == nil || now.Sub(i.keys.at) >= keyLife:
		return "the OIDC issuer does not answer, and there are no keys of it, so no JSON Web Token is accepted; the log says why"
	case now.Sub(i.keys.at) >= 2*keyInterval:
		return "the OIDC issuer has not answered since " + input.FormatInstant(i.keys.at) + "; its keys serve for a day; the log says why"
	}
	return ""
}

// refresh fetches the keys, or waits for the fetch under way.
func (i *Issuer) refresh(ctx context.Context, now time.Time) error {
	i.mu.Lock()
	if under := i.fetching; under != nil {
		i.mu.Unlock()
		select {
		case <-under:
			i.mu.Lock()
			defer i.mu.Unlock()
			return i.failed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	done := make(chan struct{})
	i.fetching, i.tried = done, now
	i.mu.Unlock()
	// The request that started the fetch may be cancelled while others wait for it.
	set, err := i.fetch(context.WithoutCancel(ctx), now)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.failed = err; err == nil {
		i.keys = set
	}
	i.fetching = nil
	close(done)
	return err
}

// key finds the key of a JWT, and fetches the keys if it is unknown, unless they were fetched just before.
func (i *Issuer) key(ctx context.Context, kid, algorithm string, now time.Time) (*jose.JSONWebKey, error) {
	set, due := i.current(now)
	if key, found := set.find(kid, algorithm); found {
		return key, nil
	}
	if due {
		if err := i.refresh(ctx, now); err != nil && set == nil {
			return nil, fmt.Errorf("fetch the keys of %s: %w", i.url, err)
		}
		set, _ = i.current(now)
	}
	if set == nil {
		return nil, fmt.Errorf("there are no keys of %s", i.url)
	}
	key, found := set.find(kid, algorithm)
	if !found {
		return nil, bad("no key of the issuer fits")
	}
	return key, nil
}

// current returns the keys, unless they are too old. due means that a JWT with an unknown key may have them fetched.
func (i *Issuer) current(now time.Time) (set *keySet, due bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	interval := unknownKeyInterval
	if set = i.keys; set == nil || now.Sub(set.at) >= keyLife {
		set, interval = nil, noKeyInterval
	}
	return set, i.fetching != nil || now.Sub(i.tried) >= interval
}

// badToken is the error of a JWT that is not accepted, with the reason. It holds no part of the JWT.
type badToken struct{ why string }

func bad(why string) error { return &badToken{why} }

// Error includes the reason.
func (b *badToken) Error() string { return "the JSON Web Token is not accepted: " + b.why }

func (b *badToken) BadToken() string { return b.why }

// maxJWT bounds a JWT. The API's limit of headers is 32 KiB.
const maxJWT = 16 << 10 // bytes

// Identify returns the token for the identity in a JWT.
func (i *Issuer) Identify(ctx context.Context, jwt string, now time.Time) (access.APIToken, error) {
	claims, err := i.verify(ctx, jwt, now)
	if err != nil {
		return access.APIToken{}, err
	}
	return i.identity(claims, now)
}

// verify returns the claims of a JWT that the issuer has signed.
func (i *Issuer) verify(ctx context.Context, jwt string, now time.Time) (map[string]any, error) {
	if len(jwt) > maxJWT {
		return nil, bad(fmt.Sprintf("it is larger than %d bytes", maxJWT))
	}
	signed, err := jose.ParseSignedCompact(jwt, []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA})
	if err != nil || len(signed.Signatures) != 1 {
		return nil, bad("its form or its algorithm is not accepted")
	}
	header := signed.Signatures[0].Protected
	if err := checkHeader(header); err != nil {
		return nil, err
	}
	// A JWT of another issuer does not cause a fetch of keys. Everything else is read from the signed part.
	if claims, err := parseClaims(signed.UnsafePayloadWithoutVerification()); err != nil {
		return nil, err
	} else if claims["iss"] != i.url {
		return nil, bad("it is of another issuer")
	}
	key, err := i.key(ctx, header.KeyID, header.Algorithm, now)
	if err != nil {
		return nil, err
	}
	payload, err := signed.Verify(key)
	if err != nil {
		return nil, bad("its signature is wrong")
	}
	return parseClaims(payload)
}

// checkHeader refuses types other than those of identity and access tokens, and critical extensions.
func checkHeader(header jose.Header) error {
	if _, is := header.ExtraHeaders["crit"]; is {
		return bad("its header demands an extension")
	}
	kind, is := header.ExtraHeaders[jose.HeaderType]
	text, isText := kind.(string)
	switch strings.TrimPrefix(strings.ToLower(text), "application/") {
	case "jwt", "at+jwt":
		return nil
	case "":
		if !is || isText {
			return nil
		}
	}
	return bad("its type is not JWT")
}

// identity checks the claims of a JWT with a valid signature.
func (i *Issuer) identity(claims map[string]any, now time.Time) (access.APIToken, error) {
	var none access.APIToken
	expires, err := i.check(claims, now)
	if err != nil {
		return none, err
	}
	subject, _ := claims["sub"].(string)
	if subject == "" || len(subject) > maxSubject || strings.ContainsFunc(subject, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return none, bad("it has no subject that can be shown")
	}
	rule, found := i.rules.find(claims)
	if !found {
		return none, bad("no rule fits its claims")
	}
	id := sha256.Sum256([]byte(i.url + "\x00" + subject))
	return access.APIToken{
		ID: "oidc:" + hex.EncodeToString(id[:8]), Name: subject,
		TokenSpec: access.TokenSpec{Scopes: rule.Scopes, Apps: rule.Apps, ExpiresAt: &expires},
	}, nil
}
