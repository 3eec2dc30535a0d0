package main

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

// An operator runs a job that fails, finds its run, and repeats it once the target works again.
func TestFailedRunIsFoundAndRepeated(t *testing.T) {
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	n := startNode(t, database, newToken(t, database), quick()...)
	r := newReceiver(t, func(w http.ResponseWriter, a arrival) {
		if a.attempt == 1 {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	for _, app := range []string{"crm", "shop"} {
		must[dispatcher.App](t)(n.PutApp(t.Context(), dispatcher.App{Name: app, Enabled: true}, client.Condition{}))
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
	found := do(0, "run list --app shop --failed --since 1h -o jsonl")
	if strings.Count(found, "\n") != 1 || !strings.Contains(found, `"app":"shop"`) {
		t.Fatalf("the failed runs of shop are\n%s", found)
	}
	rows := strings.Split(strings.TrimSpace(do(0, "run list --failed --job orders --app shop")), "\n")
	id := strings.Fields(rows[len(rows)-1])[0]
	if out := do(0, "run retry "+id+" --wait"); !strings.Contains(out, "succeeded") {
		t.Errorf("retry prints\n%s", out)
	}
	if out := do(0, "run watch "+id+" -o json"); strings.Count(out, `"attempt": `) != 3 { // the run's, and those of its attempts
		t.Errorf("watch prints\n%s, want one object with both attempts", out)
	}
	for line, want := range map[string]int{
		"run list": 2, "run list --failed": 1, "run list --state succeeded,failed": 2, "run list --limit 1": 1,
		"run list --app crm": 1, "run list --until 1h": 0, "run list --since 2020-01-01T00:00:00Z --limit 0": 2,
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
		"run list --state broken": exitUsage, "run list --job orders": exitUsage, "run list --since yesterday": exitUsage,
		"run list --limit -1": exitUsage, "run list --app none": exitMissing, "run list --app shop --job none": exitMissing,
		"job run shop/none": exitMissing, "job run shop": exitUsage, "job show a/b/c": exitUsage, "run cancel " + id: exitConflict,
	} {
		do(want, line)
	}
}
