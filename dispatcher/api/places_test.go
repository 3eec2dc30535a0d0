package api_test

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/limit"
)

// sender sends requests with slow bodies over connections of its own.
type sender struct {
	token, address, path string
	framing              string // default: a body of 1000 bytes
}

// answered is a response before the body.
type answered struct {
	*http.Response
	text string
}

// begin sends the header of a request, and returns the response, or nil if the node asks for the body.
func (s sender) begin(t *testing.T, node string) *answered {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", node)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil { // wall clock: against hanging
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s\r\n"+
		"Authorization: Bearer %s\r\nX-Forwarded-For: %s\r\nExpect: 100-continue\r\n\r\n", s.path, cmp.Or(s.framing, "Content-Length: 1000"),
		s.token, s.address)
	if err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode == http.StatusContinue {
		return nil
	}
	text, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if rest, err := io.ReadAll(reader); len(rest) > 0 || err != nil {
		t.Errorf("after its response, the connection had %.60q, error %v; want its end", rest, err)
	}
	return &answered{response, string(text)}
}

// The number of bodies is bounded before any of them is read.
func TestSlowBodiesTakePlacesOfTheirCallerOnly(t *testing.T) {
	t.Parallel()
	const preview, a, b = "/v1/schedules/preview", "192.0.2.1", "192.0.2.2"
	jobs := func(app string) string { return "/v1/apps/" + app + "/jobs/j/run" }
	type many struct {
		count int
		of    sender
	}
	for name, tt := range map[string]struct {
		slow    []many
		refused sender
		why     string
		served  []sender
	}{
		"an app's": {[]many{{8, sender{"crm", a, preview, ""}}, {8, sender{"crm too", b, jobs("crm"), ""}}},
			sender{"crm", b, preview, ""}, "app crm", []sender{{"sales", a, preview, ""}, {"operator", a, jobs("crm"), ""}}},
		"those of a token for apps": {[]many{{8, sender{"both", a, jobs("crm"), ""}}, {8, sender{"both", b, jobs("sales"), ""}}},
			sender{"both", a, preview, ""}, "token both",
			[]sender{{"crm", a, preview, ""}, {"sales", a, preview, ""}, {"operator", a, preview, ""}}},
		"those of a client behind a proxy": {[]many{{8, sender{"crm", a, preview, ""}}, {8, sender{"sales", a, preview, ""}}},
			sender{"hr", a, preview, ""}, "address " + a,
			[]sender{{"hr", b, preview, ""}, {"crm", b, preview, ""}, {"operator", a, preview, ""}}},
		"an operator's": {[]many{{8, sender{"operator", a, preview, ""}}}, sender{"operator", b, preview, ""}, "token operator",
			[]sender{{"crm", a, preview, ""}, {"second operator", a, preview, ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, api.Options{Limits: gate.Limits{Connections: 32, AddressConnections: 32,
				Proxies: limit.Proxies{netip.MustParsePrefix("127.0.0.0/8")}}})
			secrets := map[string]string{}
			for _, one := range []struct {
				name string
				apps []string
			}{{"crm", []string{"crm"}}, {"crm too", []string{"crm"}}, {"sales", []string{"sales"}}, {"hr", []string{"hr"}},
				{"both", []string{"crm", "sales"}}, {"operator", nil}, {"second operator", nil}} {
				for _, app := range one.apps {
					w.do("PUT", "/v1/apps/"+app, `{}`)
				}
				secrets[one.name] = w.newToken(strings.ReplaceAll(one.name, " ", "-"), writes, one.apps...)
			}
			node := w.listen()
			begin := func(s sender) *answered {
				s.token = secrets[s.token]
				return s.begin(t, node)
			}
			for _, many := range tt.slow {
				for i := range many.count {
					if response := begin(many.of); response != nil {
						t.Fatalf("body %d of %v got %s", i, many.of, response.Status)
					}
				}
			}
			response := begin(tt.refused)
			if response == nil {
				t.Fatal("one more body was asked for")
			}
			if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" || !response.Close ||
				!strings.Contains(response.text, tt.why) || response.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("one more body got %s, %v, %s; want 429 because of %s, and the end of the connection", response.Status, response.Header,
					response.text, tt.why)
			}
			for _, one := range tt.served {
				if response := begin(one); response != nil {
					t.Errorf("a body of %v got %s", one, response.Status)
				}
			}
		})
	}
}

// listen serves the API over TCP, as a node does.
func (w *world) listen() (address string) {
	w.t.Helper()
	inner, err := (&net.ListenConfig{}).Listen(w.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	l := limit.Listen(inner, limit.ListenerOptions{Most: 100, PerAddress: 100, Refused: func(string, netip.Addr) {}})
	server := &http.Server{Handler: w.api, ReadHeaderTimeout: patience, ConnState: l.State, ConnContext: l.Context}
	go func() { _ = server.Serve(l) }()
	w.t.Cleanup(func() { _ = server.Close() })
	return inner.Addr().String()
}

// Memory was taken for the whole announced body, so one slow import made all large requests wait.
func TestBodiesTakeMemoryAsTheyCome(t *testing.T) {
	t.Parallel()
	const preview, address = "/v1/schedules/preview", "192.0.2.1"
	for name, slow := range map[string][]sender{
		"an import":         {{"crm", address, "/v1/apps/crm/import", "Content-Length: 60000000"}},
		"of unknown length": {{"crm", address, "/v1/apps/crm/import", "Transfer-Encoding: chunked"}},
		"of two apps": {{"crm", address, preview, "Content-Length: 1000000"}, {"crm", address, preview, "Content-Length: 1000000"},
			{"sales", address, preview, "Content-Length: 1000000"}, {"sales", address, preview, "Content-Length: 1000000"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, api.Options{Limits: gate.Limits{Memory: 16 << 20}})
			w.declare()
			w.must(http.StatusCreated, "PUT", "/v1/apps/sales", `{}`)
			secrets := map[string]string{}
			for _, app := range []string{"crm", "sales"} {
				secrets[app] = w.newToken(app, append(slices.Clone(writes), access.ScopeImport), app)
			}
			node := w.listen()
			for _, one := range slow {
				one.token = secrets[one.token]
				if response := one.begin(t, node); response != nil {
					t.Fatalf("a slow body got %s", response.Status)
				}
			}
			w.must(http.StatusOK, "GET", "/v1/apps", "")
			w.must(http.StatusOK, "GET", oneApp+"/runs", "")
		})
	}
}

// A body that does not arrive is not awaited for as long as a request may take.
func TestSlowBodyIsRefusedAsTooLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	node := w.listen()
	for name, path := range map[string]string{
		"a route with a body": "/v1/schedules/preview", "a route with a body if any": "/v1/apps/crm/jobs/nightly/run",
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", node)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil { // wall clock: against hanging
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n"+
			"Authorization: Bearer %s\r\n\r\n{", path, w.token); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 408 ") || !strings.Contains(string(got), "request_timeout") {
			t.Errorf("%s: got %.900q, error %v; want 408 and the end of the connection", name, got, err)
		}
	}
}
