package invoke_test

import (
	"slices"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// A target sees one request for each attempt, with any break of the connection and any method, even with the headers
// that allow net/http to repeat a request.
func TestOneAttemptIsOneRequestOnTheWire(t *testing.T) {
	t.Parallel()
	const attempts = 6
	good := certificate(t, "127.0.0.1", time.Now().Add(time.Hour))
	trusted := &target.TLS{CACertificates: pemOf(good)}
	for _, method := range target.Methods {
		all := brokenServers(t, good)
		for _, name := range []string{
			"closed after the request", "reset after the request", "reset within the body", "a length too long",
			"kept alive, dies under a request",
			"HTTP/2 that sends GOAWAY", "HTTP/2 that sends GOAWAY and closes", "HTTP/2 that refuses",
			"HTTP/2 that resets streams",
		} {
			server := all[name]
			t.Run(method+" "+name, func(t *testing.T) {
				t.Parallel()
				r, i := server.run(t, good), newInvoker(t)
				t.Cleanup(r.close)
				var classes []run.Class
				for n := range attempts {
					call := callTo(r.url(), method, ample)
					if r.tls != nil {
						call.Target.Webhook.TLS = trusted
					}
					call.Attempt = n + 1
					call.Target.Webhook.Headers = map[string]string{"Idempotency-Key": "1", "X-Idempotency-Key": "1"}
					o := i.Invoke(t.Context(), call)
					classes = append(classes, o.Class)
					// A request without a body uses HTTP/1, which servers of only HTTP/2 do not read.
					unread := r.unread && len(call.Target.Webhook.BodyOf(call.Body())) == 0
					if got := int(r.requests.Load()); got > n+1 || got < n+1 && !unread {
						t.Fatalf("%d requests of %d attempts: %v, %+v", got, n+1, classes, o)
					}
				}
				want := slices.Repeat([]run.Class{run.ClassReset}, attempts)
				if r.responses != nil && r.requests.Load() > r.responses.Load() { // every other request fails on a kept connection
					for n := 0; n < attempts; n += 2 {
						want[n] = ""
					}
				}
				if r.responses != nil && r.responses.Load() == attempts { // each request has its own connection
					want = make([]run.Class, attempts)
				}
				if method == "HEAD" && (name == "reset within the body" || name == "a length too long") {
					want = make([]run.Class, attempts) // the response has no body that could be cut off
				}
				if !slices.Equal(classes, want) {
					t.Errorf("classes = %q, want %q", classes, want)
				}
			})
		}
	}
}
