package main

import (
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// faultsOf returns the faults that concern targets only, or the others that may explain something.
func (h *record) faultsOf(targets bool) []history.Fault {
	return slices.DeleteFunc(slices.Clone(h.faults), func(f history.Fault) bool {
		return f.Target != targets || f.Kind == history.Snapshot || strings.HasPrefix(f.Kind, history.Poison)
	})
}

// cutOff reports whether a node was cut off from the target of a trigger in a stretch of time, or
// shortly before.
func (j *judge) cutOff(trigger, node, from, to int64) bool {
	return j.far[trigger] && j.cutFromFar(node, from, to)
}

// cutFromFar reports whether a node was cut off from the far receiver in a stretch of time, or shortly before.
func (j *judge) cutFromFar(node, from, to int64) bool {
	return slices.ContainsFunc(j.cuts, func(f history.Fault) bool {
		return j.affects(f, node) && f.From.UnixMilli() <= to && f.To.UnixMilli() >= from-j.noticeDelay()
	})
}

// maxKernelHold is how long after a cut the kernel may still deliver data written before.
const maxKernelHold = 15 * time.Second

// heldByKernel reports whether the kernel of the node may have held a request: it retransmits lost packets even
// after the program has closed the connection. A request to a group may have gone to its far endpoint.
func (j *judge) heldByKernel(q *request, node int64) bool {
	at := q.At.UnixMilli()
	return (j.far[q.trigger] || j.grouped[q.trigger]) && j.cutFromFar(node, at-maxKernelHold.Milliseconds(), at)
}
