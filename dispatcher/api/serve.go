package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// request is an HTTP request that the gate has let in.
type request struct{ *gate.Request }

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
		admitted, release, err := a.gate.Admit(&rt.Route, w, hr)
		defer release()
		r, res := &request{admitted}, response{}
		if err == nil {
			res, err = a.run(rt, r)
		}
		if err != nil {
			res = a.problem(r, rt, res, err)
			if document, ok := res.body.(problemDocument); ok {
				a.gate.NoteRefusal(r.Request, res.status, document.Errors[0].Code)
			}
		}
		if res.status == 0 {
			res.status = http.StatusOK
		}
		res = notModified(r, res)
		if res.status < 300 && strings.HasPrefix(rt.Path, "/v1/tokens") && r.Method != http.MethodGet {
			a.gate.ForgetTokens() // what this node revokes ends at once here
		}
		if rt.Executors {
			res = forExecutor(res)
		}
		a.write(w, r, res)
		a.log.DebugContext(r.Context(), "request", "request_id", r.ID, "token", r.Token.Name,
			"method", r.Method, "route", rt.Path, "status", res.status)
	})
}

// run calls the route's function. A panic becomes an error; at that point nothing has been written.
func (a *API) run(rt route, r *request) (res response, err error) {
	defer gate.Recover(&err)
	return rt.serve(a, r)
}

// notModified turns the response to a GET into 304 if the caller has the revision already.
func notModified(r *request, res response) response {
	if res.revision == 0 || (r.Method != http.MethodGet && r.Method != http.MethodHead) || !r.MatchesETag(res.revision) {
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
	r.EndWork()
	h := w.Header()
	h.Set("X-Request-Id", r.ID)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, no-cache")
	if res.revision != 0 {
		h.Set("ETag", gate.ETag(res.revision))
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
		a.log.DebugContext(r.Context(), "response not delivered", "request_id", r.ID, "err", err)
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

// put does what every PUT of a definition does once it is decoded. problems are those of decoding.
func put[T interface{ Validate() error }](a *API, r *request, definition T, problems input.Problems,
	write func(context.Context, T, input.Change) (stored T, created bool, err error), revision func(T) int64,
) (response, error) {
	decode.AddInvalid(&problems, definition.Validate())
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	change, err := a.gate.Change(r.Request)
	if err != nil {
		return response{}, err
	}
	stored, created, err := write(r.Context(), definition, change)
	if err != nil {
		return response{}, a.gate.ExplainFailed(r.Request, change, err)
	}
	res := response{revision: revision(stored), body: stored}
	if created {
		res.status = http.StatusCreated
	}
	return res, nil
}

// remove does what every DELETE of a definition does.
func (a *API) remove(r *request, write func(input.Change) error) (response, error) {
	change, err := a.gate.Change(r.Request)
	if err != nil {
		return response{}, err
	}
	return response{status: http.StatusNoContent}, a.gate.ExplainFailed(r.Request, change, write(change))
}

// mustMatch reports a name in the body that differs from the one in the path. Validate reports an
// invalid name.
func mustMatch(problems *input.Problems, path, inBody, inPath string) {
	if inBody != inPath && input.IsName(inBody) {
		problems.Add(path, input.CodeNameMismatch, "name %s differs from the one in the path, %s; a PUT renames nothing",
			input.Echo(inBody), input.Echo(inPath))
	}
}
