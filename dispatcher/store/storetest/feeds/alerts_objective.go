package feeds

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// alertObjectiveTests are the tests of alerts of objectives.
func alertObjectiveTests() tests {
	return tests{
		"an error budget that burns is told once, and that it no longer does": testAlertObjective,
		"old counts of an objective do not tell":                              testAlertObjectiveOld,
		"an alert follows objectives that are added and removed":              testAlertObjectiveChanged,
	}
}

// budgetAlert is an alert of the objectives of all jobs.
func budgetAlert() alert.Alert {
	a := fixture.Pager("night")
	a.AlertConditionsOf = alert.AlertConditionsOf{Objective: true}
	return a
}

// watchedStates returns what is known of the alerts of the app, as job and condition.
func (f *wing) watchedStates() string {
	f.Helper()
	states, err := f.AlertStates(f.Context(), alert.StateQuery{App: "shop", Now: fixture.T0, Page: input.Page{Limit: 1000}})
	f.Must(err)
	var all []string
	for _, s := range states {
		all = append(all, s.Job+" "+string(s.Condition))
	}
	return strings.Join(all, ", ")
}

func testAlertObjective(t *testing.T, f *wing) {
	f.Punctual(time.Second)
	f.Watched("plain", nil) // without an objective
	f.DeclareAlert(budgetAlert(), fixture.T0)
	f.Expect("what is watched", f.watchedStates(), "tick objective")
	f.Expect("notifications before anything is counted", f.watch(fixture.T0.Add(time.Second)), 0)
	f.Burn("tick", 15)
	f.Expect("notifications when the budget burns", f.watch(fixture.Minutes(16)), 1)
	f.Expect("notifications while it burns", f.watch(fixture.Minutes(16)), 0)
	f.Burn("tick", 25)
	f.Expect("notifications while it burns on", f.watch(fixture.Minutes(26)), 0)
	f.Expect("what holds", f.firing(), "tick objective")
	n := f.notifications("night")[0]
	if !n.Since.Equal(fixture.Minutes(15)) || !strings.HasPrefix(n.Error, "the error budget of 90% within 1s burns 10.0 times") {
		t.Errorf("notification %+v, want since minute 15 and why it burns", n)
	}
	for range 31 {
		f.Ends("tick", run.Succeeded) // up to minute 56
	}
	f.Roll(fixture.Minutes(57))
	f.Expect("notifications when it no longer burns", f.watch(fixture.Minutes(57)), 1)
	f.Expect("notifications afterwards", f.watch(fixture.Minutes(63)), 0)
	f.Expect("what is told", f.told("night"), "tick objective firing, tick objective resolved")
	f.Expect("events", f.alertEvents(), f.told("night"))
}

func testAlertObjectiveOld(_ *testing.T, f *wing) {
	f.Punctual(time.Second)
	f.DeclareAlert(budgetAlert(), fixture.T0)
	f.Burn("tick", 15)
	f.Expect("notifications when the counts are old", f.watch(fixture.Minutes(46)), 0)
	f.Burn("tick", 50)
	f.Expect("notifications when they are not", f.watch(fixture.Minutes(51)), 1)
}

func testAlertObjectiveChanged(_ *testing.T, f *wing) {
	f.DeclareAlert(budgetAlert(), fixture.T0)
	f.Watched("tick", nil)
	f.Expect("what is watched without an objective", f.watchedStates(), "")
	j := f.Punctual(time.Second)
	f.Expect("what is watched with one", f.watchedStates(), "tick objective")
	f.Burn("tick", 15)
	f.Expect("notifications when the budget burns", f.watch(fixture.Minutes(16)), 1)
	j.Objective = nil
	f.Put(j, fixture.Minutes(17))
	f.Expect("notifications when the objective is gone", f.watch(fixture.Minutes(19)), 1)
	f.Expect("why it is told", f.notifications("night")[1].Reason, "the job no longer has an objective")
	f.Expect("what is watched in the end", f.watchedStates(), "")
	f.Expect("what is told", f.told("night"), "tick objective firing, tick objective resolved")
}
