// Package client is the typed Go client of Carillon's HTTP API. The Terraform provider, the
// command line and the tests use it.
package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
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
// *Error when the API answers with a problem; the errors of dispatcher that a status stands
// for (ErrNotFound, ErrPrecondition) are found by errors.Is.
type Client struct {
	http *resty.Client
}

// New returns a client of the API at endpoint, such as "https://carillon.internal:8080".
func New(endpoint, token string, o Options) (*Client, error) {
	u, err := url.Parse(endpoint)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
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
	// Every request is idempotent (PUT, GET, DELETE by name) or safe to repeat, so a refused
	// connection or an overloaded server is worth a few tries.
	r := resty.NewWithClient(&http.Client{Transport: o.Transport, Timeout: o.Timeout}).
		SetBaseURL(strings.TrimSuffix(endpoint, "/")).
		SetAuthToken(token).
		SetHeader("User-Agent", o.UserAgent).
		SetRetryCount(3).SetRetryWaitTime(200 * time.Millisecond).SetRetryMaxWaitTime(2 * time.Second).
		AddRetryCondition(func(r *resty.Response, err error) bool {
			return err == nil && r.Request.Method == http.MethodGet && r.StatusCode() == http.StatusServiceUnavailable
		}).
		SetLogger(silent{})
	return &Client{http: r}, nil
}

// silent keeps resty from writing to standard error; what it would say is in the errors.
type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}

// Error is a problem that the API answered with (RFC 9457).
type Error struct {
	Status    int               `json:"status"`
	Title     string            `json:"title"`
	Detail    string            `json:"detail,omitempty"`
	RequestID string            `json:"request_id"`
	Faults    dispatcher.Faults `json:"errors"`
}

// Error returns the faults in words, or the title where there are none.
func (e *Error) Error() string {
	switch {
	case len(e.Faults) > 0:
		return e.Faults.Error()
	case e.Detail != "":
		return e.Detail
	}
	return fmt.Sprintf("%d %s", e.Status, e.Title)
}

// Unwrap returns the error of package dispatcher that the status stands for, and the faults.
func (e *Error) Unwrap() []error {
	var all []error
	switch e.Status {
	case http.StatusNotFound:
		all = append(all, dispatcher.ErrNotFound)
	case http.StatusPreconditionFailed:
		all = append(all, dispatcher.ErrPrecondition)
	case http.StatusConflict:
		all = append(all, dispatcher.ErrConflict)
	}
	if len(e.Faults) > 0 {
		all = append(all, e.Faults)
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

// List is one page of a list; Next is the cursor of the following page, empty after the last.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// PutApp creates or replaces an app.
func (c *Client) PutApp(ctx context.Context, app dispatcher.App, cond Condition) (dispatcher.App, error) {
	return call[dispatcher.App](ctx, c, http.MethodPut, path("apps", app.Name), app, cond)
}

// App reads an app.
func (c *Client) App(ctx context.Context, name string) (dispatcher.App, error) {
	return call[dispatcher.App](ctx, c, http.MethodGet, path("apps", name), nil, Condition{})
}

// DeleteApp deletes an app, which must have no jobs.
func (c *Client) DeleteApp(ctx context.Context, name string, cond Condition) error {
	_, err := call[struct{}](ctx, c, http.MethodDelete, path("apps", name), nil, cond)
	return err
}

// PutJob creates or replaces a job with its triggers.
func (c *Client) PutJob(ctx context.Context, job dispatcher.Job, cond Condition) (dispatcher.Job, error) {
	return call[dispatcher.Job](ctx, c, http.MethodPut, path("apps", job.App, "jobs", job.Name), job, cond)
}

// Job reads a job.
func (c *Client) Job(ctx context.Context, app, name string) (dispatcher.Job, error) {
	return call[dispatcher.Job](ctx, c, http.MethodGet, path("apps", app, "jobs", name), nil, Condition{})
}

// DeleteJob deletes a job; its ledger stays.
func (c *Client) DeleteJob(ctx context.Context, app, name string, cond Condition) error {
	_, err := call[struct{}](ctx, c, http.MethodDelete, path("apps", app, "jobs", name), nil, cond)
	return err
}

// Runs lists runs of an app, latest first; query holds the parameters of the route.
func (c *Client) Runs(ctx context.Context, query dispatcher.RunQuery) (List[dispatcher.Run], error) {
	return call[List[dispatcher.Run]](ctx, c, http.MethodGet, path("apps", query.App, "runs")+"?"+params(query), nil, Condition{})
}

// Run reads one run with its attempts.
func (c *Client) Run(ctx context.Context, id string) (dispatcher.Run, error) {
	return call[dispatcher.Run](ctx, c, http.MethodGet, path("runs", id), nil, Condition{})
}

// Misfires lists the misfire decisions of an app, latest first.
func (c *Client) Misfires(ctx context.Context, query dispatcher.RunQuery) (List[dispatcher.Misfire], error) {
	return call[List[dispatcher.Misfire]](ctx, c, http.MethodGet, path("apps", query.App, "misfires")+"?"+params(query), nil, Condition{})
}

// Nodes lists the dispatcher nodes.
func (c *Client) Nodes(ctx context.Context) (List[dispatcher.Node], error) {
	return call[List[dispatcher.Node]](ctx, c, http.MethodGet, path("nodes"), nil, Condition{})
}

func path(segments ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, s := range segments {
		b.WriteString("/" + url.PathEscape(s))
	}
	return b.String()
}

func params(q dispatcher.RunQuery) string {
	values := url.Values{}
	set := func(key, value string) {
		if value != "" {
			values.Set(key, value)
		}
	}
	set("job", q.Job)
	set("trigger", q.Trigger)
	set("state", string(q.State))
	set("cursor", q.Page.Cursor)
	if q.Page.Limit > 0 {
		set("limit", strconv.Itoa(q.Page.Limit))
	}
	if !q.From.IsZero() {
		set("from", q.From.Format(time.RFC3339Nano))
	}
	if !q.To.IsZero() {
		set("to", q.To.Format(time.RFC3339Nano))
	}
	return values.Encode()
}

// call makes one request and decodes its answer, or the problem.
func call[T any](ctx context.Context, c *Client, method, path string, body any, cond Condition) (T, error) {
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
	answer, err := r.Execute(method, path)
	if err != nil {
		return result, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if answer.IsError() {
		problem := &Error{Status: answer.StatusCode(), Title: http.StatusText(answer.StatusCode())}
		// An answer that is no problem document (a proxy's page) leaves the status to speak.
		_ = json.Unmarshal(answer.Body(), problem)
		return result, problem
	}
	if len(answer.Body()) > 0 {
		if err := json.Unmarshal(answer.Body(), &result); err != nil {
			return result, fmt.Errorf("%s %s: decode answer: %w", method, path, err)
		}
	}
	return result, nil
}
