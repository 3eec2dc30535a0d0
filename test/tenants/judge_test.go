package main

import (
	"strings"
	"testing"
)

// harmless are the findings of a run in which all hostile actions failed.
func harmless() findings {
	f := findings{quiet: []float64{10, 10}, hostile: []float64{20, 20}, apiRequests: 100, apiFailed: 5}
	f.report.Actions = map[string]map[string]int{}
	for _, name := range actionNames() {
		f.report.Actions[name] = map[string]int{"403": 1}
	}
	return f
}

func TestRunWithoutHarmPasses(t *testing.T) {
	t.Parallel()
	if missed := harmless().judge(false); len(missed) > 0 {
		t.Errorf("missed %v", missed)
	}
}

func TestEachHarmIsReported(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		do   func(*findings)
		want string
	}{
		"lateness": {func(f *findings) { f.quiet, f.hostile = []float64{6, 6}, []float64{13, 13} },
			"the p99 lateness of the app is 13.0 ms next to a hostile one, 2.2 times"},
		"lateness of a slow machine": {func(f *findings) { f.quiet, f.hostile = []float64{15, 15}, []float64{21, 21} },
			"the p99 lateness of the app is 21.0 ms next to a hostile one; the most is 20 ms"},
		"a manual run":     {func(f *findings) { f.manual, f.missingManual = 9, 1 }, "1 of 9 manual runs"},
		"a report":         {func(f *findings) { f.missingReports = 2 }, "2 runs that follow others"},
		"a lost run":       {func(f *findings) { f.lost = 3 }, "3 runs of the app are not to be read"},
		"a missing fire":   {func(f *findings) { f.missing = 1 }, "1 fires of the app did not arrive"},
		"nothing measured": {func(f *findings) { f.hostile = nil }, "no fire of the app was measured"},
		"the API":          {func(f *findings) { f.apiFailed = 6 }, "6 of 100 requests"},
		"a dead node":      {func(f *findings) { f.deadNodes = []string{"node-1"} }, "node node-1 ended"},
		"a node's API":     {func(f *findings) { f.nodeResponses = 2 }, "nodes' own APIs responded to 2 runs"},
		"a touched thing":  {func(f *findings) { f.touched = []string{"invoked x"} }, "the hostile app invoked x"},
		"a leak":           {func(f *findings) { f.report.Leaks = []string{"got y"} }, "the hostile app got y"},
		"no attempt":       {func(f *findings) { delete(f.report.Actions, "list") }, "never tried list"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := harmless()
			tt.do(&f)
			missed := f.judge(false)
			if len(missed) != 1 || !strings.Contains(missed[0].Error(), tt.want) {
				t.Errorf("missed %v, want one that says %q", missed, tt.want)
			}
		})
	}
}

// Small latencies depend on the machine, and a short run happens on a busy one.
func TestSmallAndShortLatenessIsJudgedGenerously(t *testing.T) {
	t.Parallel()
	f := harmless()
	f.quiet, f.hostile = []float64{1}, []float64{10}
	if missed := f.judge(false); len(missed) > 0 {
		t.Errorf("10 ms after 1 ms: %v", missed)
	}
	f.hostile = []float64{499}
	if missed := f.judge(true); len(missed) > 0 {
		t.Errorf("499 ms in a short run: %v", missed)
	}
	f.hostile = []float64{510}
	if missed := f.judge(true); len(missed) != 1 {
		t.Errorf("510 ms in a short run: %v, want one bar missed", missed)
	}
}
