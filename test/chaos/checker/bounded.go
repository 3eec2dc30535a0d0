package main

import (
	"slices"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// The policies of jobs that may have one run at a time.
const (
	forbid  = "forbid"
	queue   = "queue"
	replace = "replace"
)

// boundOf is the concurrency limit of a job, as it was declared; empty for most.
type boundOf struct {
	policy string
	limit  int // of its queue
}

// readBounds notes the concurrency limit of each job.
func (j *judge) readBounds() {
	for _, d := range j.declared {
		j.bounds[d.App+"/"+d.Job] = boundOf{d.Concurrency, d.QueueLimit}
	}
}

// bound returns the concurrency limit of a trigger's job.
func (j *judge) bound(trigger int64) boundOf {
	t := j.triggersByID[trigger]
	return j.bounds[t.app+"/"+t.job]
}

// checkBounded requires of jobs with one run at a time that the receiver never had two of their requests,
// that runs were skipped or cancelled only because of others, and that no run holds a slot at the end.
func (j *judge) checkBounded() {
	sent := map[string][]*request{}
	for _, q := range j.sent {
		if bound := j.bound(q.trigger); bound.policy != "" {
			sent[q.App+"/"+q.Job] = append(sent[q.App+"/"+q.Job], q)
		}
	}
	for name, of := range sent {
		j.checkOneAtOnce(of)
		if j.bounds[name].policy == queue {
			j.checkTurns(of)
		}
	}
	runs := map[string][]run{}
	for _, r := range j.runs {
		if t := j.triggersByID[r.trigger]; j.bound(r.trigger).policy != "" {
			runs[t.app+"/"+t.job] = append(runs[t.app+"/"+t.job], r)
		}
	}
	for name, of := range runs {
		for _, r := range of {
			j.checkDisplaced(r, j.bounds[name], of)
		}
	}
	for _, f := range j.slots {
		j.add(unrecovered, "%s: holds a slot of its job at the end", j.name(f))
	}
}

// mostNoticed is how long after a caller has hung up the receiver may notice.
const maxHangupNotice = 150 * time.Millisecond

// checkOneAtOnce requires that no request came while another of the job was not answered. of are
// in the order of their arrival.
func (j *judge) checkOneAtOnce(of []*request) {
	var open []*request
	for _, q := range of {
		open = slices.DeleteFunc(open, func(o *request) bool {
			over := o.answered
			if o.response < 0 {
				over = over.Add(-maxHangupNotice)
			}
			return !over.IsZero() && !over.After(q.At)
		})
		for _, o := range open {
			switch {
			case j.mayOverlap(o, q):
				j.overlapped++
			default:
				j.add(overlaps, "%s attempt %d came at %s, while %s attempt %d, which came at %s, was unanswered", j.name(q.fire), q.Attempt,
					instant(q.At.UnixMilli()), j.name(o.fire), o.Attempt, instant(o.At.UnixMilli()))
			}
		}
		open = append(open, q)
	}
}

// mayOverlap reports whether a request may come while an older one is unanswered: the older one was given up
// with its node or cancelled while its node was unreachable, or this one was and left when its node woke.
func (j *judge) mayOverlap(older, q *request) bool {
	was, is := j.tryOf(older), j.tryOf(q)
	switch at := q.At.UnixMilli(); {
	case j.outlived(older) && j.rolledBackBetween(older.At, q.At):
		return true
	case was == nil || is == nil:
		return false // said elsewhere
	case was.state == "lost" && was.ended <= at+slack:
		return true
	case was.state == "cancelled" && j.faultDuring(was.node, older.At.UnixMilli(), at):
		return true
	default:
		return (is.state == "lost" || is.state == "cancelled") && is.ended < at && j.leftOnWaking(q, is.node)
	}
}

// tryOf returns the attempt of a request, nil if there is none.
func (j *judge) tryOf(q *request) *try {
	if tries := j.triesOf[q.fire]; q.Attempt >= 1 && q.Attempt <= len(tries) {
		return &tries[q.Attempt-1]
	}
	return nil
}

// checkTurns requires that the first requests of a trigger's queued runs came in the order of their
// scheduled times.
func (j *judge) checkTurns(of []*request) {
	began := map[fire]bool{}
	last := map[int64]*request{} // the latest instant that began, by trigger
	for _, q := range of {
		if first := !began[q.fire]; !first {
			continue
		}
		began[q.fire] = true
		before := last[q.trigger]
		if before != nil && before.at > q.at && !j.rolledBackBetween(before.At, q.At) {
			if is := j.tryOf(q); is == nil || !j.leftOnWaking(q, is.node) {
				j.add(overlaps, "%s: came at %s, after that of %s, out of order", j.name(q.fire), instant(q.At.UnixMilli()), instant(before.at))
			}
			continue
		}
		last[q.trigger] = q
	}
}

// checkDisplaced requires that other runs were in the way of a run that was skipped or cancelled.
func (j *judge) checkDisplaced(r run, bound boundOf, of []run) {
	wanted := 1
	switch {
	case r.state == "skipped" && bound.policy == queue:
		wanted += bound.limit
	case r.state != "skipped" && (r.state != "cancelled" || r.class != "cancelled"):
		return
	}
	at, found := orZero(r.ended), 0
	for _, o := range of {
		if o.fire != r.fire && (bound.policy != replace || o.at > r.at) && j.aliveBetween(o, r.at, at) {
			found++
		}
	}
	if b := j.touched(r.fire); b != nil && at > b.Dumped.UnixMilli() && at <= b.Chosen.UnixMilli() {
		return // only the lost ledger has the claims of the others
	}
	if found < wanted {
		j.add(unexplained, "%s: %s at %s by policy %s (%s), with %d other runs, not %d", j.name(r.fire), r.state, instant(at),
			bound.policy, r.message, found, wanted)
	}
}

// aliveBetween reports whether a run existed and had not ended at some time of a period, as far as the database knew: that of another
// run, which was decided within it and noted at its end.
func (j *judge) aliveBetween(r run, from, to int64) bool {
	if r.at-slack > to {
		return false
	}
	ended := orZero(r.ended)
	// An end that cannot be recorded is unknown.
	return r.live || ended >= from-slack || j.faultDuring(r.node, ended, from)
}

// faultDuring reports whether a fault hit a node or the database in a period.
func (j *judge) faultDuring(node, from, to int64) bool {
	return slices.ContainsFunc(j.faults, func(f history.Fault) bool {
		return (f.Node == "" || j.affects(f, node)) && f.From.UnixMilli() <= to && f.To.UnixMilli() >= from-j.noticeDelay()
	})
}
