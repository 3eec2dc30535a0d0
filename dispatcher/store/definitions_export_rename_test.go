package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// events returns the event ids of a job's next fires, as a node of a store makes them.
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

// What was renamed has the same event ids and fire times after a move: receivers drop duplicates by them. So has what
// got the freed names, also where deleted jobs and triggers of these names are left from before.
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

		// Elsewhere, first and second swap their names, and a trigger leaves its name to another.
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

// A job that is imported takes its name from a deleted one with another id, whose history stays apart.
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
