package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
)

// If an operator tightens a bound, the jobs that break it stop, even on nodes that already know
// them, and other jobs continue. A suspension stops all of them.
func TestOperatorBoundsAndSuspendsAnApp(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newReceiver(t, nil)
		n := startNode(t, database, newToken(t, database), quick()...)
		env := []string{"CARILLON_ENDPOINT=" + n.endpoint, "CARILLON_TOKEN=" + n.token}
		command := func(args ...string) string {
			t.Helper()
			out, errs, code := carillon(t, env, append([]string{"app"}, args...)...)
			if code != 0 {
				t.Fatalf("app %v: exit %d: %s", args, code, errs)
			}
			return out + errs
		}
		latest := func(job string) run.Run {
			list := must[client.List[run.Run]](t)(n.Runs(t.Context(), dispatcher.RunQuery{
				App: "books", Job: job, Page: input.Page{Limit: 2},
			}))
			for _, run := range list.Items {
				if run.EndedAt != nil {
					return run
				}
			}
			return run.Run{}
		}
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "books", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		named := strings.Replace(r.URL, "127.0.0.1", "localhost", 1)
		for name, url := range map[string]string{"fine": r.URL, "broken": named} {
			must[dispatcher.Job](t)(n.PutJob(t.Context(), webhookJob("books", name, url, map[string]string{"t": "rate(1s)"}), client.Condition{}))
		}
		until(t, "both jobs to succeed", func() bool {
			return latest("fine").State == run.Succeeded && latest("broken").State == run.Succeeded
		})

		a := alert.Alert{App: "books", Name: "on-call"}
		a.Failure = &alert.Failures{}
		a.Destination.Webhook = &target.AlertWebhook{Webhook: target.Webhook{URL: named}}
		a.Destination.Webhook.SetDefaults()
		must[alert.Alert](t)(n.PutAlert(t.Context(), a, client.Condition{}))

		file := filepath.Join(t.TempDir(), "bounds.json")
		if err := os.WriteFile(file, []byte(`{"egress": {"hosts": ["127.0.0.1"]}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if said := command("bounds", "books", "--set", "@"+file); !strings.Contains(said, "Jobs outside the bounds: 1") ||
			!strings.Contains(said, "broken: host") || !strings.Contains(said, "Alerts outside the bounds: 1") ||
			!strings.Contains(said, "on-call: host") {
			t.Errorf("setting the bounds says %q, want the job and the alert that they break", said)
		}
		until(t, "the broken job to fail by the bound", func() bool { return latest("broken").Class == run.ClassBounds })
		if one := latest("broken"); !strings.Contains(one.Error, "egress.hosts") || one.State != run.Failed {
			t.Errorf("the broken job's run is %s: %q, want failed, and the bound's name", one.State, one.Error)
		}
		since := latest("fine").ScheduledAt
		until(t, "the other job to go on", func() bool {
			one := latest("fine")
			return one.State == run.Succeeded && one.ScheduledAt.After(since)
		})
		if shown := command("show", "books"); !strings.Contains(shown, "127.0.0.1") || !strings.Contains(shown, "broken: host") ||
			!strings.Contains(shown, "on-call: host") || !strings.Contains(shown, "2 of 10000") {
			t.Errorf("show says %q, want the host, the job and the alert outside the bounds, and 2 of 10000 jobs", shown)
		}

		command("suspend", "books", "--reason", "unpaid")
		until(t, "the node to begin nothing more", func() bool {
			since := n.lastHeartbeat()
			n.awaitHeartbeats(1500 * time.Millisecond)
			return len(n.begunAfter("books", since)) == 0
		})
		if shown := command("show", "books"); !strings.Contains(shown, "suspended by an operator") || !strings.Contains(shown, "unpaid") {
			t.Errorf("show says %q, want the suspension and its reason", shown)
		}
		calls := len(r.all())
		var printed target.Bounds
		out, _, _ := carillon(t, env, "app", "bounds", "books")
		if err := json.Unmarshal([]byte(out), &printed); err != nil || !printed.Suspended {
			t.Errorf("bounds prints %q (%v), want the suspension", out, err)
		}
		command("resume", "books")
		r.await(t, "the app to go on", func(all []arrival) bool { return len(all) > calls })
		if _, errs, code := carillon(t, env, "app", "bounds", "books", "--set", "@"+os.DevNull); code != exitUsage {
			t.Errorf("bounds from an empty file: exit %d: %s", code, errs)
		}
	})
}
