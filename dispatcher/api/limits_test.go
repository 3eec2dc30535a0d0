package api_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/limit"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// limitedTo checks that a request was refused temporarily, with the time to wait.
func (r reply) limitedTo(words string) {
	r.t.Helper()
	r.refused(http.StatusTooManyRequests, " rate_limited")
	r.says(words)
	if wait, err := strconv.Atoi(r.Header().Get("Retry-After")); err != nil || wait < 1 || wait > 60 {
		r.t.Errorf("%s: Retry-After is %q, want 1 to 60 seconds", r.request, r.Header().Get("Retry-After"))
	}
}

// Rates are tested in bubbles, whose clock stands still between requests: a slow machine earns no further requests.

// T12: any address could make any number of requests.
func TestAddressMayMakeSomeRequestsAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, addressMayMakeSomeRequestsAMinute)
}

func addressMayMakeSomeRequestsAMinute(t *testing.T) {
	w := newWorld(t, api.Options{Limits: gate.Limits{AddressRequests: 20}})
	w.declare() // two requests
	for range 18 {
		w.must(http.StatusOK, "GET", oneJob, "")
	}
	w.do("GET", oneJob, "").limitedTo("your address has made more than 20 requests in a minute")
	w.do("GET", "/nowhere", "", "Authorization:").limitedTo("your address")
	w.must(http.StatusOK, "GET", "/livez", "")
	w.must(http.StatusOK, "GET", "/readyz", "")
	if logs := w.logs.String(); !strings.Contains(logs, "level=WARN") || !strings.Contains(logs, "reason=address") ||
		!strings.Contains(logs, "address=192.0.2.1") {
		t.Errorf("the log does not tell of it: %s", logs)
	}
}

func TestAddressBehindAProxyIsTheClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, addressBehindAProxyIsTheClients)
}

func addressBehindAProxyIsTheClients(t *testing.T) {
	proxies := limit.Proxies{netip.MustParsePrefix("192.0.2.0/24")}
	w := newWorld(t, api.Options{Limits: gate.Limits{AddressRequests: 5, Proxies: proxies}})
	for range 5 {
		w.must(http.StatusOK, "GET", "/version", "", "X-Forwarded-For: 198.51.100.1")
	}
	w.do("GET", "/version", "", "X-Forwarded-For: 203.0.113.1, 198.51.100.1").limitedTo("your address")
	w.must(http.StatusOK, "GET", "/version", "", "X-Forwarded-For: 198.51.100.2")
	strict := newWorld(t, api.Options{Limits: gate.Limits{AddressRequests: 1}})
	strict.must(http.StatusOK, "GET", "/version", "", "X-Forwarded-For: 198.51.100.1")
	strict.do("GET", "/version", "", "X-Forwarded-For: 198.51.100.2").limitedTo("your address")
}

// T12: tokens bound to an app could make any number of requests.
func TestTokensOfAnAppShareItsQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, tokensOfAnAppShareItsQuota)
}

func tokensOfAnAppShareItsQuota(t *testing.T) {
	w := newWorld(t, api.Options{Limits: gate.Limits{TokenRequests: 40}})
	w.must(http.StatusCreated, "PUT", oneApp, `{"bounds":{"quotas":{"requests_per_minute":10}}}`)
	w.must(http.StatusCreated, "PUT", "/v1/apps/other", `{}`)
	one, two := "Authorization: Bearer "+w.newToken("one", reads, "crm"), "Authorization: Bearer "+w.newToken("two", reads, "crm")
	other := "Authorization: Bearer " + w.newToken("three", reads, "other")
	for range 5 {
		w.must(http.StatusOK, "GET", oneApp, "", one)
		w.must(http.StatusOK, "GET", "/v1/apps", "", two)
	}
	w.do("GET", oneApp, "", one).limitedTo(`app \"crm\" has made more than 10 requests in a minute`)
	w.do("GET", "/v1/apps/other", "", two).limitedTo("requests_per_minute")
	w.must(http.StatusOK, "GET", "/v1/apps/other", "", other)
	for range 38 {
		w.must(http.StatusOK, "GET", oneApp, "")
	}
	w.do("GET", oneApp, "").limitedTo("has made more than 40 requests")
}

