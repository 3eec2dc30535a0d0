package invoke_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/sync/errgroup"

	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

const (
	brokenTimeout = 2 * time.Second // of calls that time out
	callsAtOnce   = 100             // concurrent calls
	heapLimit     = 256 << 20       // bytes, including the heap of the servers
)

// callsPerServer returns the number of calls to each server: CARILLON_BROKEN_SERVERS in the
// environment, which make broken-servers sets, or 10.
func callsPerServer(t *testing.T) int {
	t.Helper()
	if n, err := strconv.Atoi(os.Getenv("CARILLON_BROKEN_SERVERS")); err == nil {
		return n
	}
	return 10
}

// runningServer is a broken server that listens on an address.
type runningServer struct {
	brokenServer
	address  string
	requests atomic.Int64
	listener net.Listener
	done     chan struct{}
	serving  sync.WaitGroup
}

func (s brokenServer) run(t *testing.T, good tls.Certificate) *runningServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if s.tls != nil && len(s.tls.Certificates) == 0 {
		s.tls.Certificates = []tls.Certificate{good}
	}
	r := &runningServer{brokenServer: s, address: l.Addr().String(), listener: l, done: make(chan struct{})}
	r.serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.serving.Go(func() { r.serveConn(c) })
		}
	})
	return r
}

func (r *runningServer) serveConn(c net.Conn) {
	ended, plain := make(chan struct{}), c
	r.serving.Go(func() {
		select {
		case <-r.done:
		case <-ended:
		}
		_ = plain.Close()
	})
	defer close(ended)
	seen := func() { r.requests.Add(1) }
	if r.tls != nil && (!r.unread || slices.Contains(r.tls.NextProtos, "h2")) {
		secure := tls.Server(c, r.tls)
		if secure.Handshake() != nil {
			return
		}
		c = secure
	}
	if !r.unread {
		q, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, q.Body)
		seen()
	}
	r.serve(c, seen, r.done)
}

func (r *runningServer) close() {
	close(r.done)
	_ = r.listener.Close()
	r.serving.Wait()
}

// url returns the URL of the server.
func (r *runningServer) url() string {
	if r.host != "" {
		_, port, _ := net.SplitHostPort(r.address)
		return "http://" + r.host + ":" + port
	}
	if r.tls != nil {
		return "https://" + r.address
	}
	return "http://" + r.address
}

// call calls the server once and checks the outcome. Calls of servers that time out must end after timeout: one that
// does not would keep the test from ending.
func (r *runningServer) call(
	ctx context.Context, i *invoke.Invoker, trusted *target.TLS, timeout time.Duration,
) (run.Outcome, error) {
	if r.state != timedOut {
		timeout = ample
	}
	call := callTo(r.url()+"/?key=hunter2", "POST", timeout)
	if r.tls != nil {
		call.Target.Webhook.TLS = trusted
	}
	o := i.Invoke(ctx, call)
	fine := o.State == r.state && o.Class == r.class || r.responses != nil && o.State == succeeded && o.Class == ""
	if !fine || strings.Contains(o.Error, "hunter2") {
		return o, fmt.Errorf("outcome = %+v, want %s %s", o, r.state, r.class)
	}
	if o.Response != nil && len(o.Response.Body) > 64<<10 {
		return o, fmt.Errorf("the stored body has %d bytes", len(o.Response.Body))
	}
	return o, nil
}

// callOften calls the server several times at once. It returns the number of calls that succeeded.
func (r *runningServer) callOften(
	t *testing.T, i *invoke.Invoker, trusted *target.TLS, calls int, timeout time.Duration,
) (successes int64, err error) {
	t.Helper()
	var succeeding atomic.Int64
	var group errgroup.Group
	group.SetLimit(callsAtOnce)
	for range calls {
		group.Go(func() error {
			o, err := r.call(t.Context(), i, trusted, timeout)
			if o.State == succeeded {
				succeeding.Add(1)
			}
			return err
		})
	}
	err = group.Wait()
	return succeeding.Load(), err
}

