package alert

import (
	"slices"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Without a severity, an alert is an error.
func TestStatesAreInTheOrderOfSeverity(t *testing.T) {
	t.Parallel()
	state := func(app string, severity target.AlertSeverity, condition target.AlertCondition) State {
		return State{App: app, Severity: severity, Condition: condition}
	}
	states := []State{
		state("a", target.AlertInfo, target.AlertFailure), state("b", target.AlertWarning, target.AlertFailure),
		state("c", "", target.AlertLate), state("d", "", target.AlertFailure), state("e", target.AlertError, target.AlertFailure),
		state("z", target.AlertCritical, target.AlertObjective),
	}
	slices.SortFunc(states, State.Compare)
	got := ""
	for _, s := range states {
		got += s.App
	}
	if want := "zdecba"; got != want {
		t.Errorf("the order is %s, want %s", got, want)
	}
}
