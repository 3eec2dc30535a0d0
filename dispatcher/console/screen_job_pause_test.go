package console_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// A second person who pauses from a page of before sees the first pause, and does not replace it.
func TestPauseFromAnOldPageShowsThePauseOfSomebodyElse(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	w.declare(w.token("deploy", everything()), "billing", `{}`, "billing/jobs/invoices", daily)
	b := w.signedIn(writes())
	const job = "apps/billing/jobs/invoices"
	for _, of := range []string{job, job + "/triggers/daily"} {
		old := regexp.MustCompile(`name="revision" value="(\d+)"`).FindStringSubmatch(b.get(job).text)
		if old == nil {
			t.Fatal("the form has no revision")
		}
		form := url.Values{"revision": {old[1]}, "reason": {"first reason"}}
		if got := b.post(of+"/pause", form); got.StatusCode != http.StatusSeeOther {
			t.Fatalf("%s: status %d, %s", of, got.StatusCode, got.text)
		}
		form.Set("reason", "second reason")
		got := b.post(of+"/pause", form)
		if got.StatusCode != http.StatusPreconditionFailed || !strings.Contains(got.text, "first reason") ||
			!strings.Contains(got.text, "Somebody else has changed this meanwhile") {
			t.Errorf("%s: status %d, want 412 and the first reason:\n%s", of, got.StatusCode, got.text)
		}
	}
}
