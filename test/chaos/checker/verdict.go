package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// fault is a way in which a run of chaos can fail.
type fault string

// The ways, in the words of the last line.
const (
	lost        fault = "lost"        // a fire of which nothing tells what became of it
	unexplained fault = "unexplained" // something happened that nothing asked for, or that contradicts itself
	early       fault = "early"       // a request came before its instant
	overlaps    fault = "overlaps"    // two acted on one run at once, or fires were claimed out of order
	unrecovered fault = "unrecovered" // the end came, and something had not got over the faults
)

var faults = []fault{lost, unexplained, early, overlaps, unrecovered}

// verdict is what the checker found.
type verdict struct {
	found      map[fault][]string
	expected   int
	excused    int // instants that misfires stand for
	requested  int
	repeats    int // requests that repeat one, and are explained
	waking     int // requests that left as their node woke, when another had repeated them
	retried    int // attempts that were made again, for they had failed
	overlapped int // requests that came when an older one of their job was given up, and not answered
	unreached  int // attempts that did not get through to their target
	delivered  int // requests that the kernel delivered when their attempt was over
	late       int // results that came after the run had been taken away
	lateness   []int64
	adoption   []int64 // from the beginning of a fault to the adoption of what it left
}

func (v *verdict) add(f fault, format string, args ...any) {
	v.found[f] = append(v.found[f], fmt.Sprintf(format, args...))
}

func (v *verdict) passed() bool { return len(v.found) == 0 }

// mostShown bounds how many findings of one kind are printed.
const mostShown = 15

// print prints the findings, the table and the last line.
func (v *verdict) print(w io.Writer, h *record) {
	kinds := map[string]int{}
	for _, f := range h.faults {
		kinds[f.Kind]++
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nfault injected\ttimes")
	for _, kind := range slices.SortedFunc(maps.Keys(kinds), byNumber) {
		fmt.Fprintf(table, "%s\t%d\n", kind, kinds[kind])
	}
	states := map[string]int{}
	scheduledRuns := 0
	for _, r := range h.runs {
		states[r.state]++
		if r.kind == scheduled {
			scheduledRuns++
		}
	}
	fmt.Fprintf(table, "\nof the ledger\t\ninstants expected\t%d\nruns of them\t%d\ninstants in misfires\t%d\nmisfire decisions\t%d\ncatch-up runs\t%d\n",
		v.expected, scheduledRuns, v.excused, len(h.misfires), len(h.runs)-scheduledRuns)
	for _, state := range slices.Sorted(maps.Keys(states)) {
		fmt.Fprintf(table, "runs %s\t%d\n", state, states[state])
	}
	tries := map[string]int{}
	for _, a := range h.attempts {
		tries[a.state]++
	}
	fmt.Fprintf(table, "attempts lost with their node\t%d\nattempts cancelled\t%d\nattempts that failed and were made again\t%d\nlate results kept beside\t%d\nnode starts\t%d\n", tries["lost"], tries["cancelled"],
		v.retried, v.late, len(h.nodes))
	fmt.Fprintf(table, "\nof the receiver\t\nrequests\t%d\nrepeated, and explained by a lost or failed attempt\t%d\nof them late, for their node froze as it wrote them\t%d\n", v.requested, v.repeats, v.waking)
	fmt.Fprintf(table, "of jobs with one run at once, while an older one that was given up hung\t%d\n", v.overlapped)
	fmt.Fprintf(table, "attempts whose node was cut off from their target\t%d\nrequests that arrived when that was over, and their attempt too\t%d\n", v.unreached, v.delivered)
	fmt.Fprintf(table, "\nrequests after their instant\tp50 %s, p99 %s, most %s\n", percentile(v.lateness, 50), percentile(v.lateness, 99), percentile(v.lateness, 100))
	fmt.Fprintf(table, "adoption after a fault began\tp50 %s, p99 %s, most %s\n", percentile(v.adoption, 50), percentile(v.adoption, 99), percentile(v.adoption, 100))
	_ = table.Flush() // to a terminal that is gone
	for _, f := range faults {
		for i, one := range v.found[f] {
			if i == mostShown {
				fmt.Fprintf(w, "%s: %d more\n", f, len(v.found[f])-i)
				break
			}
			fmt.Fprintf(w, "%s: %s\n", f, one)
		}
	}
	fmt.Fprintf(w, "chaos: faults=%d expected=%d runs=%d misfires=%d", len(h.faults), v.expected, scheduledRuns, v.excused)
	for _, f := range faults {
		fmt.Fprintf(w, " %s=%d", f, len(v.found[f]))
	}
	fmt.Fprintln(w)
}

// byNumber puts K2 before K10.
func byNumber(a, b string) int {
	return cmp.Or(strings.Compare(strings.TrimRight(a, "0123456789"), strings.TrimRight(b, "0123456789")), cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// percentile returns the value below which so many in a hundred are.
func percentile(values []int64, p int) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return time.Duration(sorted[(len(sorted)-1)*p/100]) * time.Millisecond
}
