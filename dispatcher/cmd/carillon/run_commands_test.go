package main

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
)

// An operator runs a failing job, finds its run, and repeats it once the target works again.
func TestFailedRunIsFoundAndRepeated(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	n := startNode(t, database, newToken(t, database), quick()...)
	r := newReceiver(t, func(w http.ResponseWriter, a arrival) {
		if a.attempt == 1 {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	for _, app := range []string{"crm", "shop"} {
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: app, AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		must[dispatcher.Job](t)(n.PutJob(t.Context(), webhookJob(app, "orders", r.URL, nil), client.Condition{}))
	}
	do := func(want int, line string) string {
		t.Helper()
		out, errs, code := n.commandWith("", strings.Fields(line)...)
		if code != want {
			t.Fatalf("carillon %s: exit %d, want %d: %s%s", line, code, want, out, errs)
		}
		return out
	}
	for _, app := range []string{"crm", "shop"} {
		do(exitNegative, "job run "+app+"/orders --wait")
	}
	found := do(0, "run list shop --failed --since 1h -o jsonl")
	if strings.Count(found, "\n") != 1 || !strings.Contains(found, `"app":"shop"`) {
		t.Fatalf("the failed runs of shop are\n%s", found)
	}
	rows := strings.Split(strings.TrimSpace(do(0, "run list shop/orders --failed")), "\n")
	id := strings.Fields(rows[len(rows)-1])[0]
	if out := do(0, "run retry "+id+" --wait"); !strings.Contains(out, "succeeded") {
		t.Errorf("retry prints\n%s", out)
	}
	if out := do(0, "run watch "+id+" -o json"); strings.Count(out, `"attempt": `) != 3 { // of the run, and of its attempts
		t.Errorf("watch prints\n%s, want one object with both attempts", out)
	}
	for line, want := range map[string]int{
		"run list": 2, "run list --failed": 1, "run list --state succeeded,failed": 2, "run list --limit 1": 1,
		"run list crm": 1, "run list --until 1h": 0, "run list --since 2020-01-01T00:00:00Z --limit 0": 2,
	} {
		if out := do(0, line+" -o jsonl"); strings.Count(out, "\n") != want {
			t.Errorf("carillon %s lists\n%s, want %d", line, out, want)
		}
	}
	var order []string
	for _, row := range strings.Split(strings.TrimSpace(do(0, "run list")), "\n")[1:] {
		order = append(order, strings.Fields(row)[1])
	}
	if !slices.Equal(order, []string{"shop/orders", "crm/orders"}) {
		t.Errorf("runs of several apps come as %v, want the latest first", order)
	}
	for line, want := range map[string]int{
		"run list --state broken": exitUsage, "run list shop/orders/nightly/x": exitUsage, "run list --since yesterday": exitUsage,
		"run list --limit -1": exitUsage, "run list none": exitMissing, "run list shop/none": exitMissing,
		"job run shop/none": exitMissing, "job run shop": exitUsage, "job show a/b/c": exitUsage, "run cancel " + id: exitConflict,
	} {
		do(want, line)
	}
}

// An operator sees which shard of a broadcast failed, and repeats only that one.
func TestFailedShardIsFoundAndRepeated(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	n := startNode(t, database, newToken(t, database), quick()...)
	group := target.EndpointGroup{App: "crm", Name: "workers", EndpointGroupSpec: target.EndpointGroupSpec{Strategy: target.Broadcast,
		Endpoints: map[string]target.StaticEndpoint{}}}
	for _, id := range []string{"a", "b", "c"} {
		r := newReceiver(t, func(w http.ResponseWriter, a arrival) {
			if id == "b" && a.attempt == 1 {
				w.WriteHeader(http.StatusBadRequest)
			}
		})
		group.Endpoints[id] = target.StaticEndpoint{URL: r.URL}
	}
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "crm", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	must[target.EndpointGroup](t)(n.PutGroup(t.Context(), group, client.Condition{}))
	job := dispatcher.Job{App: "crm", Name: "spread", JobSpec: dispatcher.JobSpec{Enabled: true}}
	job.Target.Group = &target.GroupTarget{Name: "workers"}
	job.Target.Group.SetDefaults()
	must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
	do := func(want int, line string) string {
		t.Helper()
		out, errs, code := n.commandWith("", strings.Fields(line)...)
		if code != want {
			t.Fatalf("carillon %s: exit %d, want %d: %s%s", line, code, want, out, errs)
		}
		return out
	}
	wants := func(out string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(out, word) {
				t.Errorf("output lacks %q:\n%s", word, out)
			}
		}
	}
	do(exitNegative, "job run crm/spread --wait")
	listed := strings.Split(strings.TrimSpace(do(0, "run list crm")), "\n")
	if len(listed) != 2 {
		t.Fatalf("runs are listed as\n%s\nwant the parent alone", strings.Join(listed, "\n"))
	}
	id := strings.Fields(listed[1])[0]
	wants(do(0, "run show "+id), "3: 2 succeeded, 0 superseded, 1 failed, 0 live",
		"succeeded, made for a", "failed, made for b, ", "succeeded, made for c")
	for line, want := range map[string]int{"": 3, " crm": 3, " --failed": 1, " crm/spread": 3, " --limit 2": 2} {
		if out := do(0, "run list -o jsonl --parent "+id+line); strings.Count(out, "\n") != want || strings.Count(out, `"parent":"`+id) != want {
			t.Errorf("carillon run list --parent %s%s lists\n%s, want %d shards", id, line, out, want)
		}
	}
	shards := strings.Split(strings.TrimSpace(do(0, "run list --state failed,succeeded --parent "+id)), "\n")
	if len(shards) != 4 || !strings.HasPrefix(shards[1], id+"-2 ") || !strings.HasPrefix(shards[3], id+"-0 ") {
		t.Errorf("shards are listed as\n%s\nwant the highest index first", strings.Join(shards, "\n"))
	}
	do(exitMissing, "run list --parent nightly")
	do(exitMissing, "run list crm --parent "+id+"-1")
	wants(do(0, "run show "+id+"-1"), "1 of 3, from 0, of run "+id, "made for", "400")
	wants(do(0, "run retry "+id+"-1 --wait"), "succeeded")
	do(0, "run watch "+id) // until the parent has ended, too
	wants(do(0, "run show "+id), "3: 3 succeeded, 0 superseded, 0 failed, 0 live", "succeeded at attempt 2, made for b")
	do(exitMissing, "run show "+id+"-3")
}
