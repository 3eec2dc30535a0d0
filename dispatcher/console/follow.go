package console

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// A stream of changes looks for one every followEvery. A look takes at most one part in followRest of the time, so that the
// streams of a large app leave the database to its fires. A stream ends after followTime, which is less than package limit
// gives a response, and the browser connects again: so it also ends soon after its session. A node has at most
// mostFollowers streams; other pages refresh themselves, as they do without a stream.
const (
	followEvery   = time.Second
	followRest    = 100
	followTime    = 20 * time.Second
	mostFollowers = 50
)

// followed reads what a page shows; more is false if it does not change any more.
type followed func(*visit) (shown any, more bool, err error)

func followRun(v *visit) (shown any, more bool, err error) {
	r, err := v.client.Run(v.Context(), v.PathValue("run"))
	return r, !slices.Contains(kit.FinalStates(), r.State), err
}

func followRuns(v *visit) (shown any, more bool, err error) {
	runs, err := v.client.Runs(v.Context(), dispatcher.RunQuery{App: v.PathValue("app"), Page: input.Page{Limit: pageOfRuns}})
	return runs, true, err
}

// follow returns a handler that tells a page when to refresh itself, as server-sent events
// (https://html.spec.whatwg.org/multipage/server-sent-events.html): one at the beginning, because the page may be older
// than the stream, and one for each change. A browser that connects again names its latest event, and hears only of what
// came after it. Status 204 asks it not to connect again.
func follow(of followed) func(*visit) {
	return func(v *visit) {
		if !v.permits(readScope, false) {
			v.fail(&pageError{status: http.StatusForbidden, key: "problem.forbidden", values: []any{"scope", readScope}})
			return
		}
		select {
		case v.console.followers <- struct{}{}:
			defer func() { <-v.console.followers }()
		default:
			v.w.WriteHeader(http.StatusNoContent)
			return
		}
		look := func() (now string, more bool, err error) {
			shown, more, err := of(v)
			sent, _ := json.Marshal(shown) // as it was decoded
			return sum(sent), more, err
		}
		before := v.Header.Get("Last-Event-Id")
		switch now, more, err := look(); {
		case err != nil:
			v.fail(err)
		case !more && now == before, v.Method == http.MethodHead:
			v.w.WriteHeader(http.StatusNoContent)
		default:
			v.sendChanges(before, now, more, look)
		}
	}
}

// sendChanges sends an event if now differs from before, and whenever look finds something else.
func (v *visit) sendChanges(before, now string, more bool, look func() (now string, more bool, err error)) {
	v.w.Header().Set("Content-Type", "text/event-stream")
	control, pause, end := http.NewResponseController(v.w), followEvery, time.After(followTime)
	for {
		event := ":\n\n" // a comment, which shows that both are still there
		if now != before {
			event = "id: " + now + "\nretry: 1000\ndata: changed\n\n"
		}
		if _, err := v.w.Write([]byte(event)); err != nil || control.Flush() != nil || !more {
			return
		}
		select {
		case <-time.After(pause):
		case <-end:
			return
		case <-v.console.opts.Stopping:
			return
		case <-v.Context().Done():
			return
		}
		var err error
		start := clock()
		before = now
		if now, more, err = look(); err != nil {
			return
		}
		pause = max(followEvery, followRest*clock().Sub(start))
	}
}

func clock() time.Time { return time.Now() } //nolint:forbidigo // how long a look takes
