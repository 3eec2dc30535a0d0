package invoke_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ample is the timeout of calls that must not time out, and how long a test waits: longer than a loaded machine stalls.
const ample = 5 * time.Minute

// short is the timeout of calls to addresses that do not respond.
const short = 200 * time.Millisecond

func callTo(url, method string, timeout time.Duration) target.Call {
	at := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	return target.Call{
		App: "demo", Job: "ping", Trigger: "fast", EventID: "evt_1", Attempt: 2,
		Key: run.Key{
			TriggerID: run.TriggerID("demo", "ping", "fast"), ScheduledAt: at, Kind: run.KindSchedule,
		},
		Target: target.Target{Webhook: &target.Webhook{
			URL: url, Method: method, Timeout: input.Duration(timeout),
			Headers: map[string]string{"X-Own": "yes", "content-type": "text/x-own"},
		}},
	}
}

func newInvoker(t *testing.T) *invoke.Invoker {
	t.Helper()
	i := invoke.New(invoke.Options{Version: "1.2.3", Egress: web.Egress{Loopback: true}})
	t.Cleanup(i.Close)
	return i
}

func TestRequestCarriesIdentityAndPayload(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.Background())
		body, _ = io.ReadAll(r.Body)
	}))
	defer server.Close()
	call := callTo(server.URL+"/hook", "POST", ample)
	call.Target.Webhook.TraceContext = true
	call.Payload = []byte(`{"n": 1}`)
	call.Missed = &run.MissedRange{From: call.Key.ScheduledAt.Add(-time.Hour), To: call.Key.ScheduledAt, Count: 61}
	call.Cause = &run.Cause{Run: "run0", On: "on_failure", State: run.Failed, Error: "no\r\nway: é"}
	o := newInvoker(t).Invoke(t.Context(), call)
	if o.State != run.Succeeded || o.HTTPStatus != 200 || o.EndedAt.Before(o.StartedAt) {
		t.Fatalf("outcome = %+v, want success with 200", o)
	}
	want := map[string]string{
		"Webhook-Id": "evt_1", "Carillon-App": "demo", "Carillon-Job": "ping", "Carillon-Trigger": "fast",
		"Carillon-Run": call.Key.String(), "Carillon-Kind": "schedule", "Carillon-Attempt": "2",
		"Carillon-Scheduled-At": "2026-05-01T10:00:00.000Z", "Carillon-Fence": "1777629600000002",
		"Traceparent": call.Traceparent(), "User-Agent": "carillon/1.2.3", "X-Own": "yes",
		"Content-Type":         "text/x-own",
		"Carillon-Missed-From": "2026-05-01T09:00:00.000Z", "Carillon-Missed-To": "2026-05-01T10:00:00.000Z",
		"Carillon-Missed-Count": "61",
		"Carillon-Parent-Run":   "run0", "Carillon-Parent-Event": "on_failure", "Carillon-Parent-State": "failed",
		"Carillon-Parent-Class": "", "Carillon-Parent-Error": "no  way:",
	}
	for name, value := range want {
		if got.Header.Get(name) != value {
			t.Errorf("header %s = %q, want %q", name, got.Header.Get(name), value)
		}
	}
	if string(body) != `{"n": 1}` || got.Method != "POST" || got.ContentLength != 8 {
		t.Errorf("request = %s with %d bytes %q, want POST with the payload", got.Method, got.ContentLength, body)
	}
}

func TestStatusCodesHaveTheirClass(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]run.Class{
		200: "", 204: "", 301: run.ClassRedirect, 404: run.ClassHTTP4xx,
		429: run.ClassRateLimited, 503: run.ClassHTTP5xx,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			var hits atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				hits.Add(1)
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(status)
			}))
			defer server.Close()
			o := newInvoker(t).Invoke(t.Context(), callTo(server.URL, "POST", ample))
			if o.Class != want || o.HTTPStatus != status || hits.Load() != 1 {
				t.Errorf("outcome = %+v after %d requests, want class %q after 1", o, hits.Load(), want)
			}
		})
	}
}

func TestFailuresHaveTheirClass(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	drip := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		<-hang
	}))
	t.Cleanup(func() { close(hang); slow.Close(); drip.Close() })
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	reset := rawServer(t, func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) })
	garbage := rawServer(t, func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-OpenSSH\r\n\r\n") })

	for name, tt := range map[string]struct {
		url   string
		state run.State
		class run.Class
	}{
		"no listener":            {"http://" + refuse(t, "127.0.0.1:0").address, run.Failed, run.ClassConnectRefused},
		"no such host":           {"http://nosuchhost.invalid/", run.Failed, run.ClassDNS},
		"no response in time":    {slow.URL, run.TimedOut, run.ClassTimeout},
		"a body that never ends": {drip.URL, run.TimedOut, run.ClassTimeout},
		"an unknown certificate": {secure.URL, run.Failed, run.ClassTLS},
		"a connection reset":     {reset, run.Failed, run.ClassReset},
		"a response not in HTTP": {garbage, run.Failed, run.ClassProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, call := newInvoker(t), callTo(tt.url+"/?key=hunter2", "POST", ample)
			o := run.Outcome{}
			if tt.state == run.TimedOut {
				o = timingOut(t, i, call)
			} else {
				o = i.Invoke(t.Context(), call)
			}
			if o.State != tt.state || o.Class != tt.class {
				t.Errorf("outcome = %+v, want %s %s", o, tt.state, tt.class)
			}
			if strings.Contains(o.Error, "hunter2") {
				t.Errorf("error %q repeats the URL's query, which may be a credential", o.Error)
			}
		})
	}
}

// timingOut makes an attempt with a timeout that the server exceeds. If a slow machine does not even connect within the
// timeout, it repeats the attempt with one twice as long.
func timingOut(t *testing.T, i *invoke.Invoker, call target.Call) (o run.Outcome) {
	t.Helper()
	for timeout := 250 * time.Millisecond; timeout < ample; timeout *= 2 {
		call.Target.Webhook.Timeout = input.Duration(timeout)
		if o = i.Invoke(t.Context(), call); o.Class != run.ClassConnectTimeout {
			break
		}
	}
	return o
}

// rawServer serves each connection by behave, after the first bytes of the request, and closes it.
func rawServer(t *testing.T, behave func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			behave(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return "http://" + l.Addr().String()
}

func TestCancelledAttemptIsCancelledNotTimedOut(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		cancel()
		<-r.Context().Done()
	}))
	defer server.Close()
	o := newInvoker(t).Invoke(ctx, callTo(server.URL, "POST", ample))
	if o.State != run.Cancelled || o.NotSent {
		t.Errorf("outcome = %+v, want cancelled after the request was sent", o)
	}
}

func TestAttemptCancelledWhileItConnectsWasNotSent(t *testing.T) {
	t.Parallel()
	address := fullListener(t)
	for _, method := range []string{http.MethodPost, http.MethodGet} { // on kept and on new connections
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		o := newInvoker(t).Invoke(ctx, callTo("http://"+address, method, ample))
		if o.State != run.Cancelled || !o.NotSent {
			t.Errorf("outcome of %s = %+v, want cancelled before anything was sent", method, o)
		}
	}
}

func TestEndlessResponseIsCut(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 1<<20)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	if o := newInvoker(t).Invoke(t.Context(), callTo(server.URL, "POST", ample)); o.State != run.Succeeded {
		t.Errorf("outcome = %+v, want success without reading the endless body", o)
	}
}
