package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// try is one attempt of a run. The database keeps the latest in the run itself.
type try struct {
	fire
	number       int
	node         int64
	began, ended int64 // when it was claimed; when its outcome, or its loss, was settled
	started      int64 // 0: unknown
	state, class string
	late         bool
}

// tries returns the attempts of all runs, in order.
func (j *judge) tries() map[fire][]try {
	all := map[fire][]try{}
	for _, a := range j.attempts {
		all[a.fire] = append(all[a.fire],
			try{fire: a.fire, number: a.attempt, node: a.node, began: a.began, ended: a.ended, state: a.state, class: a.class, late: a.late != nil})
		if a.late != nil {
			j.late++
		}
	}
	for _, r := range j.runs {
		if r.attempt == 0 {
			continue // it ended without any
		}
		last := try{fire: r.fire, number: r.attempt, node: r.node, began: orZero(r.claimed), ended: orZero(r.ended),
			started: orZero(r.started), state: r.state, class: r.class}
		if n := len(all[r.fire]); n > 0 && all[r.fire][n-1].number == r.attempt {
			if r.live && r.state == "retrying" {
				continue // it was deferred since, which is no attempt; the row says when
			}
			// A run that was given up has its last attempt in both places; there it starts with its begin.
			both := &all[r.fire][n-1]
			both.started = last.started
			switch {
			case last.began != 0:
				both.began = min(both.began, last.began)
			case last.started != 0:
				both.began = last.started
			} // else it waited for a slot since, which is no attempt
			continue
		}
		all[r.fire] = append(all[r.fire], last)
	}
	return all
}

// checkAttempts requires that attempts are numbered without gaps, follow one another, and were lost only
// after a fault of their node.
func (j *judge) checkAttempts() {
	claims := map[int64][]try{} // first attempts of scheduled runs, by trigger
	for _, r := range j.runs {
		tries := j.triesOf[r.fire]
		for i, t := range tries {
			if t.number != i+1 {
				j.add(unexplained, "%s: attempt %d instead of attempt %d", j.name(r.fire), t.number, i+1)
			}
			// Nodes and database read one clock, and each makes milliseconds of what it read.
			if i > 0 && t.began < tries[i-1].ended-1 {
				j.add(overlaps, "%s: attempt %d was claimed at %s, before attempt %d was over at %s", j.name(r.fire), t.number,
					instant(t.began), t.number-1, instant(tries[i-1].ended))
			}
			if t.started != 0 && t.began != 0 && t.started < t.began-slack && !j.callsBack(t.trigger) {
				j.add(unexplained, "%s: attempt %d began at %s, before it was claimed at %s", j.name(r.fire), t.number,
					instant(t.started), instant(t.began))
			}
			if t.state == "lost" {
				j.checkLoss(t)
			}
		}
		j.checkOutcome(r)
		t := j.triggersByID[r.trigger]
		if replayed := t.app == history.After && j.latest[t.job].Replayed; !replayed && j.touched(r.fire) == nil { // which is no retry
			j.checkRetries(r, tries)
		}
		if r.kind == scheduled && len(tries) > 0 {
			claims[r.trigger] = append(claims[r.trigger], tries[0])
		}
	}
	for _, in := range claims {
		for i := 1; i < len(in); i++ {
			if in[i].began < in[i-1].began && !j.handedBack(in[i-1]) && !j.noisy(in[i].trigger) {
				j.add(overlaps, "%s: claimed at %s, before the fire of %s was at %s", j.name(in[i].fire), instant(in[i].began),
					instant(in[i-1].at), instant(in[i-1].began))
			}
		}
	}
}

// noisy reports whether a trigger is the bad neighbour's, who gets what the others leave, or of the app that moves: its runs may
// wait, and be handed back, however long.
func (j *judge) noisy(trigger int64) bool {
	app := j.triggersByID[trigger].app
	return app == history.Noisy || app == history.Moved
}

