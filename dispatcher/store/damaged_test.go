package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/verify"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// An app that cannot be read is listed with the reason, hides no other app, and can be emptied, deleted and put again.
func TestUnreadableAppCanBeListedAndDeleted(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]string{
		"bounds":          `bounds = '{'`,
		"type of bounds":  `bounds = '{"quotas": 7}'`,
		"empty bounds":    `bounds = ''`,
		"defaults":        `defaults = '{'`,
		"type of default": `defaults = '[]'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, s *store.Store) { testUnreadableApp(t, s, set) })
		})
	}
}

func testUnreadableApp(t *testing.T, s *store.Store, set string) {
	t.Helper()
	ctx, change := t.Context(), input.Change{Actor: "test", Now: may1}
	for _, app := range []string{"bad", "good"} {
		_, _, err := s.PutApp(ctx, access.App{Name: app, AppSpec: access.AppSpec{Enabled: true}}, change)
		must(t, err)
		one := tick("job", "", may1, "a")
		one.App = app
		_, _, err = s.PutJob(ctx, one, change)
		must(t, err)
		_, _, err = s.PutCalendar(ctx, dispatcher.Calendar{App: app, Name: "holidays"}, change)
		must(t, err)
	}
	must(t, store.Exec(ctx, s, `UPDATE apps SET `+set+` WHERE name = 'bad'`))

	apps, err := s.Apps(ctx, input.Page{Limit: 10, Cursor: "app"})
	if err != nil || len(apps) != 2 {
		t.Fatalf("list: got %d apps, %v, want both", len(apps), err)
	}
	one, err := s.App(ctx, "bad")
	must(t, err)
	for _, bad := range []access.App{apps[0], one} {
		if bad.Err == nil || !bad.Bounds.Suspended || !strings.Contains(bad.Bounds.SuspendedReason, "app bad: stored ") {
			t.Errorf("the app: got error %v, bounds %+v, want it suspended, with the reason", bad.Err, bad.Bounds)
		}
	}
	if apps[1].Err != nil || apps[1].Bounds.Suspended {
		t.Errorf("the other app: got %+v", apps[1])
	}
	edited := tick("job2", "", may1, "a")
	edited.App = "bad"
	if _, _, err := s.PutJob(ctx, edited, change); err == nil {
		t.Error("a job was put into an app of which nobody can tell what it may do")
	}
	must(t, s.DeleteJob(ctx, "bad", "job", change))
	must(t, s.DeleteCalendar(ctx, "bad", "holidays", change))
	must(t, s.DeleteApp(ctx, "bad", change))
	_, created, err := s.PutApp(ctx, access.App{Name: "bad", AppSpec: access.AppSpec{Enabled: true, Bounds: &target.Bounds{}}},
		input.Change{Actor: "test", Now: may1, Operator: true})
	if err != nil || !created {
		t.Errorf("put again by an operator: created %t, %v", created, err)
	}
}

// An operator can repair an app by putting it with bounds. Other tokens cannot.
func TestUnreadableAppIsMendedByAnOperator(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store) {
		change := input.Change{Actor: "test", Now: may1}
		_, _, err := s.PutApp(t.Context(), access.App{Name: "bad", AppSpec: access.AppSpec{Enabled: true}}, change)
		must(t, err)
		must(t, store.Exec(t.Context(), s, `UPDATE apps SET bounds = '{' WHERE name = 'bad'`))
		again := access.App{Name: "bad", AppSpec: access.AppSpec{Enabled: true, Description: "changed"}}
		if _, _, err := s.PutApp(t.Context(), again, change); err == nil || !strings.Contains(err.Error(), "app bad: stored bounds") {
			t.Errorf("put without bounds: got error %v, want one that names the app", err)
		}
		again.Bounds = &target.Bounds{}
		change.Operator = true
		put, _, err := s.PutApp(t.Context(), again, change)
		if err != nil || put.Err != nil || put.Bounds.Suspended {
			t.Errorf("put with bounds: got %+v, %v", put, err)
		}
	})
}

// A group, alert or calendar that cannot be read is listed with the reason, hides no others, and can be deleted.
func TestUnreadableDefinitionsCanBeListedAndDeleted(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx, change := t.Context(), input.Change{Actor: "test", Now: may1}
		_, _, err := s.PutJob(ctx, tick("job", "", may1, "a"), change)
		must(t, err)
		for _, name := range []string{"bad", "good"} {
			_, _, err := s.PutCalendar(ctx, dispatcher.Calendar{App: "app", Name: name}, change)
			must(t, err)
			group := target.EndpointGroup{App: "app", Name: name, EndpointGroupSpec: target.EndpointGroupSpec{Registration: &target.Registration{
				Networks: []string{"10.0.0.0/8"}, Ports: []int{80}}}}
			group.SetDefaults()
			_, _, err = s.PutGroup(ctx, group, change)
			must(t, err)
			alert := alert.Alert{App: "app", Name: name, Spec: alert.Spec{Jobs: []string{"job"}}}
			alert.SetDefaults()
			alert.Missed = true
			alert.Destination.Webhook = &target.AlertWebhook{
				Webhook: target.Webhook{URL: "http://127.0.0.1", Method: "POST", Timeout: target.DefaultTimeout}}
			_, _, err = s.PutAlert(ctx, alert, change)
			must(t, err)
		}
		for _, table := range []string{"calendars", "endpoint_groups", "alerts"} {
			must(t, store.Exec(ctx, s, `UPDATE `+table+` SET definition = '{' WHERE name = 'bad'`))
		}
		page := input.Page{Limit: 10}
		calendars, err := s.Calendars(ctx, "app", page)
		must(t, err)
		groups, err := s.Groups(ctx, "app", page)
		must(t, err)
		alerts, err := s.Alerts(ctx, "app", page)
		must(t, err)
		for what, why := range map[string]string{"calendar": calendars[0].Description, "group": groups[0].Description,
			"alert": alerts[0].Description} {
			if !strings.Contains(why, what+" app/bad: stored definition") {
				t.Errorf("the %s in the list says %q, want why it cannot be read", what, why)
			}
		}
		if len(calendars) != 2 || len(groups) != 2 || len(alerts) != 2 {
			t.Errorf("lists of %d calendars, %d groups and %d alerts, want 2 of each", len(calendars), len(groups), len(alerts))
		}
		if _, err := s.Group(ctx, "app", "bad"); err == nil {
			t.Error("a group that cannot be read was returned")
		}
		must(t, s.DeleteCalendar(ctx, "app", "bad", change))
		must(t, s.DeleteGroup(ctx, "app", "bad", change))
		must(t, s.DeleteAlert(ctx, "app", "bad", change))
	})
}

// A definition that this version cannot read affects only its own job.
func TestUnreadableJobDoesNotHideOthers(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]string{
		"target":               `target = '{"webhook":{"timeout":{"s":1}}}'`,
		"kind of target":       `target = '{"queue":{"name":"q"}}'`,
		"payload":              `payload = '{'`,
		"names of triggers":    `trigger_names = '{"tick":1}'`,
		"retries":              `retry = '['`,
		"followers":            `followers = '{'`,
		"target that is empty": `target = ''`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("SQLite", func(t *testing.T) { t.Parallel(); testUnreadableJob(t, open(t, sqlitetest.New(t)), set) })
			t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); testUnreadableJob(t, open(t, pgtest.New(t)), set) })
		})
	}
}

func testUnreadableJob(t *testing.T, s *store.Store, set string) {
	t.Helper()
	change := input.Change{Actor: "test"}
	_, _, err := s.PutApp(t.Context(), access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, change)
	must(t, err)
	for _, name := range []string{"bad", "good"} {
		_, _, err := s.PutJob(t.Context(), dispatcher.Job{
			App: "app", Name: name, JobSpec: dispatcher.JobSpec{Enabled: true, Payload: []byte(`{"n": 1}`),
				Target: target.Target{Webhook: &target.Webhook{URL: "http://127.0.0.1", Method: "POST", Timeout: target.DefaultTimeout}},
				Triggers: map[string]dispatcher.Trigger{"tick": {TriggerSpec: dispatcher.TriggerSpec{
					Schedule:     dispatcher.Schedule{Expression: "rate(1h)"},
					MisfireAfter: dispatcher.DefaultMisfireAfter, Enabled: true}}}},
		}, change)
		must(t, err)
	}
	must(t, store.Exec(t.Context(), s, `UPDATE jobs SET `+set+` WHERE name = 'bad'`))

	bad, good := run.JobID("app", "bad"), run.JobID("app", "good")
	versions, err := s.JobsByID(t.Context(), []int64{bad, good})
	if err != nil || len(versions) != 2 {
		t.Fatalf("by id: got %d jobs, %v, want both", len(versions), err)
	}
	for _, v := range versions {
		switch {
		case v.ID == good && (v.Err != nil || len(v.TriggerNames) != 1):
			t.Errorf("the other job: got %+v, error %v", v.Job, v.Err)
		case v.ID == bad && (v.App != "app" || v.Name != "bad" || v.Revision != 1):
			t.Errorf("the job: got %+v, want its names and revision", v)
		case v.ID == bad && (v.Err == nil || !strings.Contains(v.Err.Error(), "job app/bad: ")):
			t.Errorf("the job: got error %v, want one that names it", v.Err)
		}
	}
	if _, err = s.Job(t.Context(), "app", "bad"); err == nil || !strings.Contains(err.Error(), "job app/bad: ") {
		t.Errorf("read: got error %v, want one that names the job", err)
	}
	if _, err := s.Job(t.Context(), "app", "good"); err != nil {
		t.Errorf("read the other job: %v", err)
	}
	jobs, err := s.Jobs(t.Context(), "app", input.Page{Limit: 10})
	if err != nil || len(jobs) != 2 {
		t.Fatalf("list: got %d jobs, %v, want both", len(jobs), err)
	}
	if got := jobs[0]; got.Name != "bad" || got.State != dispatcher.JobError || len(got.Warnings) != 1 || got.Triggers == nil {
		t.Errorf("in the list: got %+v, want state error and a warning", got)
	}
	must(t, s.DeleteJob(t.Context(), "app", "bad", change))
	if n, err := store.Count(t.Context(), s, `SELECT count(*) FROM triggers WHERE deleted_at IS NULL`); err != nil || n != 1 {
		t.Errorf("after the job was deleted there are %d triggers, %v, want that of the other job", n, err)
	}
	if _, err := s.Job(t.Context(), "app", "bad"); !errors.Is(err, dispatcher.ErrNotFound) {
		t.Errorf("read the deleted job: %v", err)
	}
	if got := jobs[1]; got.Name != "good" || got.State != dispatcher.JobExecuting {
		t.Errorf("in the list: got %+v, want the other job as it is", got)
	}
}

// Verify finds damage to a ledger by a bug or an administrator.
func TestVerifyFindsLostAndDoubledRuns(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); testVerifyFinds(t, open(t, sqlitetest.New(t))) })
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

// An administrator or a bug can leave rows that the store itself never leaves.
func TestLeaksOfADamagedLedgerAreFound(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); testDamagedLeaks(t, open(t, sqlitetest.New(t))) })
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
		{dispatcher.AdoptQuery{Now: may1.Add(time.Minute)}, []run.Key{shard}}, // it continues unchanged
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
