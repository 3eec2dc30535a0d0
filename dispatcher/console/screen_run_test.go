package console_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// heldBy is the id of a run that has a slot.
const heldBy = "06h2n17tu4nlvukuf8sbej81"

// runPageOf returns the page of run r1 after changes to it and to its job, without tags.
func runPageOf(t *testing.T, change func(*run.Run, *dispatcher.Job)) string {
	t.Helper()
	responses := watched(1)
	r, job := watchedRun("r1", run.Failed, "body"), watchedJob(1)
	change(&r, &job)
	responses["GET /v1/runs/r1"], responses["GET /v1/apps/billing/jobs/invoices"] = r, job
	responses["GET /v1/apps/billing/jobs/invoices/slots"] = items([]dispatcher.Slot{{Run: "r1", Since: fixedAt}}, "")
	responses["GET /v1/apps/billing/runs"] = items([]run.Run{{ID: "s1"}, {ID: "s2"}}, "")
	w, _ := newCanned(t, responses)
	_, main, _ := strings.Cut(w.signedIn(everything()).get("runs/r1").text, "<main")
	return main
}

func TestRunPageSaysWhatARunWaitsFor(t *testing.T) {
	t.Parallel()
	text := runPageOf(t, func(r *run.Run, _ *dispatcher.Job) {
		*r = run.Run{ID: "r1", App: "billing", Job: "invoices", Kind: run.KindSchedule, State: run.Queued, ScheduledAt: fixedAt,
			SlotWait: &run.SlotWait{Run: heldBy, Since: after(-60)}}
	})
	for _, want := range []string{"Wait for a slot", "waits for a slot of its job, which run <a", "runs/" + heldBy + `"`,
		"has had since <time"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
}

func TestRunPageShowsAnAcceptedAttemptAndItsSlot(t *testing.T) {
	t.Parallel()
	text := runPageOf(t, func(r *run.Run, _ *dispatcher.Job) {
		*r = run.Run{ID: "r1", App: "billing", Job: "invoices", Kind: run.KindSchedule, State: run.WaitingCallback, ScheduledAt: fixedAt,
			Attempt: 1, StartedAt: after(1), HTTPStatus: 202, Callback: &run.CallbackState{AcceptedAt: *after(2), Deadline: *after(43_200)}}
	})
	for _, want := range []string{`data-key="attempt-1"`, "Accepted", ">202<", "waits for the callback of its target until <time",
		"It has the slot of its job since <time", "Fires that were skipped meanwhile"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if raw := after(43_200).Format(">2006-01-02T"); strings.Contains(text, raw) {
		t.Errorf("the page shows a time as the API does:\n%s", text)
	}
}

func TestRunPageSaysEachFactOfAFailureOnce(t *testing.T) {
	t.Parallel()
	const says = "the target responded with status 401"
	text := runPageOf(t, func(r *run.Run, job *dispatcher.Job) {
		r.Error, r.Class, r.HTTPStatus = says, run.ClassHTTP4xx, 401
		last := &r.Attempts[1]
		last.Error, last.Class, last.HTTPStatus = r.Error, r.Class, r.HTTPStatus
		r.Attempts[0].Response = nil
		job.RunbookURL = "https://wiki.example.com/invoices"
		job.Target.Webhook.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Reference: "env:SECRET_BILLING"}}}
	})
	for what, want := range map[string]int{
		says: 1, ">401<": 0, "request refused with 4xx": 0, "<code>http_4xx</code>": 1, "Show the response of attempt": 0,
		"env:SECRET_BILLING": 1, `#credentials"`: 1, `href="https://wiki.example.com/invoices"`: 1,
	} {
		if got := strings.Count(text, what); got != want {
			t.Errorf("%q is on the page %d times, want %d:\n%s", what, got, want, text)
		}
	}
	if body, facts := strings.Index(text, ">body<"), strings.Index(text, `<dl class="facts">`); body < 0 || body > facts {
		t.Errorf("the body of the response is at %d, want it before the facts at %d", body, facts)
	}
}

func TestRunPageOfAnUnresolvedNameShowsNoTarget(t *testing.T) {
	t.Parallel()
	text := runPageOf(t, func(r *run.Run, _ *dispatcher.Job) {
		r.Class, r.Error = run.ClassDNS, fmt.Sprint("no such host after ", time.Second)
		r.Attempts[1].Class, r.Attempts[1].Response = r.Class, &run.Response{Addresses: []string{"10.0.0.2:53"}}
	})
	if !strings.Contains(text, "Name server that was asked") || strings.Contains(text, ">Addresses<") {
		t.Errorf("the page takes the name server for the target:\n%s", text)
	}
}

func TestRunPageNamesItsNode(t *testing.T) {
	t.Parallel()
	responses := watched(1)
	r := watchedRun("r1", run.Failed, "body")
	r.Node = new(run.NodeID(31))
	responses["GET /v1/runs/r1"], responses["GET /v1/nodes"] = r, items([]dispatcher.Node{{ID: *r.Node, Name: "blue"}}, "")
	w, _ := newCanned(t, responses)
	id := r.Node.String()
	if text := w.signedIn(reads()).get("runs/r1").text; !strings.Contains(text, `nodes#node-`+id+`">blue</a>`) {
		t.Errorf("the page does not name the node:\n%s", text)
	}
	// A person of one app may not see the nodes.
	if text := w.signedIn(reads(), "billing").get("runs/r1").text; !strings.Contains(text, `<code>`+id+`</code>`) {
		t.Errorf("the page for a person of one app has no node's id:\n%s", text)
	}
}
