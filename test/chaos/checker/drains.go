package main

import (
	"slices"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// maxDrainOverrun is how much longer than its drain timeout an undisturbed node may take to end: it records
// outcomes and deregisters.
const maxDrainOverrun = 3 * time.Second

// checkDrains requires that draining nodes ended in time, and that no run was lost which they had not sent.
func (j *judge) checkDrains() {
	sent := map[try]bool{}
	for _, q := range j.sent {
		if t := j.tryOf(q); t != nil {
			sent[*t] = true
		}
	}
	for _, f := range j.faults {
		if f.Problem != "" {
			j.add(unrecovered, "%s of node %s at %s: %s", f.Kind, f.Node, instant(f.From.UnixMilli()), f.Problem)
			continue
		}
		if !f.Drains() || j.disturbedDrain(f) {
			continue
		}
		if took := f.To.Sub(f.From); took > j.drain+maxDrainOverrun {
			j.add(unrecovered, "node %s was told to end at %s, and took %s", f.Node, instant(f.From.UnixMilli()), took)
		}
		j.checkHandedBack(f, sent)
	}
}

// checkHandedBack requires that the attempts lost in a drain had been sent.
func (j *judge) checkHandedBack(f history.Fault, sent map[try]bool) {
	var drained node
	for _, n := range j.nodes {
		if j.affects(f, n.id) && n.started <= f.From.UnixMilli()+slack && n.started > drained.started {
			drained = n
		}
	}
	if drained.id == 0 {
		return // it had yet to register
	}
	for _, tries := range j.triesOf {
		for _, t := range tries {
			if t.node == drained.id && t.state == "lost" && !sent[t] {
				j.add(lost, "%s: node %s drained until %s and lost attempt %d, which it had not sent", j.name(t.fire), f.Node,
					instant(f.To.UnixMilli()), t.number)
			}
		}
	}
}

// affects reports whether a fault was one of a node: of its process, or of all processes of its name.
func (j *judge) affects(f history.Fault, id int64) bool {
	n := j.nodesByID[id]
	return f.Node == n.name && (f.Process == 0 || f.Process == n.process)
}

// disturbedDrain reports whether another fault hit the node or the database during a drain or shortly before.
func (j *judge) disturbedDrain(drain history.Fault) bool {
	return slices.ContainsFunc(j.faults, func(f history.Fault) bool {
		mine := f.Node == "" || f.Node == drain.Node && (f.Process == 0 || f.Process == drain.Process)
		return f != drain && mine && !f.From.After(drain.To) && !f.To.Before(drain.From.Add(-maxDrainOverrun))
	})
}
