package storetest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// followTests are those of what follows the runs of a job.
func followTests() tests {
	return tests{
		"a run is followed once, however often its end is recorded": testFollowedOnce,
		"the state of a run decides what follows it":                testFollowedByState,
		"what was retried is followed by how it ends":               testFollowedAfterRetries,
		"a run that is retried is followed once for each event":     testFollowedAgain,
		"followers get the result of the run":                       testFollowResult,
		"a run of a job that nothing follows leaves no trace":       testNothingFollows,
		"missed fires are followed":                                 testFollowedMisfire,
		"a target gets deliveries of its own":                       testFollowTarget,
		"jobs cannot follow each other in a circle":                 testFollowCycle,
		"two jobs at once cannot make a circle":                     testFollowCycleRace,
		"a job that another one names cannot be deleted":            testFollowedJobInUse,
		"a job that is renamed is still followed":                   testFollowRename,
		"an app moves with what follows its jobs":                   testFollowImport,
		"ends are followed whatever ended the run":                  testFollowedWhateverEnded,
	}
}

// putFollowed stores a job "child", and a job "parent" that child follows on some events.
func (f *fixture) putFollowed(change func(*dispatcher.Job)) {
	f.Helper()
	f.put(job("child", nil), t0)
	parent := job("parent", map[string]dispatcher.Trigger{"tick": every(time.Minute, t0.Add(time.Minute))})
	change(&parent)
	f.put(parent, t0)
}

// onFailure lets jobs follow the failures of a job.
func onFailure(names ...string) func(*dispatcher.Job) {
	return func(j *dispatcher.Job) { j.OnFailure = &dispatcher.Follow{Jobs: names} }
}

// recordFollowed records the end of a run that something may follow.
func (f *fixture) recordFollowed(held run.HeldRun, o run.Outcome) {
	f.Helper()
	r := record(held, o)
	r.Followed = true
	f.must(f.Record(f.Context(), []dispatcher.Record{r}))
}

// fireOf claims the next fire of a job.
func (f *fixture) fireOf(name string) run.HeldRun {
	f.Helper()
	for _, d := range f.dueAll(t0.Add(24 * time.Hour)) {
		if d.ID == run.TriggerID("shop", name, "tick") {
			if held := f.claim(f.advance(d)); len(held) == 1 {
				return held[0]
			}
		}
	}
	f.Fatalf("no fire of job %s was claimed", name)
	return run.HeldRun{}
}

// followEnds follows all pending ends, and returns how many runs that queued.
func (f *fixture) followEnds(now time.Time) (queued int) {
	f.Helper()
	for {
		done, err := f.FollowEnds(f.Context(), dispatcher.FollowQuery{Limit: 2, Now: now})
		f.must(err)
		if queued += done.Queued; !done.More {
			return queued
		}
	}
}

// runsOf returns the kinds and states of the runs of a job, latest first.
func (f *fixture) runsOf(name string) string {
	f.Helper()
	runs, err := f.Runs(f.Context(), dispatcher.RunQuery{App: "shop", Job: name, Page: input.Page{Limit: 100}})
	f.must(err)
	all := make([]string, len(runs))
	for i, run := range runs {
		all[i] = string(run.Kind) + " " + string(run.State)
	}
	return strings.Join(all, ", ")
}

// ended is an outcome of a state.
func ended(state run.State, start time.Time) run.Outcome {
	o := outcome(start)
	if o.State = state; state != run.Succeeded {
		o.Class, o.Error, o.HTTPStatus = run.ClassHTTP5xx, "broken", 500
	}
	return o
}

