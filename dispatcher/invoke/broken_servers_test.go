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
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sync/errgroup"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
)

const (
	brokenServersTimeout = 400 * time.Millisecond // of calls that are to time out
	brokenServersAtOnce  = 100                    // calls that are made at once
	brokenServersMemory  = 256 << 20              // bytes that the heap, the animals' included, may have at most
)

// brokenServersCalls is how often each kind of broken server is called: CARILLON_BROKEN_SERVERS of the environment (see make broken-servers), or
// some.
func brokenServersCalls(t *testing.T) int {
	t.Helper()
	if n, err := strconv.Atoi(os.Getenv("CARILLON_BROKEN_SERVERS")); err == nil {
		return n
	}
	return 50
}

// cage is where an animal is called.
type cage struct {
	address  string
	requests atomic.Int64
	listener net.Listener
	done     chan struct{}
	serving  sync.WaitGroup
}

func (a animal) run(t *testing.T, good tls.Certificate) *cage {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if a.tls != nil && len(a.tls.Certificates) == 0 {
		a.tls.Certificates = []tls.Certificate{good}
	}
	k := &cage{address: l.Addr().String(), listener: l, done: make(chan struct{})}
	k.serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			k.serving.Go(func() { a.serve(k, c) })
		}
	})
	return k
}

func (a animal) serve(k *cage, c net.Conn) {
	ended, plain := make(chan struct{}), c
	k.serving.Go(func() {
		select {
		case <-k.done:
		case <-ended:
		}
		_ = plain.Close()
	})
	defer close(ended)
	seen := func() { k.requests.Add(1) }
	speaksTLS := a.tls != nil && (!a.deaf || slices.Contains(a.tls.NextProtos, "h2"))
	if speaksTLS {
		secure := tls.Server(c, a.tls)
		if secure.Handshake() != nil {
			return
		}
		c = secure
	}
	if !a.deaf {
		q, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, q.Body)
		seen()
	}
	a.behave(c, seen, k.done)
}

func (k *cage) close() {
	close(k.done)
	_ = k.listener.Close()
	k.serving.Wait()
}

// call calls an animal once, and says what is wrong with the outcome.
func (a animal) call(ctx context.Context, i *invoke.Invoker, url string, trusted *dispatcher.TLS) (dispatcher.Outcome, error) {
	timeout := 60 * time.Second
	if a.state == timedOut {
		timeout = brokenServersTimeout
	}
	call := callTo(url+"/?key=hunter2", "POST", timeout)
	call.Target.Webhook.TLS = trusted
	o := i.Invoke(ctx, call)
	took := o.EndedAt.Sub(o.StartedAt)
	fine := o.State == a.state && o.Class == a.class || a.answered != nil && o.State == succeeded && o.Class == ""
	if !fine || took > timeout+5*time.Second || strings.Contains(o.Error, "hunter2") {
		return o, fmt.Errorf("outcome after %s = %+v, want %s %s", took, o, a.state, a.class)
	}
	if o.Response != nil && len(o.Response.Body) > 64<<10 {
		return o, fmt.Errorf("%d bytes are kept", len(o.Response.Body))
	}
	return o, nil
}