// handedBack reports whether a draining node may have handed a run back, a dead one may have left it unsent,
// or it may have waited for a slot. The node that adopts it then counts the same attempt and claims it again.
// The claim of a repeated attempt is unknown, only its begin is known.
func (j *judge) handedBack(t try) bool {
	if j.callsBack(t.trigger) {
		return true // once accepted, the attempt is claimed again by each node that waits for its end
	}
	if j.touched(t.fire) != nil || j.survivedEdit(t) {
		return true // it was attempted again, and when it was claimed at first is lost; or it waits as a run of its own since the edit
	}
	if j.far[t.trigger] {
		return true // deferred while the circuit of its target is open, which counts no attempt either
	}
	if again := j.triesOf[t.fire]; len(again) > 1 && again[0].state != "lost" {
		return true
	}
	policy := j.bound(t.trigger).policy
	return policy == queue || policy == replace || j.triggersByID[t.trigger].once || slices.ContainsFunc(j.faults, func(f history.Fault) bool {
		drained := f.Kind == "SIGTERM" || f.Drains() || f.Kind == "kill K18" || f.Kind == "start or drain ended"
		return drained && f.To.UnixMilli() > t.at-1000 && f.From.UnixMilli() < t.began+1000
	})
}

// survivedEdit reports whether the definition changed after a fire was due and before it was claimed.
func (j *judge) survivedEdit(t try) bool {
	return slices.ContainsFunc(j.segments[t.trigger], func(s segment) bool { return s.from > t.at-slack && s.from <= t.began+slack })
}

// checkLoss requires of a lost attempt a fault that explains it: one of its node or of the
// database, between its claim and its adoption.
func (j *judge) checkLoss(t try) {
	from := int64(0)
	for _, f := range j.faults {
		mine := f.Node == "" || j.affects(f, t.node)
		// A node that was frozen or cut off is marked dead a while later.
		if mine && f.From.UnixMilli() <= t.ended && f.To.UnixMilli() >= t.began-j.noticeDelay() {
			from = max(from, f.From.UnixMilli(), t.began)
		}
	}
	if from == 0 {
		j.add(unexplained, "%s: attempt %d of node %s was lost between %s and %s without a fault", j.name(t.fire),
			t.number, j.nodesByID[t.node].name, instant(t.began), instant(t.ended))
		return
	}
	j.adoption = append(j.adoption, t.ended-from)
	if t.ended-t.began-j.stalled(t.began, t.ended) > maxAttempt+5*j.recovery.Milliseconds() {
		j.add(unrecovered, "%s: node %s held attempt %d for %s without an end", j.name(t.fire), j.nodesByID[t.node].name,
			t.number, time.Duration(t.ended-t.began)*time.Millisecond)
	}
}

// maxAttempt is how long, in milliseconds, besides some recoveries and stalls of the machine, an attempt may be neither
// over nor known to be lost: a request's timeout, a node's death, those of all who would have noticed and a database that
// is away for a while come after one another.
const maxAttempt = 7_000

// checkOutcome requires that a run ended as its job's delivery allows.
func (j *judge) checkOutcome(r run) {
	switch once := j.triggersByID[r.trigger].once; {
	case r.live, r.state == "succeeded", r.state == "failed", r.state == "timed_out":
	case r.class == "job_deleted" && j.triggersByID[r.trigger].app != history.Moved: // its jobs are deleted only where they have left
	case r.state == "lost" && (once || j.skipped(r)):
	case r.state == "skipped" && j.bound(r.trigger).policy != "":
	case r.state == "cancelled" && j.bound(r.trigger).policy == replace:
	default:
		j.add(lost, "%s: ended as %s (%s) without a reason", j.name(r.fire), r.state, r.class)
	}
}

// request is one request as the receiver saw it.
type request struct {
	history.Hit
	fire
	answered time.Time
	response int // 0: none
}

var kindNumbers = map[string]int{"schedule": scheduled, "manual": 2, "catch_up": catchUp}

// requests joins requests and responses.
func (j *judge) requests() []*request {
	byNumber := map[int64]*request{}
	for _, h := range j.hits {
		if h.Status == 0 && !isLater(h) {
			id := j.triggerOf[h.App+"/"+h.Job+"/"+h.Trigger]
			byNumber[h.Request] = &request{Hit: h, fire: fire{id, h.ScheduledAt.UnixMilli(), kindNumbers[h.Kind]}}
		} else if r := byNumber[h.Request]; r != nil {
			r.answered, r.response = h.At, h.Status
		}
	}
	return slices.SortedFunc(maps.Values(byNumber), func(a, b *request) int { return a.At.Compare(b.At) })
}

