// Package attempt is the common part of attempts on all targets: the durations of their phases, the outcomes of errors,
// and the secrets and addresses that an outcome leaves out. An attempt sends at most one request and has one outcome.
package attempt

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Func makes one attempt, which began at started.
type Func func(ctx context.Context, call target.Call, started time.Time) run.Outcome

// Bounds of an attempt.
const (
	MostBody       = 64 << 10         // bytes of the body of a response that are kept; a longer one closes the connection
	ConnectTimeout = 10 * time.Second // for one dial, within the attempt's own timeout
)

// Text returns the part of a body that is kept, as valid UTF-8.
func Text(body []byte) string {
	return strings.ToValidUTF8(string(body[:min(len(body), MostBody)]), "\uFFFD")
}

// ErrNotHeld ends an attempt when its run is, or may be, another node's by now. The lease was good when the attempt
// began, but it may take long until the first byte: a secret is read, a token is fetched, an endpoint does not respond,
// or the packets of a connection are lost.
var ErrNotHeld = errors.New("the node does not hold the run any longer")

// NotHeld is the outcome of an attempt that ended with ErrNotHeld. It is not recorded.
func NotHeld() run.Outcome {
	outcome := Ended(run.Cancelled, run.ClassCancelled, ErrNotHeld.Error())
	outcome.NotSent = true
	return outcome
}

// ReturnedState is the state of its job that a target returned, before any check.
type ReturnedState struct {
	Text json.RawMessage // nil: none was returned
	cut  bool            // the body, which may have one, is longer than the part that is read
}

// StateOf finds the state in a response: in the header or, without that, in the body.
func StateOf(header http.Header, body []byte, more bool) ReturnedState {
	if text := header.Get(run.HeaderState); text != "" {
		return ReturnedState{Text: json.RawMessage(text)}
	}
	mayBeObject := bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{"))
	return ReturnedState{Text: run.StateInBody(body), cut: more && mayBeObject}
}

// KeepState adds the state that a target returned to the outcome of its call. A state that cannot be stored changes
// neither the outcome nor the state: the response has the reason.
func KeepState(outcome *run.Outcome, call target.Call, got ReturnedState, clean Redaction) {
	if call.Carried == nil || outcome.State != run.Succeeded || got.Text == nil && !got.cut {
		return
	}
	problem := ""
	var state json.RawMessage
	stays := run.WhyStateStays(call.Key.Kind, call.Cause)
	switch text, err := run.ReadCarriedState(got.Text); {
	case got.Text == nil:
		problem = "the body is longer than the 64 KiB that are read, so no state was looked for in it; return the state in " +
			run.HeaderState
	case stays != "":
		problem = stays
	case call.Key.Shard > 0:
		problem = "a shard of a broadcast does not change the state of its job"
	case err != nil:
		problem = err.Error()
	case clean.Clean(string(text)) != string(text):
		problem = "the state repeats a secret of the request, which is never stored"
	default:
		state = text
	}
	if outcome.Response == nil {
		outcome.Response = &run.Response{}
	}
	outcome.Response.State, outcome.Response.StateProblem = state, problem
	if state != nil {
		outcome.Returned = &run.ReturnedState{State: state, Revision: call.Carried.Revision}
	}
}

// Stopwatch measures the phases of an attempt. The transport calls it from its own goroutines, which
// may outlive the attempt.
type Stopwatch struct {
	Start time.Time

	mu                            sync.Mutex
	written, connected, assigned  bool
	dnsBegan, connBegan, tlsBegan time.Time
	phases                        run.Phases
	// dials is called once, as soon as the attempt makes a connection instead of using a kept one; may be nil.
	dials func()
}

// Trace returns the hooks for the transport.
func (s *Stopwatch) Trace() *httptrace.ClientTrace {
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { s.note(func(time.Time) { s.assigned = false }) },
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
			s.note(func(now time.Time) { s.phases.DNS, s.dnsBegan = s.phases.DNS+since(s.dnsBegan, now), time.Time{} })
		},
		// If several addresses are tried, the phase lasts from the first start to the last end. Connections to name servers
		// are part of the phase before.
		ConnectStart: func(string, string) {
			s.note(func(now time.Time) {
				if s.connBegan.IsZero() && s.dnsBegan.IsZero() {
					s.connBegan = now
				}
			})
			s.dialling()
		},
		ConnectDone: func(_, _ string, err error) {
			s.note(func(now time.Time) {
				if s.dnsBegan.IsZero() {
					s.phases.Connect, s.connected = since(s.connBegan, now), s.connected || err == nil
				}
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

// OnDial sets the function to call when the attempt makes a connection; nil removes it.
func (s *Stopwatch) OnDial(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dials = do
}

// dialling calls the function of OnDial, once.
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

// CutOff notes that the context of the request has ended. The request counts as sent if it had a connection: HTTP/2 may be
// about to write it in another goroutine, for which the end of the request does not wait.
func (s *Stopwatch) CutOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written = s.written || s.assigned
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
