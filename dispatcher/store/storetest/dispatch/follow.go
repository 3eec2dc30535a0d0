package dispatch

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// followTests test the followers of runs of a job.
func followTests() tests {
	return tests{
		"a run is followed once, however often its end is recorded": testFollowedOnce,
		"the state of a run decides its followers":                  testFollowedByState,
		"a retried run is followed by its final state":              testFollowedAfterRetries,
		"a run that is retried is followed once for each event":     testFollowedAgain,
		"followers get the result of the run":                       testFollowResult,
		"a run of a job without followers leaves no trace":          testNothingFollows,
		"missed fires are followed":                                 testFollowedMisfire,
		"a target gets deliveries of its own":                       testFollowTarget,
		"jobs cannot follow each other in a circle":                 testFollowCycle,
		"two jobs at once cannot make a circle":                     testFollowCycleRace,
		"two new jobs that await each other cannot make a circle":   testAwaitedCycleRace,
		"an app is imported with names that it awaits":              testAwaitedImport,
		"a job may name jobs that do not exist yet":                 testAwaitedFollower,
		"a job that gets an awaited name follows once":              testAwaitedName,
		"a job that is renamed is still followed":                   testFollowRename,
		"an app moves with the followers of its jobs":               testFollowImport,
		"all ways to end a run are followed":                        testFollowedWhateverEnded,
	}
}

func testFollowedOnce(t *testing.T, f *wing) {
	f.PutFollowed(fixture.OnFailure("child"))
	held := f.FireOf("parent")
	start := fixture.T0.Add(time.Minute)
	for range 2 { // as after a lost response
		f.RecordFollowed(held, fixture.Ended(run.Failed, start))
	}
	f.Expect("runs that were queued", f.FollowAll(start), 1)
	f.RecordFollowed(held, fixture.Ended(run.Failed, start))
	f.Expect("runs that were queued by the same end", f.FollowAll(start), 0)
	f.Expect("the runs of the child", f.RunsOf("child"), "chain queued")
	runs, err := f.Runs(t.Context(), dispatcher.RunQuery{App: "shop", Job: "child", Page: input.Page{Limit: 1}})
	f.Must(err)
	child, err := f.Store.Run(t.Context(), runs[0].ID)
	f.Must(err)
	f.Expect("when the child is scheduled", child.ScheduledAt, held.ScheduledAt)
	fixture.WantDiff(t, "why the child exists", &run.Cause{Run: held.String(), On: "on_failure", State: run.Failed,
		Class: run.ClassHTTP5xx, Error: "broken", Depth: 1, MayFollow: 9999}, child.Cause)
	adopted := f.AdoptIdle(fixture.NodeA, start)
	f.Expect("runs that a node adopts", len(adopted), 1)
	f.Must(f.Record(t.Context(), []dispatcher.Record{fixture.Record(adopted[0], fixture.Outcome(start))}))
	f.RecordFollowed(held, fixture.Ended(run.Failed, start))
	f.Expect("runs that are queued when the child has ended", f.FollowAll(start), 0)
}

func testFollowedByState(t *testing.T, f *wing) {
	f.Put(fixture.Job("good", nil), fixture.T0)
	f.PutFollowed(func(j *dispatcher.Job) {
		j.OnSuccess, j.OnFailure = &dispatcher.Follow{Jobs: []string{"good"}}, &dispatcher.Follow{Jobs: []string{"child"}}
	})
	for _, tt := range []struct {
		state       run.State
		good, child int
	}{
		{run.Succeeded, 1, 0}, {run.Failed, 0, 1}, {run.TimedOut, 0, 1}, {run.Lost, 0, 1},
		{run.Cancelled, 0, 0}, {run.Skipped, 0, 0}, {run.Superseded, 0, 0},
	} {
		before := [2]int{strings.Count(f.RunsOf("good"), "chain"), strings.Count(f.RunsOf("child"), "chain")}
		held := f.FireOf("parent")
		f.RecordFollowed(held, fixture.Ended(tt.state, held.ScheduledAt))
		f.FollowAll(held.ScheduledAt)
		got := [2]int{strings.Count(f.RunsOf("good"), "chain") - before[0], strings.Count(f.RunsOf("child"), "chain") - before[1]}
		if want := [2]int{tt.good, tt.child}; got != want {
			t.Errorf("a run that is %s is followed by %v runs of good and child, want %v", tt.state, got, want)
		}
	}
}

func testFollowedAfterRetries(_ *testing.T, f *wing) {
	f.PutFollowed(fixture.OnFailure("child"))
	held := f.FireOf("parent")
	start := fixture.T0.Add(time.Minute)
	r := fixture.Record(held, fixture.Ended(run.Failed, start))
	r.Next, r.Followed = new(fixture.FailedUntil(start.Add(5*time.Second))), true
	f.Must(f.Record(f.Context(), []dispatcher.Record{r}))
	f.Expect("runs that follow a failed attempt", f.FollowAll(start), 0)
	again := f.AdoptRetries(start.Add(10 * time.Second))
	f.Expect("runs that are attempted again", len(again), 1)
	f.RecordFollowed(again[0], fixture.Ended(run.Failed, start.Add(10*time.Second)))
	f.Expect("runs that follow the end", f.FollowAll(start.Add(time.Minute)), 1)
	// Records by other nodes are found even without the mark, when the run ends without an attempt.
	later := f.FireOf("parent")
	r = fixture.Record(later, fixture.Ended(run.Failed, later.ScheduledAt))
	next := later.ScheduledAt.Add(time.Minute)
	r.Next = &dispatcher.NextAttempt{At: next, Until: next.Add(time.Minute), CountsAsFailure: true}
	f.Must(f.Record(f.Context(), []dispatcher.Record{r}))
	given, err := f.GiveUp(f.Context(), later.ScheduledAt.Add(time.Hour))
	f.Must(err)
	f.Expect("runs that are given up", given, 1)
	f.Expect("runs that follow them", f.FollowAll(later.ScheduledAt.Add(time.Hour)), 1)
}

