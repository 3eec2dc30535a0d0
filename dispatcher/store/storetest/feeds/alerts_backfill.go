package feeds

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// A backfill repeats what is past. So neither its runs nor those that follow them, also at a distance, make an alert fire, end
// what holds today, or count as a success.
func testAlertOfBackfillFollower(_ *testing.T, f *wing) {
	f.Watched("last", nil)
	middle := fixture.Job("middle", nil)
	middle.OnSuccess = &dispatcher.Follow{Jobs: []string{"last"}}
	f.Put(middle, fixture.T0)
	first := fixture.Job("tick", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))})
	first.OnSuccess = &dispatcher.Follow{Jobs: []string{"middle"}}
	f.Put(first, fixture.T0)
	a := fixture.Pager("night")
	a.Jobs = []string{"last"}
	a.NoSuccessFor = input.Duration(10 * time.Minute)
	f.DeclareAlert(a, fixture.T0)
	f.Ends("last", run.Failed)
	f.Expect("what is told of a fire", f.told("night"), "last failure firing")

	b := f.BackfillOfTick(func(s *repeat.BackfillSpec) { s.To = fixture.T0.Add(2 * time.Minute) })
	_, err := f.FeedBackfill(f.Context(), b.ID, b.Now)
	f.Must(err)
	f.adoptAndEnd(b.Now, run.Succeeded, run.KindBackfill)
	f.adoptAndEnd(b.Now, run.Succeeded, run.KindChain) // of middle
	descendants := f.adoptAndEnd(b.Now, run.Succeeded, run.KindChain)
	if len(descendants) == 0 {
		f.Fatal("no run of the last job follows")
	}
	cause := f.RunOf(descendants[0].Key).Cause
	f.Expect("the backfill that the last run descends from", cause.Backfill, repeat.BackfillID(b.ID))
	f.Expect("what its success ends", f.told("night"), "last failure firing")
	f.watch(b.Now.Add(2 * time.Minute))
	f.Expect("what holds after a look at the history", f.firing(), "last failure, last no_success")
	if why := run.WhyStateStays(run.KindChain, cause); why == "" {
		f.Error("the run that follows a backfill changes the state of its job")
	}
}

// adoptAndEnd ends the runs that wait, all of a kind, and follows their ends.
func (f *wing) adoptAndEnd(now time.Time, state run.State, kind run.Kind) []run.HeldRun {
	f.Helper()
	var runs []run.HeldRun
	for _, run := range f.AdoptIdle(fixture.NodeA, now) {
		if run.Kind == kind {
			runs = append(runs, run)
			f.RecordFollowed(run, fixture.Ended(state, now))
		}
	}
	f.FollowAll(now.Add(time.Second))
	return runs
}
