package feeds

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// adoptNotifications gives a node the notifications that wait, oldest first.
func (f *wing) adoptNotifications(now time.Time) (runs []run.HeldRun) {
	f.Helper()
	for _, r := range append(f.AdoptIdle(fixture.NodeA, now), f.AdoptRetries(now)...) {
		if r.Kind == run.KindAlert {
			runs = append(runs, r)
		}
	}
	return runs
}

// order says of runs whether they are held or overtaken.
func (f *wing) order(runs ...run.HeldRun) string {
	f.Helper()
	keys := make([]run.Key, len(runs))
	for i, run := range runs {
		keys[i] = run.Key
	}
	inputs, err := f.RunInputs(f.Context(), keys)
	f.Must(err)
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
func (f *wing) fails(r run.HeldRun, now time.Time) {
	f.Helper()
	f.Again(r, run.Outcome{State: run.Failed, StartedAt: now, EndedAt: now, Class: run.ClassHTTP5xx},
		dispatcher.NextAttempt{At: now.Add(time.Minute), Until: now.Add(time.Hour), CountsAsFailure: true})
}

func testAlertOvertaken(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	at := f.Ends("sync", run.Failed).ScheduledAt.Add(time.Minute)
	firing := f.adoptNotifications(at)
	f.Expect("the first", f.order(firing...), "")
	f.fails(firing[0], at)
	f.Ends("sync", run.Succeeded)
	resolved := f.adoptNotifications(at.Add(time.Second))
	f.Expect("the end, while the first waits for its next attempt", f.order(resolved...), "")
	f.Must(f.Record(f.Context(), []dispatcher.Record{fixture.Record(resolved[0], fixture.Outcome(at))}))
	again := f.adoptNotifications(at.Add(2 * time.Minute))
	f.Expect("the first, once the end was told", f.order(again...), "overtaken")
	f.watch(at.Add(48 * time.Hour)) // which removes the state
	f.Expect("the first, when nothing is known of it any more", f.order(again...), "overtaken")
	f.Ends("sync", run.Failed)
	f.Expect("the next", f.order(f.adoptNotifications(at.Add(49*time.Hour))...), "")
	f.Expect("the first and the end, while it fails again", f.order(again[0], resolved[0]), "overtaken, held and overtaken")
}

func testAlertInOrder(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	a := fixture.Pager("night")
	a.Failure.RepeatEvery = 1
	f.DeclareAlert(a, fixture.T0)
	last := f.Ends("sync", run.Failed, run.Failed, run.Succeeded)
	at := last.ScheduledAt.Add(time.Minute)
	all := f.adoptNotifications(at)
	f.Expect("what is told", f.told("night"), "sync failure firing, sync failure still_firing, sync failure resolved")
	f.Expect("the notifications at once", f.order(all...), "overtaken, held and overtaken, held")
	f.Again(all[1], run.Outcome{State: run.Failed, StartedAt: at, EndedAt: at, Class: run.ClassOther},
		dispatcher.NextAttempt{At: at.Add(time.Minute), Until: at.Add(time.Hour), NotAttempted: true})
	f.Expect("the end, while the one before it waits for the first", f.order(all[2]), "held")
	f.Must(f.Record(f.Context(), []dispatcher.Record{fixture.Record(all[0], fixture.Outcome(at))}))
	again := f.adoptNotifications(at.Add(2 * time.Minute))
	f.Expect("the second, once the first has ended", f.order(again...), "overtaken")
	f.Must(f.Record(f.Context(), []dispatcher.Record{fixture.Record(again[0], fixture.Outcome(at))}))
	f.Expect("the end, once the second has ended", f.order(all[2]), "")
}
