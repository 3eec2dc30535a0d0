package invoke_test

import (
	"slices"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// However a target ends what it was sent, whatever the method, and with the headers that make
// net/http believe that it may repeat: the target sees one request for each attempt.
func TestOneAttemptIsOneRequestOnTheWire(t *testing.T) {
	t.Parallel()
	const attempts = 6
	good := certificate(t, "127.0.0.1", time.Now().Add(time.Hour))
	trusted := &dispatcher.TLS{CACertificates: pemOf(good)}
	for _, method := range dispatcher.Methods {
		all := brokenServers(t, good)
		for _, name := range []string{
			"closed after the request", "reset after the request", "reset within the body", "a length too long", "kept alive, dies under a request",
			"HTTP/2 that goes away", "HTTP/2 that goes away, enhance your calm", "HTTP/2 that refuses", "HTTP/2 that resets streams",
		} {
			a := all[name]
			t.Run(method+" "+name, func(t *testing.T) {
				t.Parallel()
				k, i := a.run(t, good), newInvoker(t)
				t.Cleanup(k.close)
				var classes []dispatcher.Class
				for n := range attempts {
					call := callTo("http://"+k.address, method, 5*time.Second)
					if a.tls != nil {
						call = callTo("https://"+k.address, method, 5*time.Second)
						call.Target.Webhook.TLS = trusted
					}
					call.Attempt = n + 1
					call.Target.Webhook.Headers = map[string]string{"Idempotency-Key": "1", "X-Idempotency-Key": "1"}
					o := i.Invoke(t.Context(), call)
					classes = append(classes, o.Class)
					// What has no body is sent by HTTP/1, which these servers of HTTP/2 alone do not read.
					unread := a.deaf && len(call.Target.Webhook.BodyOf(call.Body())) == 0
					if got := int(k.requests.Load()); got > n+1 || got < n+1 && !unread {
						t.Fatalf("%d requests of %d attempts: %v, %+v", got, n+1, classes, o)
					}
				}
				want := slices.Repeat([]dispatcher.Class{dispatcher.ClassReset}, attempts)
				if a.answered != nil && k.requests.Load() > a.answered.Load() { // every other one dies on a connection that was kept
					for n := 0; n < attempts; n += 2 {
						want[n] = ""
					}
				}
				if a.answered != nil && a.answered.Load() == attempts { // each has a connection of its own
					want = make([]dispatcher.Class, attempts)
				}
				if method == "HEAD" && (name == "reset within the body" || name == "a length too long") {
					want = make([]dispatcher.Class, attempts) // it has no body to be cut off
				}
				if !slices.Equal(classes, want) {
					t.Errorf("classes = %q, want %q", classes, want)
				}
			})
		}
	}
}
