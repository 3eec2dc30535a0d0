package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// requestTime bounds a request from its headers to its response.
const requestTime = 15 * time.Second

// request is an HTTP request with its id and the token of its caller.
type request struct {
	*http.Request
	// id is returned and logged, so that both sides can name the request.
	id string
	// now is when it came, by this node's clock.
	now time.Time
	// token is zero on routes that need none.
	token access.APIToken
	// bad is why the token was refused; token is then what is known of it, and permits nothing.
	bad string
	// app is that of the run in the path, once it is known.
	app string
	// attempt is the number of the attempt of that run whose token was sent; 0: another token was.
	attempt int
	// client is what the address of the caller is counted by.
	client netip.Addr
	// executors is the group that the caller is an executor of; nil on routes that are not for them.
	executors *target.EndpointGroup
	// releases give back at the end what was taken for the request: its places and its memory.
	releases []func()
	// unhold ends the work on the request; nil: it has not begun.
	unhold func()
	// turn is the work on the request, once it has begun.
	turn *turn
	// text is the body, as far as it could be read, once it was received.
	text    []byte
	textErr error
}

// response is the result of a route's function; the wrapper writes it.
type response struct {
	status   int // 0 means 200 unless there is an error
	revision int64
	body     any // json.RawMessage is sent unchanged
	header   map[string]string
}

// handle wraps a route with what all routes share; see the package comment.
func (a *API) handle(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		ctx, cancel := context.WithTimeout(hr.Context(), requestTime)
		defer cancel()
		client, hr := a.clientOf(hr)
		r := &request{Request: hr.WithContext(ctx), id: requestID(hr), client: client, now: time.Now()} //nolint:forbidigo // the API's clock
		defer func() {
			r.endWork()
			for _, release := range slices.Backward(r.releases) {
				release()
			}
		}()
		most := int64(decode.MaxBody)
		if rt.large {
			most = decode.MaxImport
		}
		r.Body = http.MaxBytesReader(w, hr.Body, most)
		res, err := a.run(rt, r)
		if err != nil {
			res = a.problem(r, rt, res, err)
			a.noteRefusal(rt, r, res)
		}
		if res.status == 0 {
			res.status = http.StatusOK
		}
		res = notModified(r, res)
		if res.status < 300 && strings.HasPrefix(rt.path, "/v1/tokens") && r.Method != http.MethodGet {
			a.tokens.clear() // what this node revokes ends at once here
		}
		if rt.executors {
			res = forExecutor(res)
		}
		a.write(w, r, res)
		a.log.DebugContext(ctx, "request", "request_id", r.id, "token", r.token.Name,
			"method", r.Method, "route", rt.path, "status", res.status)
	})
}

// run does the checks and calls the route's function. A panic becomes an error; at that point nothing
// has been written.
func (a *API) run(rt route, r *request) (res response, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	if err := a.checkAddress(rt, r); err != nil {
		return response{}, err
	}
	if rt.scope != "" {
		if err := a.admit(rt, r); err != nil {
			return response{}, err
		}
	}
	if rt.executors {
		if err := a.admitExecutor(r); err != nil {
			return response{}, err
		}
	}
	if err := checkPath(r); err != nil {
		return response{}, err
	}
	if rt.method != "" {
		if err := checkQuery(rt, r); err != nil {
			return response{}, err
		}
	}
	if err := a.receive(rt, r); err != nil {
		return response{}, err
	}
	if rt.method == http.MethodPost && !rt.body {
		if err := r.expectNoBody(); err != nil {
			return response{}, err
		}
	}
	return rt.serve(a, r)
}

// receive reads the body of r, and takes what the request needs of the node before and after that. Nothing of a body is read
// before there is a place for the request, and a slow client must not keep other requests of its app waiting for their turn.
func (a *API) receive(rt route, r *request) error {
	if rt.scope == "" && !rt.executors { // it has no caller, and takes no body
		return nil
	}
	if err := a.takePlace(r); err != nil {
		return err
	}
	if rt.method == http.MethodPut || rt.method == http.MethodPost || rt.method == http.MethodPatch {
		arrived, err := a.readText(r)
		if err != nil {
			return err
		}
		defer arrived()
	}
	if err := a.takeMemory(rt, r); err != nil {
		return err
	}
	if err := a.takeTurn(r); err != nil {
		return err
	}
	return a.hold(r)
}

// endWork tells that the node does not work on the request any more.
func (r *request) endWork() {
	r.turn.end()
	if r.unhold != nil {
		r.unhold()
	}
}

// checkPath returns ErrNotFound for names that cannot exist, before the database sees them: it
// rejects some bytes. Validate checks the name that a PUT would create.
func checkPath(r *request) error {
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

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// requestID returns the caller's id if it is safe in logs and headers, otherwise a random one.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); requestIDPattern.MatchString(id) {
		return id
	}
	return rand.Text()
}

// notModified turns the response to a GET into 304 if the caller has the revision already.
func notModified(r *request, res response) response {
	if res.revision == 0 || (r.Method != http.MethodGet && r.Method != http.MethodHead) || !matchesETag(r, res.revision) {
		return res
	}
	return response{status: http.StatusNotModified, revision: res.revision}
}

// write sends res. It marshals the body before it sends the first byte, so that a failure can still
// become a 500.
func (a *API) write(w http.ResponseWriter, r *request, res response) {
	body, err := marshal(res.body)
	if err != nil {
		res = a.problem(r, route{}, response{}, fmt.Errorf("marshal response: %w", err))
		body, _ = marshal(res.body) // strings and numbers only
	}
	r.endWork() // the client may be slow to read
	h := w.Header()
	h.Set("X-Request-Id", r.id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, no-cache")
	if res.revision != 0 {
		h.Set("ETag", etag(res.revision))
	}
	if res.body != nil {
		h.Set("Content-Type", "application/json")
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	for key, value := range res.header {
		h.Set(key, value)
	}
	w.WriteHeader(res.status)
	if _, err := w.Write(body); err != nil && !errors.Is(err, http.ErrBodyNotAllowed) {
		a.log.DebugContext(r.Context(), "response not delivered", "request_id", r.id, "err", err)
	}
}

// marshal does not escape <, > and &: payloads and messages are not HTML.
func marshal(body any) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	if raw, ok := body.(json.RawMessage); ok {
		return raw, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(body)
	return b.Bytes(), err
}
