package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/limit"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Limits bound what callers can take of a node. A field that is zero means its default.
type Limits struct {
	// AddressRequests are those of one address in a minute, with or without a token; default 30,000.
	AddressRequests int
	// TokenRequests are those in a minute with one token that is bound to no app; default 60,000. For tokens that are bound
	// to apps, Quotas.RequestsPerMinute counts.
	TokenRequests int
	// BadTokens are the requests of one address in a minute without a valid token; default 60. After them, only tokens that
	// were valid before are looked up for it.
	BadTokens int
	// TokenCache is how long the look-up of a token holds, and how long a revoked one still works; default 2s, negative: not
	// at all.
	TokenCache time.Duration
	// Memory is how many bytes the requests under way may use, by estimate; default 128 MiB. Bodies on their way may use half
	// as many apart from that.
	Memory int64
	// Connections are those that the node accepts at once, and AddressConnections those of one address; default 512 and 64.
	// How many requests may be under way follows from them; see places.
	Connections, AddressConnections int
	// Proxies are those whose X-Forwarded-For is believed.
	Proxies limit.Proxies
}

const (
	// probeRequests are requests for probes of one address in a minute, which count apart.
	probeRequests = 3000
	// quotaKept is how long a node uses the quota of an app before it reads it again.
	quotaKept = 10 * time.Second
	// memoryPatience is how long a request waits for memory that others use.
	memoryPatience = 2 * time.Second
	// Keys that are remembered. A hundred thousand addresses take some 10 MB.
	maxAddresses = 100_000
	maxCallers   = 10_000
)

// limits are the state of Limits.
type limits struct {
	Limits
	addresses, probes, badTokens *limit.Rates[netip.Addr]
	callers                      *limit.Rates[string]
	memory                       *limit.Memory
	arriving                     *limit.Memory // for bodies that are on their way
	places                       *limit.Places
	lines                        *limit.Lines

	mu     sync.Mutex
	quotas *limit.Recent[string, quota]
	// known are hashes of Authorization headers that were valid.
	known *limit.Recent[[32]byte, struct{}]

	limited      *prometheus.CounterVec
	unauthorized prometheus.Counter
	callbacks    *prometheus.CounterVec
}

// quota is how many requests an app may make in a minute, and when that was read.
type quota struct {
	perMinute int
	at        time.Time
}

// Reasons of a request that is refused for now; the values of a metric's label.
const (
	limitedAddress = "address"
	limitedToken   = "token"
	limitedApp     = "app"
	limitedBad     = "bad_tokens"
	limitedMemory  = "memory"
	limitedWork    = "work"
	limitedPlaces  = "places"
)

func newLimits(o Limits, metrics prometheus.Registerer) *limits {
	o.AddressRequests, o.TokenRequests = cmp.Or(o.AddressRequests, 30_000), cmp.Or(o.TokenRequests, 60_000)
	o.BadTokens, o.TokenCache = cmp.Or(o.BadTokens, 60), cmp.Or(o.TokenCache, 2*time.Second)
	o.Memory = cmp.Or(o.Memory, 128<<20)
	o.Connections, o.AddressConnections = cmp.Or(o.Connections, 512), cmp.Or(o.AddressConnections, 64)
	l := &limits{
		Limits: o, addresses: limit.NewRates[netip.Addr](maxAddresses), probes: limit.NewRates[netip.Addr](maxAddresses),
		badTokens: limit.NewRates[netip.Addr](maxAddresses), callers: limit.NewRates[string](maxCallers),
		memory: limit.NewMemory(o.Memory), arriving: limit.NewMemory(o.Memory / 2), places: limit.NewPlaces(), lines: limit.NewLines(10),
		quotas: limit.NewRecent[string, quota](maxCallers), known: limit.NewRecent[[32]byte, struct{}](maxCallers),
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "carillon_api_requests_limited_total", Help: "Requests to the API that were refused for now, by reason.",
		}, []string{"reason"}),
		unauthorized: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "carillon_api_unauthorized_total", Help: "Requests to the API without a valid token.",
		}),
		callbacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "carillon_callbacks_total", Help: "Callbacks that this node got, by what they said or that they came too late.",
		}, []string{"result"}),
	}
	for _, result := range []string{callbackComplete, callbackFail, callbackProgress, callbackConflict} {
		l.callbacks.WithLabelValues(result)
	}
	for _, reason := range []string{limitedAddress, limitedToken, limitedApp, limitedBad, limitedMemory, limitedWork, limitedPlaces} {
		l.limited.WithLabelValues(reason)
	}
	if metrics != nil {
		metrics.MustRegister(l.limited, l.unauthorized, l.callbacks)
	}
	return l
}

// limitedError refuses a request for now.
type limitedError struct {
	input.Problem
	wait time.Duration
}

// Error returns the problem.
func (e *limitedError) Error() string { return e.Problem.Error() }

