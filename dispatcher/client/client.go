// Package client is the typed Go client of Carillon's HTTP API. The Terraform provider, the
// command line and the tests use it.
package client

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Options tunes a Client. The zero value works.
type Options struct {
	// UserAgent is sent with every request; default "carillon-client".
	UserAgent string
	// Timeout bounds one request; default 30s.
	Timeout time.Duration
	// Transport makes the requests; default http.DefaultTransport.
	Transport http.RoundTripper
}

// Client calls one Carillon API. It is safe for concurrent use. Every method returns a
// *Error when the API answers with a problem, and ErrForeign when something else answers; the errors of dispatcher that a status stands
// for (ErrNotFound, ErrPrecondition) are found by errors.Is.
type Client struct {
	http *resty.Client
}

// New returns a client of the API at endpoint, such as "https://carillon.internal:8080".
func New(endpoint, token string, o Options) (*Client, error) {
	u, err := url.Parse(endpoint)
	switch {
	case strings.Contains(endpoint, "@"): // not echoed: it may hold a password
		return nil, errors.New("endpoint carries a user name or password; the API takes a token instead")
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("endpoint %s is not a URL such as https://host:8080", dispatcher.Echo(endpoint))
	}
	if o.UserAgent == "" {
		o.UserAgent = "carillon-client"
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Transport == nil {
		o.Transport = http.DefaultTransport
	}
	r := resty.NewWithClient(&http.Client{Transport: o.Transport, Timeout: o.Timeout, CheckRedirect: noRedirect}).
		SetBaseURL(strings.TrimSuffix(endpoint, "/")).
		SetAuthToken(token).
		SetHeader("User-Agent", o.UserAgent).
		SetRetryCount(3).SetRetryWaitTime(200 * time.Millisecond).SetRetryMaxWaitTime(2 * time.Second).
		AddRetryCondition(worthRepeating).
		SetResponseBodyLimit(maxResponse).
		SetLogger(silent{})
	return &Client{http: r}, nil
}

// maxResponse bounds what is read into memory: a page of a thousand large jobs fits.
const maxResponse = 512 << 20 // bytes

// noRedirect leaves a redirect as the response: followed, it would turn a PUT into a GET, whose
// answer looks like success.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// worthRepeating allows another try where it cannot do harm: if the request never reached a
// server, or if it only reads. A write whose response was lost may have been done; repeated
// under If-None-Match it would be refused as if by somebody else's.
func worthRepeating(r *resty.Response, err error) bool {
	if err != nil {
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" {
			return true
		}
		var certificate *tls.CertificateVerificationError
		var network net.Error
		late := errors.As(err, &network) && network.Timeout() // what took so long would do so again
		return r != nil && r.Request.Method == http.MethodGet && !late && !errors.As(err, &certificate)
	}
	passing := []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}
	return r.Request.Method == http.MethodGet && slices.Contains(passing, r.StatusCode())
}

// silent keeps resty from writing to standard error; what it would say is in the errors.
type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}

// Error is a problem that the API answered with (RFC 9457).
type Error struct {
	Status    int                 `json:"status"`
	Title     string              `json:"title"`
	Detail    string              `json:"detail,omitempty"`
	RequestID string              `json:"request_id"`
	Problems  dispatcher.Problems `json:"errors"`
	// foreign says that the response was no problem document, though nothing on the way to the
	// API was broken either: who answered is not Carillon.
	foreign bool
}

// Error returns the faults in words, or the title where there are none.
func (e *Error) Error() string {
	switch {
	case len(e.Problems) > 0:
		return e.Problems.Error()
	case e.Detail != "":
		return e.Detail
	}
	return fmt.Sprintf("%d %s", e.Status, e.Title)
}

// Unwrap returns the error of package dispatcher that the status stands for, and the faults;
// ErrForeign where the response is not Carillon's.
func (e *Error) Unwrap() []error {
	if e.foreign { // its 404 says nothing about what Carillon holds
		return []error{ErrForeign}
	}
	var all []error
	switch e.Status {
	case http.StatusNotFound:
		all = append(all, dispatcher.ErrNotFound)
	case http.StatusPreconditionFailed:
		all = append(all, dispatcher.ErrPrecondition)
	case http.StatusConflict:
		all = append(all, dispatcher.ErrConflict)
	}
	if len(e.Problems) > 0 {
		all = append(all, e.Problems)
	}
	return all
}

// Condition guards a write against blind overwriting. The zero value is no condition.
type Condition struct {
	// Revision is sent as If-Match: the write fails with ErrPrecondition if it is not current.
	Revision int64
	// Absent is sent as If-None-Match: *: the write fails with ErrPrecondition if the thing exists.
	Absent bool
}

// ErrForeign says that something answered which is not Carillon, or not about the thing
// asked for. Taken at its word, an empty answer would read as an app without a name.
var ErrForeign = errors.New("the response does not come from Carillon: check the endpoint")

// successes are the statuses by which the API says that it did what a method asks.
var successes = map[string][]int{
	http.MethodGet:    {http.StatusOK},
	http.MethodPut:    {http.StatusOK, http.StatusCreated},
	http.MethodPatch:  {http.StatusOK},
	http.MethodPost:   {http.StatusOK, http.StatusAccepted},
	http.MethodDelete: {http.StatusNoContent},
}

func mediaType(response *resty.Response) string {
	media, _, _ := mime.ParseMediaType(response.Header().Get("Content-Type"))
	return media
}

// call makes one request and decodes its response, or the problem. is tells whether the response
// is about what was asked for; a DELETE has none.
func call[T any](ctx context.Context, c *Client, method, path string, body any, cond Condition, is func(T) bool) (T, error) {
	var result T
	r := c.http.R().SetContext(ctx)
	if body != nil {
		r.SetHeader("Content-Type", "application/json").SetBody(body)
	}
	if cond.Revision != 0 {
		r.SetHeader("If-Match", `"`+strconv.FormatInt(cond.Revision, 10)+`"`)
	}
	if cond.Absent {
		r.SetHeader("If-None-Match", "*")
	}
	response, err := r.Execute(method, path)
	if err != nil {
		return result, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if !response.IsSuccess() {
		problem := &Error{Status: response.StatusCode(), Title: http.StatusText(response.StatusCode())}
		// A response that is no problem document (a proxy's page) leaves the status to speak.
		if mediaType(response) == "application/problem+json" {
			_ = json.Unmarshal(response.Body(), problem)
		} else {
			problem.foreign = response.StatusCode() < http.StatusInternalServerError // a gateway's 502 is honest
		}
		if to := response.Header().Get("Location"); to != "" {
			problem.Detail = fmt.Sprintf("%s redirects to %s; is that the endpoint?", method, to)
		}
		return result, problem
	}
	foreign := func(why string) (T, error) {
		var nothing T
		return nothing, fmt.Errorf("%s %s: %w (%s)", method, path, ErrForeign, why)
	}
	if status := response.StatusCode(); !slices.Contains(successes[method], status) {
		return foreign(fmt.Sprintf("its status is %d", status))
	}
	if method == http.MethodDelete {
		return result, nil
	}
	if mediaType(response) != "application/json" {
		return foreign(fmt.Sprintf("its Content-Type is %s", dispatcher.Echo(response.Header().Get("Content-Type"))))
	}
	if err := json.Unmarshal(response.Body(), &result); err != nil {
		return foreign(err.Error())
	}
	if !is(result) {
		return foreign("it holds something else than what was asked for")
	}
	return result, nil
}
