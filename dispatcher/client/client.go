// Package client is the typed Go client of Carillon's HTTP API. The Terraform provider, the command
// line and the tests use it.
//
// Each method is named after its route. It checks that the response is about the requested object,
// and retries a request only if that cannot have an effect twice.
package client

import (
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/carillon-dev/carillon/dispatcher"
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
	// and writes with a Condition also if the connection breaks or a gateway fails. It waits as long as
	// Retry-After asks, unless that exceeds the time left. Zero means DefaultRetryFor; a negative value turns
	// retries off.
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

// Certificates are what a client trusts and shows. Each is a file in PEM form, or the text of one. All may be empty.
type Certificates struct {
	CACert     string // authorities that the API's certificate may come from; empty: those of this machine
	ClientCert string // shown to nodes with --client-ca; needs ClientKey
	ClientKey  string
}

// Transport returns what makes the requests of a client with these certificates; nil, which is the default of Options, without any.
// called holds what the caller's users call them: errors begin with that.
func (c Certificates) Transport(called Certificates) (http.RoundTripper, error) {
	if c == (Certificates{}) {
		return nil, nil
	}
	if (c.ClientCert == "") != (c.ClientKey == "") {
		return nil, fmt.Errorf("%s and %s go together; one of them is missing", called.ClientCert, called.ClientKey)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CACert != "" {
		text, name, err := read(c.CACert)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", called.CACert, err)
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: %s holds no certificate in PEM form", called.CACert, name)
		}
	}
	if c.ClientCert != "" {
		certificate, name, err := read(c.ClientCert)
		key, keyName, errKey := read(c.ClientKey)
		var pair tls.Certificate
		if err = errors.Join(err, errKey); err == nil {
			pair, err = tls.X509KeyPair(certificate, key)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s, %s %s: %w", called.ClientCert, name, called.ClientKey, keyName, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // the standard library's
	transport.TLSClientConfig = config
	return transport, nil
}

// read returns a text, or the contents of the file that from names. Messages show name, and never a text, which may be a key.
func read(from string) (text []byte, name string, err error) {
	if strings.Contains(from, "-----BEGIN ") {
		return []byte(from), "the text", nil
	}
	text, err = os.ReadFile(from)
	return text, from, err
}

// Condition protects a write from overwriting the change of another client. The zero value sets no condition:
// a PUT then creates the object or fails with ErrPrecondition, and a DELETE of an existing object fails.
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
	// ChangedBy and ChangedAt are set with ErrPrecondition: who wrote the unexpected revision or
	// deleted the object, and when. They are empty if the audit log does not have it.
	ChangedBy string    `json:"changed_by"`
	ChangedAt time.Time `json:"changed_at"`
	// ChangedRequestID is the X-Request-Id of that change; see send.
	ChangedRequestID string `json:"changed_request_id"`
	// foreign is true if the response is no problem document and its status is not that of a broken
	// gateway either: another server responded.
	foreign bool
}

// Error returns the texts of the problems, or the title if the list is empty.
func (e *Error) Error() string {
	switch {
	case len(e.Problems) > 0:
		return e.Problems.Error()
	case e.Detail != "":
		return e.Detail
	}
	return fmt.Sprintf("%d %s", e.Status, e.Title)
}

// HasCode reports whether err is a refusal of the API with this code.
func HasCode(err error, code string) bool {
	var response *Error
	return errors.As(err, &response) && slices.ContainsFunc(response.Problems, func(p input.Problem) bool { return p.Code == code })
}

// IsNotFound reports whether the API says that an object does not exist. The 404 of a proxy or a
// wrong endpoint does not count: it must never remove a resource from a Terraform state.
func IsNotFound(err error) bool {
	return errors.Is(err, dispatcher.ErrNotFound) && HasCode(err, input.CodeNotFound)
}

// Unwrap returns the error of package dispatcher for the status, and the problems. It returns
// ErrForeign if the response is not from Carillon.
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

// ErrForeign means that a response is not from Carillon, or is not about the requested object.
// Without this check, an empty response would decode as an app without a name.
var ErrForeign = errors.New("the response does not come from Carillon: check the endpoint")

// successes are the success statuses of each method.
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
	body         any    // nil for no body
	cond         Condition
	// is reports whether a response is about the requested object. A successful DELETE has no body.
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

// errNoName is about a path without one of its names. The server would answer for another path, or say that there is none.
var errNoName = errors.New("a name or an id is empty")

// send sends a request and decodes the response or the problem document. All tries have the same X-Request-Id. A retry
// of a write finds by it that an earlier try made the change whose response was lost.
func send[T any](ctx context.Context, c *Client, q request[T]) (T, error) {
	var nothing, result T
	if slices.Contains(strings.Split(strings.TrimPrefix(q.path, "/"), "/"), "") {
		return nothing, fmt.Errorf("%s %s: %w", q.method, q.path, errNoName)
	}
	id := cryptorand.Text()
	response, unsure, err := try(ctx, c.retryFor, q.method, q.cond, func() (*resty.Response, error) {
		return q.prepare(c.http.R().SetContext(ctx).SetHeader("X-Request-Id", id)).Execute(q.method, q.path)
	})
	if unsure != nil && err == nil && slices.Contains(changed, response.StatusCode()) {
		switch mine := problem(q.method, response).ChangedRequestID == id; {
		case mine && q.method == http.MethodDelete:
			return nothing, nil
		case mine:
			return get(ctx, c, q.path, q.is)
		}
		response, err = unsure.response, unsure.err // this request may have done the write, so a conflict would be wrong
	}
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

// problem decodes the response to a failed request.
func problem(method string, response *resty.Response) *Error {
	e := &Error{Status: response.StatusCode(), Title: http.StatusText(response.StatusCode())}
	// A response without a problem document, such as the page of a proxy, only has its status.
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

// DefaultRetryFor is how long a request is retried. It suits a person who waits for the response;
// set a longer time for programs, so that they outlast the restart of a node.
const DefaultRetryFor = 2 * time.Second

// The wait before a retry doubles from the first to the longest. Each wait is random, between half
// and all of it, so that the clients of a restarted node do not all come back at once.
const (
	firstWait   = 100 * time.Millisecond
	longestWait = 2 * time.Second
)

// doubt is a try that leaves open whether its write was done.
type doubt struct {
	response *resty.Response
	err      error
}

// try repeats call until its result is final: a success, a failure that a retry cannot fix or could
// make worse, or the last failure within retryFor. It also returns the last doubt about a write, nil if there was none.
func try(
	ctx context.Context, retryFor time.Duration, method string, cond Condition, once func() (*resty.Response, error),
) (*resty.Response, *doubt, error) {
	window, cancel := context.WithTimeout(ctx, retryFor)
	defer cancel()
	var unsure *doubt
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		response, err := once()
		if ctx.Err() != nil || !retryable(response, err, method, cond) {
			return response, unsure, err
		}
		pause := wait/2 + rand.N(wait/2)
		if err == nil {
			pause = max(pause, retryAfter(response))
		}
		refused := err == nil && response.StatusCode() == http.StatusTooManyRequests
		if method != http.MethodGet && !refused && !neverSent(err) {
			unsure = &doubt{response, err}
		}
		if pause > retryFor {
			return response, unsure, err // the server asks for more time than is left
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-window.Done():
			timer.Stop()
			return response, unsure, cmp.Or(ctx.Err(), err)
		}
	}
}

// neverSent reports whether err means that no server accepted the connection.
func neverSent(err error) bool {
	dial, is := errors.AsType[*net.OpError](err)
	return is && dial.Op == "dial"
}

// changed are the statuses that refuse a write because the object is not in the expected state.
var changed = []int{http.StatusPreconditionFailed, http.StatusNotFound}

// retryable reports whether a retry is harmless: the request never reached a server, was refused
// for its rate, only reads, or is a write that cannot have an effect twice. After a lost response, that
// is a write with a condition, which fails if it was done before.
func retryable(r *resty.Response, err error, method string, cond Condition) bool {
	lossless := method == http.MethodGet || cond != (Condition{}) && method != http.MethodPost
	if err != nil {
		var certificate *tls.CertificateVerificationError
		var network net.Error
		late := errors.As(err, &network) && network.Timeout() // a retry would take as long again
		return neverSent(err) || r != nil && lossless && !late && !errors.As(err, &certificate)
	}
	switch status := r.StatusCode(); status {
	case http.StatusTooManyRequests:
		return true // it was refused before it had an effect
	case http.StatusServiceUnavailable:
		once := []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete}
		return cond != (Condition{}) || slices.Contains(once, method)
	default:
		return lossless && (status == http.StatusBadGateway || status == http.StatusGatewayTimeout)
	}
}

// retryAfter returns the wait that a response asks for, or 0.
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
