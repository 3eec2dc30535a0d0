package main

import (
	"slices"
	"time"

	"github.com/carillon-dev/carillon/tools/chaos/history"
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
		if f.Kind != history.Drain {
			continue
		}
		if f.Wrong != "" {
			j.add(unrecovered, "node %s was told to end at %s: %s", f.Node, instant(f.From.UnixMilli()), f.Wrong)
			continue
		}
		if j.beside(f) {
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
		if n.name == f.Node && n.started <= f.From.UnixMilli()+slack && n.started > drained.started {
			drained = n
		}
	}
	for _, tries := range j.triesOf {
		for _, t := range tries {
			if t.node == drained.id && t.state == "lost" && !sent[t] {
				j.add(lost, "%s: node %s ended at %s in good order with attempt %d, which it had not sent", j.name(t.fire), f.Node, instant(f.To.UnixMilli()), t.number)
			}
		}
	}
}

// beside tells whether anything else happened to a node, or to the database, as it ended or
// shortly before.
func (j *judge) beside(drain history.Fault) bool {
	return slices.ContainsFunc(j.faults, func(f history.Fault) bool {
		return f != drain && (f.Node == "" || f.Node == drain.Node) && !f.From.After(drain.To) && !f.To.Before(drain.From.Add(-mostBeyond))
	})
}
