package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Condition protects a write from overwriting the change of another client. The zero value is no
// condition: a PUT then creates or fails with ErrPrecondition, and so does a DELETE of what exists.
type Condition struct {
	// Revision is sent as If-Match: the write fails with ErrPrecondition if it is not current.
	Revision int64
	// Absent is sent as If-None-Match: *: the write fails with ErrPrecondition if the object exists.
	Absent bool
	// Existing is sent as If-Match: *: the write fails with ErrPrecondition if the object does not exist. It overwrites
	// changes of other clients.
	Existing bool
}

// Error is a problem document (RFC 9457) from the API.
type Error struct {
	Status    int            `json:"status"`
	Title     string         `json:"title"`
	Detail    string         `json:"detail,omitempty"`
	RequestID string         `json:"request_id"`
	Problems  input.Problems `json:"errors"`
	// ChangedBy and ChangedAt tell, with ErrPrecondition, who made the revision that was not expected, or deleted the thing,
	// and when; empty if the audit log does not know.
	ChangedBy string    `json:"changed_by"`
	ChangedAt time.Time `json:"changed_at"`
	// foreign says that the response is not a problem document, and that its status is not that of
	// a broken gateway either: another server responded.
	foreign bool
}

// Error returns the problems in words, or the title if there are none.
func (e *Error) Error() string {
	switch {
	case len(e.Problems) > 0:
		return e.Problems.Error()
	case e.Detail != "":
		return e.Detail
	}
	return fmt.Sprintf("%d %s", e.Status, e.Title)
}

// HasCode reports whether the API refused a request with a code.
func HasCode(err error, code string) bool {
	var response *Error
	return errors.As(err, &response) && slices.ContainsFunc(response.Problems, func(p input.Problem) bool { return p.Code == code })
}

// IsNotFound reports whether the API says that the thing does not exist. The 404 of a proxy or of a wrong endpoint is not that: it
// must never remove anything from a state of Terraform.
func IsNotFound(err error) bool {
	return errors.Is(err, dispatcher.ErrNotFound) && HasCode(err, input.CodeNotFound)
}

// Unwrap returns the error of package dispatcher that the status stands for, and the problems. It
// returns ErrForeign if the response is not from Carillon.
func (e *Error) Unwrap() []error {
	if e.foreign { // a foreign 404 says nothing about Carillon's objects
		return []error{ErrForeign}
	}
	var all []error
	switch e.Status {
	case http.StatusNotFound:
		all = append(all, dispatcher.ErrNotFound)
	case http.StatusPreconditionFailed, http.StatusPreconditionRequired:
		all = append(all, dispatcher.ErrPrecondition)
	case http.StatusConflict:
		all = append(all, dispatcher.ErrConflict)
	}
	if len(e.Problems) > 0 {
		all = append(all, e.Problems)
	}
	return all
}

// ErrForeign says that a response is not from Carillon, or is not about the requested object.
// Accepted, an empty response would be read as an app without a name.
var ErrForeign = errors.New("the response does not come from Carillon: check the endpoint")

// successes are the statuses of success for each method.
var successes = map[string][]int{
	http.MethodGet:    {http.StatusOK},
	http.MethodPut:    {http.StatusOK, http.StatusCreated},
	http.MethodPatch:  {http.StatusOK},
	http.MethodPost:   {http.StatusOK, http.StatusCreated, http.StatusAccepted},
	http.MethodDelete: {http.StatusNoContent, http.StatusAccepted},
}

// request is one request whose response is a T.
type request[T any] struct {
	method, path string // with the query
	body         any    // nil: none
	cond         Condition
	// is says whether a response is about the requested object. A DELETE that is done has no response.
	is func(T) bool
}

// prepare adds the body and the conditions to a request.
func (q request[T]) prepare(r *resty.Request) *resty.Request {
	if q.body != nil {
		r.SetHeader("Content-Type", "application/json").SetBody(q.body)
	}
	switch {
	case q.cond.Revision != 0:
		r.SetHeader("If-Match", `"`+strconv.FormatInt(q.cond.Revision, 10)+`"`)
	case q.cond.Existing:
		r.SetHeader("If-Match", "*")
	}
	if q.cond.Absent {
		r.SetHeader("If-None-Match", "*")
	}
	return r
}

