package gate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func (g *Gate) authenticate(r *Request) error {
	switch {
	case r.route.Executors:
		return g.authenticateExecutor(r)
	case r.route.Scope != "":
		return g.authenticateToken(r)
	}
	return nil
}

func (g *Gate) authenticateToken(r *Request) error {
	header, given := r.Header["Authorization"]
	hash := sha256.Sum256([]byte(strings.Join(header, ", ")))
	if given {
		if err := g.checkBadTokens(r, hash); err != nil {
			return err
		}
	}
	err := g.findToken(r)
	if problem, is := errors.AsType[*input.Problem](err); is && problem.Code == input.CodeUnauthorized {
		if r.bad == badCallback { // otherwise the holder of one token could try it on any number of runs
			g.limits.known.Delete(hash)
		}
		g.noteUnauthorized(r)
	}
	if err == nil && given {
		g.limits.known.Put(hash, struct{}{})
	}
	return err
}

// checkBadTokens refuses a secret, given by its hash, that was not valid before, if there were many invalid ones.
func (g *Gate) checkBadTokens(r *Request, hash [32]byte) error {
	if _, known := g.limits.known.Get(hash); known {
		return nil
	}
	if wait := g.limits.badTokens.Wait(r.client, g.limits.BadTokens, r.Now); wait > 0 {
		return g.limited(r, limitedBad, "your address has made more than "+strconv.Itoa(g.limits.BadTokens)+
			" requests without a valid token in a minute", wait)
	}
	return nil
}

// findToken finds the token of r, which may be that of an attempt.
func (g *Gate) findToken(r *Request) error {
	if err := g.checkCertificate(r); err != nil {
		return err
	}
	if r.route.Callback && strings.HasPrefix(r.Bearer(), run.CallbackTokenPrefix) {
		return g.authenticateCallback(r)
	}
	token, err := g.caller(r)
	if err == nil {
		r.Token = token
	}
	return err
}

// authorize checks that the token of r permits the route. The token of an attempt permits only that attempt.
func (g *Gate) authorize(r *Request) error {
	if r.route.Scope == "" || r.Attempt != 0 {
		return nil
	}
	rt, token := r.route, r.Token
	if !rt.AnyScope && !token.May(rt.Scope) && (rt.OrScope == "" || !token.May(rt.OrScope)) {
		needed := string(rt.Scope)
		if rt.OrScope != "" {
			needed += " or " + string(rt.OrScope)
		}
		return input.Refuse(input.CodeForbidden, "token %s does not have the scope %s, which this route needs",
			input.Echo(token.Name), needed)
	}
	if app := r.PathValue("app"); app != "" && !r.MaySee(app) {
		return r.NotBound(app)
	}
	if rt.AllApps && len(token.Apps) > 0 {
		return input.Refuse(input.CodeForbidden, "token %s is bound to apps; this route needs a token for all apps",
			input.Echo(token.Name))
	}
	return nil
}

// checkCertificate requires the client certificate of --client-ca. The server verifies a certificate that is sent, and
// also accepts connections without one, because probes have none.
func (g *Gate) checkCertificate(r *Request) error {
	if !g.opts.ClientCertificates || r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return nil
	}
	return input.Refuse(input.CodeUnauthorized,
		"a client certificate of an authority in --client-ca is needed, in addition to a token; only probes pass without one")
}

// caller identifies the owner of a bearer token. The error is the same for every kind of bad token; the log has the
// kind.
func (g *Gate) caller(r *Request) (access.APIToken, error) {
	unauthorized := input.Refuse(input.CodeUnauthorized,
		`a valid bearer token is needed: create one with "carillon token create" and send it as "Authorization: Bearer carillon_…"`)
	if token, inProcess := r.Context().Value(asKey{}).(access.APIToken); inProcess {
		if token.Expired(r.Now) {
			return access.APIToken{}, unauthorized
		}
		g.uses.note(token.ID, r.Now)
		return token, nil
	}
	secret := r.Bearer()
	if secret == "" {
		return access.APIToken{}, unauthorized
	}
	find := g.stored
	if g.opts.Identities != nil && !strings.HasPrefix(secret, access.TokenPrefix) && strings.Count(secret, ".") == 2 {
		find = g.identified // only a JSON Web Token has two dots
	}
	token, bad, err := find(r, secret)
	if err != nil {
		return access.APIToken{}, err
	}
	if bad != "" {
		r.Token, r.bad = token, bad
		return access.APIToken{}, unauthorized
	}
	g.uses.note(token.ID, r.Now)
	return token, nil
}