func testFollowedAgain(t *testing.T, f *wing) {
	f.Put(fixture.Job("good", nil), fixture.T0)
	f.PutFollowed(func(j *dispatcher.Job) {
		j.OnSuccess, j.OnFailure = &dispatcher.Follow{Jobs: []string{"good"}}, &dispatcher.Follow{Jobs: []string{"child"}}
	})
	held := f.FireOf("parent")
	now := fixture.T0.Add(time.Minute)
	f.RecordFollowed(held, fixture.Ended(run.Failed, now))
	f.Expect("runs that follow the failure", f.FollowAll(now), 1)
	for i, tt := range []struct {
		state run.State
		want  int
	}{{run.Failed, 0}, {run.Succeeded, 1}, {run.Succeeded, 0}} {
		now = now.Add(time.Minute)
		f.Must(f.RetryRun(t.Context(), held.String(), fixture.At(now)))
		var again []run.HeldRun
		for _, one := range f.AdoptIdle(fixture.NodeA, now) {
			if one.Key == held.Key {
				again = append(again, one)
			}
		}
		f.Expect("the run is adopted", len(again), 1)
		f.RecordFollowed(again[0], fixture.Ended(tt.state, now))
		if got := f.FollowAll(now); got != tt.want {
			t.Errorf("retry %d, which is %s, is followed by %d runs, want %d", i+1, tt.state, got, tt.want)
		}
	}
}

func testFollowResult(t *testing.T, f *wing) {
	f.PutFollowed(func(j *dispatcher.Job) {
		j.OnSuccess = &dispatcher.Follow{Jobs: []string{"child"}, Payload: dispatcher.FollowResult}
	})
	held := f.FireOf("parent")
	o := fixture.Outcome(fixture.T0.Add(time.Minute))
	o.Response = &run.Response{Body: `{"rows": 7}`}
	f.RecordFollowed(held, o)
	f.Expect("runs that were queued", f.FollowAll(fixture.T0.Add(time.Minute)), 1)
	inputs := f.AdoptIdle(fixture.NodeA, fixture.T0.Add(time.Minute))
	f.Expect("runs that a node adopts", len(inputs), 1)
	all, err := f.RunInputs(t.Context(), []run.Key{inputs[0].Key})
	f.Must(err)
	var document dispatcher.FollowDocument
	f.Must(json.Unmarshal(all[inputs[0].Key].Payload, &document))
	fixture.WantDiff(t, "what the child gets", dispatcher.FollowDocument{
		Event: run.OnSuccess, Result: json.RawMessage(`{"rows":7}`),
		Parent: dispatcher.FollowedRun{
			Run: held.String(), App: "shop", Job: "parent", Trigger: "tick", ScheduledAt: held.ScheduledAt, State: run.Succeeded,
			HTTPStatus: 200, Attempts: 1, EndedAt: o.EndedAt,
		},
	}, document)
}

func testNothingFollows(_ *testing.T, f *wing) {
	held := f.ClaimOne("alone")
	f.RecordFollowed(held, fixture.Ended(run.Failed, fixture.T0.Add(time.Minute)))
	done, err := f.FollowEnds(f.Context(), dispatcher.FollowQuery{Limit: 10, Now: fixture.T0})
	f.Must(err)
	f.Expect("ends that are pending", done, dispatcher.FollowedEnds{})
}

func testFollowedMisfire(t *testing.T, f *wing) {
	f.PutFollowed(func(j *dispatcher.Job) {
		j.OnMisfire = &dispatcher.Follow{Jobs: []string{"child"}, Payload: dispatcher.FollowResult}
	})
	a := f.NextAdvance()
	last := a.Next.Add(2 * time.Minute)
	a.Then = last.Add(time.Minute)
	now := last.Add(30 * time.Second)
	held, err := f.Settle(t.Context(), dispatcher.SettleBatch{Node: fixture.NodeA, Token: f.NextToken(), Now: now,
		Settlements: []dispatcher.Settlement{{
			Advance: a, To: last, Count: 3, Decision: dispatcher.DecisionFireOnce, Reason: "no node ran", CatchUp: last,
		}}})
	f.Must(err)
	f.Expect("catch-ups", len(held), 1)
	f.Expect("runs that follow", f.FollowAll(now), 1)
	queued := f.AdoptIdle(fixture.NodeA, now)
	f.Expect("runs that a node adopts", len(queued), 1)
	all, err := f.RunInputs(t.Context(), []run.Key{queued[0].Key})
	f.Must(err)
	var document dispatcher.FollowDocument
	f.Must(json.Unmarshal(all[queued[0].Key].Payload, &document))
	fixture.WantDiff(t, "what the child gets", dispatcher.FollowDocument{Event: run.OnMisfire, Parent: dispatcher.FollowedRun{
		Run: held[0].String(), App: "shop", Job: "parent", Trigger: "tick", ScheduledAt: a.Next, EndedAt: now,
		Missed:   &run.MissedRange{From: a.Next, To: last, Count: 3},
		Decision: dispatcher.DecisionFireOnce, Reason: "no node ran",
	}}, document)
}
