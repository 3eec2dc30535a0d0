package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
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