// Bearer returns the bearer token of r, or an empty text.
func (r *Request) Bearer() string {
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
// tokens exist. The result is kept for a moment: a token that another node revoked stops within Limits.TokenCache.
func (g *Gate) stored(r *Request, secret string) (token access.APIToken, bad string, err error) {
	hash := access.HashToken(secret)
	if r.route.Outage {
		token, err = g.outage.find(r.Context(), g.tokens, hash, r.Now)
	} else {
		token, err = g.tokens.byHash(r.Context(), hash)
	}
	switch {
	case errors.Is(err, dispatcher.ErrNotFound):
		return token, badUnknown, nil
	case err != nil:
		return token, "", err
	case token.Hash != hash && (token.RotatedUntil == nil || !r.Now.Before(*token.RotatedUntil)):
		return token, badRotatedOut, nil
	case token.Expired(r.Now):
		return token, badExpired, nil
	}
	return token, "", nil
}

func (g *Gate) identified(r *Request, jwt string) (token access.APIToken, bad string, err error) {
	token, err = g.opts.Identities.Identify(r.Context(), jwt, r.Now)
	if why, isBad := errors.AsType[interface {
		error
		BadToken() string
	}](err); isBad {
		return token, badJWT + ": " + why.BadToken(), nil
	}
	if err != nil {
		g.log.WarnContext(r.Context(), "identity not checked", "request_id", r.ID, "err", err)
		return token, "", input.Refuse(input.CodeUnavailable,
			"the issuer of the token does not answer, so it cannot be checked; try again in a moment, or use a token of this installation")
	}
	return token, "", nil
}

// authenticateExecutor checks that the caller of r is an executor of the group in the path. The error does not show
// whether the group exists.
func (g *Gate) authenticateExecutor(r *Request) error {
	if err := g.checkCertificate(r); err != nil {
		g.noteUnauthorized(r)
		return err
	}
	app, name := r.PathValue("app"), r.PathValue("group")
	given := r.Header.Get("XXL-JOB-ACCESS-TOKEN")
	hash := sha256.Sum256([]byte(app + "/" + name + "/" + given))
	if err := g.checkBadTokens(r, hash); err != nil {
		return err
	}
	group, err := g.groupOfExecutor(r, app, name, given)
	if err != nil {
		return err
	}
	if group == nil {
		r.bad = "access_token"
		g.noteUnauthorized(r)
		return input.Refuse(input.CodeUnauthorized, "the access token is wrong, or no group of kind xxl_job has this address")
	}
	g.limits.known.Put(hash, struct{}{})
	r.Executors = group
	r.Token = access.APIToken{Name: "executors of " + name, TokenSpec: access.TokenSpec{Apps: []string{app}}}
	return nil
}

// groupOfExecutor returns the group of kind xxl_job that has a token. nil: there is none, or this node cannot read its
// token. Only the log shows the second case: a caller without the token must not learn that the group exists.
func (g *Gate) groupOfExecutor(r *Request, app, name, token string) (*target.EndpointGroup, error) {
	if g.opts.AccessTokens == nil || token == "" || !input.IsName(app) || !input.IsName(name) {
		return nil, nil
	}
	of, err := g.Group(r.Context(), app, name)
	if errors.Is(err, dispatcher.ErrNotFound) || err == nil && of.Group.Kind != target.GroupXXLJob {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	is, err := g.opts.AccessTokens.IsAccessToken(r.Context(), of, token)
	if err != nil {
		if withheld, may := g.limits.lines.May("access token unread", r.Now); may {
			g.log.WarnContext(r.Context(), "access token of a group cannot be read", "app", app, "group", name, "err", err,
				"lines_withheld", withheld)
		}
		return nil, nil
	}
	if !is {
		return nil, nil
	}
	return &of.Group.EndpointGroup, nil
}

// authenticateCallback checks the token of an attempt, which permits only to end this attempt of the run in the path.
// The error is the same for a token of another run or attempt and for a run that does not exist.
func (g *Gate) authenticateCallback(r *Request) error {
	wrong := func() error {
		r.bad = badCallback
		return input.Refuse(input.CodeUnauthorized, "the token is not that of an attempt of this run; send what the request had in "+
			"Carillon-Callback-Token as \"Authorization: Bearer %s…\"", run.CallbackTokenPrefix)
	}
	id, secret := r.PathValue("run"), r.Bearer()
	attempt := run.CallbackAttempt(secret)
	if !run.IsID(id) || attempt == 0 {
		return wrong()
	}
	one, err := g.store.Run(r.Context(), id)
	switch {
	case errors.Is(err, dispatcher.ErrNotFound):
		return wrong()
	case err != nil:
		return err
	}
	key, err := g.callbackKey.read(r.Context(), g.store)
	if err != nil {
		return err
	}
	if !run.IsCallbackToken(key, secret, one.EventID, attempt) {
		return wrong()
	}
	r.Attempt, r.App = attempt, one.App
	r.Token = access.APIToken{Name: run.ActorCallback, TokenSpec: access.TokenSpec{Apps: []string{one.App}}}
	return nil
}

// noteUnauthorized counts and logs a request without a valid token.
func (g *Gate) noteUnauthorized(r *Request) {
	l := g.limits
	l.unauthorized.Inc()
	l.badTokens.Take(r.client, l.BadTokens, r.Now)
	kind, _, _ := strings.Cut(r.bad, ":")
	if withheld, may := l.lines.May("unauthorized "+kind, r.Now); may {
		g.log.WarnContext(r.Context(), "request without a valid token", "reason", cmp.Or(r.bad, "none"), "token", r.Token.Name,
			"token_id", r.Token.ID, "request_id", r.ID, "address", r.client.String(), "method", r.Method, "lines_withheld", withheld)
	}
}

// By returns the caller of r, for the audit log and the bounds of apps.
func (r *Request) By() input.Change {
	address, _, _ := net.SplitHostPort(r.RemoteAddr)
	return input.Change{
		Actor: r.Token.Name, TokenID: r.Token.ID, Address: address, RequestID: r.ID,
		Operator: r.Token.May(access.ScopeAdmin) && len(r.Token.Apps) == 0, Traceparent: r.traceparent(),
	}
}

// traceparent returns the trace context of the request; empty: it has no valid one.
func (r *Request) traceparent() string {
	text := r.Header.Get("Traceparent")
	if _, ok := run.ParseTraceparent(text); !ok || len(text) > mostTraceparent {
		return ""
	}
	return text
}

// mostTraceparent bounds a trace context of a later version, which may have more fields than the 55 bytes of today.
const mostTraceparent = 255

// IsBound reports whether the token of r is bound to apps, so that it does not belong to an operator.
func (r *Request) IsBound() bool { return len(r.Token.Apps) > 0 }

// MaySee reports whether the token of r permits app.
func (r *Request) MaySee(app string) bool {
	return len(r.Token.Apps) == 0 || slices.Contains(r.Token.Apps, app)
}

// NotBound returns the error that the token of r is not bound to app.
func (r *Request) NotBound(app string) error {
	return input.Refuse(input.CodeForbidden, "token %s is not bound to app %s", input.Echo(r.Token.Name), input.Echo(app))
}

// asKey is the context key of the token under which a request is served. Callers on the network cannot set it.
type asKey struct{}

// As returns the context of a request that is served under a token without showing it.
func As(ctx context.Context, token access.APIToken) context.Context {
	return context.WithValue(ctx, asKey{}, token)
}

// Group reads a group with its endpoints and the values of its secrets, for calls of its executors.
func (g *Gate) Group(ctx context.Context, app, name string) (of target.ExecutorCall, err error) {
	version, err := g.store.GroupVersion(ctx, app, name, time.Time{})
	if err != nil {
		return of, err
	}
	owner, err := g.store.App(ctx, app)
	if err == nil {
		err = owner.Err
	}
	if err != nil {
		return of, err
	}
	if owner.Bounds == nil {
		owner.Bounds = &target.Bounds{}
	}
	return target.ExecutorCall{
		App: app, Bounds: new(owner.Bounds.WithDefaults(app)), AWSExternalID: owner.AWSExternalID, Group: &version,
	}, nil
}