// send makes a request and decodes the response or the problem document.
func send[T any](ctx context.Context, c *Client, q request[T]) (T, error) {
	var nothing, result T
	response, err := try(ctx, c.retryFor, q.method, q.cond, func() (*resty.Response, error) {
		return q.prepare(c.http.R().SetContext(ctx)).Execute(q.method, q.path)
	})
	if err != nil {
		return nothing, fmt.Errorf("%s %s: %w", q.method, q.path, err)
	}
	if !response.IsSuccess() {
		return nothing, problem(q.method, response)
	}
	foreign := func(why string) (T, error) {
		return nothing, fmt.Errorf("%s %s: %w (%s)", q.method, q.path, ErrForeign, why)
	}
	if status := response.StatusCode(); !slices.Contains(successes[q.method], status) {
		return foreign(fmt.Sprintf("its status is %d", status))
	}
	if response.StatusCode() == http.StatusNoContent {
		return nothing, nil
	}
	if mediaType(response) != "application/json" {
		return foreign("its Content-Type is " + input.Echo(response.Header().Get("Content-Type")))
	}
	if err := json.Unmarshal(response.Body(), &result); err != nil {
		return foreign(err.Error())
	}
	if !q.is(result) {
		return foreign("it is not about the requested object")
	}
	return result, nil
}

// problem decodes the response to a request that failed.
func problem(method string, response *resty.Response) *Error {
	e := &Error{Status: response.StatusCode(), Title: http.StatusText(response.StatusCode())}
	// A response without a problem document, such as the page of a proxy, has only its status.
	if mediaType(response) == "application/problem+json" {
		_ = json.Unmarshal(response.Body(), e)
	} else {
		e.foreign = response.StatusCode() < http.StatusInternalServerError // a gateway may well return 502
	}
	if to := response.Header().Get("Location"); to != "" {
		e.Detail = fmt.Sprintf("%s redirects to %s; is that the endpoint?", method, to)
	}
	return e
}

func mediaType(response *resty.Response) string {
	media, _, _ := mime.ParseMediaType(response.Header().Get("Content-Type"))
	return media
}

// DefaultRetryFor is how long a request is tried again. It suits a person who waits for the response; give programs
// longer than a node takes to restart.
const DefaultRetryFor = 2 * time.Second

// The wait before another try doubles from the first to the longest. Each is random between half of it and all of it,
// so that clients which one restart has cut off do not come back at once.
const (
	firstWait   = 100 * time.Millisecond
	longestWait = 2 * time.Second
)

// try calls once until its result is final: a success, a failure that another try cannot mend or could make worse, or
// the last failure before retryFor is over.
func try(
	ctx context.Context, retryFor time.Duration, method string, cond Condition, once func() (*resty.Response, error),
) (*resty.Response, error) {
	window, cancel := context.WithTimeout(ctx, retryFor)
	defer cancel()
	var doubtful *resty.Response // a response that does not tell whether the write was done
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		response, err := once()
		switch {
		case err == nil && doubtful != nil && changedMeanwhile(response.StatusCode()):
			return doubtful, nil // perhaps by this very request, so a conflict with another client would be an invention
		case ctx.Err() != nil || !retryable(response, err, method, cond):
			return response, err
		}
		pause := wait/2 + rand.N(wait/2)
		if err == nil {
			pause = max(pause, retryAfter(response))
			if method != http.MethodGet && response.StatusCode() != http.StatusTooManyRequests {
				doubtful = response
			}
		}
		if pause > retryFor {
			return response, err // the server asks for more than there is
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-window.Done():
			timer.Stop()
			return response, cmp.Or(ctx.Err(), err)
		}
	}
}

// changedMeanwhile reports whether a status refuses a write because the object is not what the write expects.
func changedMeanwhile(status int) bool {
	return status == http.StatusPreconditionFailed || status == http.StatusNotFound
}

// retryable permits another try if it is harmless: the request never reached a server, was refused for its rate, only
// reads, or is a write that a server without its database refused and that cannot be done twice.
// A write whose response was lost is not tried again: it may have succeeded.
func retryable(r *resty.Response, err error, method string, cond Condition) bool {
	if err != nil {
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" {
			return true
		}
		var certificate *tls.CertificateVerificationError
		var network net.Error
		late := errors.As(err, &network) && network.Timeout() // it would take as long again
		return r != nil && method == http.MethodGet && !late && !errors.As(err, &certificate)
	}
	switch status := r.StatusCode(); status {
	case http.StatusTooManyRequests:
		return true // it was refused before anything was done
	case http.StatusServiceUnavailable:
		once := []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete}
		return cond != (Condition{}) || slices.Contains(once, method)
	default:
		return method == http.MethodGet && (status == http.StatusBadGateway || status == http.StatusGatewayTimeout)
	}
}

// retryAfter returns how long a response asks to wait, 0 if it does not say.
func retryAfter(r *resty.Response) time.Duration {
	text := r.Header().Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil && seconds > 0 {
		return time.Duration(min(seconds, int(time.Hour/time.Second))) * time.Second
	}
	at, err := http.ParseTime(text)
	now, errNow := http.ParseTime(r.Header().Get("Date")) // the clock that set the time
	if err != nil || errNow != nil {
		return 0
	}
	return max(at.Sub(now), 0)
}
