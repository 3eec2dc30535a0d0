package main

import (
	"slices"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// The policies of jobs that may have one run at once.
const (
	forbid  = "forbid"
	queue   = "queue"
	replace = "replace"
)

// boundOf is what bounds the runs of a job, as it was declared; empty for most.
type boundOf struct {
	policy string
	limit  int // of its queue
}

// readBounds notes what bounds the runs of each job.
func (j *judge) readBounds() {
	for _, d := range j.declared {
		j.bounds[d.App+"/"+d.Job] = boundOf{d.Concurrency, d.QueueLimit}
	}
}

// bound returns what bounds the runs of a trigger's job.
func (j *judge) bound(trigger int64) boundOf {
	t := j.triggersByID[trigger]
	return j.bounds[t.app+"/"+t.job]
}

// checkBounded requires of jobs that may have one run at once that the receiver never had two of
// their requests, that anyone who was skipped or cancelled was so because of others, and that
// nothing holds a slot at the end.
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
		j.add(unrecovered, "%s: has a slot of its job when all is over", j.name(f))
	}
}

// mostNoticed is how long after a caller has hung up the receiver may notice.
const mostNoticed = 150 * time.Millisecond

// checkOneAtOnce requires that no request came while another of the job was not answered. of are
// in the order of their arrival.
func (j *judge) checkOneAtOnce(of []*request) {
	var open []*request
	for _, q := range of {
		open = slices.DeleteFunc(open, func(o *request) bool {
			over := o.answered
			if o.response < 0 {
				over = over.Add(-mostNoticed)
			}
			return !over.IsZero() && !over.After(q.At)
		})
		for _, o := range open {
			switch {
			case j.mayOverlap(o, q):
				j.overlapped++
			default:
				j.add(overlaps, "%s attempt %d came at %s, when %s attempt %d was not answered, which came at %s", j.name(q.fire), q.Attempt,
					instant(q.At.UnixMilli()), j.name(o.fire), o.Attempt, instant(o.At.UnixMilli()))
			}
		}
		open = append(open, q)
	}
}

// mayOverlap tells whether a request may come while an older one is not answered: the older was
// given up with its node, or cancelled as its node was away, or this one was and left as its node woke.
func (j *judge) mayOverlap(older, q *request) bool {
	was, is := j.tryOf(older), j.tryOf(q)
	switch at := q.At.UnixMilli(); {
	case was == nil || is == nil:
		return false // said elsewhere
	case was.state == "lost" && was.ended <= at+slack:
		return true
	case was.state == "cancelled" && j.upset(was.node, older.At.UnixMilli(), at):
		return true
	default:
		return (is.state == "lost" || is.state == "cancelled") && is.ended < at && j.woke(q, is.node)
	}
}

// tryOf returns the attempt of a request, nil if there is none.
func (j *judge) tryOf(q *request) *try {
	if tries := j.triesOf[q.fire]; q.Attempt >= 1 && q.Attempt <= len(tries) {
		return &tries[q.Attempt-1]
	}
	return nil
}

// checkTurns requires that the first requests of a trigger's runs came in the order of their
// instants, which waited for each other.
func (j *judge) checkTurns(of []*request) {
	began := map[fire]bool{}
	last := map[int64]*request{} // the latest instant that began, by trigger
	for _, q := range of {
		if first := !began[q.fire]; !first {
			continue
		}
		began[q.fire] = true
		before := last[q.trigger]
		if before != nil && before.at > q.at {
			if is := j.tryOf(q); is == nil || !j.woke(q, is.node) {
				j.add(overlaps, "%s: came at %s, after that of %s, which it was to come before", j.name(q.fire), instant(q.At.UnixMilli()), instant(before.at))
			}
			continue
		}
		last[q.trigger] = q
	}
}

// checkDisplaced requires of a run that was skipped or cancelled those that were in its way.
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
		if o.fire != r.fire && (bound.policy != replace || o.at > r.at) && j.aliveAt(o, at) {
			found++
		}
	}
	if found < wanted {
		j.add(unexplained, "%s: %s at %s by policy %s, when there were %d other runs, and not %d", j.name(r.fire), r.state, instant(at), bound.policy, found, wanted)
	}
}

// aliveAt tells whether a run had begun to be, and was not over, by what the database knew.
func (j *judge) aliveAt(r run, at int64) bool {
	if r.at-slack > at {
		return false
	}
	ended := orZero(r.ended)
	// An end that cannot be recorded is not known.
	return r.live || ended >= at-slack || j.upset(r.node, ended, at)
}

// upset tells whether something happened to a node, or to the database, in a stretch of time.
func (j *judge) upset(node, from, to int64) bool {
	return slices.ContainsFunc(j.faults, func(f history.Fault) bool {
		return (f.Node == "" || j.befell(f, node)) && f.From.UnixMilli() <= to && f.To.UnixMilli() >= from-j.notice()
	})
}
