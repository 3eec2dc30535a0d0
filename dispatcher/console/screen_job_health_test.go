package console_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// failingRuns are runs of a job with its target down: some wait for the host, two were attempted, the oldest succeeded.
func failingRuns() []run.Run {
	r := func(name string, minute int, change func(*run.Run)) run.Run {
		r := failedRun(name)
		r.ScheduledAt, r.StartedAt, r.EndedAt = *after(minute * 60), after(minute*60+1), nil
		change(&r)
		return r
	}
	waits := func(attempt int) func(*run.Run) {
		return func(r *run.Run) {
			r.State, r.Attempt, r.WaitsFor, r.ProbeAt = run.Retrying, attempt, "billing.example", after(900)
			r.Class, r.Error = run.ClassCircuitOpen, "host billing.example failed 5 requests in a row"
			if attempt > 0 {
				r.FirstStartedAt = after(122)
			}
		}
	}
	return []run.Run{
		r("w3", 4, waits(0)), r("w2", 3, waits(0)), r("r1", 2, waits(2)),
		r("s1", 1, func(r *run.Run) {
			r.State, r.Class, r.Error = run.Succeeded, "", ""
			r.EndedAt = after(63)
		}),
		r("f0", 0, func(r *run.Run) { r.EndedAt = after(2) }),
	}
}

func TestTopOfTheJobPageShowsProblems(t *testing.T) {
	t.Parallel()
	responses := watched(1)
	responses["GET /v1/apps/billing/runs"] = items(failingRuns(), "")
	responses["GET /v1/apps/billing/alert-states"] = items([]alert.State{{App: "billing", Alert: "on-call", Job: "invoices",
		Condition: target.AlertFailure, Firing: true, Since: fixedAt, Class: run.ClassTimeout, Error: "no response", Run: "r1"}}, "")
	detail := watchedRun("r1", run.Retrying, "")
	detail.Class = run.ClassCircuitOpen
	responses["GET /v1/runs/r1"] = detail
	w, _ := newCanned(t, responses)
	got := w.signedIn(reads()).get("apps/billing/jobs/invoices")
	top, rest, _ := strings.Cut(got.text, `data-key="triggers"`)
	for _, want := range []string{
		">on-call</a>: Failures, since <time datetime=\"2026-03-29T00:30:00.000Z\"", "<code>timeout</code>; no response",
		"Host billing.example failed too often, so its circuit is open: 3 of the latest runs wait for it, the first of them since " +
			"<time datetime=\"2026-03-29T00:32:00.000Z\"", "The next probe is at <time datetime=\"2026-03-29T00:45:00.000Z\"",
		"It fails since the run of <time datetime=\"2026-03-29T00:32:00.000Z\"", `<code>http_5xx</code>`,
		`<dt>Last success</dt><dd><a href="../../../runs/s1">`,
	} {
		if got.StatusCode != http.StatusOK || !strings.Contains(top, want) {
			t.Errorf("status %d: the top of the page does not say %q:\n%s", got.StatusCode, want, top)
		}
	}
	for _, want := range []string{"retrying, 2 s late", "not begun, "} { // the first attempt counts, and a waiting run is late, too
		if !strings.Contains(rest, want) {
			t.Errorf("the picture of lateness does not have %q:\n%s", want, rest)
		}
	}
}

func TestJobWithoutAnEndedRunShowsIt(t *testing.T) {
	t.Parallel()
	responses := watched(1)
	responses["GET /v1/apps/billing/runs"] = items(failingRuns()[:3], "")
	w, _ := newCanned(t, responses)
	text := w.signedIn(reads()).get("apps/billing/jobs/invoices").text
	for _, want := range []string{"No run has ended yet.", fmt.Sprintf("none in the latest %d runs", 3)} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q:\n%s", want, text)
		}
	}
}

func TestBurnRatesAreInTheOrderOfTheirSpans(t *testing.T) {
	t.Parallel()
	responses := watched(1)
	responses["GET /v1/apps/billing/jobs/invoices/objective"] = dispatcher.ObjectiveStatus{
		App: "billing", Job: "invoices", BurnRates: map[string]float64{"1h": 1, "30m": 2, "3d": 3, "5m": 4, "6h": 5},
	}
	w, _ := newCanned(t, responses)
	text := w.signedIn(reads()).get("apps/billing/jobs/invoices").text
	var got []string
	for _, span := range regexp.MustCompile(`class="label">(\w+): \d<`).FindAllStringSubmatch(text, -1) {
		got = append(got, span[1])
	}
	if want := []string{"5m", "30m", "1h", "6h", "3d"}; !slices.Equal(got, want) {
		t.Errorf("the spans are %q, want %q", got, want)
	}
}

// The runs of a backfill have old scheduled times, but ended just now.
func TestJobPageLeavesOutRunsOfBackfills(t *testing.T) {
	t.Parallel()
	responses := watched(1)
	late, backfilled := failedRun("r1"), failedRun("b1")
	backfilled.Kind, late.EndedAt = run.KindBackfill, after(7200)
	responses["GET /v1/apps/billing/runs"] = items([]run.Run{late, backfilled}, "")
	w, _ := newCanned(t, responses)
	text := w.signedIn(reads()).get("apps/billing/jobs/invoices").text
	for want, shown := range map[string]bool{
		`data-key="b1"`: false, "1 run of a backfill is left out here.": true,
		`<code>http_5xx</code> <time datetime="2026-03-29T02:30:00.000Z"`: true, // when it ended
	} {
		if strings.Contains(text, want) != shown {
			t.Errorf("the page shows %q: %v, want %v", want, !shown, shown)
		}
	}
}
