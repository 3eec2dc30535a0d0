package console_test

import (
	"bufio"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/console"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// stream is an open stream of changes.
type stream struct {
	*http.Response
	lines *bufio.Scanner
	id    string // of the latest event
}

// follow opens a stream, after the latest event of an earlier one if its id is given.
func (b *browser) follow(at string, after ...string) *stream {
	b.w.t.Helper()
	r, err := http.NewRequestWithContext(b.w.t.Context(), http.MethodGet, b.w.server.URL+"/console/"+at, nil)
	if err != nil {
		b.w.t.Fatal(err)
	}
	r.Header.Set("Last-Event-Id", strings.Join(after, ""))
	response, err := b.Do(r)
	if err != nil {
		b.w.t.Fatal(err)
	}
	b.w.t.Cleanup(func() { _ = response.Body.Close() })
	return &stream{Response: response, lines: bufio.NewScanner(response.Body)}
}

// changed waits for the next event; false: the stream has ended.
func (s *stream) changed() bool {
	for s.lines.Scan() {
		if id, is := strings.CutPrefix(s.lines.Text(), "id: "); is {
			s.id = id
		}
		if s.lines.Text() == "data: changed" {
			return true
		}
	}
	return false
}

func newFollowed(t *testing.T, change ...func(*console.Options)) (w *trial, b *browser, runID string) {
	t.Helper()
	w = newTrial(t, change...)
	w.declare(w.token("deploy", everything()), "billing", `{}`, "billing/jobs/invoices", daily)
	run, err := w.store.RequestRun(t.Context(), "billing", "invoices", nil, input.Change{Actor: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return w, w.signedIn(writes()), run.ID
}

// The page of a run hears of each change of the run, and the page of an app's runs of each new run. The stream of an ended
// run ends, and the browser does not connect again.
func TestPagesFollowRuns(t *testing.T) {
	t.Parallel()
	w, b, id := newFollowed(t)
	for at, follows := range map[string]string{
		"runs/" + id: "../runs/" + id + "/changes", "apps/billing/runs": "../../apps/billing/runs/changes",
	} {
		if got := b.get(at).text; !strings.Contains(got, `data-follow="`+follows+`"`) {
			t.Errorf("page %s does not follow %s:\n%s", at, follows, got)
		}
	}
	ofRun, ofApp := b.follow("runs/"+id+"/changes"), b.follow("apps/billing/runs/changes")
	if kind := ofRun.Header.Get("Content-Type"); kind != "text/event-stream" || !ofRun.changed() || !ofApp.changed() {
		t.Fatalf("the streams, of type %s, do not begin with an event", kind)
	}
	if got := b.post("runs/"+id+"/cancel", url.Values{"reason": {"a test"}}); got.StatusCode != http.StatusSeeOther {
		t.Fatalf("cancel: status %d, %s", got.StatusCode, got.text)
	}
	if !ofRun.changed() || ofRun.changed() {
		t.Error("the stream of the run has not ended with the run, after an event")
	}
	if !ofApp.changed() {
		t.Error("the stream of the app did not tell of the cancelled run")
	}
	if _, err := w.store.RequestRun(t.Context(), "billing", "invoices", nil, input.Change{Actor: "test"}); err != nil {
		t.Fatal(err)
	}
	if !ofApp.changed() {
		t.Error("the stream of the app did not tell of a new run")
	}
	// The page may have been loaded before the run ended.
	if last := b.follow("runs/" + id + "/changes"); !last.changed() || last.changed() {
		t.Error("the stream of an ended run is not one event")
	}
	if got := b.follow("runs/"+id+"/changes", ofRun.id).StatusCode; got != http.StatusNoContent {
		t.Errorf("stream of an ended run after its latest event: status %d, want 204", got)
	}
	if got := b.get("runs/" + id).text; strings.Contains(got, "data-follow") {
		t.Errorf("the page of an ended run follows it:\n%s", got)
	}
}

func TestStreamsOfChangesAreGuarded(t *testing.T) {
	t.Parallel()
	w, b, id := newFollowed(t)
	other := w.signedIn(reads(), "bank")
	for name, tt := range map[string]struct {
		by     *browser
		at     string
		status int
	}{
		"nobody":          {w.browse(), "runs/" + id + "/changes", http.StatusSeeOther},
		"another app":     {other, "runs/" + id + "/changes", http.StatusNotFound},
		"its runs":        {other, "apps/billing/runs/changes", http.StatusForbidden},
		"an unknown run":  {b, "runs/" + strings.Repeat("0", 24) + "/changes", http.StatusNotFound},
		"without changes": {b, "apps/billing/jobs/invoices/changes", http.StatusNotFound},
	} {
		if got := tt.by.follow(tt.at).StatusCode; got != tt.status {
			t.Errorf("%s: status %d, want %d", name, got, tt.status)
		}
	}
	for range console.MostFollowers {
		if got := b.follow("runs/" + id + "/changes"); got.StatusCode != http.StatusOK {
			t.Fatalf("status %d of an allowed stream", got.StatusCode)
		}
	}
	if got := b.follow("runs/" + id + "/changes").StatusCode; got != http.StatusNoContent {
		t.Errorf("one stream too many: status %d, want 204", got)
	}
	if got := b.get("runs/" + id).StatusCode; got != http.StatusOK {
		t.Errorf("page while all streams are taken: status %d", got)
	}
}

// A node that stops ends its streams, so that they do not hold it up.
func TestStreamsOfChangesEndWithTheNode(t *testing.T) {
	t.Parallel()
	stopping := make(chan struct{})
	_, b, id := newFollowed(t, func(o *console.Options) { o.Stopping = stopping })
	s := b.follow("runs/" + id + "/changes")
	if !s.changed() {
		t.Fatal("the stream does not begin with an event")
	}
	close(stopping)
	if s.changed() {
		t.Error("the stream goes on while the node stops")
	}
}