func testFollowedOnce(t *testing.T, f *fixture) {
	f.putFollowed(onFailure("child"))
	held := f.fireOf("parent")
	start := t0.Add(time.Minute)
	for range 2 { // as after a response that was lost
		f.recordFollowed(held, ended(run.Failed, start))
	}
	f.expect("runs that were queued", f.followEnds(start), 1)
	f.recordFollowed(held, ended(run.Failed, start))
	f.expect("runs that were queued by the same end", f.followEnds(start), 0)
	f.expect("the runs of the child", f.runsOf("child"), "chain queued")
	runs, err := f.Runs(t.Context(), dispatcher.RunQuery{App: "shop", Job: "child", Page: input.Page{Limit: 1}})
	f.must(err)
	child, err := f.Store.Run(t.Context(), runs[0].ID)
	f.must(err)
	f.expect("when the child is scheduled", child.ScheduledAt, held.ScheduledAt)
	wantDiff(t, "why the child exists", &run.Cause{Run: held.String(), On: "on_failure", State: run.Failed,
		Class: run.ClassHTTP5xx, Error: "broken", Depth: 1, MayFollow: 9999}, child.Cause)
	adopted := f.adoptIdle(nodeA, start)
	f.expect("runs that a node adopts", len(adopted), 1)
	f.must(f.Record(t.Context(), []dispatcher.Record{record(adopted[0], outcome(start))}))
	f.recordFollowed(held, ended(run.Failed, start))
	f.expect("runs that are queued when the child has ended", f.followEnds(start), 0)
}

func testFollowedByState(t *testing.T, f *fixture) {
	f.put(job("good", nil), t0)
	f.putFollowed(func(j *dispatcher.Job) {
		j.OnSuccess, j.OnFailure = &dispatcher.Follow{Jobs: []string{"good"}}, &dispatcher.Follow{Jobs: []string{"child"}}
	})
	for _, tt := range []struct {
		state       run.State
		good, child int
	}{
		{run.Succeeded, 1, 0}, {run.Failed, 0, 1}, {run.TimedOut, 0, 1}, {run.Lost, 0, 1},
		{run.Cancelled, 0, 0}, {run.Skipped, 0, 0}, {run.Superseded, 0, 0},
	} {
		before := [2]int{strings.Count(f.runsOf("good"), "chain"), strings.Count(f.runsOf("child"), "chain")}
		held := f.fireOf("parent")
		f.recordFollowed(held, ended(tt.state, held.ScheduledAt))
		f.followEnds(held.ScheduledAt)
		got := [2]int{strings.Count(f.runsOf("good"), "chain") - before[0], strings.Count(f.runsOf("child"), "chain") - before[1]}
		if want := [2]int{tt.good, tt.child}; got != want {
			t.Errorf("a run that is %s is followed by %v runs of good and child, want %v", tt.state, got, want)
		}
	}
}

func testFollowedAfterRetries(_ *testing.T, f *fixture) {
	f.putFollowed(onFailure("child"))
	held := f.fireOf("parent")
	start := t0.Add(time.Minute)
	r := record(held, ended(run.Failed, start))
	r.Next, r.Followed = new(failedUntil(start.Add(5*time.Second))), true
	f.must(f.Record(f.Context(), []dispatcher.Record{r}))
	f.expect("runs that follow a failed attempt", f.followEnds(start), 0)
	again := f.adoptRetries(start.Add(10 * time.Second))
	f.expect("runs that are attempted again", len(again), 1)
	f.recordFollowed(again[0], ended(run.Failed, start.Add(10*time.Second)))
	f.expect("runs that follow the end", f.followEnds(start.Add(time.Minute)), 1)
	// What another node has recorded is seen without the mark, too, when the run ends without an attempt.
	later := f.fireOf("parent")
	r = record(later, ended(run.Failed, later.ScheduledAt))
	next := later.ScheduledAt.Add(time.Minute)
	r.Next = &dispatcher.NextAttempt{At: next, Until: next.Add(time.Minute), CountsAsFailure: true}
	f.must(f.Record(f.Context(), []dispatcher.Record{r}))
	given, err := f.GiveUp(f.Context(), later.ScheduledAt.Add(time.Hour))
	f.must(err)
	f.expect("runs that are given up", given, 1)
	f.expect("runs that follow them", f.followEnds(later.ScheduledAt.Add(time.Hour)), 1)
}

