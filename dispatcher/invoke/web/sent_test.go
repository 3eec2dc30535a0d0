package web

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// holding is a transport that calls a function before the first header of a request is written.
type holding struct {
	http.RoundTripper
	hold atomic.Pointer[func()]
}

func (h *holding) RoundTrip(r *http.Request) (*http.Response, error) {
	return h.RoundTripper.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		WroteHeaderField: func(string, []string) {
			if hold := h.hold.Swap(nil); hold != nil {
				(*hold)()
			}
		},
	})))
}

// An attempt over HTTP/2 ends at its cancellation, while another goroutine may be about to write its request to a kept
// connection. Over HTTP/1 the end of the attempt waits for that goroutine.
func TestRequestWrittenDuringACancellationCountsAsSent(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		bodies := make(chan string, 2)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			bodies <- r.Proto + string(body)
		}))
		server.EnableHTTP2 = http2
		server.StartTLS()
		t.Cleanup(server.Close)
		pool := newClientPool(newGuard(Egress{Loopback: true}, nil), 8, 0)
		t.Cleanup(pool.closeIdle)
		client := pool.plain.kept.GetClient()
		client.Transport.(*http.Transport).TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		transport := &holding{RoundTripper: client.Transport}
		client.Transport = transport
		h := &Webhooks{}
		w := &target.Webhook{Timeout: input.Duration(2 * time.Minute)}
		r := Request{Method: http.MethodPost, URL: server.URL, Header: http.Header{}, Body: []byte("{}"), clients: pool.plain}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if o := h.Attempt(ctx, ctx, w, r, &attempt.Stopwatch{Start: time.Now()}); o.State != run.Succeeded {
			t.Fatalf("the first attempt: %+v, want it succeeded", o)
		}
		<-bodies
		ended, written := make(chan struct{}), make(chan struct{})
		hold := func() {
			defer close(written)
			cancel()
			if http2 {
				<-ended
			}
		}
		transport.hold.Store(&hold)
		o := h.Attempt(ctx, ctx, w, r, &attempt.Stopwatch{Start: time.Now()})
		close(ended)
		<-written
		if o.State != run.Cancelled || o.NotSent {
			t.Errorf("HTTP/2 is %t: outcome = %+v, want cancelled, and perhaps sent", http2, o)
		}
	}
}
