package alert

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// A run that was refused as stale counts neither as a failure nor as the success that ends failures.
func TestSupersededRunsDoNotAffectAlerts(t *testing.T) {
	t.Parallel()
	alert := Alert{Spec: Spec{AlertConditionsOf: AlertConditionsOf{NoSuccessFor: input.Duration(time.Hour)}}}
	rule := Rule{After: 2, Recovery: true}
	for _, condition := range []target.AlertCondition{target.AlertFailure, target.AlertNoSuccess} {
		track := Track{Condition: condition, MeasuredFrom: alertStart}
		after := func(state run.State, n int) (made []Made) {
			at := alertStart.Add(time.Duration(n) * time.Minute)
			track, made = track.After(alert, rule, End{Key: run.Key{ScheduledAt: at, Kind: run.KindSchedule}, State: state,
				StartedAt: at,
				EndedAt:   at}, at)
			return made
		}
		after(run.Failed, 1)
		before := track
		if made := after(run.Superseded, 2); len(made) > 0 || track != before {
			t.Errorf("%s: a superseded run made %v, and changed %+v to %+v", condition, made, before, track)
		}
		if made := after(run.Failed, 3); condition == target.AlertFailure && len(made) != 1 {
			t.Errorf("the second failure made %v, want the alert to fire", made)
		}
	}
}

func TestOutcomeInBodyComesFromTheEnvelope(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"carillon":{"outcome":"superseded"}}`:              "superseded",
		` {"carillon":{"state":{"n":1},"outcome":"other"}} `: "other",
		`{"carillon":{}}`:                      "",
		`{"carillon":{"outcome":7}}`:           "",
		`{"x":{"carillon":{"outcome":"a"}}}`:   "",
		`["carillon"]`:                         "",
		``:                                     "",
		`{"carillon":{"outcome":"superseded"}`: "",
	} {
		if got := run.OutcomeInBody([]byte(body)); got != want {
			t.Errorf("%s: outcome %q, want %q", body, got, want)
		}
	}
}
