package main

import (
	"slices"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// problemsOf returns the faults that concern targets only, or the others.
func (h *record) problemsOf(targets bool) []history.Fault {
	return slices.DeleteFunc(slices.Clone(h.faults), func(f history.Fault) bool { return f.Target != targets })
}

// cutOff tells whether a node was cut off from the target of a trigger in a stretch of time, or
// shortly before.
func (j *judge) cutOff(trigger, node, from, to int64) bool {
	return j.far[trigger] && slices.ContainsFunc(j.cuts, func(f history.Fault) bool {
		return j.befell(f, node) && f.From.UnixMilli() <= to && f.To.UnixMilli() >= from-j.notice()
	})
}

// mostHeldBack is how long after a cut the kernel may go on to deliver what was written before.
const mostHeldBack = 15 * time.Second

// held tells whether a request may have been in the hands of its node's kernel, which repeats what
// a network lost also for who has hung up.
func (j *judge) held(q *request, node int64) bool {
	at := q.At.UnixMilli()
	return j.cutOff(q.trigger, node, at-mostHeldBack.Milliseconds(), at)
}
