package gate

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/cache"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/limit"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Limits bound the resources of a node that callers can use. A zero field means its default.
type Limits struct {
	// AddressRequests are the requests of one address in a minute, with or without a token; default 30,000.
	AddressRequests int
	// TokenRequests are the requests in a minute with one token that is bound to no app; default 60,000. For tokens
	// that are bound to apps, Quotas.RequestsPerMinute counts.
	TokenRequests int
	// BadTokens are the requests of one address in a minute without a valid token; default 60. Beyond that, only tokens
	// that were valid before are looked up for the address.
	BadTokens int
	// TokenCache is how long the look-up of a token is kept, and how long a revoked one still works; default 2s,
	// negative: not at all.
	TokenCache time.Duration
	// Memory is how many bytes the requests under way may use, by estimate; default 128 MiB. Bodies that are being read
	// may use half as many in addition.
	Memory int64
	// Connections is how many the node accepts at once, and AddressConnections how many of one address; default 512 and
	// 64. They determine how many requests may be under way; see places.
	Connections, AddressConnections int
	// Proxies are the proxies whose X-Forwarded-For is trusted.
	Proxies limit.Proxies
}

const (
	// probeRequests is how many requests for probes one address may send in a minute; they count separately.
	probeRequests = 3000
	// quotaKept is how long a node uses the quota of an app before it reads it again.
	quotaKept = 10 * time.Second
	// memoryPatience is how long a request waits for memory that others use.
	memoryPatience = 2 * time.Second
	// Bounds of the remembered keys. A hundred thousand addresses take some 10 MB.
	maxAddresses = 100_000
	maxCallers   = 10_000
)

// limits are the state of Limits.
type limits struct {
	Limits
	addresses, probes, badTokens *limit.Rates[netip.Addr]
	callers                      *limit.Rates[string]
	memory                       *limit.Memory
	arriving                     *limit.Memory // for bodies that are being read
	places                       *limit.Places
	lines                        *limit.Lines

	quotas *cache.Cache[string, quota]
	// known are hashes of Authorization headers that were valid.
	known *cache.Cache[[32]byte, struct{}]

	limited      *prometheus.CounterVec
	unauthorized prometheus.Counter
}

// quota is how many requests an app may make in a minute, and when that was read.
type quota struct {
	perMinute int
	at        time.Time
}

// Reasons for a temporary refusal of a request; the values of a metric's label.
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
		memory: limit.NewMemory(o.Memory), arriving: limit.NewMemory(o.Memory / 2), places: limit.NewPlaces(),
		lines:  limit.NewLines(10, time.Minute),
		quotas: cache.New[string, quota](maxCallers), known: cache.New[[32]byte, struct{}](maxCallers),
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "carillon_api_requests_limited_total", Help: "Requests to the API that were refused for now, by reason.",
		}, []string{"reason"}),
		unauthorized: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "carillon_api_unauthorized_total", Help: "Requests to the API without a valid token.",
		}),
	}
	for _, reason := range []string{limitedAddress, limitedToken, limitedApp, limitedBad, limitedMemory, limitedWork, limitedPlaces} {
		l.limited.WithLabelValues(reason)
	}
	if metrics != nil {
		metrics.MustRegister(l.limited, l.unauthorized)
	}
	return l
}

// LimitedError refuses a request temporarily.
type LimitedError struct {
	input.Problem
	wait time.Duration
}

// Error returns the problem.
func (e *LimitedError) Error() string { return e.Problem.Error() }

// Unwrap returns the problem, which determines the status.
func (e *LimitedError) Unwrap() error { return &e.Problem }

// RetryAfter is how long to wait, in whole seconds.
func (e *LimitedError) RetryAfter() string {
	return strconv.FormatInt(int64((e.wait+time.Second-1)/time.Second), 10)
}

// limited counts and logs a temporary refusal of a request.
func (g *Gate) limited(r *Request, reason, what string, wait time.Duration) error {
	g.limits.limited.WithLabelValues(reason).Inc()
	if withheld, may := g.limits.lines.May(reason, r.Now); may {
		g.log.WarnContext(r.Context(), "too many requests", "reason", reason, "request_id", r.ID, "address", r.client.String(),
			"token", r.Token.Name, "app", r.PathValue("app"), "lines_withheld", withheld)
	}
	e := &LimitedError{wait: wait}
	e.Code, e.Message = input.CodeRateLimited, what+"; try again in "+e.RetryAfter()+" s"
	return e
}

