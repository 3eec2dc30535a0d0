package dispatch

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// turnTests test apps that take turns, however many runs of one app wait.
func turnTests() tests {
	return tests{
		"queued runs are adopted by turns of apps":             testAdoptByTurns,
		"pages of turns have each run once":                    testPagesOfTurns,
		"runs of dead nodes and queued ones take turns":        testAdoptOfTheDeadByTurns,
		"a disabled app, or one of another node, has no turn":  testTurnsOfServedApps,
		"retries are adopted by turns of apps":                 testRetriesByTurns,
		"retries that a pause holds have no turn":              testRetriesOfPausedJobsHaveNoTurn,
		"runs of a job that is renamed stay in turn":           testTurnsAfterARename,
		"a released run, and one that is retried, have a turn": testTurnsOfReturnedRuns,
		"pending ends are followed by turns of apps":           testFollowByTurns,
		"ends that found no waiting place leave others a turn": testFollowTurnsAtQuota,
	}
}

// crowd queues runs of job "big" of the app "crowded", and later runs of job "small" of the app "shop".
func (f *wing) crowd(big, small int) {
	f.Helper()
	f.DeclareApp("crowded")
	f.PutIn("crowded", "big", func(*dispatcher.Job) {})
	f.PutIn("shop", "small", func(*dispatcher.Job) {})
	f.request("crowded", "big", big, fixture.T0)
	f.request("shop", "small", small, fixture.T0.Add(time.Minute))
}

// request queues manual runs of a job.
func (f *wing) request(app, name string, runs int, now time.Time) {
	f.Helper()
	for range runs {
		f.Must(f.RequestRun(f.Context(), app, name, nil, fixture.At(now)))
	}
}

// turns returns the apps of some runs in order: A for "crowded", B for "shop".
func (f *wing) turns(runs []dispatcher.Adoptable) (apps string) {
	f.Helper()
	for _, r := range runs {
		apps += map[int64]string{run.AppID("crowded"): "A", run.AppID("shop"): "B"}[r.AppID]
	}
	return apps
}

// look returns the runs that nodeA may adopt an hour after T0.
func (f *wing) look(query dispatcher.AdoptQuery) []dispatcher.Adoptable {
	f.Helper()
	query.Node, query.Now = fixture.NodeA, fixture.T0.Add(time.Hour)
	found, err := f.Adoptable(f.Context(), query)
	f.Must(err)
	return found
}

func testAdoptByTurns(t *testing.T, f *wing) {
	f.crowd(30, 3)
	found := f.look(dispatcher.AdoptQuery{Limit: 10})
	f.Expect("the turns", f.turns(found), "ABABABAAAA")
	var due []time.Time
	for _, r := range found {
		if r.AppID == run.AppID("crowded") {
			due = append(due, r.DueAt)
		}
	}
	if !slices.IsSortedFunc(due, time.Time.Compare) || !due[0].Equal(fixture.T0) {
		t.Errorf("the runs of one app are due at %v, want the oldest first", due)
	}
	f.Expect("the turns since the minute", f.turns(f.look(dispatcher.AdoptQuery{Limit: 10, From: fixture.T0.Add(time.Minute)})), "BBB")
	held, err := f.Store.Adopt(t.Context(), dispatcher.AdoptQuery{Node: fixture.NodeA, Token: fixture.Token2, Now: fixture.T0.Add(time.Hour)},
		found)
	f.Must(err)
	f.Expect("adopted", len(held), 10)
	f.Expect("the turns after that", f.turns(f.look(dispatcher.AdoptQuery{Limit: 10})), "AAAAAAAAAA")
}

func testPagesOfTurns(_ *testing.T, f *wing) {
	f.crowd(30, 7)
	f.everyPage(dispatcher.AdoptQuery{Limit: 10}, 37)
}

// everyPage goes through all pages of a query, and expects so many runs, each once, and each app in order.
func (f *wing) everyPage(query dispatcher.AdoptQuery, want int) {
	f.Helper()
	seen := map[run.Key]bool{}
	query.After = map[int64]dispatcher.Adoptable{}
	for range want {
		page := f.look(query)
		for _, run := range page {
			if last, ok := query.After[run.AppID]; ok && (!last.More || run.DueAt.Before(last.DueAt)) {
				f.Errorf("run %s of %s comes behind %s of %s, with more behind it: %t", run.Key, run.DueAt, last.Key, last.DueAt, last.More)
			}
			seen[run.Key], query.After[run.AppID] = true, run
		}
		if len(page) < query.Limit {
			break
		}
	}
	f.Expect("runs on all pages", len(seen), want)
}

