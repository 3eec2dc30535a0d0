package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// deadLetterTests are those of runs that failed for good.
func deadLetterTests() tests {
	return tests{
		"dead letters are listed by job, class, state and time": testDeadLetters,
		"dead letters are replayed in portions":                 testReplayDeadLetters,
		"a replay stops at a quota and goes on from there":      testReplayQuota,
		"the dead letters of a deleted job are not replayed":    testReplayOfDeletedJob,
		"a run tells which runs followed it":                    testFollowedBy,
	}
}

// deadLetters lets runs of a job end in some states, one a minute.
func (f *fixture) deadLetters(name string, states ...run.State) (runs []run.HeldRun) {
	f.Helper()
	f.putEvery(name, time.Minute)
	for _, state := range states {
		held := f.fireOf(name)
		o := ended(state, held.ScheduledAt)
		if state == run.TimedOut {
			o.Class = run.ClassTimeout
		}
		f.must(f.Record(f.Context(), []dispatcher.Record{record(held, o)}))
		runs = append(runs, held)
	}
	return runs
}

// minutes lists the dead letters of a query by their jobs and minutes, in pages of two.
func (f *fixture) minutes(query repeat.DeadLetterQuery) string {
	f.Helper()
	query.App, query.Page.Limit = "shop", 2
	var all []string
	for {
		page, err := f.DeadLetters(f.Context(), query)
		f.must(err)
		for _, run := range page {
			all = append(all, fmt.Sprint(run.Job, run.ScheduledAt.Minute()))
			query.Page.Cursor = run.ID
		}
		if len(page) < 2 {
			return strings.Join(all, " ")
		}
	}
}

func testDeadLetters(t *testing.T, f *fixture) {
	f.deadLetters("a", run.Failed, run.Succeeded, run.TimedOut, run.Cancelled, run.Lost,
		run.Skipped, run.Failed, run.Superseded)
	f.deadLetters("b", run.Succeeded, run.Failed)
	for _, tt := range []struct {
		what  string
		query repeat.DeadLetterQuery
		want  string
	}{
		{"all", repeat.DeadLetterQuery{}, "a7 a5 a3 b2 a1"},
		{"of a job", repeat.DeadLetterQuery{Job: "b"}, "b2"},
		{"of a class", repeat.DeadLetterQuery{Class: run.ClassTimeout}, "a3"},
		{"of a state", repeat.DeadLetterQuery{State: run.Lost}, "a5"},
		{"from and to", repeat.DeadLetterQuery{From: t0.Add(2 * time.Minute), To: t0.Add(5 * time.Minute)}, "a5 a3 b2"},
	} {
		if got := f.minutes(tt.query); got != tt.want {
			t.Errorf("dead letters %s: %q, want %q", tt.what, got, tt.want)
		}
		tt.query.App = "shop"
		count, err := f.CountDeadLetters(t.Context(), tt.query, 100)
		f.must(err)
		f.expect("how many "+tt.what, count, repeat.DeadLetterCount{Count: len(strings.Fields(tt.want))})
	}
	count, err := f.CountDeadLetters(t.Context(), repeat.DeadLetterQuery{App: "shop"}, 3)
	f.must(err)
	f.expect("how many as far as 3", count, repeat.DeadLetterCount{Count: 3, More: true})
	_, err = f.DeadLetters(t.Context(), repeat.DeadLetterQuery{App: "shop", Job: "none", Page: input.Page{Limit: 1}})
	wantError(t, "dead letters of a job that never existed", err, dispatcher.ErrNotFound)
}

func testReplayDeadLetters(t *testing.T, f *fixture) {
	f.deadLetters("a", run.Failed, run.Failed, run.Succeeded, run.Failed)
	query := repeat.DeadLetterQuery{App: "shop", Page: input.Page{Limit: 2}}
	first, err := f.ReplayDeadLetters(t.Context(), query, at(t0))
	f.must(err)
	f.expect("runs of the first portion", first.Replayed, 2)
	if first.Next == "" {
		t.Fatal("the first portion says that it was the last")
	}
	f.expect("what is left", f.minutes(query), "a1")
	query.Page.Cursor = first.Next
	second, err := f.ReplayDeadLetters(t.Context(), query, at(t0))
	f.must(err)
	f.expect("the second portion", second, repeat.Replayed{Replayed: 1})
	f.expect("what is left after it", f.minutes(repeat.DeadLetterQuery{}), "")
	held := f.adoptIdle(nodeA, t0.Add(time.Hour))
	f.expect("runs that are attempted again", len(held), 3)
	f.must(f.Record(t.Context(), []dispatcher.Record{record(held[0], ended(run.Failed, t0.Add(time.Hour)))}))
	f.expect("dead letters after one failed again", f.minutes(repeat.DeadLetterQuery{}), "a1")
}

func testReplayQuota(t *testing.T, f *fixture) {
	quotas := target.Bounds{}.WithDefaults("shop").Quotas
	quotas.ManualRunsPerMinute = 2
	f.bound(target.Bounds{Quotas: quotas})
	f.deadLetters("a", run.Failed, run.Failed, run.Failed)
	query := repeat.DeadLetterQuery{App: "shop", Page: input.Page{Limit: 10}}
	first, err := f.ReplayDeadLetters(t.Context(), query, at(t0))
	f.must(err)
	f.expect("runs within the quota", first.Replayed, 2)
	if first.Stopped == nil || first.Stopped.Code != input.CodeBoundQuota || first.Next == "" {
		t.Fatalf("the replay ended with %+v, want the quota and a cursor", first)
	}
	query.Page.Cursor = first.Next
	second, err := f.ReplayDeadLetters(t.Context(), query, at(t0.Add(time.Minute)))
	f.must(err)
	f.expect("the next minute", second, repeat.Replayed{Replayed: 1})
}

func testReplayOfDeletedJob(t *testing.T, f *fixture) {
	f.deadLetters("a", run.Failed)
	f.must(f.DeleteJob(t.Context(), "shop", "a", at(t0)))
	f.expect("dead letters", f.minutes(repeat.DeadLetterQuery{}), "a1")
	done, err := f.ReplayDeadLetters(t.Context(), repeat.DeadLetterQuery{App: "shop", Page: input.Page{Limit: 10}}, at(t0))
	f.must(err)
	f.expect("what is replayed", done, repeat.Replayed{})
}

func testFollowedBy(t *testing.T, f *fixture) {
	f.putFollowed(func(j *dispatcher.Job) {
		j.OnFailure = &dispatcher.Follow{Jobs: []string{"child"}, Target: hook("https://example.com/one")}
	})
	held := f.fireOf("parent")
	f.recordFollowed(held, ended(run.Failed, t0.Add(time.Minute)))
	f.expect("runs that follow, before they are queued", len(f.run(held.Key).FollowedBy), 0)
	f.followEnds(t0.Add(time.Minute))
	for _, r := range f.adoptIdle(nodeA, t0.Add(time.Minute)) {
		if r.JobID == run.JobID("shop", "child") {
			f.must(f.Record(t.Context(), []dispatcher.Record{record(r, outcome(t0.Add(time.Minute)))}))
		}
	}
	var got []string
	for _, ref := range f.run(held.Key).FollowedBy {
		got = append(got, fmt.Sprint(ref.Job, " ", ref.On, " ", ref.State))
	}
	wantDiff(t, "the runs that followed", []string{"child on_failure succeeded", "parent.on_failure on_failure claimed"}, got)
}
