package browser_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// chromium finds the browser. Debian ships it as chromium-headless-shell and as chromium.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	missing(t, "there is no Chromium; install Debian's package chromium-headless-shell")
	return ""
}

// missing skips a test that lacks a program, like package need, which a separate module cannot import.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s; with CI=true that is a failure", what)
	}
	t.Skipf("SKIPPED: %s", what) // with CI=true it fails above
}

// tab is a tab of a new browser without cookies, with the problems seen in it.
type tab struct {
	context.Context
	t      *testing.T
	origin string

	mu     sync.Mutex
	faults []string
	status int64 // of the latest document
}

// open starts a browser and opens a tab that may only reach origin.
func open(t *testing.T, origin string) *tab {
	t.Helper()
	// A short path, because paths of sockets are limited. A browser that is killed leaves files there.
	files, err := os.MkdirTemp("", "tab-")
	if err != nil {
		t.Fatal(err)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(chromium(t)), chromedp.NoSandbox,
		chromedp.UserDataDir(t.TempDir()), chromedp.Env("TMPDIR="+files), chromedp.Flag("lang", "en"))
	allocated, endBrowser := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, endTab := chromedp.NewContext(allocated)
	t.Cleanup(func() {
		endTab()
		endBrowser()
		if err := os.RemoveAll(files); err != nil {
			t.Error(err)
		}
	})
	b := &tab{Context: ctx, t: t, origin: origin}
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil { // no timeout: it would end the browser
		t.Fatalf("start the browser: %v", err)
	}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	command(b, network.Enable, network.EnableParams{})
	command(b, log.Enable, cdp.Empty{})
	command(b, runtime.Enable, cdp.Empty{})
	return b
}

// listen records events that must not happen on any page.
func (b *tab) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, b.origin+"/") && !strings.HasPrefix(e.Request.URL, "data:") {
			b.faults = append(b.faults, "a request elsewhere: "+e.Request.URL)
		}
	case *network.EventResponseReceived:
		if e.Type == network.ResourceTypeDocument {
			b.status = e.Response.Status
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			b.faults = append(b.faults, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError {
			b.faults = append(b.faults, fmt.Sprintf("console: %s", e.Args[0].Value))
		}
	case *runtime.EventExceptionThrown:
		b.faults = append(b.faults, "exception: "+e.ExceptionDetails.Text)
	case *page.EventJavascriptDialogOpening:
		b.faults = append(b.faults, "a dialog: "+e.Message)
		go func() {
			_, _ = chromedp.Call(b, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
		}()
	}
}

// patience is how long one step on a page may take on a busy machine.
const patience = time.Minute

// do runs actions, which must succeed.
func (b *tab) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, end := context.WithTimeout(b, patience)
	defer end()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// command sends a command of the protocol, which must succeed.
func command[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.t.Helper()
	ctx, end := context.WithTimeout(b, patience)
	defer end()
	if _, err := chromedp.Call(ctx, command, params); err != nil {
		b.t.Fatalf("%s: %v", command.Method, err)
	}
}

// visit opens a page and returns the status of its document.
func (b *tab) visit(url string) int64 {
	b.t.Helper()
	b.do("open "+url, chromedp.Navigate(url), chromedp.WaitReady(chromedp.CSS("body")))
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

// faultless reports the problems since the last call.
func (b *tab) faultless(where string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, fault := range b.faults {
		b.t.Errorf("%s: %s", where, fault)
	}
	b.faults = nil
}

// evaluate returns the value of an expression on the page, and waits for it if it is a promise.
func evaluate[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, end := context.WithTimeout(b, patience)
	defer end()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("evaluate %.60s: %v", expression, err)
	}
	return value
}

// submit submits the form of a selector with its first button, or by a change if a script hides the
// button, and waits for the next page. It returns the status of that page.
func (b *tab) submit(form string) int64 {
	b.t.Helper()
	button := form + ` button:not([type="button"])`
	act := chromedp.Click(chromedp.CSS(button))
	if evaluate[bool](b, "getComputedStyle(document.querySelector(`"+button+"`)).display === 'none'") {
		act = chromedp.Evaluate[chromedp.Void](
			"document.querySelector(`" + form + " select`).dispatchEvent(new Event('change', {bubbles: true}))")
	}
	ctx, end := context.WithTimeout(b, patience)
	defer end()
	if _, err := chromedp.RunResponse(ctx, act); err != nil {
		b.t.Fatalf("submit %s on %s: %v", form, evaluate[string](b, "location.href"), err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

// signIn signs a person in with an API token, by the form, from the page that they wanted to see.
func (b *tab) signIn(console, secret string) {
	b.t.Helper()
	b.visit(console)
	if at := evaluate[string](b, "location.pathname"); !strings.HasSuffix(at, "/login") {
		b.t.Fatalf("a person without a session gets %s, want the login", at)
	}
	b.do("type the token", chromedp.SendKeys(chromedp.CSS(`input[name="token"]`), secret))
	if status := b.submit(`form:has(input[name="token"])`); status != 200 {
		b.t.Fatalf("the login has status %d", status)
	}
	b.faultless("login")
}