// Unwrap returns the problem, by which the status is found.
func (e *limitedError) Unwrap() error { return &e.Problem }

// retryAfter is how long to wait, in whole seconds.
func (e *limitedError) retryAfter() string {
	return strconv.FormatInt(int64((e.wait+time.Second-1)/time.Second), 10)
}

// limited counts and logs a request that is refused for now.
func (a *API) limited(r *request, reason, what string, wait time.Duration) error {
	a.limits.limited.WithLabelValues(reason).Inc()
	if withheld, may := a.limits.lines.May(reason, r.now); may {
		a.log.WarnContext(r.Context(), "too many requests", "reason", reason, "request_id", r.id, "address", r.client.String(),
			"token", r.token.Name, "app", r.PathValue("app"), "lines_withheld", withheld)
	}
	e := &limitedError{wait: wait}
	e.Code, e.Message = input.CodeRateLimited, what+"; try again in "+e.retryAfter()+" s"
	return e
}

// clientOf returns the address that hr comes from, and hr as if it came from there directly.
func (a *API) clientOf(hr *http.Request) (netip.Addr, *http.Request) {
	if len(a.opts.Limits.Proxies) == 0 {
		return limit.AddressOf(hr.RemoteAddr), hr
	}
	client := a.opts.Limits.Proxies.Client(hr)
	if client.IsValid() {
		hr = hr.WithContext(hr.Context()) // a copy
		hr.RemoteAddr = net.JoinHostPort(client.String(), "0")
	}
	return limit.Key(client), hr
}

// checkAddress counts a request for its address.
func (a *API) checkAddress(rt route, r *request) error {
	l := a.limits
	if l == nil {
		return nil // there is no store yet, and so nothing to protect
	}
	rates, perMinute := l.addresses, l.AddressRequests
	if rt.path == "/livez" || rt.path == "/readyz" {
		rates, perMinute = l.probes, probeRequests
	}
	if wait := rates.Take(r.client, perMinute, r.now); wait > 0 {
		return a.limited(r, limitedAddress, "your address has made more than "+strconv.Itoa(perMinute)+" requests in a minute", wait)
	}
	return nil
}

// admit checks the caller of r as authorize does, and counts the request.
func (a *API) admit(rt route, r *request) error {
	header, given := r.Header["Authorization"]
	hash := sha256.Sum256([]byte(strings.Join(header, ", ")))
	if given && !a.limits.isKnown(hash) {
		if wait := a.limits.badTokens.Wait(r.client, a.limits.BadTokens, r.now); wait > 0 {
			return a.limited(r, limitedBad, "your address has made more than "+strconv.Itoa(a.limits.BadTokens)+
				" requests without a valid token in a minute", wait)
		}
	}
	err := a.authorize(rt, r)
	var problem *input.Problem
	if errors.As(err, &problem) && problem.Code == input.CodeUnauthorized {
		if r.bad == badCallback { // the holder of one token must not try it on any number of runs
			a.limits.forget(hash)
		}
		a.noteUnauthorized(r)
		return err
	}
	if r.token.Name == "" {
		return err // the database does not answer
	}
	if given {
		a.limits.setKnown(hash)
	}
	if limited := a.checkCaller(r); limited != nil {
		return limited
	}
	return err
}

// noteUnauthorized counts and logs a request without a valid token.
func (a *API) noteUnauthorized(r *request) {
	l := a.limits
	l.unauthorized.Inc()
	l.badTokens.Take(r.client, l.BadTokens, r.now)
	kind, _, _ := strings.Cut(r.bad, ":")
	if withheld, may := l.lines.May("unauthorized "+kind, r.now); may {
		a.log.WarnContext(r.Context(), "request without a valid token", "reason", cmp.Or(r.bad, "none"), "token", r.token.Name,
			"token_id", r.token.ID, "request_id", r.id, "address", r.client.String(), "method", r.Method, "lines_withheld", withheld)
	}
}

func (l *limits) isKnown(hash [32]byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.known.Get(hash)
	return known
}

func (l *limits) setKnown(hash [32]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known.Put(hash, struct{}{})
}

func (l *limits) forget(hash [32]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known.Delete(hash)
}

// checkCaller counts a request for its token, or for the app that its token is bound to: the one in the path, or the
// first.
func (a *API) checkCaller(r *request) error {
	l := a.limits
	app := r.boundApp()
	if app == "" {
		if wait := l.callers.Take("token "+r.token.Name, l.TokenRequests, r.now); wait > 0 {
			return a.limited(r, limitedToken, "token "+input.Echo(r.token.Name)+" has made more than "+
				strconv.Itoa(l.TokenRequests)+" requests in a minute", wait)
		}
		return nil
	}
	perMinute := a.requestQuota(r, app)
	if wait := l.callers.Take("app "+app, perMinute, r.now); wait > 0 {
		return a.limited(r, limitedApp, "app "+input.Echo(app)+" has made more than "+strconv.Itoa(perMinute)+
			" requests in a minute, which is its quota requests_per_minute on each node", wait)
	}
	return nil
}

