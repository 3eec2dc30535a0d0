package browser_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// front is a proxy in front of a node. It can be unreachable, and counts the refreshes of pages. Streams of changes pass it
// only in a test of them, because they refresh a page whenever it changes.
type front struct {
	url       string
	refreshes atomic.Int64
	away      atomic.Bool
	streams   atomic.Bool
}

// newFront starts a front for a node.
func newFront(t *testing.T, node string) *front {
	t.Helper()
	target, err := url.Parse(node)
	if err != nil {
		t.Fatal(err)
	}
	f := &front{}
	pass := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if stream := r.Header.Get("Accept") == "text/event-stream"; stream && !f.streams.Load() {
			w.WriteHeader(http.StatusNoContent)
			return
		} else if !stream && r.Header.Get("Sec-Fetch-Dest") == "empty" { // a request of a script
			f.refreshes.Add(1)
		}
		if f.away.Load() {
			http.Error(w, "the node is away", http.StatusBadGateway)
			return
		}
		r.Header.Del("If-None-Match") // so that each refresh returns the page
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

// clock holds the timers of a page, so that only the test fires them. The console's script waits for nothing else.
const clock = `window.timers = [];
const later = setTimeout;
window.setTimeout = (f, ms) => timers.push({f, ms});
window.clearTimeout = () => {};
window.after = async (act) => { // what is done sets the next timer
  const before = timers.length;
  act();
  while (timers.length === before) await new Promise((done) => later(done, 5));
  return timers.at(-1).ms;
};
window.hide = (is) => {
  Object.defineProperty(document, 'hidden', {value: is, configurable: true});
  document.dispatchEvent(new Event('visibilitychange'));
};`

// next fires the latest timer, and returns the delay of the following one in milliseconds.
const next = `after(timers.at(-1).f)`

// watched is a tab with an operator signed in, where the test controls the timers.
func watched(t *testing.T, n *node, f *front) *tab {
	t.Helper()
	b := open(t, f.url)
	command(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: clock})
	b.signIn(f.url+"/console/", n.tokens[operator])
	return b
}

// refreshed lets the page refresh itself and reports whether it did.
func (b *tab) refreshed(f *front) bool {
	b.t.Helper()
	before := f.refreshes.Load()
	evaluate[chromedp.Void](b, `document.querySelector('main').firstElementChild.dataset.old = 'yes'`)
	evaluate[int64](b, next)
	replaced := evaluate[bool](b, `!document.querySelector('main [data-old]')`)
	if asked := f.refreshes.Load() > before; asked != replaced {
		b.t.Errorf("the page was asked for: %t, and replaced: %t", asked, replaced)
	}
	return replaced
}

// says returns the page's message about its refresh.
func (b *tab) says() string {
	b.t.Helper()
	return evaluate[string](b, `document.querySelector('#refresh').textContent`)
}

// old reports whether the page looks outdated.
func (b *tab) old() bool {
	b.t.Helper()
	return evaluate[bool](b, `document.body.hasAttribute('data-stale')`)
}

// A page refreshes itself, but not while a person works on it or while the tab is hidden.
func TestRefreshWaitsForPeople(t *testing.T) {
	n := start(t)
	n.fill(t, hostile)
	f := newFront(t, n.url)
	b := watched(t, n, f)
	alert, job := f.url+"/console/apps/shop/alerts/oncall", f.url+"/console/apps/shop/jobs/good"
	reason := `document.querySelector('form[action$="/mute"] input[name=reason]')`
	for _, test := range []struct {
		name, says, page string
		do, undo         string // scripts; do stops the refresh, and undo lets it go on
	}{
		{"a field has the focus", "Waits", alert, reason + `.focus()`, reason + `.blur()`},
		{"a field was filled in and left", "Waits", alert, reason + `.value = 'because'`, reason + `.value = ''`},
		{"a button of a form has the focus", "Waits", alert, `document.querySelector('main form button').focus()`,
			`document.activeElement.blur()`},
		{"another choice was made", "Waits", f.url + "/console/jobs", `document.querySelector('main select[name=state]').selectedIndex = 1`,
			`document.querySelector('main select[name=state]').selectedIndex = 0`},
		{"a form is open", "Waits", job, `document.querySelector('main details:has(form)').open = true`,
			`document.querySelector('main details:has(form)').open = false`},
		{"text is selected", "Waits", job, `getSelection().selectAllChildren(document.querySelector('main h1'))`, `getSelection().empty()`},
		{"the help is shown", "Waits", job, `document.querySelector('#help').showModal()`, `document.querySelector('#help').close()`},
		{"the tab is hidden", "Refreshes", job, `hide(true)`, `after(() => hide(false))`},
		{"a person has paused it", "Paused", job, `document.querySelector('#refresh').click()`, `document.querySelector('#refresh').click()`},
	} {
		b.visit(test.page)
		if !b.refreshed(f) {
			t.Errorf("%s: the page does not refresh itself before", test.name)
		}
		evaluate[chromedp.Void](b, test.do)
		if b.refreshed(f) {
			t.Errorf("the page refreshes itself while %s", test.name)
		}
		if says := b.says(); !strings.HasPrefix(says, test.says) {
			t.Errorf("while %s the page says %q, want %q", test.name, says, test.says)
		}
		evaluate[chromedp.Void](b, test.undo)
		if !b.refreshed(f) {
			t.Errorf("the page does not go on to refresh itself after %s", test.name)
		}
	}
	b.faultless("a page that refreshes itself")
}