func testAdoptOfTheDeadByTurns(t *testing.T, f *wing) {
	f.crowd(30, 3)
	if !f.both() {
		t.Skip("SKIPPED: one node at a time uses this database") // even with CI=true
	}
	query := dispatcher.AdoptQuery{Node: fixture.NodeB, Token: fixture.Token2, Limit: 16, Now: fixture.T0.Add(time.Hour)}
	f.Must(f.Adopt(t.Context(), query)) // 13 of the one app, and all three of the other
	f.Must(f.Deregister(t.Context(), fixture.NodeB))
	f.Expect("the turns", f.turns(f.look(dispatcher.AdoptQuery{Limit: 10})), "ABABABAAAA")
	f.everyPage(dispatcher.AdoptQuery{Limit: 10}, 33)
}

func testTurnsOfServedApps(_ *testing.T, f *wing) {
	f.crowd(30, 3)
	f.Expect("the turns at a node of one app", f.turns(f.look(dispatcher.AdoptQuery{Limit: 10, Apps: []string{"shop"}})), "BBB")
	f.Must(f.PutApp(f.Context(), access.App{Name: "crowded"}, fixture.At(fixture.T0)))
	f.Expect("the turns while one app is disabled", f.turns(f.look(dispatcher.AdoptQuery{Limit: 10})), "BBB")
}

// crowdOfRetries makes so many runs of both apps fail once. Those of "crowded" are due first.
func (f *wing) crowdOfRetries(big, small int) {
	f.Helper()
	f.crowd(big, small)
	held, err := f.Adopt(f.Context(), dispatcher.AdoptQuery{Node: fixture.NodeA, Token: fixture.Token2, Limit: 100,
		Now: fixture.T0.Add(2 * time.Minute)})
	f.Must(err)
	var records []dispatcher.Record
	for _, r := range held {
		due := fixture.T0.Add(3 * time.Minute)
		if r.JobID == run.JobID("shop", "small") {
			due = due.Add(time.Minute)
		}
		one := fixture.Record(r, run.Outcome{State: run.Failed, Class: run.ClassHTTP5xx, StartedAt: fixture.T0, EndedAt: fixture.T0})
		one.Next = &dispatcher.NextAttempt{At: due, Until: fixture.T0.Add(24 * time.Hour), CountsAsFailure: true}
		records = append(records, one)
	}
	f.Must(f.Record(f.Context(), records))
}

func testRetriesByTurns(_ *testing.T, f *wing) {
	f.crowdOfRetries(30, 3)
	retries := dispatcher.AdoptQuery{Retries: true, Limit: 10}
	f.Expect("the turns", f.turns(f.look(retries)), "ABABABAAAA")
	f.everyPage(retries, 33)
	all := dispatcher.AdoptQuery{Retries: true, Limit: 34}
	f.Expect("runs of a look that finds all of them", len(f.look(all)), 33)
	f.Expect("queued runs", len(f.look(dispatcher.AdoptQuery{Limit: 10})), 0)
}

func testRetriesOfPausedJobsHaveNoTurn(_ *testing.T, f *wing) {
	f.DeclareApp("crowded")
	f.PutIn("crowded", "big", func(*dispatcher.Job) {})
	f.crowdOfRetries(12, 3)
	f.Must(f.PutApp(f.Context(), access.App{Name: "crowded"}, fixture.At(fixture.T0)))
	f.Expect("the turns", f.turns(f.look(dispatcher.AdoptQuery{Retries: true, Limit: 2})), "BB")
}

func testTurnsAfterARename(_ *testing.T, f *wing) {
	f.crowd(12, 3)
	f.Must(f.RenameJob(f.Context(), "shop", "small", dispatcher.JobRename{Name: "smaller"}, fixture.At(fixture.T0.Add(2*time.Minute))))
	f.Expect("the turns", f.turns(f.look(dispatcher.AdoptQuery{Limit: 6})), "ABABAB")
}

func testTurnsOfReturnedRuns(t *testing.T, f *wing) {
	f.crowd(12, 3)
	query := dispatcher.AdoptQuery{Node: fixture.NodeA, Token: fixture.Token2, Limit: 100, Now: fixture.T0.Add(2 * time.Minute)}
	held, err := f.Adopt(t.Context(), query)
	f.Must(err)
	var records []dispatcher.Record
	for _, r := range held[:12] {
		records = append(records, fixture.Record(r, fixture.Ended(run.Failed, fixture.T0)))
	}
	f.Must(f.Record(t.Context(), records))
	f.Must(f.Release(t.Context(), held[12:]))
	for i, run := range held[:12] {
		f.Must(f.RetryRun(t.Context(), run.String(), fixture.At(fixture.T0.Add(time.Duration(i)*time.Second))))
	}
	f.Expect("the turns", f.turns(f.look(dispatcher.AdoptQuery{Limit: 7})), "ABABABA")
}

