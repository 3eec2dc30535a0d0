package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/net/http/httpguts"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/invoke/secret"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// oauth2Client is a client at a token endpoint, with its credentials.
type oauth2Client struct {
	*target.OAuth2Auth
	app, agent string
	secret     string // or the private key in PEM
	endpoint   string // the token URL without its query, for messages
	clients    *clients
}

// usedToken is the token of a request, and its key in the cache.
type usedToken struct {
	*token
	key      tokenKey
	endpoint string
}

// TokenError is the error of an attempt without a token. Nothing was sent to its target.
type TokenError struct {
	attempt.Failure
	// refused means that the token endpoint refused the credentials of the client.
	refused bool
}

// Unwrap returns the failure, which determines the class of the attempt.
func (e *TokenError) Unwrap() error { return &e.Failure }

// addToken adds the token of a client to a request. It asks the token endpoint for one, unless the node has one. If the
// endpoint refuses a secret that its manager has replaced since, it asks once more with the new one: the target has
// received nothing yet.
func (h *Webhooks) addToken(ctx context.Context, r *Request, a *target.OAuth2Auth, now time.Time) error {
	before := len(r.looked)
	used, err := h.askToken(ctx, r, a, now)
	if failure, is := errors.AsType[*TokenError](err); is && failure.refused && h.secrets.Replaced(ctx, r.Owner, r.looked[before:], now) {
		used, err = h.askToken(ctx, r, a, now)
	}
	if err != nil {
		return err
	}
	r.hide(used.text)
	r.Header["Authorization"] = []string{"Bearer " + used.text}
	r.token = used
	return nil
}

// askToken returns the token of a client with its current credentials.
func (h *Webhooks) askToken(ctx context.Context, r *Request, a *target.OAuth2Auth, now time.Time) (*usedToken, error) {
	c, err := h.oauth2Client(ctx, r, a, now)
	if err != nil {
		return nil, err
	}
	hash := sha256.New()
	parts := append([]string{
		c.TokenURL, c.ClientID, string(c.ClientAuth), c.KeyID, string(c.Algorithm), c.Audience, c.CACertificates, c.secret,
	}, c.Scopes...)
	for _, part := range parts {
		sum := sha256.Sum256([]byte(part)) // of a fixed length, so that different lists of parts differ
		hash.Write(sum[:])
	}
	key := tokenKey{app: c.app, sum: [sha256.Size]byte(hash.Sum(nil))}
	found, err := h.tokens.get(ctx, key, c.fetch)
	if err != nil {
		return nil, c.failure(err)
	}
	return &usedToken{token: found, key: key, endpoint: c.endpoint}, nil
}

// oauth2Client returns the client of a request with its credentials, which a response may not repeat either.
func (h *Webhooks) oauth2Client(ctx context.Context, r *Request, a *target.OAuth2Auth, now time.Time) (c oauth2Client, err error) {
	c = oauth2Client{OAuth2Auth: a, app: r.App, agent: h.agent, endpoint: a.TokenURL}
	c.endpoint, _, _ = strings.Cut(a.TokenURL, "?")
	if a.ClientAuth == target.ClientAuthPrivateKeyJWT {
		if c.secret, err = h.look(ctx, r, *a.PrivateKey, now); err != nil {
			return c, attempt.BadSecret("auth oauth2 private_key", err)
		}
	} else if c.secret, err = h.Reveal(ctx, r, "auth oauth2 client_secret", *a.ClientSecret, now); err != nil {
		return c, err
	}
	var trusted *target.TLS
	if a.CACertificates != "" {
		trusted = &target.TLS{CACertificates: a.CACertificates}
	}
	c.clients, err = h.pool.with(trusted, "", ScopeOf(r.App, r.Bounds.Egress), now)
	return c, err
}

