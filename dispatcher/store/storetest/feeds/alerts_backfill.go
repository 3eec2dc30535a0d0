package storetest

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// A backfill repeats what is past. So neither its runs nor those that follow them, also at a distance, make an alert fire, end
// what holds today, or count as a success.
func testAlertOfBackfillFollower(_ *testing.T, f *fixture) {
	f.watched("last", nil)
	middle := job("middle", nil)
	middle.OnSuccess = &dispatcher.Follow{Jobs: []string{"last"}}
	f.put(middle, t0)
	first := job("tick", map[string]dispatcher.Trigger{"tick": every(time.Minute, t0.Add(time.Minute))})
	first.OnSuccess = &dispatcher.Follow{Jobs: []string{"middle"}}
	f.put(first, t0)
	a := pager("night")
	a.Jobs = []string{"last"}
	a.NoSuccessFor = input.Duration(10 * time.Minute)
	f.putAlert(a, t0)
	f.ends("last", run.Failed)
	f.expect("what is told of a fire", f.told("night"), "last failure firing")

	b := f.backfillOf(func(s *repeat.BackfillSpec) { s.To = t0.Add(2 * time.Minute) })
	_, err := f.FeedBackfill(f.Context(), b.id, b.now)
	f.must(err)
	f.adoptAndEnd(b.now, run.Succeeded, run.KindBackfill)
	f.adoptAndEnd(b.now, run.Succeeded, run.KindChain) // of middle
	descendants := f.adoptAndEnd(b.now, run.Succeeded, run.KindChain)
	if len(descendants) == 0 {
		f.Fatal("no run of the last job follows")
	}
	cause := f.run(descendants[0].Key).Cause
	f.expect("the backfill that the last run descends from", cause.Backfill, repeat.BackfillID(b.id))
	f.expect("what its success ends", f.told("night"), "last failure firing")
	f.watch(b.now.Add(2 * time.Minute))
	f.expect("what holds after a look at the history", f.firing(), "last failure, last no_success")
	if why := run.WhyStateStays(run.KindChain, cause); why == "" {
		f.Error("the run that follows a backfill changes the state of its job")
	}
}

// adoptAndEnd ends the runs that wait, all of a kind, and follows their ends.
func (f *fixture) adoptAndEnd(now time.Time, state run.State, kind run.Kind) []run.HeldRun {
	f.Helper()
	var runs []run.HeldRun
	for _, run := range f.adoptIdle(nodeA, now) {
		if run.Kind == kind {
			runs = append(runs, run)
			f.recordFollowed(run, ended(state, now))
		}
	}
	f.followEnds(now.Add(time.Second))
	return runs
}
