// Package client is the typed Go client of Carillon's HTTP API. The Terraform provider, the command
// line and the tests use it.
//
// A method has the name of its route. It checks that the response is about the requested object, and
// repeats a request only if that cannot do anything twice.
package client

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
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

// Client calls one Carillon API. It is safe for concurrent use. Every method returns an *Error if the
// API reports a problem; errors.Is finds the error of package dispatcher that the status stands for
// (ErrNotFound, ErrPrecondition, ErrConflict). It returns ErrForeign if another server responds.
type Client struct {
	http *resty.Client
}

// New returns a client of the API at endpoint, such as "https://carillon.internal:8080".
func New(endpoint, token string, o Options) (*Client, error) {
	u, err := url.Parse(endpoint)
	switch {
	case strings.Contains(endpoint, "@"): // may contain a password, so it is not in the message
		return nil, errors.New("endpoint contains a user name or password; use a token instead")
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("endpoint %s is not a URL such as https://host:8080", dispatcher.Echo(endpoint))
	}
	if o.Transport == nil {
		o.Transport = http.DefaultTransport
	}
	r := resty.NewWithClient(&http.Client{Transport: o.Transport, Timeout: cmp.Or(o.Timeout, 30*time.Second), CheckRedirect: noRedirect}).
		SetBaseURL(strings.TrimSuffix(endpoint, "/")).
		SetAuthToken(token).
		SetHeader("User-Agent", cmp.Or(o.UserAgent, "carillon-client")).
		SetRetryCount(3).SetRetryWaitTime(200 * time.Millisecond).SetRetryMaxWaitTime(2 * time.Second).
		AddRetryCondition(retryable).
		SetResponseBodyLimit(maxResponse).
		SetLogger(silent{})
	return &Client{http: r}, nil
}

// maxResponse bounds the memory of a response. A page of a thousand large jobs fits.
const maxResponse = 512 << 20 // bytes

// noRedirect returns the redirect itself. Following it would turn a PUT into a GET, and its response
// would look like success.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// retryable permits another try if it is harmless: the request never reached a server, was refused for its rate, or
// only reads.
// A write whose response was lost may have succeeded. Repeating it with If-None-Match would report a
// conflict with another client that does not exist.
func retryable(r *resty.Response, err error) bool {
	if err != nil {
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" {
			return true
		}
		var certificate *tls.CertificateVerificationError
		var network net.Error
		late := errors.As(err, &network) && network.Timeout() // it would take as long again
		return r != nil && r.Request.Method == http.MethodGet && !late && !errors.As(err, &certificate)
	}
	if r.StatusCode() == http.StatusTooManyRequests {
		return true // it was refused before anything was done
	}
	temporary := []int{
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	}
	return r.Request.Method == http.MethodGet && slices.Contains(temporary, r.StatusCode())
}

// silent keeps resty from writing to standard error; the errors say the same.
type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}
