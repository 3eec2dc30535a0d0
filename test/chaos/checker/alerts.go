package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// told is a transition of a condition of a job, as its notification names it.
type told struct {
	job, condition string
	sequence       int
}

func (t told) of() [2]string { return [2]string{t.job, t.condition} }

// tells returns the transitions that a notification tells.
func (r laterRun) tells() (all []told) {
	for _, one := range append([]telling{r.Payload.telling}, r.Payload.Others...) {
		all = append(all, told{one.Job, one.Condition, one.Sequence})
	}
	return all
}

// overtaken reports whether a run is a notification that was not sent, or not sent again, because of a later one of its condition.
func (r laterRun) overtaken() bool {
	return r.kind == notifying && r.state == "cancelled" && r.class == "cancelled"
}

// lastTold returns the latest transition of each condition whose notification was not overtaken.
func (j *judge) lastTold() map[[2]string]int {
	last := map[[2]string]int{}
	for _, r := range j.later {
		if r.kind == notifying && !r.overtaken() {
			for _, one := range r.tells() {
				last[one.of()] = max(last[one.of()], one.sequence)
			}
		}
	}
	return last
}

// checkAlerts requires that the transitions of each condition take turns, each caused by a run that ended so and notified once,
// and that a condition holds at the end if and only if the latest runs say so.
func (j *judge) checkAlerts() {
	states := map[string]string{} // by the id of the run
	ends := j.endsOfAfter()
	for _, e := range ends {
		states[e.id] = e.state
	}
	declared := j.latest
	notified := map[told]int{}
	for _, r := range j.later {
		if r.kind == notifying {
			for _, one := range r.tells() {
				notified[one]++
			}
		}
	}
	of := map[[2]string][]alertEvent{}
	for _, e := range j.events {
		key := [2]string{e.job, e.Condition}
		of[key] = append(of[key], e)
	}
	for key, events := range of {
		slices.SortFunc(events, func(a, b alertEvent) int { return cmp.Compare(a.Sequence, b.Sequence) })
		for i, e := range events {
			j.transitions++
			if wanted := []string{"firing", "resolved"}[i%2]; e.Sequence != i+1 || e.Transition != wanted {
				j.add(unexplained, "%s is %s, want transition %d, %s", e.name(), e.Transition, i+1, wanted)
				break
			}
			name := told{key[0], key[1], e.Sequence}
			if n := notified[name]; e.Kept == "" && n == 0 {
				j.add(lost, "%s (%s) was never notified", e.name(), e.Transition)
			} else if n > 1 || e.Kept != "" && n > 0 {
				j.add(unexplained, "%s (%s) was notified %d times", e.name(), e.Transition, n)
			}
			delete(notified, name)
			if e.Condition != "failure" || e.Run == "" || declared[e.job].Replayed {
				continue // no run caused it, or one that has ended otherwise since
			}
			if (states[e.Run] == "succeeded") != (e.Transition == "resolved") {
				j.add(unexplained, "%s (%s) is by run %s, which is %s", e.name(), e.Transition, e.Run, cmp.Or(states[e.Run], "not in the ledger"))
			}
		}
	}
	for name, n := range notified {
		j.add(unexplained, "alert of %s, %s: %d notifications of transition %d, which was not made", name.job, name.condition, n, name.sequence)
	}
	j.checkFiring(ends, declared, of)
}

func (e alertEvent) name() string {
	return fmt.Sprintf("alert of %s, %s: transition %d", e.job, e.Condition, e.Sequence)
}

// latestRuns is how many runs that ended alike leave no doubt about an alert: two that end at once may be judged in either order.
const latestRuns = 3

// checkFiring compares the conditions that hold at the end with the runs.
func (j *judge) checkFiring(ends []ended, declared map[string]history.Declaration, of map[[2]string][]alertEvent) {
	failures := map[string][]bool{}
	for _, e := range ends {
		if failed := e.state == "failed" || e.state == "timed_out" || e.state == "lost"; failed || e.state == "succeeded" {
			failures[e.job] = append(failures[e.job], failed)
		}
	}
	for job, all := range failures {
		if declared[job].Replayed {
			continue
		}
		events := of[[2]string{job, "failure"}]
		if slices.Contains(all, true) && len(events) == 0 {
			j.add(lost, "alert of %s, failure: runs failed, and it never fired", job)
		}
		holds := j.firing[job+"/failure"]
		if n := len(events); n > 0 && (events[n-1].Transition == "firing") != holds {
			j.add(unexplained, "alert of %s, failure: holds at the end: %v, but its latest transition is %s", job, holds, events[n-1].Transition)
		}
		latest := all[max(0, len(all)-latestRuns):]
		if len(latest) == latestRuns && !slices.Contains(latest, !latest[0]) && latest[0] != holds {
			j.add(unrecovered, "alert of %s, failure: holds at the end: %v, but the latest %d runs failed: %v", job, holds, latestRuns, latest[0])
		}
	}
}
