// Package client is the typed Go client of Carillon's HTTP API. The Terraform provider, the command
// line and the tests use it.
//
// Each method is named after its route. It checks that the response is about the requested object,
// and retries a request only if that cannot have an effect twice.
package client

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Options tunes a Client. The zero value works.
type Options struct {
	// UserAgent is sent with every request; default "carillon-client".
	UserAgent string
	// Timeout bounds one request; default 30s.
	Timeout time.Duration
	// RetryFor bounds the time for retries of a request. The client retries if no server accepts the
	// connection, after status 429, and after status 503 if the request cannot have an effect twice; reads
	// also if the connection breaks or a gateway fails. It waits as long as Retry-After asks, unless that
	// exceeds the time left. Zero means DefaultRetryFor; a negative value turns retries off.
	RetryFor time.Duration
	// Transport makes the requests; default http.DefaultTransport.
	Transport http.RoundTripper
}

// Client calls one Carillon API. It is safe for concurrent use. Every method returns an *Error if the API
// reports a problem; errors.Is finds the error of package dispatcher for its status (ErrNotFound,
// ErrPrecondition, ErrConflict). A method returns ErrForeign if another server responds.
type Client struct {
	http     *resty.Client
	retryFor time.Duration
}

// New returns a client of the API at endpoint, such as "https://carillon.internal:8080".
func New(endpoint, token string, o Options) (*Client, error) {
	u, err := url.Parse(endpoint)
	switch {
	case strings.Contains(endpoint, "@"): // may contain a password, so it is not in the message
		return nil, errors.New("endpoint contains a user name or password; use a token instead")
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("endpoint %s is not a URL such as https://host:8080", input.Echo(endpoint))
	}
	if o.Transport == nil {
		o.Transport = http.DefaultTransport
	}
	// A redirect is a failure: following it would turn a PUT into a GET, and the response would look like a success.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	r := resty.NewWithClient(&http.Client{Transport: o.Transport, Timeout: cmp.Or(o.Timeout, 30*time.Second), CheckRedirect: stay}).
		SetBaseURL(strings.TrimSuffix(endpoint, "/")).
		SetAuthToken(token).
		SetHeader("User-Agent", cmp.Or(o.UserAgent, "carillon-client")).
		SetResponseBodyLimit(maxResponse).
		SetLogger(silent{})
	return &Client{http: r, retryFor: cmp.Or(o.RetryFor, DefaultRetryFor)}, nil
}

// maxResponse bounds the memory of a response. A page of a thousand large jobs fits.
const maxResponse = 512 << 20 // bytes

// silent keeps resty from writing to standard error; the errors say the same.
type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}
