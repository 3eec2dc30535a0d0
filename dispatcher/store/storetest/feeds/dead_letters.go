package feeds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// deadLetterTests test runs that failed permanently.
func deadLetterTests() tests {
	return tests{
		"dead letters are listed by job, class, state and time": testDeadLetters,
		"dead letters are replayed in portions":                 testReplayDeadLetters,
		"a replay stops at a quota and continues from there":    testReplayQuota,
		"the dead letters of a deleted job are not replayed":    testReplayOfDeletedJob,
		"a run lists its followers":                             testFollowedBy,
	}
}

// minutes lists the dead letters of a query by job and minute, in pages of two.
func (f *wing) minutes(query repeat.DeadLetterQuery) string {
	f.Helper()
	query.App, query.Page.Limit = "shop", 2
	var all []string
	for {
		page, err := f.DeadLetters(f.Context(), query)
		f.Must(err)
		for _, run := range page {
			all = append(all, fmt.Sprint(run.Job, run.ScheduledAt.Minute()))
			query.Page.Cursor = run.ID
		}
		if len(page) < 2 {
			return strings.Join(all, " ")
		}
	}
}

func testDeadLetters(t *testing.T, f *wing) {
	f.DeadLettersOf("a", run.Failed, run.Succeeded, run.TimedOut, run.Cancelled, run.Lost,
		run.Skipped, run.Failed, run.Superseded)
	f.DeadLettersOf("b", run.Succeeded, run.Failed)
	for _, tt := range []struct {
		what  string
		query repeat.DeadLetterQuery
		want  string
	}{
		{"all", repeat.DeadLetterQuery{}, "a7 a5 a3 b2 a1"},
		{"of a job", repeat.DeadLetterQuery{Job: "b"}, "b2"},
		{"of a class", repeat.DeadLetterQuery{Class: run.ClassTimeout}, "a3"},
		{"of a state", repeat.DeadLetterQuery{State: run.Lost}, "a5"},
		{"from and to", repeat.DeadLetterQuery{From: fixture.T0.Add(2 * time.Minute), To: fixture.T0.Add(5 * time.Minute)}, "a5 a3 b2"},
	} {
		if got := f.minutes(tt.query); got != tt.want {
			t.Errorf("dead letters %s: %q, want %q", tt.what, got, tt.want)
		}
		tt.query.App = "shop"
		count, err := f.CountDeadLetters(t.Context(), tt.query, 100)
		f.Must(err)
		f.Expect("how many "+tt.what, count, repeat.DeadLetterCount{Count: len(strings.Fields(tt.want))})
	}
	count, err := f.CountDeadLetters(t.Context(), repeat.DeadLetterQuery{App: "shop"}, 3)
	f.Must(err)
	f.Expect("how many as far as 3", count, repeat.DeadLetterCount{Count: 3, More: true})
	_, err = f.DeadLetters(t.Context(), repeat.DeadLetterQuery{App: "shop", Job: "none", Page: input.Page{Limit: 1}})
	fixture.WantError(t, "dead letters of a job that never existed", err, dispatcher.ErrNotFound)
}

func testReplayDeadLetters(t *testing.T, f *wing) {
	f.DeadLettersOf("a", run.Failed, run.Failed, run.Succeeded, run.Failed)
	query := repeat.DeadLetterQuery{App: "shop", Page: input.Page{Limit: 2}}
	first, err := f.ReplayDeadLetters(t.Context(), query, fixture.At(fixture.T0))
	f.Must(err)
	f.Expect("runs of the first portion", first.Replayed, 2)
	if first.Next == "" {
		t.Fatal("the first portion says that it was the last")
	}
	f.Expect("what is left", f.minutes(query), "a1")
	query.Page.Cursor = first.Next
	second, err := f.ReplayDeadLetters(t.Context(), query, fixture.At(fixture.T0))
	f.Must(err)
	f.Expect("the second portion", second, repeat.Replayed{Replayed: 1})
	f.Expect("what is left after it", f.minutes(repeat.DeadLetterQuery{}), "")
	held := f.AdoptIdle(fixture.NodeA, fixture.T0.Add(time.Hour))
	f.Expect("runs that are attempted again", len(held), 3)
	f.Must(f.Record(t.Context(), []dispatcher.Record{fixture.Record(held[0], fixture.Ended(run.Failed, fixture.T0.Add(time.Hour)))}))
	f.Expect("dead letters after one failed again", f.minutes(repeat.DeadLetterQuery{}), "a1")
}

func testReplayQuota(t *testing.T, f *wing) {
	quotas := target.Bounds{}.WithDefaults("shop").Quotas
	quotas.ManualRunsPerMinute = 2
	f.Bound(target.Bounds{Quotas: quotas})
	f.DeadLettersOf("a", run.Failed, run.Failed, run.Failed)
	query := repeat.DeadLetterQuery{App: "shop", Page: input.Page{Limit: 10}}
	first, err := f.ReplayDeadLetters(t.Context(), query, fixture.At(fixture.T0))
	f.Must(err)
	f.Expect("runs within the quota", first.Replayed, 2)
	if first.Stopped == nil || first.Stopped.Code != input.CodeBoundQuota || first.Next == "" {
		t.Fatalf("the replay ended with %+v, want the quota and a cursor", first)
	}
	query.Page.Cursor = first.Next
	second, err := f.ReplayDeadLetters(t.Context(), query, fixture.At(fixture.T0.Add(time.Minute)))
	f.Must(err)
	f.Expect("the next minute", second, repeat.Replayed{Replayed: 1})
}

func testReplayOfDeletedJob(t *testing.T, f *wing) {
	f.DeadLettersOf("a", run.Failed)
	f.Must(f.DeleteJob(t.Context(), "shop", "a", fixture.At(fixture.T0)))
	f.Expect("dead letters", f.minutes(repeat.DeadLetterQuery{}), "a1")
	done, err := f.ReplayDeadLetters(t.Context(), repeat.DeadLetterQuery{App: "shop", Page: input.Page{Limit: 10}}, fixture.At(fixture.T0))
	f.Must(err)
	f.Expect("what is replayed", done, repeat.Replayed{})
}

func testFollowedBy(t *testing.T, f *wing) {
	f.PutFollowed(func(j *dispatcher.Job) {
		j.OnFailure = &dispatcher.Follow{Jobs: []string{"child"}, FollowDestination: fixture.Hook("https://example.com/one")}
	})
	held := f.FireOf("parent")
	f.RecordFollowed(held, fixture.Ended(run.Failed, fixture.T0.Add(time.Minute)))
	f.Expect("runs that follow, before they are queued", len(f.RunOf(held.Key).FollowedBy), 0)
	f.FollowAll(fixture.T0.Add(time.Minute))
	for _, r := range f.AdoptIdle(fixture.NodeA, fixture.T0.Add(time.Minute)) {
		if r.JobID == run.JobID("shop", "child") {
			f.Must(f.Record(t.Context(), []dispatcher.Record{fixture.Record(r, fixture.Outcome(fixture.T0.Add(time.Minute)))}))
		}
	}
	var got []string
	for _, ref := range f.RunOf(held.Key).FollowedBy {
		got = append(got, fmt.Sprint(ref.Job, " ", ref.On, " ", ref.State))
	}
	fixture.WantDiff(t, "the runs that followed", []string{"child on_failure succeeded", "parent.on_failure on_failure claimed"}, got)
}
