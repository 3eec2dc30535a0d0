package invoke_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// The list of bad inputs: nothing is sent to any of these, with any resolver and with any proxy in the environment. A
// node that opens loopback and private networks opens no more than that.
func TestEgressRowsOfBadInputsAreDenied(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	dns := nameServer(t, map[string]named{
		"loopback.test": {lists: [][]string{{"127.0.0.1"}}}, "both.test": {lists: [][]string{{"93.184.215.14", "127.0.0.1"}}},
		"rebound.test": {lists: [][]string{{"93.184.215.14"}, {"127.0.0.1"}}}, "vpc.test": {lists: [][]string{{"10.1.2.3"}}},
	})
	itself := []string{
		"http://127.0.0.1/", "http://localhost/", "http://[::1]:5432/", "http://[::ffff:127.0.0.1]/", "http://[64:ff9b::7f00:1]/",
		"http://example.com@127.0.0.1/", "http://loopback.test/", "http://both.test/", "http://rebound.test/",
		"http://①②⑦.⓪.⓪.①/",
	}
	private := []string{
		"http://10.0.0.1/", "http://172.16.0.1/", "http://172.31.255.255/", "http://192.168.1.1/", "http://100.64.0.1/", "http://[fc00::1]/",
		"http://[fd12:3456::1]/", "http://[::ffff:10.0.0.1]/", "http://[64:ff9b::a00:1]/", "http://vpc.test/",
	}
	never := []string{
		"http://127.1/", "http://2130706433/", "http://0177.0.0.1/", "http://0.0.0.0/", "http://[::]/", "http://[::127.0.0.1]/",
		"http://169.254.169.254/latest/meta-data/", "http://169.254.170.2/v2/credentials/x", "http://169.254.170.23/v1/credentials",
		"http://[::ffff:a9fe:a9fe]/", "http://[fd00:ec2::254]/", "http://[fd00:ec2::23]/", "http://2852039166/",
		"http://metadata.google.internal/", "file:///etc/passwd", "http://0.1.2.3/", "http://224.0.0.1/", "http://240.0.0.1/",
		"http://255.255.255.255/", "http://192.0.2.1/", "http://198.51.100.1/", "http://203.0.113.1/", "http://198.18.0.1/",
		"http://[2001:db8::1]/", "http://[2002:7f00:1::]/", "http://[fe80::1]/", "http://[ff02::1]/", "http://[::a9fe:a9fe]/",
	}
	denies := func(i *invoke.Invoker, resolver string, urls []string) {
		for _, url := range urls {
			if resolver != "Go's" && strings.Contains(url, ".test") {
				continue // another resolver does not use our name server
			}
			for _, method := range []string{"POST", "GET"} {
				for range 2 {
					if o := i.Invoke(t.Context(), callTo(url, method, ample)); o.Class != run.ClassEgressDenied {
						t.Errorf("%s resolver: %s %s: outcome = %+v, want egress_denied", resolver, method, url, o)
					}
				}
			}
		}
	}
	for resolver, preferGo := range map[string]bool{"Go's": true, "the system's": false} {
		options := invoke.Options{Resolver: &net.Resolver{PreferGo: preferGo, Dial: dns}}
		i := invoke.New(options)
		denies(i, resolver, itself)
		denies(i, resolver, private)
		denies(i, resolver, never)
		i.Close()
		options.Egress.Loopback = true
		open := invoke.New(options)
		denies(open, resolver, private)
		denies(open, resolver, never)
		open.Close()
	}
}

// A receiver cannot lead a node to a denied address: a redirect is a response, not an order.
func TestRedirectsToDeniedAddressesAreNotFollowed(t *testing.T) {
	t.Parallel()
	private := newCanary(t)
	for _, to := range []string{"http://169.254.169.254/latest/meta-data/", "http://127.0.0.1:" + private.port + "/", "file:///etc/passwd"} {
		for _, status := range []int{301, 302, 303, 307, 308} {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", to)
				w.WriteHeader(status)
			}))
			for _, method := range []string{"POST", "GET"} {
				o := newInvoker(t).Invoke(t.Context(), callTo(server.URL, method, ample))
				if o.Class != run.ClassRedirect || o.HTTPStatus != status || private.hits.Load() != 0 {
					t.Errorf("%d to %s: outcome = %+v after %d connections, want class redirect and none", status, to, o, private.hits.Load())
				}
			}
			server.Close()
		}
	}
}