// checkRequests compares the requests that the receiver saw with the ledger.
func (j *judge) checkRequests() {
	runs := map[fire]run{}
	for _, r := range j.runs {
		runs[r.fire] = r
	}
	of, events := map[fire][]*request{}, map[string]fire{}
	for _, q := range j.sent {
		j.requested++
		if first, known := events[q.Event]; known && first != q.fire || q.Event == "" {
			j.add(unexplained, "%s: came under the event id of %s", j.name(q.fire), j.name(first))
		}
		events[q.Event] = q.fire
		if len(of[q.fire]) > 0 && of[q.fire][0].Event != q.Event {
			j.add(unexplained, "%s: came under two event ids", j.name(q.fire))
		}
		of[q.fire] = append(of[q.fire], q)
		if ahead := q.ScheduledAt.Sub(q.At); ahead > 0 {
			j.add(early, "%s: came %s early", j.name(q.fire), ahead)
		} else if q.kindIs(scheduled) && j.bound(q.trigger).policy == "" && !j.noisy(q.trigger) {
			j.lateness = append(j.lateness, (-ahead).Milliseconds())
		}
		if t := j.tryOf(q); j.outlived(q) {
			continue // the ledger may have another attempt of that number
		} else if t == nil {
			j.add(unexplained, "%s: a request of attempt %d, which is not in the ledger", j.name(q.fire), q.Attempt)
		} else if !j.callsBack(q.trigger) { // the ledger has the node that stored the callback, and when it took the run for that
			j.checkRequest(q, *t)
			j.checkLease(q, t.node)
		}
	}
	for f, requests := range of {
		after := slices.IndexFunc(requests, func(q *request) bool { return !j.outlived(q) })
		if after < 0 {
			after = len(requests)
		}
		j.checkRepeats(f, requests[:after], j.triesOf[f])
		j.checkRepeats(f, requests[after:], j.triesOf[f])
	}
	for f, r := range runs {
		j.checkResponses(r, of[f])
	}
	j.checkPayloads(of, runs)
}

func (q *request) kindIs(kind int) bool { return q.kind == kind }

// maxTransit is how many milliseconds after its node lost an attempt the request may still arrive.
const maxTransit = 250

// checkRequest compares a request with its attempt.
func (j *judge) checkRequest(q *request, t try) {
	at := q.At.UnixMilli()
	if at < t.began-slack || t.started != 0 && at < t.started-slack {
		j.add(unexplained, "%s: the request of attempt %d came at %s, before it began at %s", j.name(q.fire), t.number,
			instant(at), instant(max(t.began, t.started)))
	}
	switch late := t.state == "lost" && at > t.ended+maxTransit; {
	case late && j.leftOnWaking(q, t.node):
		j.sentOnWaking++
	case late && j.heldByKernel(q, t.node):
		j.delivered++
	case late:
		j.add(overlaps, "%s: the request of attempt %d was sent at %s, after node %s had lost it at %s", j.name(q.fire),
			t.number, instant(at), j.nodesByID[t.node].name, instant(t.ended))
	}
	// The node learns later that its run is cancelled, and the run keeps its slot until then.
	if t.state != "lost" && t.state != "cancelled" && t.ended != 0 && at > t.ended+slack && !j.heldByKernel(q, t.node) {
		j.add(unexplained, "%s: the request of attempt %d came at %s, after its end at %s", j.name(q.fire), t.number,
			instant(at), instant(t.ended))
	}
}

// leftOnWaking reports whether a request left its node when it woke, and was due when it froze: then the node
// froze between its last check of the lease and the write of the request, which nothing can prevent. A
// request that was not due yet when the node froze must wait for a new lease.
func (j *judge) leftOnWaking(q *request, node int64) bool {
	return slices.ContainsFunc(j.faults, func(f history.Fault) bool {
		return strings.HasPrefix(f.Kind, "freeze") && j.affects(f, node) && q.At.Sub(f.To).Abs() < maxTransit*time.Millisecond &&
			!q.ScheduledAt.After(f.From)
	})
}