// failure returns the error of an attempt without a token. Nothing was sent to its target.
func (c oauth2Client) failure(err error) error {
	failure := &TokenError{Failure: attempt.Failure{Class: run.ClassOAuth2, Err: fmt.Errorf("token endpoint %s: %w", c.endpoint, err)}}
	var known *TokenError
	var denied *attempt.Failure
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, context.DeadlineExceeded):
		failure.Err = fmt.Errorf("token endpoint %s: no response within the timeout of the attempt", c.endpoint)
	case errors.As(err, &denied): // the egress rules and the bounds are not retried
		failure.Class = denied.Class
	}
	return failure
}

// fetch asks the token endpoint for a token.
func (c oauth2Client) fetch(ctx context.Context) (*token, error) {
	askedAt := time.Now()
	r, err := c.request(askedAt)
	if err != nil {
		return nil, err
	}
	got, err := send(ctx, c.clients.fresh, r, &attempt.Stopwatch{Start: askedAt}) // once; a kept connection might repeat it
	clean := r.Redaction()
	if err != nil {
		return nil, c.unreachable(ctx, err, clean)
	}
	return c.read(got, askedAt, clean)
}

// unreachable returns the error of a token endpoint without a response.
func (c oauth2Client) unreachable(ctx context.Context, err error, clean attempt.Redaction) error {
	if denied, is := errors.AsType[*attempt.Failure](err); is {
		return denied
	}
	outcome := attempt.Classify(context.WithoutCancel(ctx), ctx, err, input.Duration(tokenTimeout))
	return &TokenError{Failure: attempt.Failure{Class: run.ClassOAuth2, Addresses: attempt.AddressesOf(outcome),
		Err: fmt.Errorf("token endpoint %s: %s", c.endpoint, clean.Clean(outcome.Error))}}
}

// request returns the request for a token at now (RFC 6749, section 4.4.2).
func (c oauth2Client) request(now time.Time) (Request, error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if len(c.Scopes) > 0 {
		form.Set("scope", strings.Join(c.Scopes, " "))
	}
	if c.Audience != "" {
		form.Set("audience", c.Audience)
	}
	r := Request{Owner: secret.Owner{App: c.app}, Method: http.MethodPost, URL: c.TokenURL, clients: c.clients, Header: http.Header{
		"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"application/json"}, "User-Agent": {c.agent},
	}}
	switch cmp.Or(c.ClientAuth, target.ClientAuthBasic) {
	case target.ClientAuthBasic:
		// RFC 6749 encodes both for a form before RFC 7617 joins them.
		both := base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(c.ClientID) + ":" + url.QueryEscape(c.secret)))
		r.Header["Authorization"] = []string{"Basic " + both}
		r.hide(both, c.secret)
	case target.ClientAuthPost:
		form.Set("client_id", c.ClientID)
		form.Set("client_secret", c.secret)
		r.hide(c.secret)
	case target.ClientAuthPrivateKeyJWT:
		assertion, err := c.assertion(now)
		if err != nil {
			return r, attempt.BadSecret("auth oauth2 private_key", err)
		}
		form.Set("client_id", c.ClientID)
		form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		form.Set("client_assertion", assertion)
		r.hide(assertion)
	}
	r.Body = []byte(form.Encode())
	return r, nil
}

// Refused notes that a target responded with a status to a request. It reports whether the status was 401 and the next
// attempt has another token.
func (h *Webhooks) Refused(r Request, status int) bool {
	return status == http.StatusUnauthorized && r.token != nil && h.tokens.refuse(r.token.key, r.token.token)
}

// assertionLife is how long the JWT of a client is valid. It is used at once; the rest is for clocks that differ.
const assertionLife = 2 * time.Minute