// visit calls an animal often, and returns how many calls succeeded and how late the last of those
// that timed out did.
func (a animal) visit(t *testing.T, i *invoke.Invoker, k *cage, trusted *dispatcher.TLS, calls int) (int64, time.Duration) {
	t.Helper()
	url := "http://" + k.address
	if a.tls != nil {
		url = "https://" + k.address
	} else {
		trusted = nil
	}
	if a.host != "" {
		_, port, _ := net.SplitHostPort(k.address)
		url = "http://" + a.host + ":" + port
	}
	var mu sync.Mutex
	var successes int64
	var late time.Duration
	var group errgroup.Group
	group.SetLimit(brokenServersAtOnce)
	for range calls {
		group.Go(func() error {
			o, err := a.call(t.Context(), i, url, trusted)
			mu.Lock()
			defer mu.Unlock()
			if o.State == succeeded {
				successes++
			}
			if o.State == timedOut {
				late = max(late, o.EndedAt.Sub(o.StartedAt)-brokenServersTimeout)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	return successes, late
}

// Every target that misbehaves has its class, each call is one request at most, none holds a call
// for longer than its timeout, and afterwards nothing is left of any.
func TestBrokenServers(t *testing.T) {
	calls, began := brokenServersCalls(t), time.Now()
	good := certificate(t, "127.0.0.1", time.Now().Add(time.Hour))
	trusted := &dispatcher.TLS{CACertificates: pemOf(good)}
	goroutines, files := runtime.NumGoroutine(), openFiles()
	animals := brokenServers(t, good)
	var latest time.Duration
	t.Run("animals", func(t *testing.T) { // whose servers are all closed after it
		i := invoke.New(invoke.Options{
			Egress: invoke.Egress{Loopback: true}, Resolver: &net.Resolver{PreferGo: true, Dial: nameServer(t, brokenServersNames)},
		})
		defer i.Close()
		for name, a := range animals {
			t.Run(name, func(t *testing.T) {
				k := a.run(t, good)
				successes, late := a.visit(t, i, k, trusted, calls)
				k.close()
				latest = max(latest, late)
				if got := k.requests.Load(); got > int64(calls) || a.requests && got != int64(calls) {
					t.Errorf("%d requests came of %d calls", got, calls)
				}
				if a.answered != nil && (a.answered.Load() != successes || successes == 0) {
					t.Errorf("%d calls succeeded, and %d were answered", successes, a.answered.Load())
				}
			})
		}
	})
	settled := func() bool { return runtime.NumGoroutine() <= goroutines+5 && openFiles() <= files+5 }
	for n := 0; n < 1000 && !settled(); n++ {
		<-time.After(20 * time.Millisecond) // sockets close when the kernel says so
	}
	if !settled() {
		t.Errorf("%d goroutines and %d files are left, at first there were %d and %d", runtime.NumGoroutine(), openFiles(), goroutines, files)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapSys > brokenServersMemory {
		t.Errorf("the heap has grown to %d MiB", m.HeapSys>>20)
	}
	t.Logf("%d calls to each of %d animals, %d at once, in %s: timeouts late by %s at most; %d MiB of heap at most; %d goroutines and %d files, before %d and %d",
		calls, len(animals), brokenServersAtOnce, time.Since(began).Round(time.Second), latest.Round(time.Millisecond), m.HeapSys>>20, runtime.NumGoroutine(), openFiles(), goroutines, files)
}

// openFiles counts the files that this process has open, where that can be told.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

// What is not read of a response is not taken from the server either.
func TestAnswersByHTTP2AreTakenAsTheyAreRead(t *testing.T) {
	t.Parallel()
	window := make(chan uint32, 1)
	good := certificate(t, "127.0.0.1", time.Now().Add(time.Hour))
	a := animal{deaf: true, tls: &tls.Config{NextProtos: []string{"h2"}}, behave: func(c net.Conn, _ func(), _ <-chan struct{}) {
		if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		if frame, err := http2.NewFramer(c, c).ReadFrame(); err == nil {
			size, _ := frame.(*http2.SettingsFrame).Value(http2.SettingInitialWindowSize)
			window <- size
		}
	}}
	k := a.run(t, good)
	t.Cleanup(k.close)
	call := callTo("https://"+k.address, "POST", 5*time.Second)
	call.Target.Webhook.TLS = &dispatcher.TLS{CACertificates: pemOf(good)}
	if o := newInvoker(t).Invoke(t.Context(), call); o.Class != dispatcher.ClassReset {
		t.Fatalf("outcome = %+v, want reset", o)
	}
	if size := <-window; size > 128<<10 {
		t.Errorf("a response may come %d bytes ahead of its reader, want 128 KiB at most", size)
	}
}

// full returns the address of a listener whose queue is full and which accepts nobody, so that
// connections to it are neither made nor refused.
func full(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprint("127.0.0.1:", name.(*syscall.SockaddrInet4).Port)
	for range 20 {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Skip("SKIPPED: this system accepts whatever a program does not")
	return ""
}

func TestConnectionsThatAreNotMade(t *testing.T) {
	t.Parallel()
	address := full(t)
	i := newInvoker(t)
	var group errgroup.Group
	for _, method := range dispatcher.Methods {
		for _, scheme := range []string{"http", "https"} {
			group.Go(func() error {
				if o := i.Invoke(t.Context(), callTo(scheme+"://"+address, method, brokenServersTimeout)); o.State != failed || o.Class != dispatcher.ClassConnectTimeout {
					return fmt.Errorf("%s by %s: outcome = %+v, want failed as connect_timeout", method, scheme, o)
				}
				return nil
			})
		}
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

func TestNameServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	away := func(context.Context, string, string) (net.Conn, error) { return nil, io.ErrClosedPipe }
	i := invoke.New(invoke.Options{Resolver: &net.Resolver{PreferGo: true, Dial: away}})
	t.Cleanup(i.Close)
	if o := i.Invoke(t.Context(), callTo("http://nosuch.test/", "POST", 5*time.Second)); o.Class != dispatcher.ClassDNS {
		t.Errorf("outcome = %+v, want class dns", o)
	}
}