// checkRepeats requires a reason for each repeated request.
func (j *judge) checkRepeats(f fire, requests []*request, tries []try) {
	seen := map[int]bool{}
	for i, q := range requests {
		if seen[q.Attempt] {
			j.add(unexplained, "%s: attempt %d was sent twice", j.name(f), q.Attempt)
		}
		seen[q.Attempt] = true
		if i == 0 {
			continue
		}
		j.repeats++
		if j.triggersByID[f.trigger].once {
			j.add(unexplained, "%s: sent %d times, but at most once was declared", j.name(f), len(requests))
		}
		before := requests[i-1]
		switch {
		case q.Attempt < before.Attempt && q.Attempt <= len(tries) &&
			(j.leftOnWaking(q, tries[q.Attempt-1].node) || j.heldByKernel(q, tries[q.Attempt-1].node)):
		case q.Attempt < before.Attempt:
			j.add(overlaps, "%s: attempt %d came after attempt %d", j.name(f), q.Attempt, before.Attempt)
		case before.Attempt <= len(tries) && before.Attempt > 0 && tries[before.Attempt-1].state == "succeeded":
			j.add(unexplained, "%s: repeated, though attempt %d had succeeded", j.name(f), before.Attempt)
		}
	}
}

// checkResponses compares the outcome of a run with the responses to its requests.
func (j *judge) checkResponses(r run, requests []*request) {
	var last *request
	for _, q := range requests {
		if q.Attempt == r.attempt {
			last = q
		}
	}
	answered := last != nil && last.response >= 200 && last.response < 300
	switch {
	case r.live, j.touched(r.fire) != nil: // by a request whose record was lost, maybe
	case r.state == "succeeded" && !answered:
		j.add(unexplained, "%s: succeeded by the ledger, but the receiver %s", j.name(r.fire), describe(last))
	case r.state == "failed" && answered && !j.disturbed(r) && !j.callsBack(r.trigger):
		j.add(unexplained, "%s: failed (%s) by the ledger, but the receiver %s", j.name(r.fire), r.class, describe(last))
	case (r.state == "failed" || r.state == "timed_out") && last == nil && !j.disturbed(r):
		j.add(lost, "%s: %s (%s), and the receiver never saw it", j.name(r.fire), r.state, r.class)
	}
}

func describe(q *request) string {
	if q == nil {
		return "never saw it"
	}
	return fmt.Sprintf("answered %d", q.response)
}

// disturbed reports whether a fault hit the node of a run's last attempt during it.
func (j *judge) disturbed(r run) bool {
	return j.faultDuring(r.node, orZero(r.claimed), orZero(r.ended)) || j.cutOff(r.trigger, r.node, orZero(r.claimed), orZero(r.ended))
}

// checkPayloads requires that a run was sent with the definition of its claim or a later one.
func (j *judge) checkPayloads(of map[fire][]*request, runs map[fire]run) {
	puts := map[string]history.Declaration{}
	for _, d := range j.declared {
		puts[fmt.Sprint(d.Put)] = d
	}
	for f, requests := range of {
		t := j.triggersByID[f.trigger]
		for _, q := range requests {
			d, known := puts[fmt.Sprint(q.Put)]
			switch {
			case !known || d.App != t.app || d.Job != t.job:
				j.add(unexplained, "%s: with payload %d, which is not its job's", j.name(f), q.Put)
			case d.Begun.UnixMilli() > q.At.UnixMilli()+slack:
				j.add(unexplained, "%s: with payload %d, which was not yet declared", j.name(f), q.Put)
			case j.outdated(t, d, runs[f], q.At.UnixMilli()):
				j.add(unexplained, "%s: with payload %d, which was replaced before its claim", j.name(f), q.Put)
			}
		}
	}
}

// outdated reports whether a declaration by which a request was sent was replaced by another before the run was claimed.
func (j *judge) outdated(t trigger, d history.Declaration, r run, sent int64) bool {
	claimed := r.claimedFirst()
	if sent < claimed { // it waited for its host since, and was claimed again without an attempt
		claimed = r.at - 2*slack
	}
	return slices.ContainsFunc(j.declared, func(later history.Declaration) bool {
		return later.App == t.app && later.Job == t.job && later.Put > d.Put && !later.Deleted &&
			!later.Answered.IsZero() && later.Answered.UnixMilli() < claimed-2*slack
	})
}

// claimedFirst is when the run was created; for an adopted run, its scheduled time.
func (r run) claimedFirst() int64 {
	if r.attempt > 1 {
		return r.at - 2*slack
	}
	return orZero(r.claimed)
}
