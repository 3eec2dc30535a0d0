package attempt

import (
	"crypto/tls"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Stopwatch measures the phases of an attempt. The transport calls it from its own goroutines, which
// may outlive the attempt.
type Stopwatch struct {
	Start time.Time

	mu                            sync.Mutex
	written, connected, assigned  bool
	dnsBegan, connBegan, tlsBegan time.Time
	phases                        run.Phases
	// dials is called once, as soon as the attempt makes a connection rather than uses a kept one; nil: nothing is.
	dials func()
}

// Trace returns the hooks that the transport calls.
func (s *Stopwatch) Trace() *httptrace.ClientTrace {
	trace := &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			s.note(func(time.Time) { s.written, s.connected, s.assigned = s.written || !info.Reused, true, true })
		},
		WroteHeaderField: func(string, []string) {
			s.mu.Lock()
			s.written = true
			s.mu.Unlock()
		},
		// Both the guard and the dialer resolve the name; the phase is the sum.
		DNSStart: func(httptrace.DNSStartInfo) {
			s.note(func(now time.Time) { s.dnsBegan = now })
			s.dialling()
		},
		DNSDone: func(httptrace.DNSDoneInfo) {
			s.note(func(now time.Time) { s.phases.DNS += since(s.dnsBegan, now) })
		},
		// If several addresses are tried, the phase lasts from the first start to the last end.
		ConnectStart: func(string, string) {
			s.note(func(now time.Time) {
				if s.connBegan.IsZero() {
					s.connBegan = now
				}
			})
			s.dialling()
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
		GotFirstResponseByte: func() { s.note(func(now time.Time) { s.phases.FirstByte = since(s.Start, now) }) },
	}
	if failpoint.Enabled {
		trace.WroteRequest = func(httptrace.WroteRequestInfo) { failpoint.Hit(failpoint.AfterSend) }
	}
	return trace
}

func (s *Stopwatch) note(event func(now time.Time)) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	event(now)
}

// OnDial sets what is called when the attempt makes a connection; nil: nothing is any more.
func (s *Stopwatch) OnDial(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dials = do
}

// dialling calls what OnDial has set, once.
func (s *Stopwatch) dialling() {
	s.mu.Lock()
	do := s.dials
	s.dials = nil
	s.mu.Unlock()
	if do != nil {
		do()
	}
}

// since returns a length in whole microseconds, at least one: 0 means that the phase did not happen.
func since(began, now time.Time) input.Duration {
	return input.Duration(max(now.Sub(began).Truncate(time.Microsecond), time.Microsecond))
}

// Sent reports whether any byte of the request may have been sent, or the connection was new. If
// not, a kept connection had been closed by the server, and the attempt may dial again.
func (s *Stopwatch) Sent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written
}

// Unconnected reports whether the attempt began to connect but never had a connection.
func (s *Stopwatch) Unconnected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.connBegan.IsZero() && !s.connected
}

// HasConnection reports whether the request has a connection: connected, and with TLS if it needs that.
func (s *Stopwatch) HasConnection() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.assigned
}

// Seen returns the phases so far; ended means that the last byte of the response has arrived.
func (s *Stopwatch) Seen(ended bool) run.Phases {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ended {
		s.phases.LastByte = since(s.Start, time.Now())
	}
	return s.phases
}
