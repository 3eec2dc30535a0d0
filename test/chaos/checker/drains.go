package main

import (
	"slices"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// mostBeyond is how much longer than its drain timeout a node may take to end that nothing happens
// to: it records, and leaves.
const mostBeyond = 3 * time.Second

// checkDrains requires of nodes that were told to end that they did in time, and that nothing they
// held was lost that they had not sent.
func (j *judge) checkDrains() {
	sent := map[try]bool{}
	for _, q := range j.sent {
		if t := j.tryOf(q); t != nil {
			sent[*t] = true
		}
	}
	for _, f := range j.faults {
		if f.Wrong != "" {
			j.add(unrecovered, "%s of node %s at %s: %s", f.Kind, f.Node, instant(f.From.UnixMilli()), f.Wrong)
			continue
		}
		if !f.Drains() || j.beside(f) {
			continue
		}
		if took := f.To.Sub(f.From); took > j.drain+mostBeyond {
			j.add(unrecovered, "node %s was told to end at %s, and took %s", f.Node, instant(f.From.UnixMilli()), took)
		}
		j.checkHandedBack(f, sent)
	}
}

// checkHandedBack requires of a drain that attempts which were lost with it had been sent.
func (j *judge) checkHandedBack(f history.Fault, sent map[try]bool) {
	var drained node
	for _, n := range j.nodes {
		if j.befell(f, n.id) && n.started <= f.From.UnixMilli()+slack && n.started > drained.started {
			drained = n
		}
	}
	if drained.id == 0 {
		return // it had yet to register
	}
	for _, tries := range j.triesOf {
		for _, t := range tries {
			if t.node == drained.id && t.state == "lost" && !sent[t] {
				j.add(lost, "%s: node %s ended at %s in good order with attempt %d, which it had not sent", j.name(t.fire), f.Node, instant(f.To.UnixMilli()), t.number)
			}
		}
	}
}

// befell tells whether a fault was one of a node: of its process, or of all that have its name.
func (j *judge) befell(f history.Fault, id int64) bool {
	n := j.nodesByID[id]
	return f.Node == n.name && (f.Process == 0 || f.Process == n.process)
}

// beside tells whether anything else happened to a node, or to the database, as it ended or
// shortly before.
func (j *judge) beside(drain history.Fault) bool {
	return slices.ContainsFunc(j.faults, func(f history.Fault) bool {
		mine := f.Node == "" || f.Node == drain.Node && (f.Process == 0 || f.Process == drain.Process)
		return f != drain && mine && !f.From.After(drain.To) && !f.To.Before(drain.From.Add(-mostBeyond))
	})
}
