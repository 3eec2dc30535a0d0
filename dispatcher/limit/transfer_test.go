package limit_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/limit"
)

// serveTransfers serves a handler over limited connections.
func serveTransfers(t *testing.T, o limit.ListenerOptions, handler http.HandlerFunc) (address string) {
	t.Helper()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if o.Refused == nil {
		o.Refused = func(string, netip.Addr) {}
	}
	l := limit.Listen(inner, o)
	server := &http.Server{ReadHeaderTimeout: time.Minute, ConnState: l.State, ConnContext: l.Context, Handler: limit.Transfers(handler)}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return inner.Addr().String()
}

// send opens a connection and sends a text, which may be a part of a request.
func send(t *testing.T, address, text string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil { // wall clock: against hanging
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// get makes a request over a connection of its own.
func get(address, path string) error {
	c := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := c.Get("http://" + address + path)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

const slowBody = "POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"

// A body on its way counted as a request that the node works on, so slow bodies took all connections.
func TestSlowClientsMakeRoom(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		request string
		slow    func(w http.ResponseWriter, r *http.Request)
	}{
		"bodies": {slowBody, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }},
		"chunks": {"POST /slow HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
		}},
		"responses": {"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 64<<20))
		}},
		"work without a hold": {"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n", func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := make(chan struct{}, 8)
			address := serveTransfers(t, limit.ListenerOptions{Most: 8, PerAddress: 8}, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					if name != "work without a hold" {
						defer limit.Hold(r.Context())()
					}
					begun <- struct{}{}
					tt.slow(w, r)
				}
			})
			for range 8 {
				send(t, address, tt.request)
				<-begun
			}
			for range 20 {
				for err := get(address, "/livez"); err != nil; err = get(address, "/livez") {
					// The handler may be on its way to the first byte that it waits for.
					if t.Context().Err() != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

func TestConnectionsStayWhileTheNodeWorks(t *testing.T) {
	t.Parallel()
	reasons, begun, end := make(chan string, 100), make(chan struct{}), make(chan struct{})
	address := serveTransfers(t, limit.ListenerOptions{Most: 4, PerAddress: 100,
		Refused: func(reason string, _ netip.Addr) { reasons <- reason }},
		func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/work" {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			release := limit.Hold(r.Context())
			begun <- struct{}{}
			<-end
			release()
			_, _ = io.WriteString(w, "done")
		})
	var working []net.Conn
	for range 4 {
		working = append(working, send(t, address, "POST /work HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"))
		<-begun
	}
	if err := get(address, "/livez"); err == nil {
		t.Error("a fifth connection was served next to four that the node works for")
	}
	if reason := <-reasons; reason != limit.ReasonNode {
		t.Errorf("got reason %s, want %s", reason, limit.ReasonNode)
	}
	close(end)
	for _, conn := range working {
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := io.ReadAll(response.Body); string(text) != "done" {
			t.Errorf("got %q, want done", text)
		}
		_ = response.Body.Close()
	}
}

// The server waited for bodies that no handler reads, before it closed the connection.
func TestUnreadBodyEndsTheConnection(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"no word":         func(http.ResponseWriter, *http.Request) {},
		"a status":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		"a small body":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") },
		"a large body":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) },
		"a part was read": func(_ http.ResponseWriter, r *http.Request) { _, _ = r.Body.Read(make([]byte, 1)) },
	} {
		for _, framing := range []string{"Content-Length: 1000", "Content-Length: 1000000000", "Transfer-Encoding: chunked"} {
			t.Run(name+", "+framing, func(t *testing.T) {
				t.Parallel()
				body := "{"
				if strings.HasPrefix(framing, "Transfer") {
					body = "3E8\r\n{"
				}
				address := serveTransfers(t, limit.ListenerOptions{Most: 8, PerAddress: 8}, handler)
				conn := send(t, address, "GET / HTTP/1.1\r\nHost: x\r\n"+framing+"\r\n\r\n"+body)
				all, err := io.ReadAll(conn)
				if err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 ") || !strings.Contains(string(all), "Connection: close") {
					t.Errorf("got %.60q, error %v; want a response and the end of the connection", all, err)
				}
			})
		}
	}
}

func TestReadBodyKeepsTheConnection(t *testing.T) {
	t.Parallel()
	address := serveTransfers(t, limit.ListenerOptions{Most: 8, PerAddress: 8}, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		_, _ = w.Write(text)
	})
	conn := send(t, address, "")
	reader := bufio.NewReader(conn)
	for i := range 3 {
		if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n%d", i); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if text, _ := io.ReadAll(response.Body); string(text) != fmt.Sprint(i) {
			t.Errorf("got %q, want %d", text, i)
		}
		_ = response.Body.Close()
	}
}

func TestPlacesAreTakenTogether(t *testing.T) {
	t.Parallel()
	p := limit.NewPlaces()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	a, both := limit.Place{Key: "a", Most: 2}, []limit.Place{{Key: "a", Most: 2}, {Key: "b", Most: 1}}
	release, full := p.Take(ended, both...)
	if release == nil {
		t.Fatalf("%s is full", full.Key)
	}
	if again, full := p.Take(ended, both...); again != nil || full.Key != "b" {
		t.Errorf("the second of b is full by %q, want b", full.Key)
	}
	if one, _ := p.Take(ended, a); one == nil { // it must not have stayed taken
		t.Error("there is no second place of a")
	}
	waiting := make(chan func())
	go func() {
		got, _ := p.Take(t.Context(), both...)
		waiting <- got
	}()
	release()
	release() // once more changes nothing
	if got := <-waiting; got == nil {
		t.Error("there is no place after the release")
	}
	if third, full := p.Take(ended, a); third != nil || full.Key != "a" {
		t.Errorf("a third of a is full by %q, want a", full.Key)
	}
}
