package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// APIToken is a bearer token of the HTTP API. The token itself is shown once, at its creation or rotation.
type APIToken struct {
	// ID is random, and never reused, because the audit log names it.
	ID string `json:"id" body:"-"`
	// Name is chosen by its creator; see CheckName. It may be reused after the token was revoked.
	Name string `json:"name" schema:"Name"`
	// Hash is the SHA-256 of the token.
	Hash [32]byte `json:"-"`
	TokenSpec
	TokenStatus `body:"-"`
}

// TokenSpec has the values that the creator of a token chooses.
type TokenSpec struct {
	// Description is free text of at most 1024 characters.
	Description string `json:"description" schema:"max=1024"`
	// Scopes are the permissions of the token; at least one.
	Scopes []Scope `json:"scopes" schema:"required,min=1"`
	// Apps are the apps that the token is bound to; if nil, it works for all apps, and for things outside of apps.
	Apps []string `json:"apps,omitzero" schema:"Name,max=100"`
	// ExpiresAt is when the token expires; nil means never.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// TokenStatus is what Carillon itself knows about a token.
type TokenStatus struct {
	CreatedAt time.Time `json:"created_at"`
	// LastUsedAt is when the token was last used, to within some minutes; nil if never.
	LastUsedAt *time.Time `json:"last_used_at,omitempty"`
	// RotatedUntil is until when the secret before the latest rotation also works; nil if it was never rotated.
	RotatedUntil *time.Time `json:"rotated_until,omitempty"`
	// Revision counts changes and rotations.
	Revision int64 `json:"revision"`
}

// IssuedToken is a token with its secret, which is shown only at its creation and rotation.
type IssuedToken struct {
	APIToken
	// Secret is the text that a caller sends; empty if this request did not create one.
	Secret string `json:"secret,omitempty"`
}

// TokenRotation gives a token another secret.
type TokenRotation struct {
	// Hash is the SHA-256 of the new secret.
	Hash [32]byte `json:"-"`
	// Overlap is how long the old secret also works, but not past the token's expiry. There is at most one old
	// secret: another rotation ends it.
	Overlap input.Duration `json:"overlap"`
	// ExpiresAt replaces the expiry of the token; nil keeps it.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// The overlap of a rotation.
const (
	DefaultTokenOverlap = input.Duration(24 * time.Hour)
	maxTokenOverlap     = 30 * 24 * time.Hour
)

// maxTokenApps bounds the apps of a token, and so the cost of listing apps for it.
const maxTokenApps = 100

// SetDefaults sets the default overlap.
func (r *TokenRotation) SetDefaults() { r.Overlap = DefaultTokenOverlap }

// Validate returns everything wrong with a rotation, as Problems, or nil.
func (r TokenRotation) Validate() error {
	var problems input.Problems
	r.Overlap.CheckRange(&problems, "/overlap", 0, maxTokenOverlap)
	return problems.Err()
}

// Normal returns the token with its scopes and apps in order, each once.
func (t APIToken) Normal() APIToken {
	t.Scopes = slices.DeleteFunc(Scopes(), func(scope Scope) bool { return !t.May(scope) })
	t.Apps = slices.Compact(slices.Sorted(slices.Values(t.Apps)))
	return t
}

// Expired reports whether the token has expired at now.
func (t APIToken) Expired(now time.Time) bool { return t.ExpiresAt != nil && !now.Before(*t.ExpiresAt) }

// Administers reports whether the token can manage tokens at now.
func (t APIToken) Administers(now time.Time) bool {
	return t.May(ScopeAdmin) && len(t.Apps) == 0 && !t.Expired(now)
}

// CheckExpiry refuses, as Problems, an expiry that has passed at now: to end a token, revoke it.
func CheckExpiry(at *time.Time, now time.Time) error {
	var problems input.Problems
	if at != nil && !now.Before(*at) {
		problems.Add("/expires_at", input.CodeAtPast, "expires_at %s has passed, it is %s; revoke the token if it is to cease to work at once",
			input.FormatInstant(*at), input.FormatInstant(now))
	}
	return problems.Err()
}

// May reports whether the token has a scope.
func (t APIToken) May(scope Scope) bool { return slices.Contains(t.Scopes, scope) }

// Validate returns everything wrong with the values from the creator of a token, as Problems, or nil.
func (t APIToken) Validate() error {
	var problems input.Problems
	input.CheckName(&problems, "/name", t.Name)
	input.CheckText(&problems, "/description", t.Description)
	if n := len(t.Apps); n > maxTokenApps {
		problems.Add("/apps", input.CodeTooMany, "%d apps are more than the %d that a token can be bound to; make one for each group of apps",
			n, maxTokenApps)
		return problems.Err()
	}
	if t.Apps != nil && len(t.Apps) == 0 { // a computed list that came out empty must not allow all apps
		problems.Add("/apps", input.CodeRequired, "apps is an empty list, so the token would work for no app; name the apps, or leave apps out "+
			"for a token that is bound to none and works for all")
	}
	for i, app := range t.Apps {
		input.CheckName(&problems, fmt.Sprintf("/apps/%d", i), app)
	}
	if len(t.Scopes) == 0 {
		problems.Add("/scopes", input.CodeRequired, "scopes are missing; give at least one of %s", input.Listed(Scopes()))
	}
	for i, scope := range t.Scopes {
		at := fmt.Sprintf("/scopes/%d", i)
		input.CheckEnum(&problems, at, "scope", scope, Scopes())
		if scope == ScopeAdmin && len(t.Apps) > 0 {
			problems.Add(at, input.CodeTokenAdmin, "a token that is bound to apps cannot have the scope admin; leave out admin or the apps")
		}
	}
	return problems.Err()
}

// Scope is one permission of a token.
type Scope string

// The scopes. None includes another.
const (
	ScopeRead     Scope = "read"     // see definitions and history
	ScopeRun      Scope = "run"      // run, retry and cancel
	ScopeWrite    Scope = "write"    // change apps, jobs, calendars, groups and alerts
	ScopeRegister Scope = "register" // register endpoints in groups
	ScopeMetrics  Scope = "metrics"  // scrape /metrics
	ScopeExport   Scope = "export"   // export apps to another installation
	ScopeImport   Scope = "import"   // create apps from exports
	ScopeAdmin    Scope = "admin"    // operate nodes and rollbacks, set bounds of apps, manage tokens; bound to no app
)

// Scopes lists all scopes.
func Scopes() []Scope {
	return []Scope{ScopeRead, ScopeRun, ScopeWrite, ScopeRegister, ScopeMetrics, ScopeExport, ScopeImport, ScopeAdmin}
}

// TokensBefore are all tokens before one of them changes: one that can manage tokens must stay.
type TokensBefore struct{ All []APIToken }

// Named returns the token of a name.
func (b TokensBefore) Named(name string) (APIToken, bool) {
	for _, token := range b.All {
		if token.Name == name {
			return token, true
		}
	}
	return APIToken{}, false
}

// Put returns declared as it is to be stored, without its secret. The error is Problems, or ErrLastAdmin.
func (b TokensBefore) Put(declared APIToken, by input.Change, now time.Time) (APIToken, error) {
	declared = declared.Normal()
	old, exists := b.Named(declared.Name)
	if !input.SameInstant(old.ExpiresAt, declared.ExpiresAt) {
		if err := CheckExpiry(declared.ExpiresAt, now); err != nil {
			return declared, err
		}
	}
	if !exists {
		return declared, nil
	}
	return declared, b.keepAdmin(old, &declared, by, now)
}

// Delete returns the named token if it may be deleted. The error is ErrNotFound, or ErrLastAdmin.
func (b TokensBefore) Delete(name string, by input.Change, now time.Time) (APIToken, error) {
	old, exists := b.Named(name)
	if !exists {
		return old, dispatcher.NotFound("token", name)
	}
	return old, b.keepAdmin(old, nil, by, now)
}

// keepAdmin refuses a change by a token that removes the last token that can manage tokens. after replaces old, or is
// nil.
func (b TokensBefore) keepAdmin(old APIToken, after *APIToken, by input.Change, now time.Time) error {
	if by.TokenID == "" || !old.Administers(now) || after != nil && after.Administers(now) {
		return nil
	}
	for _, token := range b.All {
		if token.Name != old.Name && token.Administers(now) {
			return nil
		}
	}
	return fmt.Errorf("token %s: %w", old.Name, dispatcher.ErrLastAdmin)
}

// Rotated returns a token after its rotation, with another secret, the new expiry, and until when its old secret
// works. The error is ErrConflict if it has expired, or Problems.
func (t APIToken) Rotated(rotation TokenRotation, now time.Time) (APIToken, error) {
	// A later expiry does not extend the old secret.
	until := now.Add(rotation.Overlap.Std())
	if t.ExpiresAt != nil && t.ExpiresAt.Before(until) {
		until = *t.ExpiresAt
	}
	next := t
	next.Hash, next.RotatedUntil = rotation.Hash, &until
	if rotation.ExpiresAt != nil {
		next.ExpiresAt = rotation.ExpiresAt
		return next, CheckExpiry(next.ExpiresAt, now)
	}
	if t.Expired(now) {
		return t, fmt.Errorf("token %s expired at %s: %w", t.Name, input.FormatInstant(*t.ExpiresAt), dispatcher.ErrConflict)
	}
	return next, nil
}

// TokenPrefix lets secret scanners and people recognize a leaked token.
const TokenPrefix = "carillon_"

// NewToken returns a random bearer token of 256 bits. The secret goes to its owner and is not stored; the hash goes
// to the store.
func NewToken() (secret string, hash [32]byte) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails; see its documentation
	secret = TokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	return secret, HashToken(secret)
}

// HashToken returns the hash that the store finds a token by.
func HashToken(secret string) [32]byte { return sha256.Sum256([]byte(secret)) }

// NewTokenID returns a random id for a token.
func NewTokenID() string { return strings.ToLower(rand.Text()) }

// Session is the login of one person in the console.
type Session struct {
	// ID is random. It is not a secret: the audit log names it.
	ID string
	// Hash is the SHA-256 of the secret in the browser.
	Hash [32]byte
	// Token has the permissions of the session. An API token is read again for each use, so that the session ends
	// with it. An identity of an issuer is not stored: the session keeps the permissions from the rules.
	Token APIToken
	// Rules names the rules that permitted it to an identity; empty if the token is stored.
	Rules string
	// CreatedAt is when the person signed in, and UsedAt when the session was used last, to within a minute.
	CreatedAt, UsedAt time.Time
	// EndsAt is when the session ends, however much it is used.
	EndsAt time.Time
}

// The ends and bounds of sessions.
const (
	// SessionIdle is how long a session may stay unused, and SessionLife how long it may last.
	SessionIdle = time.Hour
	SessionLife = 12 * time.Hour
	// SessionRenewal is the least time between two records of the use of a session.
	SessionRenewal = time.Minute
	// MaxTokenSessions bounds the sessions of one token. A further login ends the one with the oldest use.
	MaxTokenSessions = 20
	// MaxSessions bounds the sessions of all tokens. A further login ends the session with the oldest use: if more
	// than half belong to app-bound tokens, one of the apps with the most sessions, else one of the other tokens. So
	// an app cannot lock others out, and people of all apps cannot lock those of one out.
	MaxSessions = 10_000
)

// Ended reports whether the session has ended at now.
func (s Session) Ended(now time.Time) bool {
	return !now.Before(s.EndsAt) || !now.Before(s.UsedAt.Add(SessionIdle)) || s.Token.Expired(now)
}

// LoginRequest is one login of a person at an issuer of identities.
type LoginRequest struct {
	// State, Nonce and Verifier are random.
	State, Nonce, Verifier string
	// Callback is the URL that the issuer sends the browser to.
	Callback string
}
