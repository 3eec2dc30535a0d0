package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// endsOfParent stores a job parent with the follower child, and ends count runs of it, scheduled a second apart. It
// returns their keys.
func endsOfParent(t *testing.T, s *store.Store, count int, now time.Time) (keys []run.Key) {
	t.Helper()
	ctx := t.Context()
	_, _, err := s.PutApp(ctx, access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, input.Change{Now: now})
	must(t, err)
	for _, name := range []string{"child", "parent"} {
		job := dispatcher.Job{App: "app", Name: name}
		job.SetDefaults()
		job.Target.Webhook = &target.Webhook{URL: "http://example.com/", Method: "POST", Timeout: target.DefaultTimeout}
		if name == "parent" {
			job.OnSuccess = &dispatcher.Follow{Jobs: []string{"child"}, Payload: dispatcher.FollowResult}
		}
		_, _, err := s.PutJob(ctx, job, input.Change{Now: now})
		must(t, err)
	}
	must(t, s.Register(ctx, dispatcher.Node{ID: 7, Name: "n", Version: "v"}, now))
	for range count {
		_, err := s.RequestRun(ctx, "app", "parent", nil, input.Change{Now: now})
		must(t, err)
	}
	query := dispatcher.AdoptQuery{Node: 7, Token: 9, Limit: count, Now: now}
	found, err := s.Adoptable(ctx, query)
	must(t, err)
	held, err := s.Adopt(ctx, query, found)
	must(t, err)
	for i, r := range held {
		at := now.Add(time.Duration(i) * time.Second)
		must(t, s.Record(ctx, []dispatcher.Record{{Key: r.Key, JobID: r.JobID, Revision: r.Revision, ClaimedAt: r.ClaimedAt,
			Node: 7, Token: 9, Attempt: r.Attempt, Followed: true, Outcome: run.Outcome{State: run.Succeeded,
				StartedAt: at, EndedAt: at, Response: &run.Response{Body: `"done"`}}}}))
		keys = append(keys, r.Key)
	}
	return keys
}

// spoil makes the response of a run unreadable, or repairs it.
func spoil(t *testing.T, s *store.Store, key run.Key, response string) {
	t.Helper()
	must(t, store.Exec(context.WithoutCancel(t.Context()), s, fmt.Sprintf(
		`UPDATE responses SET response = '%s' WHERE scheduled_at = %d AND trigger_id = %d`, response,
		key.ScheduledAt.UnixMilli(), key.TriggerID)))
}

// An end that cannot be followed is set aside: it does not block other ends, and is tried again later.
func TestEndThatCannotBeFollowedIsSetAside(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s, now := open(t, database), time.Now().UTC().Truncate(time.Second)
		keys := endsOfParent(t, s, 3, now)
		spoil(t, s, keys[0], `{"body": `)
		follow := func(at time.Time) dispatcher.FollowedEnds {
			t.Helper()
			done, err := s.FollowEnds(t.Context(), dispatcher.FollowQuery{Limit: 10, Now: at})
			must(t, err)
			return done
		}
		done := follow(now)
		if done.Ends != 2 || done.Queued != 2 || len(done.SetAside) != 1 {
			t.Fatalf("followed %d ends, queued %d runs, set %d aside; want 2, 2 and 1", done.Ends, done.Queued, len(done.SetAside))
		}
		aside := done.SetAside[0]
		if aside.App != "app" || aside.Job != "parent" || aside.Run != keys[0].String() || aside.Tries != 1 ||
			!aside.TryAt.Equal(now.Add(10*time.Second)) || !strings.Contains(aside.Problem, "response") {
			t.Errorf("set aside: %+v", aside)
		}
		if done := follow(now.Add(9 * time.Second)); done.Ends+len(done.SetAside) > 0 {
			t.Errorf("before its time: %+v, want nothing", done)
		}
		if done := follow(aside.TryAt); len(done.SetAside) != 1 || done.SetAside[0].Tries != 2 ||
			!done.SetAside[0].TryAt.Equal(aside.TryAt.Add(20*time.Second)) {
			t.Errorf("after the second try: %+v, want that the pause is twice as long", done)
		}
		spoil(t, s, keys[0], `{"body": "\"done\""}`)
		if done := follow(aside.TryAt.Add(20 * time.Second)); done.Ends != 1 || done.Queued != 1 || len(done.SetAside) != 0 {
			t.Errorf("once it can be followed: %+v, want one end and one run", done)
		}
		if n, err := store.Count(t.Context(), s, `SELECT count(*) FROM pending_ends`); err != nil || n != 0 {
			t.Errorf("%d ends are left, %v; want none", n, err)
		}
	})
}

