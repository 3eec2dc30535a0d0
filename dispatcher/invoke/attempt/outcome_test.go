package attempt

import (
	"errors"
	"net/url"
	"testing"

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
