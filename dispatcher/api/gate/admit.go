// Package gate is what each request of the API passes before it is served, and what it holds meanwhile.
//
// Admit is the way in, one list of steps. Each may refuse the request: its address, its caller, its app or the node has had
// enough (limits.go, places.go, work.go, body.go), its caller is unknown or may not do this (authenticate.go), or there is no such
// thing. Two more doors stand behind the gate: conditions of writes (condition.go), and what was refused goes into the audit log
// (refusals.go). The gate knows routes as data, and no handler.
package gate

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"runtime/debug"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// requestTime bounds a request from its headers to its response.
const requestTime = 15 * time.Second

// Route is one method of one path, and what the gate demands of its requests.
type Route struct {
	// Method is empty for those that the path does not serve.
	Method, Path string
	// Scope is required of the token; empty: the route needs no token.
	Scope access.Scope
	// OrScope permits the route, too; empty: no other does.
	OrScope access.Scope
	// AnyScope permits the route to every token; Scope then says only that one is needed.
	AnyScope bool
	// AllApps refuses tokens that are bound to apps: the route concerns all of them.
	AllApps bool
	// Outage lets tokens pass that were accepted before, while the database is unreachable.
	Outage bool
	// Executors says that the route is for executors of XXL-JOB, which prove themselves by the token of their group.
	Executors bool
	// Callback lets the token of an attempt pass that its target accepted, for the run in the path.
	Callback bool
	// Probe says that requests are those of probes, which count apart.
	Probe bool
	// Query lists the known query parameters.
	Query []string
	// Repeated is the one of them that may be given several times; empty: none.
	Repeated string
	// Body tells that a POST takes a body, and Large that it may be as large as an app.
	Body, Large bool
	// Memory is how many bytes a response takes, by estimate; 0: those of a page, or as many as follow from the body.
	Memory int64
}

// Request is an HTTP request on its way through the gate and behind it.
type Request struct {
	*http.Request
	// ID is returned and logged, so that both sides can name the request.
	ID string
	// Now is when it came, by this node's clock.
	Now time.Time
	// Token is zero on routes that need none.
	Token access.APIToken
	// App is that of the run in the path, once it is known.
	App string
	// Attempt is the number of the attempt of that run whose token was sent; 0: another token was.
	Attempt int
	// Executors is the group that the caller is an executor of; nil on routes that are not for them.
	Executors *target.EndpointGroup

	route *Route
	// client is what the address of the caller is counted by.
	client netip.Addr
	// bad is why the token was refused; Token is then what is known of it, and permits nothing.
	bad string
	// body is what was received.
	body body
	// releases give back at the end what was taken for the request: its places and its memory.
	releases []func()
	// turn is the work on the request, once it has begun.
	turn *turn
	// unhold lets go of the connection of the request; nil: it is not held.
	unhold func()
}

// Admit takes a request through the gate: step by step, each of which may refuse it. Nothing of a body is read before there is a
// place for the request, and a slow client must not keep other requests of its app waiting for their turn. What was taken for the
// request is given back by release, which ends its context, too. A request that is refused is returned as far as it came.
func (g *Gate) Admit(rt *Route, w http.ResponseWriter, hr *http.Request) (r *Request, release func(), err error) {
	ctx, cancel := context.WithTimeout(hr.Context(), requestTime)
	client, hr := g.clientOf(hr)
	r = &Request{Request: hr.WithContext(ctx), ID: requestID(hr), Now: clock(), route: rt, client: client}
	most := int64(decode.MaxBody)
	if rt.Large {
		most = decode.MaxImport
	}
	r.Body = http.MaxBytesReader(w, hr.Body, most)
	release = func() { r.release(); cancel() }
	defer r.body.settle()
	defer Recover(&err)
	for _, step := range []func(*Request) error{
		g.countAddress, g.authenticate, g.countCaller, g.authorize, checkPath, checkQuery,
		g.takePlace, g.readText, g.takeMemory, g.takeTurn, g.hold, expectNoBody,
	} {
		if err = step(r); err != nil {
			break
		}
	}
	return r, release, err
}

// Recover makes a panic the error of the function that defers it.
func Recover(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}

// release gives back what was taken for the request.
func (r *Request) release() {
	r.EndWork()
	for _, release := range slices.Backward(r.releases) {
		release()
	}
}

// EndWork tells that the node does not work on the request any more: the client may be slow to read.
func (r *Request) EndWork() {
	r.EndTurn()
	if r.unhold != nil {
		r.unhold()
	}
}

// anonymous says that the route of r needs no caller. Its requests take nothing of the node, and have no body.
func (r *Request) anonymous() bool { return r.route.Scope == "" && !r.route.Executors }

// checkPath returns ErrNotFound for names that cannot exist, before the database sees them: it
// rejects some bytes. Validate checks the name that a PUT would create.
func checkPath(r *Request) error {
	var last error // of what a PUT creates
	for _, kind := range []string{"app", "job", "trigger", "calendar", "group", "alert", "endpoint", "token"} {
		name := r.PathValue(kind)
		if name == "" {
			continue
		}
		if last != nil {
			return last
		}
		if !input.IsName(name) {
			last = dispatcher.NotFound(kind, name)
		}
	}
	if r.Method == http.MethodPut {
		return nil
	}
	return last
}

// checkQuery refuses a query that cannot be read, unknown parameters and parameters that are given twice: all are
// mistakes that would silently select something else. URL.Query drops what it cannot read, such as a pair with ;.
func checkQuery(r *Request) error {
	if r.route.Method == "" {
		return nil
	}
	var problems input.Problems
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return input.Refuse(input.CodeQuerySyntax, "the query cannot be read: %s; separate parameters with & "+
			"and write ; as %%3B and %% as %%25", input.Echo(err.Error()))
	}
	known := map[string]bool{}
	for _, name := range r.route.Query {
		known[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if repeated := r.route.Repeated; repeated != "" && name == repeated {
			continue
		}
		switch {
		case len(problems) > decode.MaxProblems:
			return problems
		case !known[name]:
			problems.Add(input.Pointer(name), input.CodeQueryUnknown, "unknown query parameter %s%s",
				input.Echo(name), input.DidYouMean(name, slices.Sorted(maps.Keys(known))))
		case len(values[name]) > 1:
			problems.Add(input.Pointer(name), input.CodeQueryDuplicate, "query parameter %s is given %d times; give it once",
				name, len(values[name]))
		}
	}
	return problems.Err()
}

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// requestID returns the caller's id if it is safe in logs and headers, otherwise a random one.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); requestIDPattern.MatchString(id) {
		return id
	}
	return rand.Text()
}
