package limit_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/limit"
)

// pipes is a listener of connections within the process, with deadlines by the clock of a bubble.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, open := <-p; open {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// transfer serves one connection, and lets client use it.
func transfer(t *testing.T, handler http.HandlerFunc, client func(net.Conn)) {
	t.Helper()
	near, far := net.Pipe()
	listener := make(pipes, 1)
	listener <- far
	server := &http.Server{ReadHeaderTimeout: time.Hour, Handler: limit.Transfers(handler)}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	client(near)
	_ = near.Close()
	close(listener)
	<-served
	_ = server.Close()
}

func TestBodyHasARateAndADeadline(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		length, part int
		pause        time.Duration
		want         time.Duration // 0 if it is received
	}{
		"a byte a second":     {1000, 1, time.Second, 5 * time.Second},
		"nothing":             {1000, 0, time.Hour, 5 * time.Second},
		"a pause of 4 s":      {200_000, 100_000, 4 * time.Second, 0},
		"80 KiB a second":     {800 << 10, 8 << 10, 100 * time.Millisecond, 0},
		"40 KiB a second":     {8 << 20, 4 << 10, 100 * time.Millisecond, 12 * time.Second},
		"1 MiB a second, 8 s": {8 << 20, 100 << 10, 100 * time.Millisecond, 0},
		"1 MiB a second, endlessly": {64 << 20, 100 << 10, 100 * time.Millisecond,
			12 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var took time.Duration
				ended := make(chan error, 1)
				transfer(t, func(_ http.ResponseWriter, r *http.Request) {
					begun := time.Now()
					_, err := io.Copy(io.Discard, r.Body)
					took = time.Since(begun)
					ended <- err
				}, func(conn net.Conn) {
					go func() { _, _ = io.Copy(io.Discard, conn) }()
					_, _ = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", tt.length)
					for sent := 0; sent < tt.length; sent += tt.part {
						if _, err := conn.Write(make([]byte, min(tt.part, tt.length-sent))); err != nil || len(ended) > 0 {
							break
						}
						time.Sleep(tt.pause)
					}
					if err := <-ended; errors.Is(err, os.ErrDeadlineExceeded) != (tt.want > 0) {
						t.Errorf("the body ended with error %v after %s", err, took)
					}
				})
				if tt.want > 0 && (took < tt.want || took > tt.want+time.Second) {
					t.Errorf("the body was awaited for %s, want %s", took, tt.want)
				}
			})
		})
	}
}

func TestResponseHasARateAndADeadline(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		part  int
		pause time.Duration
		want  time.Duration // 0 if it is delivered
	}{
		"a byte a second":  {1, time.Second, 6 * time.Second},
		"nothing":          {1, time.Hour, 6 * time.Second},
		"256 KiB a second": {64 << 10, 250 * time.Millisecond, 0},
		"100 KiB a second": {10 << 10, 100 * time.Millisecond, 30 * time.Second},
		"50 KiB a second":  {5 << 10, 100 * time.Millisecond, 24 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var took time.Duration
				ended := make(chan error, 1)
				transfer(t, func(w http.ResponseWriter, _ *http.Request) {
					begun := time.Now()
					_, err := w.Write(make([]byte, 4<<20))
					took = time.Since(begun)
					ended <- err
				}, func(conn net.Conn) {
					_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
					for into := make([]byte, tt.part); len(ended) == 0; time.Sleep(tt.pause) {
						if _, err := io.ReadFull(conn, into); err != nil {
							break
						}
					}
					if err := <-ended; errors.Is(err, os.ErrDeadlineExceeded) != (tt.want > 0) {
						t.Errorf("the response ended with error %v after %s", err, took)
					}
				})
				if tt.want > 0 && (took < tt.want-2*time.Second || took > tt.want+2*time.Second) {
					t.Errorf("the response was delivered for %s, want %s", took, tt.want)
				}
			})
		})
	}
}

// timedWriter takes slow long for each write, until its deadline.
type timedWriter struct {
	http.ResponseWriter
	slow time.Duration
	by   time.Time
}

func (w *timedWriter) SetWriteDeadline(by time.Time) error { w.by = by; return nil }

func (w *timedWriter) Write(part []byte) (int, error) {
	time.Sleep(w.slow)
	if time.Now().After(w.by) {
		return 0, http.ErrHandlerTimeout
	}
	return w.ResponseWriter.Write(part)
}

// A handler that pauses between its writes, as a stream of events does, is not cut; a client that takes its time is, even
// if it reads in parts.
func TestPausesOfTheHandlerAreNotTheClientsTime(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		pause, slow time.Duration
		fails       bool
	}{
		"a stream of events": {pause: time.Second},
		"rare events":        {pause: 29 * time.Second},
		"a slow client":      {slow: time.Second, fails: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			var failed error
			handler := limit.Transfers(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for range 20 {
					if _, err := w.Write([]byte("data: changed\n\n")); err != nil {
						failed = err
						return
					}
					time.Sleep(tt.pause)
				}
			}))
			handler.ServeHTTP(&timedWriter{ResponseWriter: httptest.NewRecorder(), slow: tt.slow},
				httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			if (failed != nil) != tt.fails {
				t.Errorf("%s: error %v, want one: %v", name, failed, tt.fails)
			}
		})
	}
}