// T12: 300 bad tokens in 0.3 s were 300 times 401, none of it in the log.
func TestBadTokensAreSlowedDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, badTokensAreSlowedDown)
}

func badTokensAreSlowedDown(t *testing.T) {
	registry := prometheus.NewRegistry()
	w := newWorld(t, api.Options{Limits: gate.Limits{BadTokens: 10}, Registerer: registry})
	w.declare()
	unused := "Authorization: Bearer " + w.newToken("unused", reads)
	for range 10 {
		bad, _ := access.NewToken()
		w.do("GET", oneApp, "", "Authorization: Bearer "+bad).refused(http.StatusUnauthorized, " unauthorized")
	}
	for range 30 {
		bad, _ := access.NewToken()
		w.do("GET", oneApp, "", "Authorization: Bearer "+bad).limitedTo("10 requests without a valid token")
	}
	w.do("GET", oneApp, "", "Authorization:").refused(http.StatusUnauthorized, " unauthorized") // this costs nothing
	w.must(http.StatusOK, "GET", oneApp, "")                                                    // it was valid before
	w.do("GET", oneApp, "", unused).limitedTo("without a valid token")
	if n := strings.Count(w.logs.String(), "request without a valid token"); n != 11 { // one without any
		t.Errorf("%d lines tell of bad tokens, want 11", n)
	}
	got := map[string]float64{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			label := ""
			for _, pair := range metric.GetLabel() {
				label = " " + pair.GetValue()
			}
			got[family.GetName()+label] = metric.GetCounter().GetValue()
		}
	}
	if got["carillon_api_unauthorized_total"] != 11 || got["carillon_api_requests_limited_total bad_tokens"] != 31 {
		t.Errorf("metrics are %v, want 11 without a token and 31 limited", got)
	}
}

// lookups counts look-ups of tokens.
type lookups struct {
	*store.Store
	count atomic.Int64
}

func (l *lookups) TokenByHash(ctx context.Context, hash [32]byte) (access.APIToken, error) {
	l.count.Add(1)
	return l.Store.TokenByHash(ctx, hash)
}

func TestTokensAreLookedUpOnceInAWhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	counted := &lookups{Store: w.store}
	w.api = api.New(counted, api.Options{Limits: gate.Limits{TokenCache: time.Hour}})
	bad, _ := access.NewToken()
	for range 20 {
		w.must(http.StatusOK, "GET", oneApp, "")
		w.must(http.StatusUnauthorized, "GET", oneApp, "", "Authorization: Bearer "+bad)
	}
	if n := counted.count.Load(); n != 2 {
		t.Errorf("%d look-ups of two tokens, want 2", n)
	}
}

func TestLargeRequestsWaitForMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{Limits: gate.Limits{Memory: 16 << 20}})
	w.declare()
	begun, end := make(chan struct{}), make(chan struct{})
	held := &slowJobs{Store: w.store, begun: begun, end: end}
	w.api = api.New(held, api.Options{Limits: gate.Limits{Memory: 16 << 20}})
	first := make(chan int)
	go func() { first <- w.do("GET", oneApp+"/jobs", "").Code }()
	<-begun
	w.do("GET", oneApp+"/runs", "").limitedTo("too many large requests")
	w.must(http.StatusOK, "GET", oneJob, "")
	close(end)
	if code := <-first; code != http.StatusOK {
		t.Errorf("the first request: %d, want 200", code)
	}
	w.must(http.StatusOK, "GET", oneApp+"/runs", "")
}

// slowJobs waits for the test before it lists jobs.
type slowJobs struct {
	*store.Store
	begun, end chan struct{}
}

func (s *slowJobs) Jobs(ctx context.Context, app string, page input.Page) ([]dispatcher.Job, error) {
	close(s.begun)
	<-s.end
	return s.Store.Jobs(ctx, app, page)
}

// A caller without a token must not hold a connection for as long as a body may take.
func TestBodyWithoutATokenIsNotAwaited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	server := httptest.NewUnstartedServer(w.api)
	server.Config.ReadTimeout = 2 * patience
	server.Start()
	defer server.Close()
	var dial net.Dialer
	conn, err := dial.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	const request = "PUT " + oneApp + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
	if _, err := fmt.Fprint(conn, request); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 401 ") {
		t.Errorf("got %.40q, error %v; want 401 and the end of the connection", got, err)
	}
}
