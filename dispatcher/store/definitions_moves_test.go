package store_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Waiting followers of a run move with the app, with their keys and inputs.
func TestWaitingFollowersMove(t *testing.T) {
	t.Parallel()
	onMoves(t, func(t *testing.T, m moving) {
		m.declare("child", nil)
		parent := m.declare("parent", func(job *dispatcher.Job, _ *dispatcher.Trigger) {
			to := target.FollowDestination{Webhook: &target.FollowWebhook{URL: "https://example.com/failed"}}
			job.OnFailure = &dispatcher.Follow{Jobs: []string{"child"}, FollowDestination: to, Payload: dispatcher.FollowResult}
		})
		ctx, node := t.Context(), run.NodeID(7)
		must(t, m.old.Register(ctx, dispatcher.Node{ID: node, Name: "n", Version: "v"}, m.now))
		requested, err := m.old.RequestRun(ctx, "app", parent.Name, nil, m.at(-time.Minute))
		must(t, err)
		query := dispatcher.AdoptQuery{Node: node, Token: 9, Limit: 1, Now: m.now}
		found, err := m.old.Adoptable(ctx, query)
		must(t, err)
		held, err := m.old.Adopt(ctx, query, found)
		must(t, err)
		if len(held) != 1 {
			t.Fatalf("adopted %d runs, want the one that was requested", len(held))
		}
		must(t, m.old.Record(ctx, []dispatcher.Record{{
			Key: held[0].Key, JobID: held[0].JobID, Revision: held[0].Revision, ClaimedAt: held[0].ClaimedAt, Node: node, Token: 9,
			Attempt: held[0].Attempt, Followed: true, Outcome: run.Outcome{State: run.Failed, StartedAt: m.now, EndedAt: m.now},
		}}))
		done, err := m.old.FollowEnds(ctx, dispatcher.FollowQuery{Limit: 10, Now: m.now})
		must(t, err)
		if done.Queued != 2 {
			t.Fatalf("%d runs follow, want that of the child and the delivery", done.Queued)
		}
		before := followers(t, m.old, requested.ID)
		m.move()
		for _, one := range before {
			there, err := m.new.Run(ctx, one.ID)
			must(t, err)
			if there.State != run.Queued || there.Job != one.Job || there.EventID != one.EventID {
				t.Errorf("run %s of %s is %s there, of %s, with event id %s; want it queued, with %s", one.ID, one.Job, there.State, there.Job,
					there.EventID, one.EventID)
			}
			if diff := cmp.Diff(one.Cause, there.Cause); diff != "" || string(one.Payload) != string(there.Payload) {
				t.Errorf("what run %s was given changed to %s (-want +got):\n%s", one.ID, there.Payload, diff)
			}
		}
	})
}

// A waiting notification, as for a host that does not respond, moves with its app. The alert state does not move, so a
// notification would otherwise be lost.
func TestWaitingNotificationsMove(t *testing.T) {
	t.Parallel()
	onMoves(t, func(t *testing.T, m moving) {
		alert := alert.Alert{App: "app", Name: "night",
			Spec: alert.Spec{AlertConditionsOf: alert.AlertConditionsOf{Failure: &alert.Failures{After: 1}}}}
		alert.Destination.Webhook = &target.AlertWebhook{}
		alert.Destination.Webhook.SetDefaults()
		alert.Destination.Webhook.URL = "https://pager.example.com/"
		_, _, err := m.old.PutAlert(t.Context(), alert, m.at(-time.Hour))
		must(t, err)
		r, err := m.old.TestAlert(t.Context(), "app", "night", m.at(-time.Minute))
		must(t, err)
		m.move()
		there, err := m.new.Run(t.Context(), r.ID)
		must(t, err)
		if there.State != run.Queued || there.Job != r.Job || there.EventID != r.EventID {
			t.Errorf("run %s of %s is %s there, of %s, with event id %s; want it queued, with %s", r.ID, r.Job, there.State, there.Job,
				there.EventID, r.EventID)
		}
		if diff := cmp.Diff(r.Cause, there.Cause); diff != "" || string(r.Payload) != string(there.Payload) {
			t.Errorf("what the run was given changed to %s (-want +got):\n%s", there.Payload, diff)
		}
	})
}

// followers returns the followers of a run.
func followers(t *testing.T, s *store.Store, id string) (all []run.Run) {
	t.Helper()
	run, err := s.Run(t.Context(), id)
	must(t, err)
	for _, ref := range run.FollowedBy {
		one, err := s.Run(t.Context(), ref.Run)
		must(t, err)
		all = append(all, one)
	}
	if len(all) != 2 {
		t.Fatalf("run %s is followed by %d runs, want 2", id, len(all))
	}
	return all
}

// plan plans a backfill of a job.
func (m moving) plan(name string, spec repeat.BackfillSpec) repeat.BackfillPlan {
	m.t.Helper()
	job, err := m.old.Job(m.t.Context(), "app", name)
	must(m.t, err)
	plan, err := spec.Plan(m.t.Context(), job, nil)
	must(m.t, err)
	return plan
}

