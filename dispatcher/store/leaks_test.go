package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// What no way through the store leaves, an administrator may, or a fault.
func TestLeaksOfADamagedLedgerAreFound(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); testDamagedLeaks(t, open(t, newFile(t))) })
	t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); testDamagedLeaks(t, open(t, pgtest.New(t))) })
}

func testDamagedLeaks(t *testing.T, s *store.Store) {
	change := input.Change{Actor: "test", Now: may1}
	_, _, err := s.PutApp(t.Context(), access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, change)
	must(t, err)
	must(t, s.Register(t.Context(), dispatcher.Node{ID: 1}, may1))
	hold := func(name string, token run.Token) run.HeldRun {
		t.Helper()
		job := dispatcher.Job{App: "app", Name: name}
		job.SetDefaults()
		job.Target.Webhook = &target.Webhook{URL: "http://127.0.0.1", Method: "POST", Timeout: target.DefaultTimeout}
		_, _, err := s.PutJob(t.Context(), job, change)
		must(t, err)
		_, err = s.RequestRun(t.Context(), "app", name, nil, change)
		must(t, err)
		query := dispatcher.AdoptQuery{Node: 1, Token: token, Limit: 10, Now: may1}
		found, err := s.Adoptable(t.Context(), query)
		must(t, err)
		held, err := s.Adopt(t.Context(), query, found)
		must(t, err)
		if len(held) != 1 {
			t.Fatalf("adopted %v, want the run of %s", held, name)
		}
		return held[0]
	}
	goesOn := func(r run.HeldRun, state run.State, next dispatcher.NextAttempt) {
		t.Helper()
		must(t, s.Record(t.Context(), []dispatcher.Record{{Key: r.Key, JobID: r.JobID, Revision: 1, Node: 1, Token: r.Token,
			Attempt: 1, ClaimedAt: may1, Next: &next, Outcome: run.Outcome{State: state, StartedAt: may1, EndedAt: may1}}}))
	}
	accepted := hold("accepted", 1)
	goesOn(accepted, run.WaitingCallback,
		dispatcher.NextAttempt{At: may1.Add(time.Hour), Callback: &run.Callback{Within: time.Hour}})
	waits := hold("waits", 2)
	goesOn(waits, run.Failed, dispatcher.NextAttempt{At: may1, Until: may1.Add(time.Hour), NotAttempted: true,
		Wait: &dispatcher.HostWait{ID: dispatcher.HostWaitID(waits.JobID, "host"), AppID: run.AppID("app"), JobID: waits.JobID,
			Host: "host", Pause: time.Second, ProbeAt: may1}})
	parent := hold("parent", 3)
	_, err = s.Broadcast(t.Context(), parent, []string{"a"}, may1)
	must(t, err)
	found := func() (kinds []string) {
		t.Helper()
		leaks, err := s.Leaks(t.Context(), "app", may1.Add(time.Hour), 10)
		must(t, err)
		for _, leak := range leaks {
			kinds = append(kinds, leak.Job+": "+string(leak.Kind))
		}
		return kinds
	}
	if got := found(); len(got) != 0 {
		t.Errorf("before the damage: got leaks %v", got)
	}
	mend := func() (kinds []string) {
		t.Helper()
		mended, err := s.MendLeaks(t.Context(), 10, may1.Add(time.Minute))
		must(t, err)
		for _, leak := range mended {
			kinds = append(kinds, string(leak.Kind)+" "+leak.Run)
		}
		slices.Sort(kinds)
		return kinds
	}
	if got := mend(); len(got) != 0 {
		t.Errorf("before the damage: mended %v", got)
	}
	for _, damage := range []string{
		`UPDATE live_runs SET next_attempt_at = NULL WHERE state = 'waiting_callback'`, `DELETE FROM host_waits`,
		`DELETE FROM live_runs WHERE state = 'waiting_shards'`,
	} {
		must(t, store.Exec(t.Context(), s, damage))
	}
	if diff := cmp.Diff([]string{"accepted: callback", "parent: shard", "waits: waiting"}, found()); diff != "" {
		t.Errorf("leaks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"callback " + accepted.String(), "waiting " + waits.String()}, mend()); diff != "" {
		t.Errorf("mended (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"parent: shard"}, found()); diff != "" {
		t.Errorf("leaks that are left (-want +got):\n%s", diff)
	}
	if got := mend(); len(got) != 0 {
		t.Errorf("after that: mended %v", got)
	}
	shard := parent.Key
	shard.Shard = 1
	for _, look := range []struct {
		query dispatcher.AdoptQuery
		want  []run.Key
	}{
		{dispatcher.AdoptQuery{Retries: true, Now: may1.Add(time.Minute)}, []run.Key{waits.Key}},
		{dispatcher.AdoptQuery{Retries: true, Now: may1.Add(run.MostCallbackWait - time.Second)}, nil},
		{dispatcher.AdoptQuery{Retries: true, Now: may1.Add(run.MostCallbackWait)}, []run.Key{accepted.Key}},
		{dispatcher.AdoptQuery{Now: may1.Add(time.Minute)}, []run.Key{shard}}, // it goes on as it is
	} {
		look.query.Node, look.query.Token, look.query.Limit = 1, 9, 10
		runs, err := s.Adoptable(t.Context(), look.query)
		must(t, err)
		var got []run.Key
		for _, run := range runs {
			got = append(got, run.Key)
		}
		if diff := cmp.Diff(look.want, got); diff != "" {
			t.Errorf("runs to adopt at %s (-want +got):\n%s", look.query.Now, diff)
		}
		_, err = s.Adopt(t.Context(), look.query, runs)
		must(t, err)
	}
}
