package definitions

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// A job with the label is held from minute 2 to 4, and again from minute 6 on, until minute 30.
func testExplainPauses(t *testing.T, f *wing) {
	minute := func(n int) time.Time { return fixture.T0.Add(time.Duration(n) * time.Minute) }
	f.Put(labelled("team", fixture.Payments), fixture.T0)
	f.Put(labelled("other", nil), fixture.T0)
	change := func(n int) input.Change { return input.Change{Actor: "ann", Now: minute(n)} }
	first, err := f.PauseApp(t.Context(), "shop", dispatcher.AppPauseRequest{Labels: fixture.Payments, Reason: "a migration"}, change(2))
	f.Must(err)
	f.Must(f.EndAppPause(t.Context(), "shop", first.ID, change(4)))
	until := minute(30)
	second, err := f.PauseApp(t.Context(), "shop", dispatcher.AppPauseRequest{Labels: fixture.Payments, Until: &until}, change(6))
	f.Must(err)
	for _, tt := range []struct {
		job     string
		minute  int
		verdict verify.Verdict
		reason  string
		steps   []string // that name a pause
	}{
		{"team", 1, verify.VerdictOpen, "it is due, but jobs of app shop with labels team=payments are paused by ann since " +
			"2026-05-01T10:06:00.000Z, until 2026-05-01T10:30:00.000Z", nil},
		{"team", 3, verify.VerdictOpen, "it is due, but jobs of app shop", []string{
			"pause " + first.ID + " began: jobs of app shop with labels team=payments are paused by ann since " +
				`2026-05-01T10:02:00.000Z: "a migration"`,
			"pause " + first.ID + " was ended by ann",
		}},
		{"team", 4, verify.VerdictOpen, "it is due, but jobs of app shop", nil},
		{"team", 20, verify.VerdictPlanned, "it is in the future, and jobs of app shop", []string{"pause " + second.ID + " began"}},
		{"team", 40, verify.VerdictPlanned, "it is in the future", []string{"pause " + second.ID + " began"}},
		{"other", 3, verify.VerdictOpen, "it is due and not yet claimed or settled", nil},
	} {
		found, err := verify.Explain(t.Context(), f.Store, verify.ExplainQuery{
			App: "shop", Job: tt.job, Trigger: "tick", At: minute(tt.minute), Now: minute(10)})
		f.Must(err)
		var steps []string
		for _, step := range found.Steps {
			if strings.HasPrefix(step.What, "pause ") {
				steps = append(steps, step.What)
			}
		}
		same := len(steps) == len(tt.steps)
		for i := range min(len(steps), len(tt.steps)) {
			same = same && strings.HasPrefix(steps[i], tt.steps[i])
		}
		whole := strings.HasPrefix(found.Reason, tt.reason) && (tt.minute != 40 || found.Reason == tt.reason)
		if found.Verdict != tt.verdict || !whole || !same {
			t.Errorf("%s at minute %d: %s: %s, with the steps %q; want %s: %s, with %q",
				tt.job, tt.minute, found.Verdict, found.Reason, steps, tt.verdict, tt.reason, tt.steps)
		}
	}
}
