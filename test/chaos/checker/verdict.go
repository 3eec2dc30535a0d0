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

// fault is a way in which the product can fail a chaos run.
type fault string

// The faults, in the words of the last line.
const (
	lost        fault = "lost"        // a fire without any trace
	unexplained fault = "unexplained" // an event without a cause, or a contradiction
	early       fault = "early"       // a request came before its scheduled time
	overlaps    fault = "overlaps"    // two nodes acted on one run at once, or fires were claimed out of order
	unrecovered fault = "unrecovered" // at the end, something had not recovered from the faults
)

var faults = []fault{lost, unexplained, early, overlaps, unrecovered}

// verdict is what the checker found.
type verdict struct {
	found        map[fault][]string
	expected     int
	misfired     int // scheduled times covered by misfires
	requested    int
	repeats      int // repeated requests with an explanation
	sentOnWaking int // requests that left when their frozen node woke, after another node had repeated them
	retried      int // attempts repeated after a failure
	overlapped   int // requests that came while an older one of their job, already given up, was unanswered
	unreached    int // attempts that did not reach their target
	delivered    int // requests that the kernel delivered after the end of their attempt
	late         int // results that came after another node had taken the run
	// Of rollbacks: the ends of runs and the requests whose records were lost, and what became of the fires of these requests.
	lostEnds, lostRequests, sentAgain, leftOut int
	poisonings, poisonShown                    int
	// What comes after runs: the followers that were wanted, transitions of alerts, instants of backfills, and callbacks.
	followed, transitions, backfilledInstants, calledBack int

	lateness []int64
	adoption []int64 // from the beginning of a fault to the adoption of its runs
}

func (v *verdict) add(f fault, format string, args ...any) {
	v.found[f] = append(v.found[f], fmt.Sprintf(format, args...))
}

func (v *verdict) passed() bool { return len(v.found) == 0 }

// mostShown bounds how many findings of one kind are printed.
const maxShown = 15

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
	fmt.Fprintf(table, "\nledger\t\nscheduled times expected\t%d\nruns for them\t%d\n"+
		"scheduled times in misfires\t%d\nmisfire decisions\t%d\ncatch-up runs\t%d\n",
		v.expected, scheduledRuns, v.misfired, len(h.misfires), len(h.runs)-scheduledRuns)
	for _, state := range slices.Sorted(maps.Keys(states)) {
		fmt.Fprintf(table, "runs %s\t%d\n", state, states[state])
	}
	tries := map[string]int{}
	for _, a := range h.attempts {
		tries[a.state]++
	}
	fmt.Fprintf(table, "attempts lost with their node\t%d\nattempts cancelled\t%d\n"+
		"failed attempts that were repeated\t%d\nlate results kept\t%d\nnode starts\t%d\n", tries["lost"], tries["cancelled"],
		v.retried, v.late, len(h.nodes))
	fmt.Fprintf(table, "\nreceiver\t\nrequests\t%d\nrepeated after a lost or failed attempt\t%d\n"+
		"of these, late because the node froze while writing\t%d\n", v.requested, v.repeats, v.sentOnWaking)
	fmt.Fprintf(table, "of jobs with one run at a time, while an older request, already given up, hung\t%d\n", v.overlapped)
	fmt.Fprintf(table, "attempts cut off from their target\t%d\nrequests that arrived after the cut and their attempt\t%d\n",
		v.unreached, v.delivered)
	fmt.Fprintf(table, "\nafterwards\t\nruns that follow others\t%d\ntransitions of alerts\t%d\ninstants of backfills\t%d\ncallbacks\t%d\n",
		v.followed, v.transitions, v.backfilledInstants, v.calledBack)
	fmt.Fprint(table, v.describeRolledBack(h), v.describeMoved(h), v.describePoisoned(h))
	fmt.Fprintf(table, "\nrequest lateness\tp50 %s, p99 %s, most %s\n", percentile(v.lateness, 50),
		percentile(v.lateness, 99), percentile(v.lateness, 100))
	fmt.Fprintf(table, "adoption after a fault began\tp50 %s, p99 %s, most %s\n", percentile(v.adoption, 50),
		percentile(v.adoption, 99), percentile(v.adoption, 100))
	_ = table.Flush() // fails only without a terminal
	for _, f := range faults {
		for i, one := range v.found[f] {
			if i == maxShown {
				fmt.Fprintf(w, "%s: %d more\n", f, len(v.found[f])-i)
				break
			}
			fmt.Fprintf(w, "%s: %s\n", f, one)
		}
	}
	all := slices.Concat(slices.Collect(maps.Values(v.found))...)
	for _, e := range h.moved {
		name := h.name(e.fire) + ":"
		if slices.ContainsFunc(all, func(one string) bool { return strings.HasPrefix(one, name) }) {
			fmt.Fprintln(w, "ledger:", name, e.text)
		}
	}
	fmt.Fprintf(w, "chaos: faults=%d expected=%d runs=%d misfires=%d", len(h.faults), v.expected, scheduledRuns, v.misfired)
	for _, f := range faults {
		fmt.Fprintf(w, " %s=%d", f, len(v.found[f]))
	}
	fmt.Fprintln(w)
}

// byNumber puts K2 before K10.
func byNumber(a, b string) int {
	return cmp.Or(strings.Compare(strings.TrimRight(a, "0123456789"), strings.TrimRight(b, "0123456789")),
		cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// percentile returns the p-th percentile.
func percentile(values []int64, p int) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return time.Duration(sorted[(len(sorted)-1)*p/100]) * time.Millisecond
}