// boundApp is the app that a request counts for; empty if its token is bound to none.
func (r *request) boundApp() string {
	switch app := r.PathValue("app"); {
	case len(r.token.Apps) == 0:
		return ""
	case slices.Contains(r.token.Apps, app):
		return app
	}
	return r.token.Apps[0]
}

// requestQuota returns how many requests an app may make in a minute.
func (a *API) requestQuota(r *request, app string) int {
	l := a.limits
	l.mu.Lock()
	known, found := l.quotas.Get(app)
	l.mu.Unlock()
	if found && r.now.Sub(known.at).Abs() < quotaKept {
		return known.perMinute
	}
	ctx, cancel := context.WithTimeout(r.Context(), outagePatience)
	defer cancel()
	read, err := a.store.App(ctx, app)
	if err != nil && !errors.Is(err, dispatcher.ErrNotFound) && found {
		return known.perMinute
	}
	// An app that does not exist has the defaults. So has one that cannot be read: the request itself will fail.
	var bounds target.Bounds
	if read.Bounds != nil {
		bounds = *read.Bounds
	}
	known = quota{perMinute: bounds.WithDefaults(app).Quotas.RequestsPerMinute, at: r.now}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quotas.Put(app, known)
	return known.perMinute
}

// What requests take of memory, by estimate: a page while it is read, decoded and written, a whole app, and a body as
// the bytes, as what they decode to, and as what is stored.
const (
	pageMemory   = 4 * pageBytes
	exportMemory = 64 << 20
	bodyFactor   = 4
	// An import has its bytes, in a buffer that grew, the texts in them, and what they decode to.
	importFactor = 4 + decode.Factor
)

// memoryOf estimates the memory that a request takes.
func memoryOf(rt route, r *request) int64 {
	switch {
	case rt.path == appPath+"/export":
		return exportMemory
	case rt.path == runPath+"/log":
		return logMemory
	case slices.Contains(rt.query, "limit"), rt.path == runPath && rt.method == http.MethodGet: // a run has many responses
		return pageMemory
	case rt.large:
		return importFactor * int64(len(r.text))
	}
	return bodyFactor * int64(len(r.text))
}

// takeMemory waits until there is memory for r, which has its body. It is freed at the end of the request.
func (a *API) takeMemory(rt route, r *request) error {
	bytes := memoryOf(rt, r)
	if bytes == 0 {
		return nil
	}
	release, err := a.memoryFrom(a.limits.memory, r, bytes)
	if err == nil {
		r.releases = append(r.releases, release)
	}
	return err
}

// memoryFrom waits until a pool has memory for r.
func (a *API) memoryFrom(pool *limit.Memory, r *request, bytes int64) (release func(), err error) {
	ctx, cancel := context.WithTimeout(r.Context(), memoryPatience)
	defer cancel()
	release, err = pool.Take(ctx, cmp.Or(r.boundApp(), "token "+r.token.Name), bytes)
	if err != nil {
		return nil, a.limited(r, limitedMemory, "too many large requests are under way on this node", memoryPatience)
	}
	return release, nil
}

// tokenCache remembers for a moment which tokens there are, so that they cost no query each, and unknown ones that come
// again neither.
type tokenCache struct {
	Store
	kept time.Duration

	mu     sync.Mutex
	tokens *limit.Recent[[32]byte, cachedToken]
}

// cachedToken is a look-up: of a token, or in vain.
type cachedToken struct {
	token access.APIToken
	found bool
	at    time.Time
}

func newTokenCache(store Store, kept time.Duration) *tokenCache {
	return &tokenCache{Store: store, kept: kept, tokens: limit.NewRecent[[32]byte, cachedToken](maxCallers)}
}

// TokenByHash returns the token with a hash, as the database has it or had it a moment ago.
func (c *tokenCache) TokenByHash(ctx context.Context, hash [32]byte) (access.APIToken, error) {
	now := time.Now() //nolint:forbidigo // of this process, as all its requests have
	c.mu.Lock()
	cached, known := c.tokens.Get(hash)
	c.mu.Unlock()
	if known && now.Sub(cached.at).Abs() < c.kept {
		if !cached.found {
			return access.APIToken{}, dispatcher.ErrNotFound
		}
		return cached.token, nil
	}
	token, err := c.Store.TokenByHash(ctx, hash)
	if err == nil || errors.Is(err, dispatcher.ErrNotFound) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tokens.Put(hash, cachedToken{token: token, found: err == nil, at: now})
	}
	return token, err
}

// clear forgets all tokens: one of them has changed.
func (c *tokenCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens.Clear()
}