// Ends before a lower bound are ignored, so that no query walks through the traces of followed ends.
func TestEndsBeforeALowerBoundAreIgnored(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s, now := open(t, database), time.Now().UTC().Truncate(time.Second)
		endsOfParent(t, s, 4, now)
		done, err := s.FollowEnds(t.Context(), dispatcher.FollowQuery{Limit: 1, From: now.Add(2 * time.Second), Now: now})
		must(t, err)
		if done.Ends != 1 || !done.Latest[run.AppID("app")].Equal(now.Add(2*time.Second)) || !done.More {
			t.Errorf("from the third end on: %+v, want that one alone, and that there are more", done)
		}
		done, err = s.FollowEnds(t.Context(), dispatcher.FollowQuery{Limit: 10, Now: now})
		must(t, err)
		if done.Ends != 3 || done.More {
			t.Errorf("without a bound: %+v, want the other three", done)
		}
	})
}

// Attention lists ends that are set aside, with the reason, until they are followed, to users who see the app.
func TestAttentionListsEndsSetAside(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s, now := open(t, database), time.Now().UTC().Truncate(time.Second)
		keys := endsOfParent(t, s, 2, now)
		spoil(t, s, keys[0], `{"body": `)
		follow := func(at time.Time) {
			t.Helper()
			_, err := s.FollowEnds(t.Context(), dispatcher.FollowQuery{Limit: 10, Now: at})
			must(t, err)
		}
		listed := func(apps ...string) []dispatcher.SetAside {
			t.Helper()
			a, err := s.Attention(t.Context(), apps, now)
			must(t, err)
			return a.SetAside.Items
		}
		if got := listed(); len(got) != 0 {
			t.Errorf("before anybody tried to follow it: %+v, want nothing", got)
		}
		follow(now)
		for _, apps := range [][]string{nil, {"app"}} {
			if got := listed(apps...); len(got) != 1 || got[0].App != "app" || got[0].Job != "parent" || got[0].Run != keys[0].String() ||
				got[0].Tries != 1 || !strings.Contains(got[0].Problem, "response") {
				t.Errorf("seen by %v: %+v, want the end of run %s", apps, got, keys[0])
			}
		}
		if got := listed("other"); len(got) != 0 {
			t.Errorf("a token of another app sees %+v", got)
		}
		spoil(t, s, keys[0], `{"body": "\"done\""}`)
		follow(now.Add(10 * time.Second))
		if got := listed(); len(got) != 0 {
			t.Errorf("once it was followed: %+v, want nothing", got)
		}
	})
}