// crowdOfEnds makes so many runs of both apps fail, those of "crowded" first. A job "child" follows both.
func (f *wing) crowdOfEnds(big, small int) {
	f.Helper()
	f.DeclareApp("crowded")
	for _, app := range []string{"crowded", "shop"} {
		f.PutIn(app, "child", nil)
	}
	f.PutIn("crowded", "big", fixture.OnFailure("child"))
	f.PutIn("shop", "small", fixture.OnFailure("child"))
	f.request("crowded", "big", big, fixture.T0)
	f.request("shop", "small", small, fixture.T0.Add(time.Minute))
	held, err := f.Adopt(f.Context(), dispatcher.AdoptQuery{Node: fixture.NodeA, Token: fixture.Token2, Limit: 100,
		Now: fixture.T0.Add(2 * time.Minute)})
	f.Must(err)
	f.Expect("adopted", len(held), big+small)
	for _, r := range held {
		f.RecordFollowed(r, fixture.Ended(run.Failed, r.ScheduledAt))
	}
}

// followed follows ends once, and returns the apps of the queued runs, as A for "crowded" and B for "shop".
func (f *wing) followed(limit int, now time.Time) (apps string, done dispatcher.FollowedEnds) {
	f.Helper()
	done, err := f.FollowEnds(f.Context(), dispatcher.FollowQuery{Limit: limit, Now: now})
	f.Must(err)
	queued := strings.Split(f.turns(f.look(dispatcher.AdoptQuery{Limit: 100})), "")
	slices.Sort(queued)
	return strings.Join(queued, ""), done
}

func testFollowByTurns(t *testing.T, f *wing) {
	f.crowdOfEnds(30, 3)
	now := fixture.T0.Add(3 * time.Minute)
	queued, done := f.followed(10, now)
	f.Expect("runs of both apps after one call", queued, "AAAAABBB")
	f.Expect("there are more", done.More, true)
	query := dispatcher.FollowQuery{Limit: 10, Now: now}
	var ends, calls int
	for more := true; more; calls++ {
		query.After = done.Latest
		var err error
		done, err = f.FollowEnds(t.Context(), query)
		f.Must(err)
		ends, more = ends+done.Ends, done.More
	}
	f.Expect("ends that were left", ends, 25)
	if calls > 4 {
		t.Errorf("the rest took %d calls, want at most 4", calls)
	}
}

func testFollowTurnsAtQuota(t *testing.T, f *wing) {
	f.crowdOfEnds(30, 3)
	bounds := target.Bounds{Quotas: target.Quotas{WaitingRuns: 40}}
	_, _, err := f.PutApp(t.Context(), access.App{Name: "crowded", AppSpec: access.AppSpec{Enabled: true, Bounds: &bounds}},
		fixture.Operator(fixture.T0))
	f.Must(err)
	f.request("crowded", "big", 40, fixture.T0.Add(2*time.Minute+30*time.Second))
	now := fixture.T0.Add(3 * time.Minute)
	_, done := f.followed(10, now)
	f.Expect("ends that are dealt with", done.Ends, 8)
	f.Expect("an end is set aside", len(done.SetAside), 1)
	runs, err := f.Runs(t.Context(), dispatcher.RunQuery{App: "shop", Job: "child", Page: input.Page{Limit: 10}})
	f.Must(err)
	f.Expect("runs of the other app", len(runs), 3)
	for more := true; more; {
		_, done = f.followed(10, now)
		more = done.More
	}
	f.request("shop", "small", 3, now)
	held, err := f.Adopt(t.Context(), dispatcher.AdoptQuery{Node: fixture.NodeA, Token: fixture.Token2, Limit: 100, Now: now})
	f.Must(err)
	for _, r := range held {
		if r.JobID == run.JobID("shop", "small") {
			f.RecordFollowed(r, fixture.Ended(run.Failed, now))
		} else {
			f.Must(f.Release(t.Context(), []run.HeldRun{r}))
		}
	}
	_, done = f.followed(10, now.Add(time.Hour)) // all that are set aside are tried again
	runs, err = f.Runs(t.Context(), dispatcher.RunQuery{App: "shop", Job: "child", Page: input.Page{Limit: 10}})
	f.Must(err)
	f.Expect("runs of the other app next to those that are tried again", len(runs), 6)
	f.Expect("those that are tried again are set aside", len(done.SetAside), 1)
}
