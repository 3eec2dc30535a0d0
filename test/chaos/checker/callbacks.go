package main

import (
	"fmt"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// checkCallbacks requires of runs whose receiver calls back that a completion which a node confirmed is their end, and that none
// ended well without one.
func (j *judge) checkCallbacks() {
	said, confirmed := map[string]bool{}, map[string]history.Callback{}
	for _, c := range j.callbacks {
		j.calledBack++
		if c.Said != "complete" {
			continue
		}
		said[fmt.Sprint(c.Run, "/", c.Attempt)] = true
		if c.Status < 200 || c.Status > 299 {
			continue
		}
		if before, twice := confirmed[c.Run]; twice && before.Attempt != c.Attempt {
			j.add(unexplained, "run %s: completed by attempt %d, and again by attempt %d", c.Run, before.Attempt, c.Attempt)
		}
		confirmed[c.Run] = c
	}
	for _, r := range j.runs {
		if r.live || !j.callsBack(r.trigger) {
			continue
		}
		c, completed := confirmed[r.id()]
		switch {
		case completed && (r.state != "succeeded" || r.attempt != c.Attempt):
			j.add(lost, "%s: a node confirmed the completion of attempt %d, but the run ended as %s (%s) in attempt %d", j.name(r.fire), c.Attempt,
				r.state, r.class, r.attempt)
		case r.state == "succeeded" && !said[fmt.Sprint(r.id(), "/", r.attempt)]:
			j.add(unexplained, "%s: succeeded in attempt %d, which nobody completed", j.name(r.fire), r.attempt)
		}
	}
}

// callsBack reports whether the receiver of a trigger calls back: its response is not the outcome.
func (j *judge) callsBack(trigger int64) bool {
	t := j.triggersByID[trigger]
	return t.app == history.After && j.latest[t.job].Accepts
}
