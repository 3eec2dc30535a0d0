package dispatcher_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestMisfirePolicyIsChecked(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change     func(*dispatcher.Trigger)
		path, code string // none: it is valid
	}{
		"left out":    {func(*dispatcher.Trigger) {}, "", ""},
		"fire_all":    {func(t *dispatcher.Trigger) { t.MisfirePolicy = dispatcher.FireAll }, "", ""},
		"unknown":     {func(t *dispatcher.Trigger) { t.MisfirePolicy = "Skip" }, "/triggers/t/misfire_policy", input.CodeEnum},
		"a window":    {func(t *dispatcher.Trigger) { t.CatchUpWindow = input.Duration(time.Minute) }, "", ""},
		"the longest": {func(t *dispatcher.Trigger) { t.CatchUpWindow = dispatcher.MaxCatchUpWindow }, "", ""},
		"a longer window": {func(t *dispatcher.Trigger) { t.CatchUpWindow = dispatcher.MaxCatchUpWindow + 1 },
			"/triggers/t/catch_up_window", input.CodeDurationMax},
		"within the threshold": {func(t *dispatcher.Trigger) { t.CatchUpWindow = input.Duration(59 * time.Second) },
			"/triggers/t/catch_up_window", input.CodeDurationMin},
		"negative": {func(t *dispatcher.Trigger) { t.CatchUpWindow = -1 }, "/triggers/t/catch_up_window", input.CodeDurationMin},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := job(minutely, withTrigger(tt.change)).Validate()
			var problems input.Problems
			switch errors.As(err, &problems); {
			case tt.code == "" && err != nil:
				t.Errorf("faults %v, want none", err)
			case tt.code != "" && (len(problems) != 1 || problems[0].Path != tt.path || problems[0].Code != tt.code):
				t.Errorf("faults %v, want %s at %s", err, tt.code, tt.path)
			}
		})
	}
}

// Skipped and kept fires together are the whole gap, and at most keep are kept, for any size, beginning and end of
// the gap.
func TestMissedButLatestKeepsTheLatest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		expression := rapid.SampledFrom([]string{"rate(1s)", "rate(7s)", "*/5 * * * *", "0 0 9 ? * MON-FRI",
			"*/7 * * * * ?"}).Draw(t, "expression")
		s, err := schedule.Parse(schedule.Spec{Expression: expression, Anchor: monday, Timezone: "Europe/Berlin"})
		if err != nil {
			t.Fatal(err)
		}
		from, _ := s.Next(monday)
		now := from.Add(time.Duration(rapid.Int64Range(0, (30*time.Hour).Milliseconds()).Draw(t, "gap")) * time.Millisecond)
		keep := rapid.SampledFrom([]int{1, 10, 1000}).Draw(t, "keep")
		last, count, next, err := dispatcher.MissedButLatest(s, from, now, keep)
		if err != nil {
			t.Fatal(err)
		}
		skipped, kept := 0, 0
		for at := from; !at.After(now); {
			if count > 0 && !at.After(last) {
				skipped++
			} else {
				kept++
			}
			after, ok := s.Next(at)
			if !ok {
				break
			}
			if count > 0 && at.Equal(last) && !after.Equal(next) {
				t.Fatalf("after %v comes %v, and not %v", last, after, next)
			}
			at = after
		}
		switch all := skipped + kept; {
		case all <= keep && (count != 0 || !next.Equal(from)):
			t.Fatalf("of %d instants %d are skipped up to %v, want all kept", all, count, last)
		case all > keep && (kept != keep || count != min(skipped, dispatcher.MostMissed)):
			t.Fatalf("of %d instants %d are kept and %d said to be skipped, want %d kept", all, kept, count, keep)
		}
	})
}

func TestBodyOfACatchUpNamesTheMissedRange(t *testing.T) {
	t.Parallel()
	call := target.Call{Missed: &run.MissedRange{From: monday, To: monday.Add(time.Hour), Count: 61}}
	var body struct {
		Missed *run.MissedRange `json:"missed"`
	}
	if err := json.Unmarshal(call.Body(), &body); err != nil || !cmp.Equal(call.Missed, body.Missed) {
		t.Errorf("body %s, %v: want the range in it", call.Body(), err)
	}
	call.Missed, body.Missed = nil, nil
	if err := json.Unmarshal(call.Body(), &body); err != nil || body.Missed != nil {
		t.Errorf("body %s of a fire on time, %v: want no range", call.Body(), err)
	}
}
