package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// adoptNotifications gives a node the notifications that wait, oldest first.
func (f *fixture) adoptNotifications(now time.Time) (runs []run.HeldRun) {
	f.Helper()
	for _, r := range append(f.adoptIdle(nodeA, now), f.adoptRetries(now)...) {
		if r.Kind == run.KindAlert {
			runs = append(runs, r)
		}
	}
	return runs
}

// order says of runs whether they are held or overtaken.
func (f *fixture) order(runs ...run.HeldRun) string {
	f.Helper()
	keys := make([]run.Key, len(runs))
	for i, run := range runs {
		keys[i] = run.Key
	}
	inputs, err := f.RunInputs(f.Context(), keys)
	f.must(err)
	var all []string
	for _, key := range keys {
		var of []string
		if input := inputs[key]; input.Held != "" {
			of = append(of, "held")
		}
		if inputs[key].Overtaken != "" {
			of = append(of, "overtaken")
		}
		all = append(all, strings.Join(of, " and "))
	}
	return strings.Join(all, ", ")
}

// fails records that an attempt failed, which is to be made again a minute later.
func (f *fixture) fails(r run.HeldRun, now time.Time) {
	f.Helper()
	f.again(r, run.Outcome{State: run.Failed, StartedAt: now, EndedAt: now, Class: run.ClassHTTP5xx},
		dispatcher.NextAttempt{At: now.Add(time.Minute), Until: now.Add(time.Hour), CountsAsFailure: true})
}

func testAlertOvertaken(_ *testing.T, f *fixture) {
	f.watched("sync", nil)
	f.putAlert(pager("night"), t0)
	at := f.ends("sync", run.Failed).ScheduledAt.Add(time.Minute)
	firing := f.adoptNotifications(at)
	f.expect("the first", f.order(firing...), "")
	f.fails(firing[0], at)
	f.ends("sync", run.Succeeded)
	resolved := f.adoptNotifications(at.Add(time.Second))
	f.expect("the end, while the first waits for its next attempt", f.order(resolved...), "")
	f.must(f.Record(f.Context(), []dispatcher.Record{record(resolved[0], outcome(at))}))
	again := f.adoptNotifications(at.Add(2 * time.Minute))
	f.expect("the first, once the end was told", f.order(again...), "overtaken")
	f.watch(at.Add(48 * time.Hour)) // which removes the state
	f.expect("the first, when nothing is known of it any more", f.order(again...), "overtaken")
	f.ends("sync", run.Failed)
	f.expect("the next", f.order(f.adoptNotifications(at.Add(49*time.Hour))...), "")
	f.expect("the first and the end, while it fails again", f.order(again[0], resolved[0]), "overtaken, held and overtaken")
}

func testAlertInOrder(_ *testing.T, f *fixture) {
	f.watched("sync", nil)
	a := pager("night")
	a.Failure.RepeatEvery = 1
	f.putAlert(a, t0)
	last := f.ends("sync", run.Failed, run.Failed, run.Succeeded)
	at := last.ScheduledAt.Add(time.Minute)
	all := f.adoptNotifications(at)
	f.expect("what is told", f.told("night"), "sync failure firing, sync failure still_firing, sync failure resolved")
	f.expect("the notifications at once", f.order(all...), "overtaken, held and overtaken, held")
	f.again(all[1], run.Outcome{State: run.Failed, StartedAt: at, EndedAt: at, Class: run.ClassOther},
		dispatcher.NextAttempt{At: at.Add(time.Minute), Until: at.Add(time.Hour), NotAttempted: true})
	f.expect("the end, while the one before it waits for the first", f.order(all[2]), "held")
	f.must(f.Record(f.Context(), []dispatcher.Record{record(all[0], outcome(at))}))
	again := f.adoptNotifications(at.Add(2 * time.Minute))
	f.expect("the second, once the first has ended", f.order(again...), "overtaken")
	f.must(f.Record(f.Context(), []dispatcher.Record{record(again[0], outcome(at))}))
	f.expect("the end, once the second has ended", f.order(all[2]), "")
}