// An app with an open backfill does not move: its remaining instants would never run.
func TestAppWithAnOpenBackfillDoesNotMove(t *testing.T) {
	t.Parallel()
	onMoves(t, func(t *testing.T, m moving) {
		m.declare("nightly", nil)
		spec := repeat.BackfillSpec{From: m.now.Add(-2 * time.Hour), To: m.now.Add(-time.Hour), Concurrency: 1,
			Order: repeat.BackfillOldestFirst, Existing: repeat.ExistingSkip}
		begun, err := m.old.CreateBackfill(t.Context(), "app", "nightly", m.plan("nightly", spec), m.at(0))
		must(t, err)
		m.disable()
		_, err = m.old.ExportApp(t.Context(), "app")
		if want := begun.ID + " of job nightly"; !errors.Is(err, dispatcher.ErrConflict) || !strings.Contains(err.Error(), want) {
			t.Errorf("ExportApp: %v, want that it names %s", err, want)
		}
	})
}

// events returns the event ids of a job's next fires, as a node makes them.
func events(t *testing.T, s *store.Store, job string) map[string]string {
	t.Helper()
	one, err := s.Job(t.Context(), "app", job)
	must(t, err)
	versions, err := s.JobsByID(t.Context(), []int64{one.Key()})
	must(t, err)
	installation, err := s.Installation(t.Context())
	must(t, err)
	if len(versions) != 1 || versions[0].Name != job {
		t.Fatalf("job %s: a node reads %+v", job, versions)
	}
	all := map[string]string{}
	for name, trigger := range one.Triggers {
		all[name] = trigger.DueAt.Format(time.RFC3339Nano) + " " +
			versions[0].EventID(installation, name, *trigger.NextFireTime, run.KindSchedule)
	}
	return all
}

// Renamed jobs and triggers keep their event ids and fire times after a move: receivers drop duplicates by event id. So
// do new ones with the freed names, even where deleted jobs and triggers with these names remain.
func TestRenamedJobsMoveWithTheirEventIDs(t *testing.T) {
	t.Parallel()
	onMoves(t, func(t *testing.T, m moving) {
		ctx := t.Context()
		hash := func(_ *dispatcher.Job, t *dispatcher.Trigger) {
			t.Expression, t.Timezone, t.Jitter = "H H * * *", "UTC", input.Duration(time.Hour)
		}
		m.declare("first", hash)
		m.declare("second", hash)
		m.declare("steady", hash)
		names := []string{"first", "second", "steady"}
		m.move()
		for _, name := range names {
			must(t, m.old.DeleteJob(ctx, "app", name, m.at(2*time.Second)))
		}
		must(t, m.old.DeleteApp(ctx, "app", m.at(2*time.Second)))

		// In the other installation, first and second swap their names, and a trigger leaves its name to another one.
		back := moving{t: t, old: m.new, new: m.old, now: m.now.Add(3 * time.Second)}
		for _, step := range [][2]string{{"first", "third"}, {"second", "first"}, {"third", "second"}} {
			_, err := back.old.RenameJob(ctx, "app", step[0], dispatcher.JobRename{Name: step[1]}, back.at(0))
			must(t, err)
		}
		job, err := back.old.RenameJob(ctx, "app", "steady", dispatcher.JobRename{Triggers: map[string]string{"t": "u"}}, back.at(0))
		must(t, err)
		job.Triggers["t"] = job.Triggers["u"]
		_, _, err = back.old.PutJob(ctx, job, back.at(0))
		must(t, err)
		requested, err := back.old.RequestRun(ctx, "app", "second", nil, back.at(0))
		must(t, err)
		want := map[string]map[string]string{}
		for _, name := range names {
			want[name] = events(t, back.old, name)
		}
		back.move()
		got := map[string]map[string]string{}
		for _, name := range names {
			got[name] = events(t, back.new, name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("due times and event ids (-before +after):\n%s", diff)
		}
		run, err := back.new.Run(ctx, requested.ID)
		if err != nil || run.Job != "second" || run.EventID != requested.EventID {
			t.Errorf("the run that waits is %+v, %v; want it of job second, with event id %s", run, err, requested.EventID)
		}
		jobs, err := back.new.EveryJobName(ctx, "app", input.Page{Limit: 10})
		if must(t, err); !slices.Equal(jobs, names) {
			t.Errorf("jobs, deleted ones too, are %v, want %v", jobs, names)
		}
	})
}

// An imported job takes its name from a deleted one with another id, which keeps its separate history.
func TestImportedJobTakesTheNameOfADeletedOne(t *testing.T) {
	t.Parallel()
	onMoves(t, func(t *testing.T, m moving) {
		ctx := t.Context()
		m.declare("first", nil)
		m.move()
		must(t, m.old.DeleteJob(ctx, "app", "first", m.at(2*time.Second)))
		must(t, m.old.DeleteApp(ctx, "app", m.at(2*time.Second)))
		back := moving{t: t, old: m.new, new: m.old, now: m.now.Add(3 * time.Second)}
		_, err := back.old.RenameJob(ctx, "app", "first", dispatcher.JobRename{Name: "second"}, back.at(0))
		must(t, err)
		next := back.declare("first", nil)
		must(t, back.old.DeleteJob(ctx, "app", "second", back.at(0)))
		back.move()
		job, err := back.new.Job(ctx, "app", "first")
		if must(t, err); job.Key() != next.Key() || job.Origin != "first~2" {
			t.Errorf("the imported job has origin %q, want first~2", job.Origin)
		}
		jobs, err := back.new.EveryJobName(ctx, "app", input.Page{Limit: 10})
		if must(t, err); !slices.Equal(jobs, []string{"first", "first~"}) {
			t.Errorf("jobs, deleted ones too, are %v, want first and first~", jobs)
		}
	})
}
