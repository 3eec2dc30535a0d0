package invoke_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// again runs tests of this program in a new process with more environment variables, because
// net/http and net read their variables only once.
func again(t *testing.T, tests string, environment ...string) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), program, "-test.run="+tests, "-test.v", "-test.timeout=5m")
	command.Env = append(os.Environ(), environment...)
	out, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") || strings.Contains(string(out), "--- SKIP") {
		t.Errorf("%s with %v: %v\n%s", tests, environment, err, out)
	}
	return string(out)
}

// Carillon uses no proxy of the environment, neither for allowed nor for denied addresses, because it
// cannot check the address that a proxy calls.
func TestProxiesOfTheEnvironmentAreNotUsed(t *testing.T) {
	const child = "CARILLON_TEST_PROXIED"
	if os.Getenv(child) == "" {
		proxy := newCanary(t)
		environment := []string{child + "=1"}
		for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
			environment = append(environment, name+"=http://127.0.0.1:"+proxy.port)
		}
		again(t, "^TestProxiesOfTheEnvironmentAreNotUsed$", append(environment, "NO_PROXY=", "no_proxy=")...)
		if hits := proxy.hits.Load(); hits != 0 {
			t.Errorf("the proxy got %d connections", hits)
		}
		return
	}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	names := nameServer(t, map[string]named{
		"called.test": {lists: [][]string{{"127.0.0.1"}}}, "metadata.test": {lists: [][]string{{"169.254.169.254"}}},
	})
	// Egress allows the proxy itself. net/http never uses a proxy for a loopback address, so this
	// test calls a name.
	i := invoke.New(invoke.Options{Egress: web.Egress{Loopback: true}, Resolver: &net.Resolver{PreferGo: true, Dial: names}})
	t.Cleanup(i.Close)
	for _, method := range target.Methods {
		o := i.Invoke(t.Context(), callTo("http://called.test:"+port, method, ample))
		if o.State != run.Succeeded {
			t.Errorf("%s: outcome = %+v, want success without the proxy", method, o)
		}
		for _, url := range []string{
			"http://169.254.169.254/", "https://169.254.169.254/", "http://[fd00:ec2::254]/",
			"http://metadata.test/", "https://metadata.test/", "http://224.0.0.1/",
		} {
			if o := i.Invoke(t.Context(), callTo(url, method, ample)); o.Class != run.ClassEgressDenied {
				t.Errorf("%s %s: outcome = %+v, want egress_denied", method, url, o)
			}
		}
	}
}
