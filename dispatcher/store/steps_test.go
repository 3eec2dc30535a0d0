package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// A backfill whose step fails is tried again after pauses that grow, says why, and goes behind the others. An operator who resumes it
// ends the pause.
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

// A job that a bulk action cannot change is tried again after pauses that grow, and then skipped: the action reaches the others.
func TestFailingJobDoesNotKeepABulkAction(t *testing.T) {
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
