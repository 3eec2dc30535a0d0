package console_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/console"
	"github.com/carillon-dev/carillon/test/markup"
)

// Every page is valid HTML, with no, one and many objects of all kinds, with hostile texts.
func TestPagesAreValid(t *testing.T) {
	t.Parallel()
	for count, name := range map[int]string{0: "none", 1: "one", 50: "many"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for kind, responses := range map[string]map[string]any{"watch/": watched(count), "operate/": operated(count)} {
				w, _ := newCanned(t, responses)
				b := w.signedIn(everything())
				for page, at := range pagesAt() {
					if strings.HasPrefix(page, kind) {
						valid(t, page+" with "+name, b.get(at))
					}
				}
			}
		})
	}
	t.Run("shell", func(t *testing.T) {
		t.Parallel()
		w := newTrial(t)
		valid(t, "the login", w.browse().get("login"))
		for _, b := range []*browser{w.signedIn(reads()), w.signedIn(everything())} {
			for _, at := range []string{"nothing", "logout", "tokens", "apps/nothing"} {
				valid(t, at, b.get(at))
			}
		}
	})
}

// Pages that follow a form are valid, too: those that show it again with its problems, and those that are shown once.
func TestPagesAfterFormsAreValid(t *testing.T) {
	t.Parallel()
	w, _ := newCanned(t, operateDone())
	b := w.signedIn(everything())
	for at, form := range map[string]url.Values{
		"tokens": {"name": {"deploy"}, "scopes": {"read"}}, "tokens/deploy/rotate": {}, "apps/billing/pause": {"for": {"never"}},
		"login": {"token": {"wrong"}}, "apps/billing/alerts/on-call/mute": {"for": {"never"}}, "nothing": {},
	} {
		got := b.post(at, form)
		if got.StatusCode == http.StatusSeeOther {
			t.Errorf("POST %s leads to %s, want a page", at, got.Header.Get("Location"))
		}
		valid(t, "POST "+at, got)
	}
	starting, err := console.New(console.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := httptest.NewRecorder()
	starting.ServeHTTP(got, httptest.NewRequest(http.MethodGet, "/console/", nil))
	valid(t, "a node that starts", page{text: got.Body.String()})
}

// valid reports the faults of a page.
func valid(t *testing.T, name string, got page) {
	t.Helper()
	faults := markup.Faults(got.text)
	slices.Sort(faults)
	for _, fault := range slices.Compact(faults) {
		t.Errorf("%s: %s", name, fault)
	}
}
