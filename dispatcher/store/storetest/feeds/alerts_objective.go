package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
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
	a := pager("night")
	a.AlertConditionsOf = alert.AlertConditionsOf{Objective: true}
	return a
}

// watchedStates returns what is known of the alerts of the app, as job and condition.
func (f *fixture) watchedStates() string {
	f.Helper()
	states, err := f.AlertStates(f.Context(), alert.StateQuery{App: "shop", Now: t0, Page: input.Page{Limit: 1000}})
	f.must(err)
	var all []string
	for _, s := range states {
		all = append(all, s.Job+" "+string(s.Condition))
	}
	return strings.Join(all, ", ")
}

// burn misses the fires of a job up to a minute, and counts them.
func (f *fixture) burn(name string, minute int) {
	f.Helper()
	f.settleAll(name, minutes(minute))
	f.roll(minutes(minute + 1))
}

func testAlertObjective(t *testing.T, f *fixture) {
	f.punctual(time.Second)
	f.watched("plain", nil) // without an objective
	f.putAlert(budgetAlert(), t0)
	f.expect("what is watched", f.watchedStates(), "tick objective")
	f.expect("notifications before anything is counted", f.watch(t0.Add(time.Second)), 0)
	f.burn("tick", 15)
	f.expect("notifications when the budget burns", f.watch(minutes(16)), 1)
	f.expect("notifications while it burns", f.watch(minutes(16)), 0)
	f.burn("tick", 25)
	f.expect("notifications while it burns on", f.watch(minutes(26)), 0)
	f.expect("what holds", f.firing(), "tick objective")
	n := f.notifications("night")[0]
	if !n.Since.Equal(minutes(15)) || !strings.HasPrefix(n.Error, "the error budget of 90% within 1s burns 10.0 times") {
		t.Errorf("notification %+v, want since minute 15 and why it burns", n)
	}
	for range 31 {
		f.ends("tick", run.Succeeded) // up to minute 56
	}
	f.roll(minutes(57))
	f.expect("notifications when it no longer burns", f.watch(minutes(57)), 1)
	f.expect("notifications afterwards", f.watch(minutes(63)), 0)
	f.expect("what is told", f.told("night"), "tick objective firing, tick objective resolved")
	f.expect("events", f.alertEvents(), f.told("night"))
}

func testAlertObjectiveOld(_ *testing.T, f *fixture) {
	f.punctual(time.Second)
	f.putAlert(budgetAlert(), t0)
	f.burn("tick", 15)
	f.expect("notifications when the counts are old", f.watch(minutes(46)), 0)
	f.burn("tick", 50)
	f.expect("notifications when they are not", f.watch(minutes(51)), 1)
}

func testAlertObjectiveChanged(_ *testing.T, f *fixture) {
	f.putAlert(budgetAlert(), t0)
	f.watched("tick", nil)
	f.expect("what is watched without an objective", f.watchedStates(), "")
	j := f.punctual(time.Second)
	f.expect("what is watched with one", f.watchedStates(), "tick objective")
	f.burn("tick", 15)
	f.expect("notifications when the budget burns", f.watch(minutes(16)), 1)
	j.Objective = nil
	f.put(j, minutes(17))
	f.expect("notifications when the objective is gone", f.watch(minutes(19)), 1)
	f.expect("why it is told", f.notifications("night")[1].Reason, "the job no longer has an objective")
	f.expect("what is watched in the end", f.watchedStates(), "")
	f.expect("what is told", f.told("night"), "tick objective firing, tick objective resolved")
}
