package api

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
)

// tokenPrefix lets secret scanners and people recognize a leaked token.
const tokenPrefix = "carillon_"

// NewToken draws a random bearer token of 256 bits. The secret goes to its owner and is stored
// nowhere; the hash goes to the store.
func NewToken() (secret string, hash [32]byte) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails; see its documentation
	secret = tokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	return secret, HashToken(secret)
}

// HashToken returns the hash by which the store finds a token.
func HashToken(secret string) [32]byte { return sha256.Sum256([]byte(secret)) }

// authorize finds the token of r and checks that it permits the route.
func (a *API) authorize(rt route, r *request) error {
	token, err := a.caller(rt, r)
	if err != nil {
		return err
	}
	r.token = token
	if !token.May(rt.scope) {
		return refuse(dispatcher.CodeForbidden, "token %s does not have the scope %s, which this route needs",
			dispatcher.Echo(token.Name), rt.scope)
	}
	if app := r.PathValue("app"); app != "" && !r.maySee(app) {
		return notBound(token, app)
	}
	if rt.allApps && len(token.Apps) > 0 {
		return refuse(dispatcher.CodeForbidden, "token %s is bound to apps; this route needs a token for all apps",
			dispatcher.Echo(token.Name))
	}
	return nil
}

func notBound(token dispatcher.APIToken, app string) error {
	return refuse(dispatcher.CodeForbidden, "token %s is not bound to app %s", dispatcher.Echo(token.Name),
		dispatcher.Echo(app))
}

// caller looks up the bearer token. The error is the same for every kind of bad token. The look-up
// is by hash, so its timing does not reveal which tokens exist.
func (a *API) caller(rt route, r *request) (dispatcher.APIToken, error) {
	unauthorized := refuse(dispatcher.CodeUnauthorized,
		`a valid bearer token is needed: create one with "carillon token create" and send it as "Authorization: Bearer carillon_…"`)
	headers := r.Header.Values("Authorization")
	if len(headers) != 1 {
		return dispatcher.APIToken{}, unauthorized
	}
	scheme, secret, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return dispatcher.APIToken{}, unauthorized
	}
	hash := HashToken(strings.TrimSpace(secret))
	find := func() (dispatcher.APIToken, error) { return a.store.TokenByHash(r.Context(), hash) }
	if rt.outage {
		find = func() (dispatcher.APIToken, error) { return a.outage.find(r.Context(), a.store, hash) }
	}
	token, err := find()
	if errors.Is(err, dispatcher.ErrNotFound) {
		return dispatcher.APIToken{}, unauthorized
	}
	return token, err
}

// by returns who makes the request r, for the audit log and the bounds of apps.
func (r *request) by() dispatcher.Change {
	address, _, _ := net.SplitHostPort(r.RemoteAddr)
	return dispatcher.Change{
		Actor: r.token.Name, TokenID: r.token.ID, Address: address, RequestID: r.id,
		Operator: r.token.May(dispatcher.ScopeAdmin) && len(r.token.Apps) == 0,
	}
}

// maySee says whether the token of r permits app.
func (r *request) maySee(app string) bool {
	return len(r.token.Apps) == 0 || slices.Contains(r.token.Apps, app)
}