func testFollowedAgain(t *testing.T, f *fixture) {
	f.put(job("good", nil), t0)
	f.putFollowed(func(j *dispatcher.Job) {
		j.OnSuccess, j.OnFailure = &dispatcher.Follow{Jobs: []string{"good"}}, &dispatcher.Follow{Jobs: []string{"child"}}
	})
	held := f.fireOf("parent")
	now := t0.Add(time.Minute)
	f.recordFollowed(held, ended(run.Failed, now))
	f.expect("runs that follow the failure", f.followEnds(now), 1)
	for i, tt := range []struct {
		state run.State
		want  int
	}{{run.Failed, 0}, {run.Succeeded, 1}, {run.Succeeded, 0}} {
		now = now.Add(time.Minute)
		f.must(f.RetryRun(t.Context(), held.String(), at(now)))
		var again []run.HeldRun
		for _, one := range f.adoptIdle(nodeA, now) {
			if one.Key == held.Key {
				again = append(again, one)
			}
		}
		f.expect("the run is adopted", len(again), 1)
		f.recordFollowed(again[0], ended(tt.state, now))
		if got := f.followEnds(now); got != tt.want {
			t.Errorf("retry %d, which is %s, is followed by %d runs, want %d", i+1, tt.state, got, tt.want)
		}
	}
}

func testFollowResult(t *testing.T, f *fixture) {
	f.putFollowed(func(j *dispatcher.Job) {
		j.OnSuccess = &dispatcher.Follow{Jobs: []string{"child"}, Payload: dispatcher.FollowResult}
	})
	held := f.fireOf("parent")
	o := outcome(t0.Add(time.Minute))
	o.Response = &run.Response{Body: `{"rows": 7}`}
	f.recordFollowed(held, o)
	f.expect("runs that were queued", f.followEnds(t0.Add(time.Minute)), 1)
	inputs := f.adoptIdle(nodeA, t0.Add(time.Minute))
	f.expect("runs that a node adopts", len(inputs), 1)
	all, err := f.RunInputs(t.Context(), []run.Key{inputs[0].Key})
	f.must(err)
	var document dispatcher.FollowDocument
	f.must(json.Unmarshal(all[inputs[0].Key].Payload, &document))
	wantDiff(t, "what the child gets", dispatcher.FollowDocument{
		Event: run.OnSuccess, Result: json.RawMessage(`{"rows":7}`),
		Parent: dispatcher.FollowedRun{
			Run: held.String(), App: "shop", Job: "parent", Trigger: "tick", ScheduledAt: held.ScheduledAt, State: run.Succeeded,
			HTTPStatus: 200, Attempts: 1, EndedAt: o.EndedAt,
		},
	}, document)
}

func testNothingFollows(_ *testing.T, f *fixture) {
	held := f.claimOne("alone")
	f.recordFollowed(held, ended(run.Failed, t0.Add(time.Minute)))
	done, err := f.FollowEnds(f.Context(), dispatcher.FollowQuery{Limit: 10, Now: t0})
	f.must(err)
	f.expect("ends that are pending", done, dispatcher.FollowedEnds{})
}

func testFollowedMisfire(t *testing.T, f *fixture) {
	f.putFollowed(func(j *dispatcher.Job) {
		j.OnMisfire = &dispatcher.Follow{Jobs: []string{"child"}, Payload: dispatcher.FollowResult}
	})
	a := f.nextAdvance()
	last := a.Next.Add(2 * time.Minute)
	a.Then = last.Add(time.Minute)
	now := last.Add(30 * time.Second)
	held, err := f.Settle(t.Context(), dispatcher.SettleBatch{Node: nodeA, Token: f.token(), Now: now, Settlements: []dispatcher.Settlement{{
		Advance: a, To: last, Count: 3, Decision: dispatcher.DecisionFireOnce, Reason: "no node ran", CatchUp: last,
	}}})
	f.must(err)
	f.expect("catch-ups", len(held), 1)
	f.expect("runs that follow", f.followEnds(now), 1)
	queued := f.adoptIdle(nodeA, now)
	f.expect("runs that a node adopts", len(queued), 1)
	all, err := f.RunInputs(t.Context(), []run.Key{queued[0].Key})
	f.must(err)
	var document dispatcher.FollowDocument
	f.must(json.Unmarshal(all[queued[0].Key].Payload, &document))
	wantDiff(t, "what the child gets", dispatcher.FollowDocument{Event: run.OnMisfire, Parent: dispatcher.FollowedRun{
		Run: held[0].String(), App: "shop", Job: "parent", Trigger: "tick", ScheduledAt: a.Next, EndedAt: now,
		Missed:   &run.MissedRange{From: a.Next, To: last, Count: 3},
		Decision: dispatcher.DecisionFireOnce, Reason: "no node ran",
	}}, document)
}