// A backfill with a failing step is tried again after growing pauses, shows why, and goes after the others. An operator
// who resumes it ends the pause.
func TestFailingBackfillWaitsLongerEachTime(t *testing.T) {
	t.Parallel()
	onMoves(t, func(t *testing.T, m moving) {
		ids := map[string]int64{}
		for _, name := range []string{"broken", "good"} {
			m.declare(name, nil)
			request := repeat.BackfillRequest{}
			request.SetDefaults()
			request.From, request.To = m.now.Add(-2*time.Hour), m.now.Add(-time.Hour)
			created, err := m.old.CreateBackfill(t.Context(), "app", name, m.plan(name, request.BackfillSpec), m.at(0))
			must(t, err)
			ids[name], err = repeat.ParseBackfillID(created.ID)
			must(t, err)
		}
		broken := repeat.BackfillID(ids["broken"])
		must(t, store.Exec(t.Context(), m.old, `UPDATE backfills SET schedules = '{' WHERE job_id = (SELECT id FROM jobs WHERE name = 'broken')`))
		var pauses []string
		now := m.now
		for range 11 {
			fed, err := m.old.FeedBackfill(t.Context(), ids["broken"], now)
			if err == nil || !strings.Contains(err.Error(), "read its schedules") {
				t.Fatalf("FeedBackfill: %v, want that the schedules cannot be read", err)
			}
			pauses = append(pauses, fed.NextAt.Sub(now).String())
			if early, err := m.old.FeedBackfill(t.Context(), ids["broken"], fed.NextAt.Add(-time.Millisecond)); err != nil ||
				!early.NextAt.Equal(fed.NextAt) {
				t.Errorf("before its time: %+v, %v, want that it waits", early, err)
			}
			now = fed.NextAt
		}
		want := strings.Fields("1s 2s 4s 8s 16s 32s 1m4s 2m8s 4m16s 5m0s 5m0s")
		if diff := cmp.Diff(want, pauses); diff != "" {
			t.Errorf("pauses (-want +got):\n%s", diff)
		}
		shown, err := m.old.Backfill(t.Context(), "app", broken)
		must(t, err)
		if shown.Tries != 11 || shown.TryAt == nil || !shown.TryAt.Equal(now) || !strings.Contains(shown.Waits, "read its schedules") {
			t.Errorf("it shows %+v, want 11 tries, and why", shown.StepRetries)
		}
		open, err := m.old.OpenBackfills(t.Context())
		must(t, err)
		if diff := cmp.Diff([]dispatcher.OpenSteps{{ID: ids["good"]}, {ID: ids["broken"], TryAt: now}}, open); diff != "" {
			t.Errorf("open (-want +got):\n%s", diff)
		}
		resumed, err := m.old.ChangeBackfill(t.Context(), "app", broken, repeat.ResumeBackfill, m.at(0))
		must(t, err)
		if diff := cmp.Diff(dispatcher.StepRetries{}, resumed.StepRetries); diff != "" {
			t.Errorf("resumed it still waits (-want +got):\n%s", diff)
		}
		if fed, err := m.old.FeedBackfill(t.Context(), ids["broken"], m.now); err == nil || fed.NextAt.Sub(m.now) != time.Second {
			t.Errorf("resumed: %+v, %v, want a try at once, and the first pause", fed, err)
		}
	})
}

// A bulk action tries a job that it cannot change again after growing pauses, then skips it and reaches the others.
func TestFailingJobDoesNotBlockABulkAction(t *testing.T) {
	t.Parallel()
	onMoves(t, func(t *testing.T, m moving) {
		for _, name := range []string{"broken", "good"} {
			m.declare(name, nil)
		}
		created, err := m.old.CreateBulkAction(t.Context(), "app", repeat.BulkSpec{Action: repeat.BulkPauseJobs},
			repeat.BulkCount{Total: 2}, m.at(0))
		must(t, err)
		id, err := repeat.ParseBulkActionID(created.ID)
		must(t, err)
		must(t, store.Exec(t.Context(), m.old, `UPDATE jobs SET trigger_names = '{' WHERE name = 'broken'`))
		now := m.now
		for tries := 1; tries < 8; tries++ {
			step, err := m.old.StepBulkAction(t.Context(), id, now)
			if want := time.Second << (tries - 1); err == nil || step.TryAt.Sub(now) != want {
				t.Fatalf("try %d: %+v, %v, want an error and a pause of %s", tries, step, err, want)
			}
			now = step.TryAt
			shown, err := m.old.BulkAction(t.Context(), "app", created.ID)
			must(t, err)
			if shown.Tries != tries || shown.Waits == "" {
				t.Errorf("after try %d it shows %+v, want why it waits", tries, shown.StepRetries)
			}
		}
		_, err = m.old.StepBulkAction(t.Context(), id, now)
		must(t, err)
		shown, err := m.old.BulkAction(t.Context(), "app", created.ID)
		must(t, err)
		if shown.State != repeat.BulkComplete || shown.Done != 1 || shown.Skipped != 1 || !strings.HasPrefix(shown.Problem, "broken: ") ||
			shown.Waits != "" {
			t.Errorf("it ended as %+v, want one job paused, and one skipped with its reason", shown)
		}
	})
}
