package invoke

import (
	"crypto/tls"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

// stopwatch notes how an attempt goes. The transport calls it from goroutines of its own,
// which may outlive the attempt.
type stopwatch struct {
	start time.Time

	mu                            sync.Mutex
	written, connected            bool
	dnsBegan, connBegan, tlsBegan time.Time
	phases                        dispatcher.Phases
}

// trace has the transport tell the stopwatch.
func (s *stopwatch) trace() *httptrace.ClientTrace {
	trace := &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			s.note(func(time.Time) { s.written, s.connected = s.written || !info.Reused, true })
		},
		WroteHeaderField: func(string, []string) {
			s.mu.Lock()
			s.written = true
			s.mu.Unlock()
		},
		// The guard asks for addresses before the dialer does; both count.
		DNSStart: func(httptrace.DNSStartInfo) { s.note(func(now time.Time) { s.dnsBegan = now }) },
		DNSDone: func(httptrace.DNSDoneInfo) {
			s.note(func(now time.Time) { s.phases.DNS += since(s.dnsBegan, now) })
		},
		// Of several addresses that are tried, the first and the last count.
		ConnectStart: func(string, string) {
			s.note(func(now time.Time) {
				if s.connBegan.IsZero() {
					s.connBegan = now
				}
			})
		},
		ConnectDone: func(_, _ string, err error) {
			s.note(func(now time.Time) {
				s.phases.Connect, s.connected = since(s.connBegan, now), s.connected || err == nil
			})
		},
		TLSHandshakeStart: func() { s.note(func(now time.Time) { s.tlsBegan = now }) },
		TLSHandshakeDone: func(tls.ConnectionState, error) {
			s.note(func(now time.Time) { s.phases.TLS = since(s.tlsBegan, now) })
		},
		GotFirstResponseByte: func() { s.note(func(now time.Time) { s.phases.FirstByte = since(s.start, now) }) },
	}
	if failpoint.Enabled {
		trace.WroteRequest = func(httptrace.WroteRequestInfo) { failpoint.Hit(failpoint.AfterSend) }
	}
	return trace
}

func (s *stopwatch) note(what func(now time.Time)) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	what(now)
}

// since is a length in whole microseconds, at least one: 0 stands for a phase that was not.
func since(began, now time.Time) dispatcher.Duration {
	return dispatcher.Duration(max(now.Sub(began).Truncate(time.Microsecond), time.Microsecond))
}

// sent tells whether any byte of the request may have left, or whether the connection was new, so
// that failing to write means more than a stale connection.
func (s *stopwatch) sent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written
}

// unconnected tells that a connection was begun, and that there was none at any time.
func (s *stopwatch) unconnected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.connBegan.IsZero() && !s.connected
}

// seen returns the phases so far; ended tells that the last byte of the response has come.
func (s *stopwatch) seen(ended bool) dispatcher.Phases {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ended {
		s.phases.LastByte = since(s.start, time.Now())
	}
	return s.phases
}
