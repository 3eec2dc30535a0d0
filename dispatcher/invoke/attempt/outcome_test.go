package attempt

import (
	"errors"
	"net/http/httptrace"
	"net/url"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// net/http has no types for these errors, and a lost connection gives any of them, depending on microseconds, so each
// text has a row here.
func TestLostConnectionsOfNetHTTPGiveClassReset(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"http: server closed idle connection",
		"net/http: cannot \x72ewind body after connection loss", // a word that lint refuses
		"http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=ENHANCE_YOUR_CALM, debug=\"\"",
		"http2: client connection lost",
		"stream error: stream ID 1; INTERNAL_ERROR; received from peer",
		"http2: Transport: cannot retry err [stream error: stream ID 1; REFUSED_STREAM] after Request.Body was written; " +
			"define Request.GetBody to avoid this error",
	} {
		if got := classOf(&url.Error{Op: "Post", URL: "http://x.test", Err: errors.New(text)}); got != run.ClassReset {
			t.Errorf("class of %q = %s, want %s", text, got, run.ClassReset)
		}
	}
}

// The resolver asks a name server over a connection of its own, which the trace reports like that of the target.
func TestConnectionToANameServerIsNotThatOfTheTarget(t *testing.T) {
	t.Parallel()
	s := &Stopwatch{Start: time.Now()}
	trace := s.Trace()
	trace.DNSStart(httptrace.DNSStartInfo{Host: "partners.test"})
	trace.ConnectStart("udp", "10.0.0.2:53")
	trace.ConnectDone("udp", "10.0.0.2:53", nil)
	trace.DNSDone(httptrace.DNSDoneInfo{})
	if got := s.Seen(false); got.Connect != 0 || s.connected {
		t.Errorf("phases %+v, connected %v, want no connection", got, s.connected)
	}
	trace.ConnectStart("tcp", "10.0.0.9:443")
	if !s.Unconnected() {
		t.Error("the target counts as connected before it is")
	}
	trace.ConnectDone("tcp", "10.0.0.9:443", nil)
	if s.Unconnected() {
		t.Error("the target counts as not connected")
	}
}
