package console_test

import (
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// declare puts objects, given as paths and JSON, with the API, like a client.
func (w *trial) declare(secret string, pairs ...string) {
	w.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPut, w.server.URL+"/v1/apps/"+pairs[i], strings.NewReader(pairs[i+1]))
		if err != nil {
			w.t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+secret)
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			w.t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close() // it is read
		if err != nil || response.StatusCode >= http.StatusBadRequest {
			w.t.Fatalf("PUT %s: status %d, %s", pairs[i], response.StatusCode, text)
		}
	}
}

// daily is a job as JSON.
const daily = `{"target":{"webhook":{"url":"https://hooks.example/in"}},"triggers":{"daily":{"expression":"0 0 6 * * ?","timezone":"UTC"}}}`

// A person confirms a number and the names on the card. The selection of the filter may have changed since.
func TestBulkActionsNameTheirObjectsAndAskAgainAfterAChange(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	deploy := w.token("deploy", everything())
	w.declare(deploy, "billing", `{}`, "billing/jobs/invoices", daily, "billing/jobs/inventory", daily, "billing/jobs/reports", daily)
	b := w.signedIn(writes(), "billing")
	const filter = "apps/billing/new-bulk?action=pause_jobs&name=inv&reason=freeze"
	card := cardOf(b.get(filter).text)
	for _, want := range []string{">inv<", ">invoices</a>", ">inventory</a>", ">billing<", `name="expected" value="2"`, "Begin on all 2"} {
		if !strings.Contains(card, want) {
			t.Errorf("the card lacks %s:\n%s", want, card)
		}
	}
	if strings.Contains(card, "reports") {
		t.Errorf("the card names a job that the filter leaves out:\n%s", card)
	}
	form := url.Values{"action": {"pause_jobs"}, "name": {"inv"}, "reason": {"freeze"}, "expected": {"2"}}
	w.declare(deploy, "billing/jobs/invitations", daily)
	for name, changed := range map[string]func(){
		"with the number of before": func() {}, "without a number": func() { form.Del("expected") },
	} {
		form.Set("expected", "2")
		changed()
		got := b.post("apps/billing/bulk", form)
		again := cardOf(got.text)
		if got.StatusCode != http.StatusConflict || !strings.Contains(again, ">invitations</a>") || !strings.Contains(again, `value="3"`) {
			t.Errorf("%s: status %d, want 409 and the card as it is now:\n%s", name, got.StatusCode, again)
		}
	}
	list, err := w.store.BulkActions(t.Context(), "billing", input.Page{Limit: 10})
	if err != nil || len(list) != 0 {
		t.Fatalf("there are %d bulk actions (%v), want none before somebody has agreed", len(list), err)
	}
	form.Set("expected", "3")
	if got := b.post("apps/billing/bulk", form); got.StatusCode != http.StatusSeeOther {
		t.Errorf("with the number of now: status %d, want 303\n%s", got.StatusCode, got.text)
	}
}

// cardOf returns the confirmation of a page.
func cardOf(text string) string {
	return regexp.MustCompile(`(?s)<section class="card confirm".*?</section>`).FindString(text)
}