// callAll makes many calls to a server, and reports how many requests it got. On a slow machine calls may time out
// before all are connected; then it calls another server of the same kind, with timeouts twice as long.
func (s brokenServer) callAll(t *testing.T, i *invoke.Invoker, good tls.Certificate, calls int) {
	t.Helper()
	trusted := &target.TLS{CACertificates: pemOf(good)}
	for timeout := brokenTimeout; ; timeout *= 2 {
		r := s.run(t, good)
		successes, err := r.callOften(t, i, trusted, calls, timeout)
		r.close()
		got := r.requests.Load()
		late := err != nil || r.oneRequest && got < int64(calls)
		if late && s.state == timedOut && s.host == "" && timeout < ample/4 {
			continue
		}
		if err != nil {
			t.Error(err)
		}
		if got > int64(calls) || r.oneRequest && got != int64(calls) {
			t.Errorf("the server got %d requests of %d calls", got, calls)
		}
		if r.responses != nil && (r.responses.Load() != successes || successes == 0) {
			t.Errorf("%d calls succeeded, but the server responded to %d", successes, r.responses.Load())
		}
		return
	}
}

// Each broken server gives its class. A call makes at most one request and ends by its timeout.
// Afterwards no goroutine, open file or large heap is left.
func TestBrokenServers(t *testing.T) {
	calls := callsPerServer(t)
	good := certificate(t, "127.0.0.1", time.Now().Add(time.Hour))
	before, files := goleak.IgnoreCurrent(), openFiles()
	t.Run("servers", func(t *testing.T) { // closes its servers at the end
		i := invoke.New(invoke.Options{
			Egress:   web.Egress{Loopback: true},
			Resolver: &net.Resolver{PreferGo: true, Dial: nameServer(t, brokenNames)},
		})
		t.Cleanup(i.Close)
		for name, s := range brokenServers(t, good) {
			t.Run(name, func(t *testing.T) {
				if s.state == timedOut {
					t.Parallel() // they only wait, and use no processor
				}
				s.callAll(t, i, good, calls)
			})
		}
	})
	leaked := errors.New("not looked for yet")
	for try := 0; try < 300 && (leaked != nil || openFiles() > files+5); try++ {
		leaked = goleak.Find(before) // waits for a while, because a closed connection's goroutines end later
	}
	if leaked != nil || openFiles() > files+5 {
		t.Errorf("%d files are open, before %d; %v", openFiles(), files, leaked)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapSys > heapLimit {
		t.Errorf("the heap has grown to %d MiB", m.HeapSys>>20)
	}
}

// openFiles returns the number of open files of this process, or 0 if it is unknown.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

// Carillon limits the window of a stream, so that a server cannot send far ahead of the reader.
func TestHTTP2WindowOfAResponseIsBounded(t *testing.T) {
	t.Parallel()
	window := make(chan uint32, 1)
	good := certificate(t, "127.0.0.1", time.Now().Add(time.Hour))
	serve := func(c net.Conn, _ func(), _ <-chan struct{}) {
		if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		if frame, err := http2.NewFramer(c, c).ReadFrame(); err == nil {
			size, _ := frame.(*http2.SettingsFrame).Value(http2.SettingInitialWindowSize)
			window <- size
		}
	}
	r := brokenServer{unread: true, tls: &tls.Config{NextProtos: []string{"h2"}}, serve: serve}.run(t, good)
	t.Cleanup(r.close)
	call := callTo(r.url(), "POST", ample)
	call.Target.Webhook.TLS = &target.TLS{CACertificates: pemOf(good)}
	if o := newInvoker(t).Invoke(t.Context(), call); o.Class != run.ClassReset {
		t.Fatalf("outcome = %+v, want reset", o)
	}
	if size := <-window; size > 128<<10 {
		t.Errorf("a server may send %d bytes ahead of the reader, want at most 128 KiB", size)
	}
}

func TestUnreachableNameServerGivesClassDNS(t *testing.T) {
	t.Parallel()
	closed := func(context.Context, string, string) (net.Conn, error) { return nil, io.ErrClosedPipe }
	i := invoke.New(invoke.Options{Resolver: &net.Resolver{PreferGo: true, Dial: closed}})
	t.Cleanup(i.Close)
	if o := i.Invoke(t.Context(), callTo("http://nosuch.test/", "POST", ample)); o.Class != run.ClassDNS {
		t.Errorf("outcome = %+v, want class dns", o)
	}
}
