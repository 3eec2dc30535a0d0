package oidc

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// LoginOptions are an operator's settings for the login of people.
type LoginOptions struct {
	// Client is the id of the console at the issuer, and the audience of its tokens. Secret is empty for a public client.
	Client, Secret string
	// Scopes are requested in addition to openid, for claims that rules need.
	Scopes []string
}

// Login signs people in at an issuer, by the code flow with PKCE.
type Login struct {
	issuer *Issuer
	LoginOptions
	rules string
}

// NewLogin returns the login at an issuer. The audience of o is that of the API; the client takes its place. It fetches nothing; see Run.
func NewLogin(o Options, l LoginOptions) (*Login, error) {
	if l.Client == "" {
		return nil, errors.New("client id: is required")
	}
	o.Audience = l.Client
	issuer, err := New(o)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(o.Rules)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(o.Issuer + "\x00" + l.Client + "\x00" + string(raw)))
	return &Login{issuer: issuer, LoginOptions: l, rules: hex.EncodeToString(sum[:8])}, nil
}

// Run keeps the keys of the issuer fresh until ctx ends.
func (l *Login) Run(ctx context.Context) { l.issuer.Run(ctx) }

// Rules returns a text that identifies the current rules.
func (l *Login) Rules() string { return l.rules }

// config returns the configuration of the exchange, with the endpoints that the issuer publishes.
func (l *Login) config(ctx context.Context, callback string, now time.Time) (*oauth2.Config, error) {
	set, due := l.issuer.current(now)
	if set == nil && due {
		if err := l.issuer.refresh(ctx, now); err != nil {
			return nil, fmt.Errorf("discover the endpoints of %s: %w", l.issuer.url, err)
		}
		set, _ = l.issuer.current(now)
	}
	if set == nil {
		return nil, fmt.Errorf("the endpoints of %s are not known", l.issuer.url)
	}
	for _, endpoint := range []struct{ name, url string }{{"authorization_endpoint", set.authorize}, {"token_endpoint", set.exchange}} {
		if err := checkURL(endpoint.url); err != nil {
			return nil, fmt.Errorf("%s %q of %s: %w", endpoint.name, endpoint.url, l.issuer.url, err)
		}
	}
	style := oauth2.AuthStyleAutoDetect
	if l.Secret == "" {
		style = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{
		ClientID: l.Client, ClientSecret: l.Secret, RedirectURL: callback, Scopes: append([]string{"openid"}, l.Scopes...),
		Endpoint: oauth2.Endpoint{AuthURL: set.authorize, TokenURL: set.exchange, AuthStyle: style},
	}, nil
}

// Begin returns the URL at which a person signs in.
func (l *Login) Begin(ctx context.Context, r access.LoginRequest, now time.Time) (string, error) {
	config, err := l.config(ctx, r.Callback, now)
	if err != nil {
		return "", err
	}
	return config.AuthCodeURL(r.State, oauth2.S256ChallengeOption(r.Verifier), oauth2.SetAuthURLParam("nonce", r.Nonce)), nil
}

// Finish exchanges the code in a callback for its identity.
func (l *Login) Finish(ctx context.Context, r access.LoginRequest, callback url.Values, now time.Time) (access.APIToken, error) {
	var none access.APIToken
	if err := l.checkCallback(r, callback); err != nil {
		return none, err
	}
	config, err := l.config(ctx, r.Callback, now)
	if err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, l.issuer.client), 2*fetchTime)
	defer cancel()
	token, err := config.Exchange(ctx, callback.Get("code"), oauth2.VerifierOption(r.Verifier))
	if refused, is := errors.AsType[*oauth2.RetrieveError](err); is {
		// Its text would include the issuer's response.
		return none, fmt.Errorf("exchange the code at %s: status %d %s", l.issuer.url, refused.Response.StatusCode,
			input.Echo(refused.ErrorCode))
	}
	if err != nil {
		return none, fmt.Errorf("exchange the code at %s: %w", l.issuer.url, withoutURL(err))
	}
	jwt, _ := token.Extra("id_token").(string)
	if jwt == "" {
		return none, bad("the issuer sent no ID token")
	}
	claims, err := l.issuer.verify(ctx, jwt, now)
	if err != nil {
		return none, err
	}
	if got, _ := claims["nonce"].(string); r.Nonce == "" || !same(got, r.Nonce) {
		return none, bad("it is not for this login")
	}
	if party, has := claims["azp"]; has && party != l.Client {
		return none, bad("it is for another client")
	}
	return l.issuer.identity(claims, now)
}

// withoutURL returns the cause of an error of a request: the URL may contain secrets.
func withoutURL(err error) error {
	if of, is := errors.AsType[*url.Error](err); is {
		return of.Err
	}
	return err
}

// checkCallback refuses a callback that does not belong to this login.
func (l *Login) checkCallback(r access.LoginRequest, callback url.Values) error {
	if r.State == "" || !same(callback.Get("state"), r.State) {
		return bad("the login was not begun in this browser, or too long ago")
	}
	if code := callback.Get("error"); code != "" {
		return bad("the issuer says " + input.Echo(code))
	}
	// RFC 9207: the response of one issuer must not be taken for that of another.
	if from := callback.Get("iss"); callback.Has("iss") && from != l.issuer.url {
		return bad("it comes from another issuer")
	}
	if callback.Get("code") == "" {
		return bad("the issuer sent no code")
	}
	return nil
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// CheckScopes refuses texts that are not scopes.
func CheckScopes(all []string) error {
	at := slices.IndexFunc(all, func(scope string) bool {
		return scope == "" || strings.ContainsFunc(scope, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
	})
	if at >= 0 {
		return fmt.Errorf("%s is not a scope such as groups", input.Echo(all[at]))
	}
	return nil
}
