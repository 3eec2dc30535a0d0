package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

const (
	// requestTime bounds a request from its headers to its response.
	requestTime = 15 * time.Second
	// maxBody leaves room for the largest payload with its escapes, and a hundred triggers.
	maxBody = 1 << 20 // bytes
)

// request is an HTTP request whose caller is known.
type request struct {
	*http.Request
	// id is sent back and logged, so that both sides can name the request.
	id string
	// token is the caller's; zero on routes that ask for none.
	token dispatcher.APIToken
}

// answer is what a route's function returns; the wrapper writes it.
type response struct {
	status   int // 0 means 200 where nothing went wrong
	revision int64
	body     any // json.RawMessage is sent as it is
	header   map[string]string
}

// handle wraps a route with what all routes have in common; see the package comment.
func (a *API) handle(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		ctx, cancel := context.WithTimeout(hr.Context(), requestTime)
		defer cancel()
		r := &request{Request: hr.WithContext(ctx), id: requestID(hr)}
		r.Body = http.MaxBytesReader(w, hr.Body, maxBody)
		ans, err := a.run(rt, r)
		if err != nil {
			ans = a.problem(r, rt, ans, err)
		}
		if ans.status == 0 {
			ans.status = http.StatusOK
		}
		ans = notModified(r, ans)
		a.write(w, r, ans)
		a.log.DebugContext(ctx, "request", "request_id", r.id, "token", r.token.Name,
			"method", r.Method, "route", rt.path, "status", ans.status)
	})
}

// run does the checks and calls the route's function. A panic becomes an error: nothing has
// been written by then.
func (a *API) run(rt route, r *request) (ans response, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	if rt.scope != "" {
		if err := a.authorize(rt, r); err != nil {
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
	return rt.serve(a, r)
}

// checkPath answers names that cannot exist before a database sees them: some of their
// bytes are errors there. The name that a PUT would create is left to Validate.
func checkPath(r *request) error {
	kinds := []string{"app", "job", "trigger"}
	if r.Method == http.MethodPut {
		kinds = kinds[:1]
		if r.PathValue("job") == "" {
			kinds = nil
		}
	}
	for _, kind := range kinds {
		name := r.PathValue(kind)
		if name != "" && !validName(name) {
			return dispatcher.NotFound(kind, name)
		}
	}
	return nil
}

func validName(name string) bool {
	var problems dispatcher.Problems
	dispatcher.CheckName(&problems, "", name)
	return len(problems) == 0
}

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// requestID takes the caller's id if it is harmless in logs and headers, else draws one.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); requestIDPattern.MatchString(id) {
		return id
	}
	return rand.Text()
}

// notModified turns the response to a GET into 304 where the caller has that revision.
func notModified(r *request, ans response) response {
	if ans.revision == 0 || (r.Method != http.MethodGet && r.Method != http.MethodHead) || !matchesETag(r, ans.revision) {
		return ans
	}
	return response{status: http.StatusNotModified, revision: ans.revision}
}

// write sends ans. A response is marshalled before its first byte is sent, so that a failure
// can still become a 500.
func (a *API) write(w http.ResponseWriter, r *request, ans response) {
	body, err := marshal(ans.body)
	if err != nil {
		ans = a.problem(r, route{}, response{}, fmt.Errorf("marshal answer: %w", err))
		body, _ = marshal(ans.body) // a problem holds strings and numbers only
	}
	h := w.Header()
	h.Set("X-Request-Id", r.id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, no-cache")
	if ans.revision != 0 {
		h.Set("ETag", etag(ans.revision))
	}
	if ans.body != nil {
		h.Set("Content-Type", "application/json")
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	for key, value := range ans.header {
		h.Set(key, value)
	}
	w.WriteHeader(ans.status)
	if _, err := w.Write(body); err != nil && !errors.Is(err, http.ErrBodyNotAllowed) {
		a.log.DebugContext(r.Context(), "answer not delivered", "request_id", r.id, "err", err)
	}
}

// marshal writes <, > and & as they are: payloads and messages are not HTML.
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
