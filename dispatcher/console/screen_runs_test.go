package console_test

import (
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestRunOfADeliveryLinksToItsAlertOrJob(t *testing.T) {
	t.Parallel()
	for job, want := range map[string]string{
		"on-call.alert": `apps/billing/alerts/on-call"`, "invoices.on_failure": `apps/billing/jobs/invoices"`,
		"invoices": `apps/billing/jobs/invoices"`,
	} {
		one := failedRun("r1")
		one.Job = job
		w, _ := newCanned(t, map[string]any{"GET /v1/runs/r1": one, "GET /v1/apps/billing/runs": items([]run.Run{one}, "")})
		b := w.signedIn(everything())
		for _, at := range []string{"runs/r1", "apps/billing/runs"} {
			if got := b.get(at).text; !strings.Contains(got, want) {
				t.Errorf("page %s of a run of %s has no link %s", at, job, want)
			}
		}
	}
}

func TestOnlyRunsOfExecutorsOfferTheirLog(t *testing.T) {
	t.Parallel()
	for handler, want := range map[string]bool{"": false, "report": true} {
		shown := requestOf("r1")
		shown.Handler = handler
		w, _ := newCanned(t, map[string]any{"GET /v1/runs/r1": watchedRun("r1", run.Failed, ""), "GET /v1/runs/r1/request": shown})
		if got := w.signedIn(everything()).get("runs/r1").text; strings.Contains(got, `log=2`) != want {
			t.Errorf("handler %q: the page offers the log of the executor: %v, want %v", handler, !want, want)
		}
	}
}

func TestBroadcastShowsItsTimeAndTheEndpointsOfItsShards(t *testing.T) {
	t.Parallel()
	broadcast := failedRun("r1")
	broadcast.Shards = &run.ShardCounts{Total: 2, Succeeded: 2}
	shard := failedRun("r1-0")
	shard.Parent, shard.Shard = "r1", &run.Shard{Index: 0, Total: 2, Endpoint: "worker-7"}
	w, _ := newCanned(t, map[string]any{
		"GET /v1/runs/r1": broadcast, "GET /v1/runs/r1/request": target.ShownRequest{},
		"GET /v1/apps/billing/runs": items([]run.Run{shard}, ""),
	})
	got := w.signedIn(everything()).get("runs/r1").text
	for _, want := range []string{"Its shards", "shard 0 (2 in all) · worker-7"} {
		if !strings.Contains(got, want) {
			t.Errorf("the page of a broadcast does not show %q", want)
		}
	}
}

// What failed last, and the body of that response, come before the facts.
func TestRunPageBeginsWithItsLatestAttempt(t *testing.T) {
	t.Parallel()
	failed := watchedRun("r1", run.Failed, "the ledger is locked")
	failed.Payload = []byte(`{"a":"\u003cb\u003e \\u003c"}`)
	w, _ := newCanned(t, map[string]any{"GET /v1/runs/r1": failed, "GET /v1/runs/r1/request": requestOf("r1")})
	text := w.signedIn(reads()).get("runs/r1").text
	at := -1
	for _, want := range []string{`data-key="result"`, "Attempt 2", "the ledger is locked", "Attempt 1",
		`data-key="stages"`, `data-key="facts"`, `{&#34;a&#34;:&#34;&lt;b&gt; \\u003c&#34;}`} {
		found := strings.Index(text, want)
		if found < at {
			t.Errorf("%q is at %d, want it after %d:\n%s", want, found, at, text)
		}
		at = found
	}
	if !strings.Contains(text, `aria-current="true">Runs</a></li>`) || !strings.Contains(text, `apps/billing/alerts"`) {
		t.Error("the page has no menu of its app, or does not mark the runs in it")
	}
}
