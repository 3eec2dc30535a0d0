package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
)

// The story of docs/how-to/backfill.md.
func TestStoryOfABackfill(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newReceiver(t, nil)
		n := startNode(t, database, newToken(t, database), quick()...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "billing", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		job := webhookJob("billing", "invoices", r.URL+`/{{date "%F" .ScheduledAt}}`, map[string]string{"berlin": "0 0 6 * * ?"})
		job.Payload = json.RawMessage(`"all"`)
		must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
		const january = "backfill start billing/invoices --from 2026-01-01T00:00:00Z --to 2026-01-31T23:59:59Z "

		if out, _, code := n.commandWith("", strings.Fields(january+"--dry-run")...); code != 0 || !strings.Contains(out, "31") {
			t.Errorf("dry run: exit code %d, %s, want 31 instants", code, out)
		}
		if len(r.all()) > 0 {
			t.Error("the dry run sent something")
		}
		if _, errs, code := n.commandWith("", strings.Fields(january+`--concurrency 4 --payload {"only":"eu"} --watch`)...); code != 0 {
			t.Fatalf("backfill: exit code %d: %s", code, errs)
		}
		days := map[string]int{}
		for _, a := range r.all() {
			one := must[run.Run](t)(n.Run(t.Context(), a.run))
			if a.kind != string(run.KindBackfill) || one.Cause == nil || string(one.Payload) != `{"only":"eu"}` {
				t.Errorf("got a request of kind %s of run %+v", a.kind, one)
			}
			days[strings.TrimPrefix(a.path, "/")]++
		}
		for day := 1; day <= 31; day++ {
			if one := fmt.Sprintf("2026-01-%02d", day); days[one] != 1 {
				t.Errorf("%s was sent %d times, want once", one, days[one])
			}
		}
		// A second time, it has nothing to run.
		out, _, code := n.commandWith("", strings.Fields(january+"--dry-run -o json")...)
		if code != 0 || !strings.Contains(out, `"skipped": 31`) {
			t.Errorf("dry run afterwards: exit code %d, %s, want 31 instants that would be skipped", code, out)
		}
		if out, _, code := n.commandWith("", strings.Fields(january+"--watch -o json")...); code != 0 || !strings.Contains(out, `"skipped": 31`) {
			t.Errorf("again: exit code %d, %s, want 31 instants skipped", code, out)
		}
		if got := len(r.all()); got != 31 {
			t.Errorf("got %d requests, want 31", got)
		}
	})
}

// Nodes are killed between the steps of a backfill. Each scheduled time of the range has one
// successful run, and the counts of the backfill match its runs.
func TestKillBetweenAnyTwoStepsOfABackfillRunsEachInstantOnce(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	program, err := mortal()
	if err != nil {
		t.Fatal(err)
	}
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newReceiver(t, func(w http.ResponseWriter, _ arrival) { w.WriteHeader(http.StatusNoContent) })
		token := newToken(t, database)
		args := append(quick(), "--dead-after=2s", "--breaker-failures=0")
		n := startNode(t, database, token, args...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "kill", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		job := webhookJob("kill", "hourly", r.URL, map[string]string{"a": "0 0 * * * ?"})
		job.Retry.SetDefaults()
		job.Retry.Delays, job.Retry.MaxAttempts = []input.Duration{input.Duration(100 * time.Millisecond)}, 20
		must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
		begun := must[repeat.Backfill](t)(n.CreateBackfill(t.Context(), "kill", "hourly", repeat.BackfillSpec{
			From: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), To: time.Date(2026, 1, 20, 23, 0, 0, 0, time.UTC), Concurrency: 2,
			Order: repeat.BackfillOldestFirst, Existing: repeat.ExistingSkip, Pace: input.Duration(20 * time.Millisecond),
		}))
		n.kill()
		for _, at := range []failpoint.Point{failpoint.InBackfill, failpoint.AfterBackfill, failpoint.BeforeSend, failpoint.AfterRecord} {
			for _, visit := range []int{1, 5} {
				victim := launchNodeIn(t, surroundings{program: program}, database, token,
					[]string{fmt.Sprintf("CHAOS=%s:kill,nth=%d", at, visit)}, args...)
				victim.awaitDeath(t, fmt.Sprintf("its visit %d of %s", visit, at))
			}
		}
		last := startNode(t, database, token, args...)
		var ended repeat.Backfill
		until(t, "the backfill to end", func() bool {
			ended = must[repeat.Backfill](t)(last.Backfill(t.Context(), "kill", begun.ID))
			return ended.State.Ended()
		})
		const instants = 20 * 24
		if ended.State != repeat.BackfillComplete || ended.Total != instants || ended.Queued != instants || ended.Succeeded != instants {
			t.Errorf("ended as %+v, want %d runs that succeeded", ended, instants)
		}
		times := map[time.Time]int{}
		for _, one := range last.allRuns("kill") {
			if one.Kind != run.KindBackfill {
				continue
			}
			if times[one.ScheduledAt]++; one.State != run.Succeeded {
				t.Errorf("run of %s is %s", one.ScheduledAt, one.State)
			}
		}
		sent := map[time.Time]bool{}
		for _, a := range r.all() {
			sent[a.scheduled] = true
		}
		for at := begun.From; !at.After(begun.To); at = at.Add(time.Hour) {
			if times[at] != 1 || !sent[at] {
				t.Errorf("%s has %d runs and was sent: %v, want one that was sent", at, times[at], sent[at])
			}
		}
	})
}