// A refresh that is already under way does not destroy what a person has begun.
func TestRefreshUnderWayKeepsUnfinishedInput(t *testing.T) {
	n := start(t)
	n.fill(t, hostile)
	f := newFront(t, n.url)
	b := watched(t, n, f)
	b.visit(f.url + "/console/apps/shop/alerts/oncall")
	got := evaluate[string](b, `(async () => {
		const over = after(timers.at(-1).f)
		document.querySelector('form[action$="/mute"] input[name=reason]').value = 'because'
		await over
		return document.querySelector('form[action$="/mute"] input[name=reason]').value
	})()`)
	if got != "because" {
		t.Errorf("the field has %q after the refresh, want what was written", got)
	}
}

// A failed refresh marks the page as old, and is retried after growing pauses.
func TestFailedRefreshIsReported(t *testing.T) {
	n := start(t)
	n.fill(t, hostile)
	f := newFront(t, n.url)
	b := watched(t, n, f)
	b.visit(f.url + "/console/apps/shop/jobs/good")
	calm := b.says()
	f.away.Store(true)
	var pauses []int64
	for range 7 {
		pauses = append(pauses, evaluate[int64](b, next))
		if !strings.Contains(b.says(), "this page is old") || !b.old() {
			t.Errorf("after a refresh that failed the page says %q", b.says())
		}
	}
	if want := []int64{20_000, 40_000, 80_000, 160_000, 300_000, 300_000, 300_000}; !slices.Equal(pauses, want) {
		t.Errorf("the pauses between attempts are %d ms, want %d", pauses, want)
	}
	f.away.Store(false)
	if pause := evaluate[int64](b, next); pause != 10_000 || b.says() != calm || b.old() {
		t.Errorf("after a refresh that succeeded the page says %q and pauses %d ms, want %q and 10000", b.says(), pause, calm)
	}
}

// slowRun starts a run that lasts until finish is called, which waits for its end.
func (n *node) slowRun(t *testing.T) (run string, finish func()) {
	t.Helper()
	release := make(chan struct{})
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(target.Close)
	n.call(t, operator, "PUT", "/v1/apps/shop", map[string]any{})
	n.call(t, operator, "PUT", "/v1/apps/shop/jobs/slow", map[string]any{
		"target": map[string]any{"webhook": map[string]any{"url": target.URL, "method": "POST"}},
	})
	run = n.call(t, operator, "POST", "/v1/apps/shop/jobs/slow/run", nil)["id"].(string)
	return run, func() {
		close(release)
		n.eventually(t, "the run has ended", func() bool {
			return n.call(t, operator, "GET", "/v1/runs/"+run, nil)["state"] == "succeeded"
		})
	}
}

// A page with a stream of its changes shows them without a timer.
func TestPageFollowsItsRun(t *testing.T) {
	n := start(t)
	f := newFront(t, n.url)
	f.streams.Store(true)
	run, finish := n.slowRun(t)
	b := watched(t, n, f)
	b.visit(f.url + "/console/runs/" + run)
	finish()
	n.eventually(t, "the page shows the end of the run", func() bool {
		return evaluate[bool](b, `document.querySelector('#refresh').hidden`)
	})
}

// A page whose content is final is not requested again.
func TestRefreshEndsWithTheRun(t *testing.T) {
	n := start(t)
	f := newFront(t, n.url)
	run, finish := n.slowRun(t)
	b := watched(t, n, f)
	b.visit(f.url + "/console/runs/" + run)
	if !b.refreshed(f) {
		t.Error("the page of a run that is under way does not refresh itself")
	}
	finish()
	if !b.refreshed(f) {
		t.Error("the page does not show the end of the run")
	}
	asked := f.refreshes.Load()
	evaluate[chromedp.Void](b, `timers.at(-1).f()`)
	if f.refreshes.Load() != asked {
		t.Error("the page of a run that has ended goes on to refresh itself")
	}
	if !evaluate[bool](b, `document.querySelector('#refresh').hidden`) {
		t.Error("the page of a run that has ended has a button to pause its refresh")
	}
}

// After the session ends, the page stays and asks the person to sign in.
func TestRefreshWithoutASessionAsksToSignIn(t *testing.T) {
	n := start(t)
	n.fill(t, hostile)
	f := newFront(t, n.url)
	b := watched(t, n, f)
	b.visit(f.url + "/console/apps/shop/alerts/oncall")
	evaluate[int64](b, `fetch(new URL('../../../logout', location), {method: 'POST'}).then(r => r.status)`)
	reason := `document.querySelector('form[action$="/mute"] input[name=reason]')`
	evaluate[chromedp.Void](b, reason+`.value = 'because'`)
	evaluate[int64](b, next)
	if got := evaluate[string](b, reason+`.value`); got != "because" {
		t.Errorf("the field has %q after the session has ended, want what was written", got)
	}
	evaluate[chromedp.Void](b, reason+`.value = ''`)
	b.do("refresh", chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.RunResponse(ctx, chromedp.Evaluate[chromedp.Void](`void timers.at(-1).f()`))
		return err
	}))
	if at := evaluate[string](b, "location.pathname"); !strings.HasSuffix(at, "/login") {
		t.Errorf("a page without a session is at %s, want the login", at)
	}
}
