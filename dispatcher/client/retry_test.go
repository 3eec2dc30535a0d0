package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

// scripted is a server where each try of a request gets the next outcome; the last one repeats.
type scripted struct {
	outcomes []outcome
	tries    int
}

// outcome is an error of the connection, or a response.
type outcome struct {
	err        error
	status     int
	retryAfter string
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	o := s.outcomes[min(s.tries, len(s.outcomes)-1)]
	s.tries++
	if o.err != nil {
		return nil, o.err
	}
	header := http.Header{"Content-Type": {"application/json"}, "Date": {"Mon, 23 Nov 2026 05:00:00 GMT"}}
	if o.retryAfter != "" {
		header.Set("Retry-After", o.retryAfter)
	}
	body := `{"name":"crm"}`
	if o.status >= http.StatusBadRequest {
		header.Set("Content-Type", "application/problem+json")
		body = `{}`
	}
	return &http.Response{StatusCode: o.status, Header: header, Body: io.NopCloser(bytes.NewBufferString(body)), Request: r}, nil
}

// A second try of a request that may have arrived could write twice.
func TestOnlySafeRequestsAreRetried(t *testing.T) {
	t.Parallel()
	refused := outcome{err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
	for name, tt := range map[string]struct {
		fails                  outcome
		read, put, blind, post bool // which of them are retried; blind is a PUT without a condition
	}{
		"a refused connection never reached the server": {fails: refused, read: true, put: true, blind: true, post: true},
		"a lost response":       {fails: outcome{err: io.ErrUnexpectedEOF}, read: true, put: true},
		"a reset connection":    {fails: outcome{err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}}, read: true, put: true},
		"too many requests":     {fails: outcome{status: 429}, read: true, put: true, blind: true, post: true},
		"a server starting":     {fails: outcome{status: 503}, read: true, put: true, blind: true},
		"a gateway without one": {fails: outcome{status: 502}, read: true, put: true},
		"a slow gateway":        {fails: outcome{status: 504}, read: true, put: true},
		"an invalid request":    {fails: outcome{status: 422}},
		"a missing object":      {fails: outcome{status: 404}},
		"a bug":                 {fails: outcome{status: 500}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := map[string]struct {
				again bool
				call  func(context.Context, *client.Client)
			}{
				"read": {tt.read, func(ctx context.Context, c *client.Client) { _, _ = c.App(ctx, "crm") }},
				"put": {tt.put, func(ctx context.Context, c *client.Client) {
					_, _ = c.PutApp(ctx, access.App{Name: "crm"}, client.Condition{Absent: true})
				}},
				"put without a condition": {tt.blind, func(ctx context.Context, c *client.Client) {
					_, _ = c.PutApp(ctx, access.App{Name: "crm"}, client.Condition{})
				}},
				"post": {tt.post, func(ctx context.Context, c *client.Client) { _, _ = c.RunJob(ctx, "crm", "sync") }},
			}
			for call, tt2 := range calls {
				synctest.Test(t, func(t *testing.T) {
					server := &scripted{outcomes: []outcome{tt.fails}}
					tt2.call(t.Context(), newClient(t, "http://carillon.test", "t", server))
					if again := server.tries > 1; again != tt2.again {
						t.Errorf("a %s was tried %d times, want again %v", call, server.tries, tt2.again)
					}
				})
			}
		})
	}
}

