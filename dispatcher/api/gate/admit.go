// Package gate checks each request of the API before it is served, and holds its resources meanwhile.
//
// Admit is a list of steps. Each may refuse the request: its address, its caller, its app or the node has reached a
// limit (limits.go, places.go, work.go, body.go), its caller is unknown or not permitted (authenticate.go), or the
// object does not exist. Two more checks come later: conditions of writes (condition.go), and refused changes go into
// the audit log (refusals.go). The gate knows routes as data, and no handler.
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

// Route is one method of one path, and the requirements for its requests.
type Route struct {
	// Method is empty for methods that the path does not serve.
	Method, Path string
	// Scope is required of the token; empty: the route needs no token.
	Scope access.Scope
	// OrScope permits the route, too; empty: no other does.
	OrScope access.Scope
	// AnyScope permits the route to every token; Scope then only means that one is needed.
	AnyScope bool
	// AllApps refuses tokens that are bound to apps: the route concerns all of them.
	AllApps bool
	// Outage admits tokens that were accepted before, while the database is unreachable.
	Outage bool
	// Executors means that the route is for executors of XXL-JOB, which authenticate with the token of their group.
	Executors bool
	// Callback admits the token of an attempt that its target accepted, for the run in the path.
	Callback bool
	// Probe means that requests are those of probes, which count separately.
	Probe bool
	// Query lists the known query parameters.
	Query []string
	// Repeated is the one of them that may be given several times; empty: none.
	Repeated string
	// Body means that a POST takes a body, and Large that it may be as large as an app.
	Body, Large bool
	// Memory estimates the bytes of a response; 0: those of a page, or a number that follows from the body.
	Memory int64
}

// Request is an HTTP request on its way through the gate and behind it.
type Request struct {
	*http.Request
	// ID is returned and logged, so that both sides can identify the request.
	ID string
	// Now is the time of its arrival, by this node's clock.
	Now time.Time
	// Token is zero on routes that need none.
	Token access.APIToken
	// App is the app of the run in the path, once it is known.
	App string
	// Attempt is the number of the attempt whose token was sent; 0: another token was.
	Attempt int
	// Executors is the group of the caller, an executor; nil on routes for others.
	Executors *target.EndpointGroup

	route *Route
	// client is the address under which the caller is counted.
	client netip.Addr
	// bad is why the token was refused; Token then has its known fields, and permits nothing.
	bad string
	// body is the received body.
	body body
	// releases give back the resources of the request at its end: its places and its memory.
	releases []func()
	// turn is the work on the request, once it has begun.
	turn *turn
	// unhold releases the connection of the request; nil: it is not held.
	unhold func()
}

// Admit takes a request through the gate, step by step. Each step may refuse it. No body is read before the request has
// a place, and a slow client must not keep other requests of its app waiting for their turn. release gives back the
// request's resources and ends its context. A refused request is returned as far as it came.
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

// release gives back the resources of the request.
func (r *Request) release() {
	r.EndWork()
	for _, release := range slices.Backward(r.releases) {
		release()
	}
}

// EndWork ends the node's work on the request: the client may be slow to read.
func (r *Request) EndWork() {
	r.EndTurn()
	if r.unhold != nil {
		r.unhold()
	}
}

// anonymous reports whether the route of r needs no caller. Its requests use no resources of the node and have no body.
func (r *Request) anonymous() bool { return r.route.Scope == "" && !r.route.Executors }

// checkPath returns ErrNotFound for names that cannot exist, before the database sees them: it
// rejects some bytes. Validate checks the name that a PUT would create.
func checkPath(r *Request) error {
	var last error // of the object that a PUT creates
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

// checkQuery refuses a query that cannot be read, unknown parameters and repeated parameters: all are mistakes that
// would silently select something else. URL.Query drops pairs that it cannot read, such as one with ;.
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