// clientOf returns the address of the sender of hr, and hr as if it came directly from there.
func (g *Gate) clientOf(hr *http.Request) (netip.Addr, *http.Request) {
	if len(g.opts.Limits.Proxies) == 0 {
		return limit.AddressOf(hr.RemoteAddr), hr
	}
	client := g.opts.Limits.Proxies.Client(hr)
	if client.IsValid() {
		hr = hr.WithContext(hr.Context()) // a copy
		hr.RemoteAddr = net.JoinHostPort(client.String(), "0")
	}
	return limit.Key(client), hr
}

// countAddress counts a request for its address.
func (g *Gate) countAddress(r *Request) error {
	l := g.limits
	if l == nil {
		return nil // there is no store yet, and so nothing to protect
	}
	rates, perMinute := l.addresses, l.AddressRequests
	if r.route.Probe {
		rates, perMinute = l.probes, probeRequests
	}
	if wait := rates.Take(r.client, perMinute, r.Now); wait > 0 {
		return g.limited(r, limitedAddress, "your address has made more than "+strconv.Itoa(perMinute)+" requests in a minute", wait)
	}
	return nil
}

// countCaller counts a request for its token, or for the app to which its token is bound: the one in the path, or the
// first.
func (g *Gate) countCaller(r *Request) error {
	if r.anonymous() {
		return nil
	}
	l := g.limits
	app := r.boundApp()
	if app == "" {
		if wait := l.callers.Take("token "+r.Token.Name, l.TokenRequests, r.Now); wait > 0 {
			return g.limited(r, limitedToken, "token "+input.Echo(r.Token.Name)+" has made more than "+
				strconv.Itoa(l.TokenRequests)+" requests in a minute", wait)
		}
		return nil
	}
	perMinute := g.requestQuota(r, app)
	if wait := l.callers.Take("app "+app, perMinute, r.Now); wait > 0 {
		return g.limited(r, limitedApp, "app "+input.Echo(app)+" has made more than "+strconv.Itoa(perMinute)+
			" requests in a minute, which is its quota requests_per_minute on each node", wait)
	}
	return nil
}

// boundApp is the app that a request counts for; empty if its token is bound to none.
func (r *Request) boundApp() string {
	switch app := r.PathValue("app"); {
	case len(r.Token.Apps) == 0:
		return ""
	case slices.Contains(r.Token.Apps, app):
		return app
	}
	return r.Token.Apps[0]
}

// requestQuota returns how many requests an app may make in a minute.
func (g *Gate) requestQuota(r *Request, app string) int {
	l := g.limits
	known, found := l.quotas.Get(app)
	if found && r.Now.Sub(known.at).Abs() < quotaKept {
		return known.perMinute
	}
	ctx, cancel := context.WithTimeout(r.Context(), outagePatience)
	defer cancel()
	read, err := g.store.App(ctx, app)
	if err != nil && !errors.Is(err, dispatcher.ErrNotFound) && found {
		return known.perMinute
	}
	// An app that does not exist or cannot be read has the defaults: in the second case the request itself will fail.
	var bounds target.Bounds
	if read.Bounds != nil {
		bounds = *read.Bounds
	}
	known = quota{perMinute: bounds.WithDefaults(app).Quotas.RequestsPerMinute, at: r.Now}
	l.quotas.Put(app, known)
	return known.perMinute
}

// Visit counts a request outside of the API for its address. It returns how long the caller has to wait, or 0.
func (g *Gate) Visit(hr *http.Request, now time.Time) time.Duration {
	client, _ := g.clientOf(hr)
	return g.limits.addresses.Take(client, g.limits.AddressRequests, now)
}

// VisitUnknown is Visit for a request with an unknown secret, such as the cookie of a session that has ended: it counts
// as a request without a valid token.
func (g *Gate) VisitUnknown(hr *http.Request, now time.Time) time.Duration {
	client, _ := g.clientOf(hr)
	return g.limits.badTokens.Take(client, g.limits.BadTokens, now)
}
