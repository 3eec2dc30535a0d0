package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// request is an HTTP request that the gate has admitted.
type request struct{ *gate.Request }

// response is the result of a route's function; the wrapper writes it.
type response struct {
	status   int // 0 means 200 unless there is an error
	revision int64
	body     any // json.RawMessage is sent unchanged
	header   map[string]string
}

// handle wraps a route in the steps that all routes share; see the package comment.
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
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		if reads && res.revision != 0 && r.MatchesETag(res.revision) {
			res = response{status: http.StatusNotModified, revision: res.revision} // the caller has it already
		}
		if res.status < 300 && strings.HasPrefix(rt.Path, "/v1/tokens") && r.Method != http.MethodGet {
			a.gate.ForgetTokens() // a token that this node revokes ends at once here
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

// write sends res. It marshals the body before it sends the first byte, so that a failure can still become a 500.
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

// put is the common part of every PUT of a definition after decoding. problems are those of decoding.
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

// remove is the common part of every DELETE of a definition.
func (a *API) remove(r *request, write func(input.Change) error) (response, error) {
	change, err := a.gate.Change(r.Request)
	if err != nil {
		return response{}, err
	}
	return response{status: http.StatusNoContent}, a.gate.ExplainFailed(r.Request, change, write(change))
}

// deletion is the DELETE of a definition that others may use: now, or with when_unused=true after its last use.
type deletion[T any] struct {
	now        func(input.Change) error
	whenUnused func(input.Change) (marked *T, err error) // nil if it is deleted
	revision   func(T) int64
}

func removeUnused[T any](a *API, r *request, d deletion[T]) (response, error) {
	switch when := r.URL.Query().Get("when_unused"); when {
	case "", "false":
		return a.remove(r, d.now)
	case "true":
		var marked *T
		done, err := a.remove(r, func(by input.Change) (err error) {
			marked, err = d.whenUnused(by)
			return err
		})
		if err != nil || marked == nil {
			return done, err
		}
		return response{status: http.StatusAccepted, revision: d.revision(*marked), body: *marked}, nil
	default:
		return response{}, &input.Problem{Path: "/when_unused", Code: input.CodeEnum,
			Message: "when_unused " + input.Echo(when) + " is not true or false"}
	}
}

// mustMatch reports a name in the body that differs from the one in the path. Validate reports an
// invalid name.
func mustMatch(problems *input.Problems, path, inBody, inPath string) {
	if inBody != inPath && input.IsName(inBody) {
		problems.Add(path, input.CodeNameMismatch, "name %s differs from the one in the path, %s; a PUT renames nothing",
			input.Echo(inBody), input.Echo(inPath))
	}
}

// As returns a transport that serves requests in this process under a token, which the caller has just read from the
// store, on behalf of from: address, certificate and request id are those of from. The API checks scopes, bounds and
// rates as for a bearer of the token.
func (a *API) As(from *http.Request, token access.APIToken) http.RoundTripper {
	return inProcess{api: a, from: from, token: &token}
}

// Bearer is As for requests that have their own token.
func (a *API) Bearer(from *http.Request) http.RoundTripper { return inProcess{api: a, from: from} }

// Admit is gate.Visit for a request outside of the API. AdmitUnknown and AdmitBody are VisitUnknown and VisitBody.
func (a *API) Admit(hr *http.Request, now time.Time) time.Duration { return a.gate.Visit(hr, now) }

// AdmitUnknown counts a request with an unknown secret; see gate.VisitUnknown.
func (a *API) AdmitUnknown(hr *http.Request, now time.Time) time.Duration {
	return a.gate.VisitUnknown(hr, now)
}

// AdmitBody waits for a place for a body; see gate.VisitBody.
func (a *API) AdmitBody(hr *http.Request, token access.APIToken) (leave func(), wait time.Duration) {
	return a.gate.VisitBody(hr, token)
}

// inProcess is a transport into the API of this process.
type inProcess struct {
	api   *API
	from  *http.Request
	token *access.APIToken // nil: requests bear their own
}

// RoundTrip serves a request.
func (p inProcess) RoundTrip(sent *http.Request) (*http.Response, error) {
	ctx := sent.Context()
	if p.token != nil {
		ctx = gate.As(ctx, *p.token)
	}
	r := sent.Clone(ctx)
	if p.token != nil {
		r.Header.Del("Authorization")
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	defer r.Body.Close()
	r.URL = &url.URL{Path: sent.URL.Path, RawPath: sent.URL.RawPath, RawQuery: sent.URL.RawQuery}
	r.RequestURI = r.URL.RequestURI()
	r.RemoteAddr, r.TLS = p.from.RemoteAddr, p.from.TLS
	for _, header := range []string{"X-Forwarded-For", "X-Request-Id"} {
		if values := p.from.Header.Values(header); len(values) > 0 {
			r.Header[header] = values
		}
	}
	w := &buffer{header: http.Header{}, status: http.StatusOK}
	p.api.ServeHTTP(w, r)
	body := bytes.NewReader(w.body.Bytes())
	return &http.Response{
		Status: strconv.Itoa(w.status) + " " + http.StatusText(w.status), StatusCode: w.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(body), ContentLength: int64(body.Len()), Request: sent,
	}, ctx.Err()
}

// buffer keeps a response.
type buffer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *buffer) Header() http.Header { return b.header }

func (b *buffer) WriteHeader(status int) { b.status = status }

func (b *buffer) Write(part []byte) (int, error) { return b.body.Write(part) }
