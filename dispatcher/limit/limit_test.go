package limit_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/limit"
)

func noon() time.Time { return time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC) }

func TestRatesAllowSomeRequestsAMinute(t *testing.T) {
	t.Parallel()
	r := limit.NewRates[string](10)
	for n := range 60 {
		if wait := r.Take("a", 60, noon()); wait != 0 {
			t.Fatalf("request %d is to wait %s, want none", n, wait)
		}
	}
	if wait := r.Take("a", 60, noon()); wait != time.Second {
		t.Errorf("request 61 is to wait %s, want 1s", wait)
	}
	if wait := r.Take("b", 60, noon()); wait != 0 {
		t.Errorf("another key is to wait %s, want none", wait)
	}
	later := noon().Add(1500 * time.Millisecond)
	if first, second := r.Take("a", 60, later), r.Take("a", 60, later); first != 0 || second != 500*time.Millisecond {
		t.Errorf("after 1.5 s: got waits of %s and %s, want none and 500ms", first, second)
	}
	if wait := r.Take("a", 60, noon()); wait == 0 {
		t.Error("a clock that was set back gave a request")
	}
}

func TestRatesKeepABoundedNumberOfKeys(t *testing.T) {
	t.Parallel()
	r := limit.NewRates[int](1000)
	for key := range 100_000 {
		r.Take(key, 60, noon())
	}
	if n := r.Len(); n > 1000 {
		t.Errorf("%d keys are kept, want 1,000 at most", n)
	}
}

func TestLinesCountWithheldOnes(t *testing.T) {
	t.Parallel()
	l := limit.NewLines(2, time.Minute)
	written := 0
	for range 100 {
		if _, may := l.May("x", noon()); may {
			written++
		}
	}
	if withheld, may := l.May("x", noon().Add(time.Minute)); written != 2 || !may || withheld != 98 {
		t.Errorf("%d lines, then %d withheld, %v; want 2, 98, true", written, withheld, may)
	}
}

func TestClientOfARequest(t *testing.T) {
	t.Parallel()
	proxies := limit.Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for name, tt := range map[string]struct {
		peer      string
		forwarded []string
		want      string
	}{
		"the peer":                        {"192.0.2.1:5", nil, "192.0.2.1"},
		"a stranger's header is ignored":  {"192.0.2.1:5", []string{"198.51.100.7"}, "192.0.2.1"},
		"the last address before a proxy": {"10.1.1.1:5", []string{"1.1.1.1, 198.51.100.7"}, "198.51.100.7"},
		"proxies in between are skipped":  {"10.1.1.1:5", []string{"1.1.1.1, 198.51.100.7, 10.2.2.2"}, "198.51.100.7"},
		"headers are one list":            {"10.1.1.1:5", []string{"1.1.1.1", "198.51.100.7"}, "198.51.100.7"},
		"with a port":                     {"10.1.1.1:5", []string{"198.51.100.7:4711"}, "198.51.100.7"},
		"a forged address is ignored":     {"10.1.1.1:5", []string{"198.51.100.7, unknown"}, "10.1.1.1"},
		"a proxy without the header":      {"10.1.1.1:5", nil, "10.1.1.1"},
		"IPv4 in IPv6":                    {"[::ffff:10.1.1.1]:5", []string{"::ffff:198.51.100.7"}, "198.51.100.7"},
		"IPv6":                            {"[fd00::1]:5", []string{"2001:db8::1"}, "2001:db8::1"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = tt.peer
		for _, value := range tt.forwarded {
			r.Header.Add("X-Forwarded-For", value)
		}
		if got := proxies.Client(r).String(); got != tt.want {
			t.Errorf("%s: got %s, want %s", name, got, tt.want)
		}
	}
	if a, b := limit.AddressOf("[2001:db8::1]:1"), limit.AddressOf("[2001:db8::ffff]:2"); a != b {
		t.Errorf("two addresses of one network count as %s and %s, want the same", a, b)
	}
}

func TestMemoryOfOneCallerLeavesTheOtherHalf(t *testing.T) {
	t.Parallel()
	m := limit.NewMemory(100)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	release, err := m.Take(ended, "a", 40)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Take(ended, "a", 20); !errors.Is(err, context.Canceled) {
		t.Errorf("more than half: got error %v, want that of the context", err)
	}
	if releaseB, err := m.Take(ended, "b", 60); err != nil {
		t.Errorf("another caller: %v", err)
	} else {
		defer releaseB()
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := m.Take(t.Context(), "c", 40)
		waiting <- err
	}()
	release()
	release() // changes nothing
	if err := <-waiting; err != nil {
		t.Errorf("after the release: %v", err)
	}
	if _, err := m.Take(ended, "d", 1); err == nil {
		t.Error("memory was given twice")
	}
}

// dialer makes connections to a server behind a Listener.
func serveLimited(t *testing.T, o limit.ListenerOptions) (l *limit.Listener, address string) {
	t.Helper()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = limit.Listen(inner, o)
	server := &http.Server{
		ReadHeaderTimeout: time.Minute, ConnState: l.State,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wait" {
				<-r.Context().Done()
			}
		}),
	}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return l, inner.Addr().String()
}

func TestIdleConnectionsMakeRoomForOthers(t *testing.T) {
	t.Parallel()
	reasons := make(chan string, 100)
	l, address := serveLimited(t, limit.ListenerOptions{Most: 8, PerAddress: 4,
		Refused: func(reason string, _ netip.Addr) { reasons <- reason }})
	var dial net.Dialer
	for range 20 {
		conn, err := dial.DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	response, err := http.Get("http://" + address + "/livez")
	if err != nil {
		t.Fatalf("a probe while its address has too many idle connections: %v", err)
	}
	defer response.Body.Close()
	if n := l.Count(); n > 4 {
		t.Errorf("%d connections, want 4 at most", n)
	}
	for range 17 {
		if reason := <-reasons; reason != limit.ReasonIdle {
			t.Errorf("got reason %s, want %s", reason, limit.ReasonIdle)
		}
	}
}

func TestBusyConnectionsStay(t *testing.T) {
	t.Parallel()
	reasons := make(chan string, 100)
	_, address := serveLimited(t, limit.ListenerOptions{Most: 8, PerAddress: 2,
		Refused: func(reason string, _ netip.Addr) { reasons <- reason }})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 3 {
		go func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/wait", nil)
			if err != nil {
				return
			}
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			if response, err := client.Do(r); err == nil {
				_ = response.Body.Close()
			}
		}()
	}
	if reason := <-reasons; reason != limit.ReasonAddress && reason != limit.ReasonIdle {
		t.Errorf("got reason %s, want that the address has too many", reason)
	}
}
