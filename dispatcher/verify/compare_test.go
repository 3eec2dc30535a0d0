package verify

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// An edit decides at once about times that the new schedule no longer contains, and other times are decided later.
// The later decision spans times of the earlier one.
func TestDecisionsThatSpanOthersCountTheirOwnTimes(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	minute := func(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }
	decision := func(from, to, count int) dispatcher.Misfire {
		return dispatcher.Misfire{From: minute(from), To: minute(to), Count: count}
	}
	all := decision(0, 5, 6)
	for name, tt := range map[string]struct {
		misfires []dispatcher.Misfire
		runs     []time.Time
		doubled  []int
	}{
		"one decision":                   {misfires: []dispatcher.Misfire{all}},
		"side by side":                   {misfires: []dispatcher.Misfire{decision(0, 2, 3), decision(3, 5, 3)}},
		"one spans another":              {misfires: []dispatcher.Misfire{decision(0, 5, 4), decision(2, 3, 2)}},
		"one spans two":                  {misfires: []dispatcher.Misfire{decision(4, 4, 1), decision(0, 5, 4), decision(1, 1, 1)}},
		"one goes beyond the page":       {misfires: []dispatcher.Misfire{decision(0, 9, 6), decision(2, 3, 2)}},
		"a time decided twice":           {misfires: []dispatcher.Misfire{all, decision(5, 5, 1)}, doubled: []int{5}},
		"a time within decided twice":    {misfires: []dispatcher.Misfire{all, decision(2, 3, 2)}, doubled: []int{2, 3}},
		"a decision twice":               {misfires: []dispatcher.Misfire{all, all}, doubled: []int{0, 1, 2, 3, 4, 5}},
		"a time that has a run, too":     {misfires: []dispatcher.Misfire{all}, runs: []time.Time{minute(1)}, doubled: []int{1}},
		"one that overlaps at its start": {misfires: []dispatcher.Misfire{decision(0, 3, 4), decision(2, 5, 3)}, doubled: []int{2}},
		"one spans times that ran":       {misfires: []dispatcher.Misfire{decision(0, 5, 4)}, runs: []time.Time{minute(2), minute(3)}},
		"one spans a run and a decision": {misfires: []dispatcher.Misfire{decision(0, 5, 4), decision(2, 2, 1)},
			runs: []time.Time{minute(3)}},
		"one that ran at its end": {misfires: []dispatcher.Misfire{decision(0, 5, 5)}, runs: []time.Time{minute(5)}, doubled: []int{5}},
		"more times ran than it leaves": {misfires: []dispatcher.Misfire{decision(0, 5, 5)},
			runs: []time.Time{minute(1), minute(2)}, doubled: []int{2}},
	} {
		s := &scheduled{}
		for n := range 6 {
			s.times = append(s.times, minute(n))
		}
		result := Trigger{From: start, To: minute(5)}
		s.compare(&result, tt.runs, tt.misfires)
		var doubled []int
		for _, d := range result.Discrepancies {
			if d.Kind == DiscrepancyDoubled {
				doubled = append(doubled, int(d.At.Sub(start)/time.Minute))
			}
		}
		if len(doubled) != len(tt.doubled) || result.Unexplained != len(tt.doubled) {
			t.Errorf("%s: %+v, want the minutes %v to be doubled", name, result, tt.doubled)
			continue
		}
		for i := range doubled {
			if doubled[i] != tt.doubled[i] {
				t.Errorf("%s: the minutes %v are doubled, want %v", name, doubled, tt.doubled)
			}
		}
	}
}

func TestShortestDecisionExplainsATime(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	minute := func(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }
	all := []dispatcher.Misfire{{From: minute(0), To: minute(5), Reason: "disabled"}, {From: minute(2), To: minute(3), Reason: "changed"}}
	for at, want := range map[int]string{0: "disabled", 1: "disabled", 2: "changed", 3: "changed", 4: "disabled", 5: "disabled"} {
		if found := shortest(all, minute(at)); found == nil || found.Reason != want {
			t.Errorf("minute %d is explained by %+v, want %s", at, found, want)
		}
	}
	if found := shortest(all, minute(6)); found != nil {
		t.Errorf("minute 6 is explained by %+v", found)
	}
}
