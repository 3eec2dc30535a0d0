package alert

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestBurnOfObjectives(t *testing.T) {
	t.Parallel()
	good, bad, none := dispatcher.ObjectiveCounts{Good: 10}, dispatcher.ObjectiveCounts{Late: 5, Missed: 5}, dispatcher.ObjectiveCounts{}
	job := dispatcher.Job{App: "shop", Name: "tick",
		JobSpec: dispatcher.JobSpec{Objective: &dispatcher.Objective{Within: input.Duration(time.Second), Of: "99.9%"}}}
	for name, tt := range map[string]struct {
		spans         []dispatcher.ObjectiveCounts // 5m, 30m, 1h, 6h, 3d
		burns, unsure bool
	}{
		"no fires":                            {[]dispatcher.ObjectiveCounts{none, none, none, none, none}, false, false},
		"all fires are in time":               {[]dispatcher.ObjectiveCounts{good, good, good, good, good}, false, false},
		"no fire is in time":                  {[]dispatcher.ObjectiveCounts{bad, bad, bad, bad, bad}, true, false},
		"fires are in time again":             {[]dispatcher.ObjectiveCounts{good, good, bad, bad, bad}, false, false},
		"fires of the last 30m were late":     {[]dispatcher.ObjectiveCounts{good, bad, bad, bad, bad}, true, false},
		"no fires since some were late":       {[]dispatcher.ObjectiveCounts{none, none, bad, bad, bad}, false, true},
		"no fires in the last 5m":             {[]dispatcher.ObjectiveCounts{none, good, bad, good, bad}, false, true},
		"late fires are long ago":             {[]dispatcher.ObjectiveCounts{none, none, none, none, bad}, false, false},
		"one in time since the only late one": {[]dispatcher.ObjectiveCounts{good, good, good, bad, bad}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			burn := dispatcher.ObjectiveMeasured{To: alertStart, Spans: tt.spans}.Burn(job)
			if burn.Burns != tt.burns || burn.Unsure != tt.unsure && !burn.Burns || (burn.Why != "") != tt.burns || !burn.To.Equal(alertStart) {
				t.Errorf("Burn() = %+v, want burns %t, unsure %t", burn, tt.burns, tt.unsure)
			}
		})
	}
}

// The counts of an objective, and the notifications that follow.
func TestTransitionsOfObjectiveAlerts(t *testing.T) {
	t.Parallel()
	const bad, good, unsure, none, old = "bad", "good", "unsure", "none", "old"
	type step struct {
		counts string
		want   []target.AlertTransition
	}
	firing, resolved := []target.AlertTransition{target.AlertFiring}, []target.AlertTransition{target.AlertResolved}
	for name, steps := range map[string][]step{
		"a burning budget and its end are notified once each": {
			{good, nil}, {bad, firing}, {bad, nil}, {good, resolved}, {good, nil}, {bad, firing},
		},
		"an unsure burn changes nothing": {
			{none, nil}, {unsure, nil}, {bad, firing}, {unsure, nil}, {none, nil}, {bad, nil}, {good, resolved},
		},
		"old counts change nothing": {{old, nil}, {bad, firing}, {old, nil}, {good, resolved}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alert := Alert{Spec: Spec{Recovery: true, AlertConditionsOf: AlertConditionsOf{Objective: true}}}
			now := alertStart
			track := Track{Condition: target.AlertObjective}.Begins(alert, now)
			for i, step := range steps {
				burn := &dispatcher.ObjectiveBurn{To: now.Add(-time.Minute), Burns: step.counts == bad, Unsure: step.counts == unsure}
				switch step.counts {
				case none:
					burn = nil
				case old:
					burn.To, burn.Burns = now.Add(-time.Hour), !track.Firing
				case bad:
					burn.Why = "it burns"
				}
				rule, has := alert.RuleOf(target.AlertObjective, now)
				if !has {
					t.Fatal("the alert does not have the condition")
				}
				var made []Made
				track, made = track.Look(alert, rule, Facts{Burn: burn}, now)
				var got []target.AlertTransition
				for _, m := range made {
					got = append(got, m.Transition)
				}
				if diff := cmp.Diff(step.want, got); diff != "" {
					t.Errorf("step %d, %s: (-want +got)\n%s", i, step.counts, diff)
				}
				if track.Idle() || !track.LookAt.After(now) || track.LookAt.After(now.Add(6*time.Minute)) {
					t.Errorf("step %d, %s: the next look is at %s, want one within six minutes of %s", i, step.counts, track.LookAt, now)
				}
				now = track.LookAt
			}
		})
	}
}