// assertion returns a JWT that identifies the client (RFC 7523, section 3). Its error contains no part of the key.
func (c oauth2Client) assertion(now time.Time) (string, error) {
	algorithm := cmp.Or(c.Algorithm, target.AlgorithmRS256)
	key, err := target.ParseAssertionKey(c.secret, algorithm)
	if err != nil {
		return "", err
	}
	options := (&jose.SignerOptions{}).WithType("JWT")
	if c.KeyID != "" {
		options.WithHeader("kid", c.KeyID)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(algorithm), Key: key}, options)
	if err != nil {
		return "", err
	}
	claims, err := json.Marshal(map[string]any{
		"iss": c.ClientID, "sub": c.ClientID, "aud": c.TokenURL, "jti": rand.Text(),
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(assertionLife).Unix(),
	})
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(claims)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// Bounds for responses of token endpoints.
const (
	mostToken        = 16 << 10           // bytes; servers accept no longer headers
	defaultTokenLife = 5 * time.Minute    // of a token without expires_in
	mostTokenLife    = 7 * 24 * time.Hour // a longer one is replaced after this time
	mostCode         = 64                 // bytes of an error code
	mostDescription  = 256                // bytes of an error description
)

// tokenResponse is the response of a token endpoint (RFC 6749, sections 5.1 and 5.2).
type tokenResponse struct {
	AccessToken string        `json:"access_token"`
	TokenType   string        `json:"token_type"`
	ExpiresIn   secondsOrText `json:"expires_in"`
	Error       string        `json:"error"`
	Description string        `json:"error_description"`
}

// secondsOrText is a number of seconds, which some servers write as a text; nil: not given.
type secondsOrText struct{ seconds *float64 }

func (s *secondsOrText) UnmarshalJSON(text []byte) error {
	if bytes.Equal(text, []byte("null")) {
		return nil
	}
	n, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	if err != nil || n < 0 || n != n {
		return errors.New("expires_in is not a number of seconds")
	}
	s.seconds = &n
	return nil
}

// life returns how long a token is valid.
func (s secondsOrText) life() time.Duration {
	if s.seconds == nil {
		return defaultTokenLife
	}
	return time.Duration(min(*s.seconds, mostTokenLife.Seconds())) * time.Second
}

// read returns the token in a response to a request of a time. clean removes the credentials of the client from the
// endpoint's texts.
func (c oauth2Client) read(got Response, askedAt time.Time, clean attempt.Redaction) (*token, error) {
	var said tokenResponse
	wrong := json.Unmarshal(got.Body, &said)
	problem := ""
	switch {
	case got.Status >= 300 && got.Status <= 399:
		problem = "a redirect, which is not followed; use the URL that it leads to"
	case said.Error != "":
		problem = shown(said.Error, mostCode)
		if said.Description != "" {
			problem += " (" + shown(said.Description, mostDescription) + ")"
		}
	case got.Status != http.StatusOK:
		problem = "no OAuth error code"
	case got.More:
		problem = "a body of more than 64 KiB"
	case wrong != nil:
		problem = "a body that is not JSON with a token"
	case said.AccessToken == "":
		problem = "no access_token"
	case len(said.AccessToken) > mostToken || !httpguts.ValidHeaderFieldValue(said.AccessToken):
		problem = "an access_token that is longer than 16 KiB or cannot be sent in a header"
	case said.TokenType != "" && !strings.EqualFold(said.TokenType, "bearer"):
		problem = "a token of the type " + shown(said.TokenType, mostCode) + ", but only bearer tokens can be sent"
	default:
		return newToken(said.AccessToken, askedAt, said.ExpiresIn.life()), nil
	}
	return nil, &TokenError{
		Failure: attempt.Failure{
			Class: run.ClassOAuth2, RetryAfter: retryAfter(got.header, time.Now()),
			Err: fmt.Errorf("token endpoint %s responded with status %d: %s", c.endpoint, got.Status, attempt.Redact(clean.Clean(problem))),
		},
		// RFC 6749, section 5.2: invalid_client comes with the status 401 or 400.
		refused: got.Status == http.StatusUnauthorized || said.Error == "invalid_client",
	}
}

// shown returns the beginning of a token endpoint's text, with only visible ASCII.
func shown(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return text[:min(len(text), most)]
}
