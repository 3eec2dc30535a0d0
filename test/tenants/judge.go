package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// findings are the results of a run.
type findings struct {
	quiet, hostile []float64 // lateness of the app's fires in both phases, in milliseconds
	missing        int       // fires of the app that never arrived
	manual         int       // runs that the app's owner requested
	missingManual  int       // those of them that never arrived
	missingReports int       // runs that follow others of the app and never arrived
	lost           int       // runs of the app that its owner can no longer read
	apiFailed      int       // requests to the API by the app's owner that failed
	apiRequests    int
	unsuccessful   map[string]int // runs of the app without success, by their record in the ledger
	deadNodes      []string
	nodeResponses  int // of nodes' APIs to targets of the hostile app
	// touched are the things of the app that the hostile app reached.
	touched []string
	report  report
}

// figure is one line of the output.
type figure struct {
	Name  string  `json:"figure"`
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
}

// mostP99 is the permitted lateness of the app's fires next to the hostile app, whatever the ratio.
const mostP99 = 20 // milliseconds

// A lower lateness depends more on the machine than on the nodes.
const leastP99 = 5 // milliseconds

// ratio returns how much later the app's fires are with the hostile app than without.
func (f findings) ratio() float64 {
	return quantile(f.hostile, 0.99) / max(leastP99, quantile(f.quiet, 0.99))
}

func (f findings) figures() []figure {
	all := []figure{
		{"quiet_fires", "count", float64(len(f.quiet))},
		{"quiet_lateness_p99", "ms", rounded(quantile(f.quiet, 0.99))},
		{"hostile_fires", "count", float64(len(f.hostile))},
		{"hostile_lateness_p50", "ms", rounded(quantile(f.hostile, 0.5))},
		{"hostile_lateness_p99", "ms", rounded(quantile(f.hostile, 0.99))},
		{"hostile_lateness_max", "ms", rounded(quantile(f.hostile, 1))},
		{"lateness_p99_ratio", "", rounded(f.ratio())},
		{"missing", "count", float64(f.missing)},
		{"manual_runs", "count", float64(f.manual)},
		{"missing_manual_runs", "count", float64(f.missingManual)},
		{"missing_chain_runs", "count", float64(f.missingReports)},
		{"lost_runs", "count", float64(f.lost)},
		{"api_requests", "count", float64(f.apiRequests)},
		{"api_failed", "count", float64(f.apiFailed)},
		{"node_responses", "count", float64(f.nodeResponses)},
		{"touched", "count", float64(len(f.touched) + len(f.report.Leaks))},
		{"hostile_arrivals", "count", float64(f.report.Arrivals)},
		{"connections_held", "count", float64(f.report.Held)},
	}
	for _, action := range sortedKeys(f.report.Actions) {
		for _, outcome := range sortedKeys(f.report.Actions[action]) {
			all = append(all, figure{"action " + action + " " + outcome, "count", float64(f.report.Actions[action][outcome])})
		}
	}
	return all
}

// compare formats the app's lateness without and with the hostile app.
func (f findings) compare() string {
	line := func(name string, late []float64) string {
		return fmt.Sprintf("%-18s %8d %8.1f %8.1f %8.1f\n", name, len(late), quantile(late, 0.5), quantile(late, 0.99), quantile(late, 1))
	}
	text := fmt.Sprintf("%-18s %8s %8s %8s %8s\n", "lateness (ms)", "fires", "p50", "p99", "max") +
		line("without neighbour", f.quiet) + line("with neighbour", f.hostile)
	for _, what := range sortedKeys(f.unsuccessful) {
		text += fmt.Sprintf("%d runs %s\n", f.unsuccessful[what], what)
	}
	return text
}

// judge returns a sentence for each missed bar.
func (f findings) judge(short bool) (missed []error) {
	add := func(format string, args ...any) { missed = append(missed, fmt.Errorf(format, args...)) }
	most := 2.0
	if short { // on a busy machine
		most = max(10, 500/max(leastP99, quantile(f.quiet, 0.99)))
	}
	if len(f.quiet) == 0 || len(f.hostile) == 0 {
		add("no fire of the app was measured: %d in the quiet phase, %d in the other", len(f.quiet), len(f.hostile))
	}
	if ratio := f.ratio(); ratio > most {
		add("the p99 lateness of the app is %.1f ms next to a hostile one, %.1f times that without (%.1f ms); the most is %.1f times",
			quantile(f.hostile, 0.99), ratio, quantile(f.quiet, 0.99), most)
	}
	if p99 := quantile(f.hostile, 0.99); !short && p99 > mostP99 {
		add("the p99 lateness of the app is %.1f ms next to a hostile one; the most is %d ms", p99, mostP99)
	}
	if f.missingManual > 0 {
		add("%d of %d manual runs of the app did not arrive", f.missingManual, f.manual)
	}
	if f.missingReports > 0 {
		add("%d runs that follow others of the app did not arrive", f.missingReports)
	}
	if f.lost > 0 {
		add("%d runs of the app are not to be read any more", f.lost)
	}
	if f.missing > 0 {
		add("%d fires of the app did not arrive", f.missing)
	}
	if f.apiFailed*20 > f.apiRequests {
		add("%d of %d requests of the app's owner to the API failed; the most is one in twenty", f.apiFailed, f.apiRequests)
	}
	for _, node := range f.deadNodes {
		add("node %s ended", node)
	}
	if f.nodeResponses > 0 {
		add("nodes' own APIs responded to %d runs of the hostile app", f.nodeResponses)
	}
	for _, what := range unique(append(slices.Clone(f.touched), f.report.Leaks...)) {
		add("the hostile app %s", what)
	}
	for _, action := range actionNames() {
		if len(f.report.Actions[action]) == 0 {
			add("the hostile app never tried %s, so the run shows nothing of it", action)
		}
	}
	return missed
}

func unique(all []string) []string { return slices.Compact(slices.Sorted(slices.Values(all))) }

// quantile returns the value below which that share of all values lies, or 0 without values.
func quantile(values []float64, share float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(share*float64(len(sorted)-1)+0.5)]
}

func rounded(value float64) float64 { return math.Round(value*100) / 100 }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
