package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/test/need"
)

// A renamed job keeps the hash of H and jitter, so its fires do not move. Fires computed from the API's job agree.
func TestNextKnowsTheFiresOfARenamedJob(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	n, env := declareBilling(t, "http://127.0.0.1:1/")
	spread := webhookJob("billing", "spread", "http://127.0.0.1:1/", map[string]string{"daily": "0 H H * * ?"})
	trigger := spread.Triggers["daily"]
	trigger.Jitter = input.Duration(time.Second)
	spread.Triggers["daily"] = trigger
	stored := must[dispatcher.Job](t)(n.PutJob(t.Context(), spread, client.Condition{Absent: true}))
	fires := func(job string) (all []string) {
		out, errs, code := carillon(t, env, "next", "billing", "--for", "120h", "--timezone", "UTC", "-o", "jsonl")
		if code != 0 {
			t.Fatalf("exit %d\n%s", code, errs)
		}
		for line := range strings.Lines(out) {
			var fire upcoming
			if err := json.Unmarshal([]byte(line), &fire); err != nil {
				t.Fatal(err)
			}
			if fire.Job == job {
				all = append(all, input.FormatInstant(fire.At))
			}
		}
		return all
	}
	before := fires("spread")
	if len(before) < 4 || before[0] != input.FormatInstant(*stored.Triggers["daily"].NextFireTime) {
		t.Fatalf("fires before the rename: %v, want some from %v on", before, stored.Triggers["daily"].NextFireTime)
	}
	renamed := must[dispatcher.Job](t)(n.RenameJob(t.Context(), "billing", "spread",
		dispatcher.JobRename{Name: "wide", Triggers: map[string]string{"daily": "nightly"}}, client.Condition{Revision: stored.Revision}))
	if renamed.Origin != "spread" || renamed.Triggers["nightly"].Origin != "daily" {
		t.Errorf("the origins are %q and %q, want those names that the job was created with", renamed.Origin, renamed.Triggers["nightly"].Origin)
	}
	if diff := cmp.Diff(before, fires("wide")); diff != "" {
		t.Errorf("fires after the rename (-before +after):\n%s", diff)
	}
	// Writing the job back as the API returned it changes nothing.
	again := must[dispatcher.Job](t)(n.PutJob(t.Context(), renamed, client.Condition{Revision: renamed.Revision}))
	if again.Revision != renamed.Revision {
		t.Errorf("a PUT of what a rename returned made revision %d, want %d", again.Revision, renamed.Revision)
	}
}

// People name a job as it was called when it fired. The audit log knows what became of it.
func TestExplainFollowsARenamedAndADeletedJob(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	n, env := declareBilling(t, "http://127.0.0.1:1/")
	old := webhookJob("billing", "old", "http://127.0.0.1:1/", map[string]string{"daily": "0 0 6 * * ?"})
	must[dispatcher.Job](t)(n.PutJob(t.Context(), old, client.Condition{Absent: true}))
	must[dispatcher.Job](t)(n.RenameJob(t.Context(), "billing", "old", dispatcher.JobRename{Name: "mid"}, client.Condition{Existing: true}))
	must[dispatcher.Job](t)(n.RenameJob(t.Context(), "billing", "mid", dispatcher.JobRename{Name: "new"}, client.Condition{Existing: true}))
	check := func(out, err []string, names ...string) {
		t.Helper()
		for _, name := range names {
			got, errs, code := carillon(t, env, "explain", name, "yesterday", "06:00")
			for _, want := range append(out, err...) {
				if code != 0 || !strings.Contains(got+errs, want) {
					t.Errorf("explain %s: exit %d\n%s%swant it to say %q", name, code, got, errs, want)
				}
			}
		}
	}
	check([]string{"billing/new/daily at ", "none: the trigger was not declared yet"},
		[]string{"job billing/old was renamed to mid by e2e at ", "job billing/mid was renamed to new by e2e at "},
		"billing/old", "billing/old/daily")
	if err := n.DeleteJob(t.Context(), "billing", "new", client.Condition{Existing: true}); err != nil {
		t.Fatal(err)
	}
	check([]string{"none: the trigger was not declared yet"}, []string{"job billing/new was deleted by e2e at "},
		"billing/old", "billing/new/daily")
	_, errs, code := carillon(t, env, "explain", "billing/never", "06:00")
	if code != exitMissing || !strings.Contains(errs, "billing/never") {
		t.Errorf("explain a job that never existed: exit %d: %s", code, errs)
	}
}