func TestRequestsAreRetriedForTheGivenTime(t *testing.T) {
	t.Parallel()
	refused := outcome{err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
	for name, tt := range map[string]struct {
		retryFor time.Duration
		fails    outcome
		lasts    time.Duration
	}{
		"the default":                {fails: refused, lasts: client.DefaultRetryFor},
		"30 s":                       {retryFor: 30 * time.Second, fails: refused, lasts: 30 * time.Second},
		"never":                      {retryFor: -1, fails: refused},
		"a server asks for too much": {retryFor: 30 * time.Second, fails: outcome{status: 503, retryAfter: "31"}},
		"a server asks for some": {
			retryFor: 30 * time.Second, fails: outcome{status: 503, retryAfter: "20"}, lasts: 30 * time.Second,
		},
		"it asks by date for too much": {
			retryFor: 30 * time.Second, fails: outcome{status: 503, retryAfter: "Mon, 23 Nov 2026 05:00:31 GMT"},
		},
		"it asks for nonsense": {
			retryFor: 3 * time.Second, fails: outcome{status: 503, retryAfter: "soon"}, lasts: 3 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, err := client.New("http://carillon.test", "t", client.Options{
					Transport: &scripted{outcomes: []outcome{tt.fails}}, RetryFor: tt.retryFor,
				})
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				_, err = c.App(t.Context(), "crm")
				if took := time.Since(start); err == nil || took != tt.lasts {
					t.Errorf("App = %v after %s, want an error after %s", err, took, tt.lasts)
				}
			})
		})
	}
}

// The client waits as long as Retry-After asks, and the request then succeeds.
func TestRetryAfterIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &scripted{outcomes: []outcome{{status: 503, retryAfter: "7"}, {status: 200}}}
		c, err := client.New("http://carillon.test", "t", client.Options{Transport: server, RetryFor: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		app, err := c.PutApp(t.Context(), access.App{Name: "crm"}, client.Condition{Revision: 1})
		if took := time.Since(start); err != nil || app.Name != "crm" || took != 7*time.Second {
			t.Errorf("PutApp = %+v, %v after %s, want it after 7s", app, err, took)
		}
	})
}

// The first try may have written before the server lost its database. The retry then finds that write.
func TestUnavailableWriteIsNotAConflict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &scripted{outcomes: []outcome{{status: 503}, {status: 412}}}
		_, err := newClient(t, "http://carillon.test", "t", server).PutApp(t.Context(), access.App{Name: "crm"},
			client.Condition{Absent: true})
		var problem *client.Error
		if !errors.As(err, &problem) || problem.Status != http.StatusServiceUnavailable || server.tries != 2 {
			t.Errorf("PutApp = %v after %d tries, want status 503 after 2", err, server.tries)
		}
	})
}

func TestCancelledRequestIsNotRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		server := &scripted{outcomes: []outcome{{status: 503, retryAfter: "20"}}}
		c, err := client.New("http://carillon.test", "t", client.Options{Transport: server, RetryFor: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := c.App(ctx, "crm"); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second || server.tries != 1 {
			t.Errorf("App = %v after %s and %d tries, want it cancelled after 1s", err, time.Since(start), server.tries)
		}
	})
}

// A rolling restart behind one address: no server listens, then the new node starts and waits for
// its database, then it serves. The write happens exactly once.
func TestRollingRestartFailsNoWrite(t *testing.T) {
	t.Parallel()
	_, api, token := newServer(t)
	reserved, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := reserved.Addr().String()
	if err := reserved.Close(); err != nil {
		t.Fatal(err)
	}
	refused, release := make(chan struct{}), make(chan struct{})
	var tries, starting atomic.Int32
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := http.DefaultTransport.RoundTrip(r)
		if tries.Add(1) == 2 {
			close(refused)
			<-release
		}
		return response, err
	})
	c, err := client.New("http://"+address, token, client.Options{Transport: transport, RetryFor: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		app, err := c.PutApp(t.Context(), access.App{Name: "crm"}, client.Condition{Absent: true})
		if err == nil && app.Revision != 1 {
			err = errors.New("the app was written twice")
		}
		done <- err
	}()
	<-refused
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	late := &httptest.Server{Listener: listener, Config: &http.Server{ //nolint:gosec // a server of a test
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if starting.Add(1) == 1 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			api.Config.Handler.ServeHTTP(w, r)
		}),
	}}
	late.Start()
	t.Cleanup(late.Close)
	close(release)
	if err := <-done; err != nil || starting.Load() != 2 {
		t.Errorf("PutApp = %v after %d responses, want it at the second", err, starting.Load())
	}
}
