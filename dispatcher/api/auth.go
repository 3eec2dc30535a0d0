package api

import (
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// checkCertificate demands the client certificate that --client-ca asks for. The server verifies one that is sent, and lets
// callers connect without, because probes have none.
func (a *API) checkCertificate(r *request) error {
	if !a.opts.ClientCertificates || r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return nil
	}
	return input.Refuse(input.CodeUnauthorized,
		"a client certificate of an authority in --client-ca is needed, in addition to a token; only probes pass without one")
}

// authorize finds the token of r and checks that it permits the route.
func (a *API) authorize(rt route, r *request) error {
	if err := a.checkCertificate(r); err != nil {
		return err
	}
	if rt.callback && strings.HasPrefix(r.bearer(), run.CallbackTokenPrefix) {
		return a.authorizeCallback(r)
	}
	token, err := a.caller(rt, r)
	if err != nil {
		return err
	}
	r.token = token
	if !rt.anyScope && !token.May(rt.scope) && (rt.orScope == "" || !token.May(rt.orScope)) {
		needed := string(rt.scope)
		if rt.orScope != "" {
			needed += " or " + string(rt.orScope)
		}
		return input.Refuse(input.CodeForbidden, "token %s does not have the scope %s, which this route needs",
			input.Echo(token.Name), needed)
	}
	if app := r.PathValue("app"); app != "" && !r.maySee(app) {
		return notBound(token, app)
	}
	if rt.allApps && len(token.Apps) > 0 {
		return input.Refuse(input.CodeForbidden, "token %s is bound to apps; this route needs a token for all apps",
			input.Echo(token.Name))
	}
	return nil
}

func notBound(token access.APIToken, app string) error {
	return input.Refuse(input.CodeForbidden, "token %s is not bound to app %s", input.Echo(token.Name),
		input.Echo(app))
}

// caller finds out whose bearer token it is. The error is the same for every kind of bad token; the log says which it is.
func (a *API) caller(rt route, r *request) (access.APIToken, error) {
	unauthorized := input.Refuse(input.CodeUnauthorized,
		`a valid bearer token is needed: create one with "carillon token create" and send it as "Authorization: Bearer carillon_…"`)
	if token, inProcess := r.Context().Value(asKey{}).(access.APIToken); inProcess {
		if token.Expired(r.now) {
			return access.APIToken{}, unauthorized
		}
		a.uses.note(token.ID, r.now)
		return token, nil
	}
	secret := r.bearer()
	if secret == "" {
		return access.APIToken{}, unauthorized
	}
	find := a.stored
	if a.opts.Identities != nil && isJWT(secret) {
		find = a.identified
	}
	token, bad, err := find(rt, r, secret)
	if err != nil {
		return access.APIToken{}, err
	}
	if bad != "" {
		r.token, r.bad = token, bad
		return access.APIToken{}, unauthorized
	}
	a.uses.note(token.ID, r.now)
	return token, nil
}

// bearer returns the bearer token of r, or nothing.
func (r *request) bearer() string {
	headers := r.Header.Values("Authorization")
	if len(headers) != 1 {
		return ""
	}
	scheme, secret, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}

// Why a token is bad, for the log and the audit log.
const (
	badUnknown    = "unknown" // it never existed, or was revoked
	badExpired    = "expired"
	badRotatedOut = "rotated_out"
	badJWT        = "jwt"
	badCallback   = "callback" // of no attempt of the run
)

// stored finds a token that was made by this installation. The look-up is by hash, so its timing does not reveal which
// tokens exist. What it finds is
// kept for a moment: a token that another node revoked stops within Limits.TokenCache.
func (a *API) stored(rt route, r *request, secret string) (token access.APIToken, bad string, err error) {
	hash := access.HashToken(secret)
	if rt.outage {
		token, err = a.outage.find(r.Context(), a.store, hash, r.now)
	} else {
		token, err = a.store.TokenByHash(r.Context(), hash)
	}
	switch {
	case errors.Is(err, dispatcher.ErrNotFound):
		return token, badUnknown, nil
	case err != nil:
		return token, "", err
	case token.Hash != hash && (token.RotatedUntil == nil || !r.now.Before(*token.RotatedUntil)):
		return token, badRotatedOut, nil
	case token.Expired(r.now):
		return token, badExpired, nil
	}
	return token, "", nil
}

// identified finds the identity that a JWT proves.
func (a *API) identified(_ route, r *request, jwt string) (token access.APIToken, bad string, err error) {
	token, err = a.opts.Identities.Identify(r.Context(), jwt, r.now)
	if why, isBad := errors.AsType[interface {
		error
		BadToken() string
	}](err); isBad {
		return token, badJWT + ": " + why.BadToken(), nil
	}
	if err != nil {
		a.log.WarnContext(r.Context(), "identity not checked", "request_id", r.id, "err", err)
		return token, "", input.Refuse(input.CodeUnavailable,
			"the issuer of the token does not answer, so it cannot be checked; try again in a moment, or use a token of this installation")
	}
	return token, "", nil
}

// isJWT tells a JSON Web Token from a token of this installation, by its two dots.
func isJWT(secret string) bool {
	return !strings.HasPrefix(secret, access.TokenPrefix) && strings.Count(secret, ".") == 2
}

// by returns who makes the request r, for the audit log and the bounds of apps.
func (r *request) by() input.Change {
	address, _, _ := net.SplitHostPort(r.RemoteAddr)
	return input.Change{
		Actor: r.token.Name, TokenID: r.token.ID, Address: address, RequestID: r.id,
		Operator: r.token.May(access.ScopeAdmin) && len(r.token.Apps) == 0, Traceparent: r.traceparent(),
	}
}

// traceparent returns the trace context of the request; empty: it has none that is valid.
func (r *request) traceparent() string {
	text := r.Header.Get("Traceparent")
	if _, ok := run.ParseTraceparent(text); !ok || len(text) > mostTraceparent {
		return ""
	}
	return text
}

// mostTraceparent bounds a trace context of a later version, which may have more fields than the 55 bytes of today.
const mostTraceparent = 255

// isBound tells whether the token of r is bound to apps, so that it does not belong to an operator.
func (r *request) isBound() bool { return len(r.token.Apps) > 0 }

// maySee says whether the token of r permits app.
func (r *request) maySee(app string) bool {
	return len(r.token.Apps) == 0 || slices.Contains(r.token.Apps, app)
}
