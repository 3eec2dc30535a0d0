package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/verify"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// Verify finds damage to a ledger by a bug or by an administrator.
func TestVerifyFindsLostAndDoubledRuns(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); testVerifyFinds(t, open(t, newFile(t))) })
	t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); testVerifyFinds(t, open(t, pgtest.New(t))) })
}

func testVerifyFinds(t *testing.T, s *store.Store) {
	change := input.Change{Actor: "test", Now: may1}
	_, _, err := s.PutApp(t.Context(), access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, change)
	must(t, err)
	must(t, s.Register(t.Context(), dispatcher.Node{ID: 1}, may1))
	_, _, err = s.PutJob(t.Context(), dispatcher.Job{
		App: "app", Name: "job", JobSpec: dispatcher.JobSpec{Enabled: true,
			Target: target.Target{Webhook: &target.Webhook{URL: "http://127.0.0.1", Method: "POST", Timeout: target.DefaultTimeout}},
			Triggers: map[string]dispatcher.Trigger{"tick": {
				TriggerSpec: dispatcher.TriggerSpec{
					Schedule:     dispatcher.Schedule{Expression: "0 * * * * ?", Timezone: "Europe/Berlin"},
					MisfireAfter: dispatcher.DefaultMisfireAfter, Enabled: true,
				},
			}}},
	}, change)
	must(t, err)
	minute := func(n int) time.Time { return may1.Add(time.Duration(n) * time.Minute) }
	prev := time.Time{}
	for n := 1; n <= 6; n++ {
		held, err := s.Claim(t.Context(), dispatcher.ClaimBatch{Node: 1, Token: run.Token(n), Now: minute(n),
			Advances: []dispatcher.Advance{
				{TriggerID: run.TriggerID("app", "job", "tick"), JobID: run.JobID("app", "job"), Revision: 1,
					Prev: prev, Next: minute(n), Then: minute(n + 1)},
			}})
		must(t, err)
		if n%3 != 0 { // some are in the history, others only in a claim
			must(t, s.Record(t.Context(), []dispatcher.Record{{Key: held[0].Key, JobID: held[0].JobID, Revision: 1, Node: 1,
				Token: held[0].Token, Attempt: 1, ClaimedAt: minute(n),
				Outcome: run.Outcome{State: run.Succeeded, StartedAt: minute(n), EndedAt: minute(n)}}}))
		}
		prev = minute(n)
	}
	compare := func() verify.Trigger {
		t.Helper()
		page, err := verify.Ledger(t.Context(), s, verify.Query{App: "app", Now: minute(7), Page: input.Page{Limit: 10}})
		must(t, err)
		if len(page.Items) != 1 {
			t.Fatalf("verify: got %+v, want one trigger", page.Items)
		}
		return page.Items[0]
	}
	if got := compare(); got.Unexplained != 0 || got.Runs != 6 || got.Open != 1 {
		t.Fatalf("before: got %+v, want six runs and an open fire", got)
	}
	id := run.TriggerID("app", "job", "tick")
	for _, statement := range []string{
		fmt.Sprintf(`DELETE FROM runs WHERE scheduled_at = %d`, minute(2).UnixMilli()),
		fmt.Sprintf(`UPDATE runs SET scheduled_at = scheduled_at + 1 WHERE scheduled_at = %d`, minute(4).UnixMilli()),
		fmt.Sprintf(`INSERT INTO misfires (from_at, to_at, trigger_id, job_id, count, decision, reason, node, decided_at)
			SELECT %[1]d, %[1]d, %[2]d, job_id, 1, 'skip', '', 0, 0 FROM triggers WHERE id = %[2]d`, minute(5).UnixMilli(), id),
	} {
		must(t, store.Exec(t.Context(), s, statement))
	}
	want := []verify.Discrepancy{
		{At: minute(2), Kind: verify.DiscrepancyMissing}, {At: minute(4), Kind: verify.DiscrepancyMissing},
		{At: minute(4).Add(time.Millisecond), Kind: verify.DiscrepancyUnexpected}, {At: minute(5), Kind: verify.DiscrepancyDoubled},
	}
	got := compare()
	if diff := cmp.Diff(want, got.Discrepancies); diff != "" || got.Unexplained != 4 || got.Unchecked != "" {
		t.Errorf("after: got %+v (-want +got):\n%s", got, diff)
	}
	e, err := verify.Explain(t.Context(), s, verify.ExplainQuery{App: "app", Job: "job", Trigger: "tick", At: minute(2), Now: minute(7)})
	if err != nil || e.Verdict != verify.VerdictMissing {
		t.Errorf("explain: got %+v, %v, want missing", e, err)
	}
	// With other daylight saving rules, the scheduled times may have been different.
	must(t, store.Exec(t.Context(), s, `UPDATE trigger_revisions SET zones = 'older'`))
	if got := compare(); got.Unexplained != 0 || got.Unchecked == "" {
		t.Errorf("with another time zone database: got %+v, want it unchecked", got)
	}
	// An unreadable definition does not stop verify.
	must(t, store.Exec(t.Context(), s, `UPDATE trigger_revisions SET expression = 'x', zones = '`+schedule.ZonesVersion()+`'`))
	if got := compare(); got.Unexplained != 0 || got.Unchecked == "" {
		t.Errorf("with an unreadable definition: got %+v, want it unchecked", got)
	}
	if e, err = verify.Explain(t.Context(), s, verify.ExplainQuery{App: "app", Job: "job", Trigger: "tick",
		At: minute(2), Now: minute(7)}); err != nil || e.Verdict != verify.VerdictUnknown {
		t.Errorf("explain an unreadable definition: got %+v, %v, want unknown", e, err)
	}
}
