package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// try is one attempt of a run, wherever the database keeps it: the latest in the run itself.
type try struct {
	fire
	number       int
	node         int64
	began, ended int64 // when it was claimed; when its outcome, or its loss, was settled
	started      int64 // 0: unknown
	state, class string
	late         bool
}

// tries returns the attempts of a run, the first first.
func (j *judge) tries() map[fire][]try {
	all := map[fire][]try{}
	for _, a := range j.attempts {
		all[a.fire] = append(all[a.fire], try{fire: a.fire, number: a.attempt, node: a.node, began: a.began, ended: a.ended, state: a.state, class: a.class, late: a.late != nil})
		if a.late != nil {
			j.late++
		}
	}
	for _, r := range j.runs {
		if r.attempt == 0 {
			continue // it ended without any
		}
		last := try{fire: r.fire, number: r.attempt, node: r.node, began: orZero(r.claimed), ended: orZero(r.ended), started: orZero(r.started), state: r.state, class: r.class}
		if n := len(all[r.fire]); n > 0 && all[r.fire][n-1].number == r.attempt {
			// A run that was given up has its last attempt in both; there it begins with its intent.
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

// checkAttempts requires that attempts count up without holes, follow one another, and were
// lost only where something had happened to their node.
func (j *judge) checkAttempts() {
	claims := map[int64][]try{} // first attempts of scheduled runs, by trigger
	for _, r := range j.runs {
		tries := j.triesOf[r.fire]
		for i, t := range tries {
			if t.number != i+1 {
				j.add(unexplained, "%s: attempt %d where attempt %d was to come", j.name(r.fire), t.number, i+1)
			}
			if i > 0 && t.began < tries[i-1].ended {
				j.add(overlaps, "%s: attempt %d was claimed at %s, before attempt %d was over at %s", j.name(r.fire), t.number, instant(t.began), t.number-1, instant(tries[i-1].ended))
			}
			if t.started != 0 && t.began != 0 && t.started < t.began-slack {
				j.add(unexplained, "%s: attempt %d began at %s, before it was claimed at %s", j.name(r.fire), t.number, instant(t.started), instant(t.began))
			}
			if t.state == "lost" {
				j.checkLoss(t)
			}
		}
		j.checkOutcome(r)
		j.checkRetries(r, tries)
		if r.kind == scheduled && len(tries) > 0 {
			claims[r.trigger] = append(claims[r.trigger], tries[0])
		}
	}
	for _, in := range claims {
		for i := 1; i < len(in); i++ {
			if in[i].began < in[i-1].began && !j.handedBack(in[i-1]) {
				j.add(overlaps, "%s: claimed at %s, before the fire of %s was at %s", j.name(in[i].fire), instant(in[i].began), instant(in[i-1].at), instant(in[i-1].began))
			}
		}
	}
}

// handedBack tells whether a run may have been handed back by a node that drained, or have been
// left unsent by one that died, or may have waited for a slot: who adopts it then counts the same
// attempt, and claims it again. Of an attempt that was made again the claim is not known, only when it began.
func (j *judge) handedBack(t try) bool {
	if j.far[t.trigger] {
		return true // defers while its target is left alone, which counts no attempt either
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

// checkLoss requires of a lost attempt a fault that explains it: one of its node or of the
// database, between its claim and its adoption.
func (j *judge) checkLoss(t try) {
	from := int64(0)
	for _, f := range j.faults {
		mine := f.Node == "" || j.befell(f, t.node)
		// A node that was frozen or cut off is taken for dead a while after.
		if mine && f.From.UnixMilli() <= t.ended && f.To.UnixMilli() >= t.began-j.notice() {
			from = max(from, f.From.UnixMilli(), t.began)
		}
	}
	if from == 0 {
		j.add(unexplained, "%s: attempt %d of node %s was lost between %s and %s, when nothing had happened to it", j.name(t.fire), t.number, j.nodesByID[t.node].name, instant(t.began), instant(t.ended))
		return
	}
	j.adoption = append(j.adoption, t.ended-from)
	if t.ended-t.began > mostHeld+5*j.recovery.Milliseconds() {
		j.add(unrecovered, "%s: node %s held attempt %d for %s without an end", j.name(t.fire), j.nodesByID[t.node].name, t.number, time.Duration(t.ended-t.began)*time.Millisecond)
	}
}

// mostHeld is how long, besides some recoveries, an attempt may be neither over nor known to be lost:
// a request's timeout, a node's death, those of all who would have noticed and a database that is away
// for a while come after one another.
const mostHeld = 7_000

// checkOutcome requires that a run ended as its job's delivery allows.
func (j *judge) checkOutcome(r run) {
	switch once := j.triggersByID[r.trigger].once; {
	case r.live, r.state == "succeeded", r.state == "failed", r.state == "timed_out":
	case r.state == "cancelled" && r.class == "job_deleted":
	case r.state == "lost" && once:
	case r.state == "skipped" && j.bound(r.trigger).policy != "":
	case r.state == "cancelled" && j.bound(r.trigger).policy == replace:
	default:
		j.add(lost, "%s: ended as %s (%s), which nobody asked for", j.name(r.fire), r.state, r.class)
	}
}

// request is what the receiver knows of one request.
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
		if h.Status == 0 {
			id := j.triggerOf[h.App+"/"+h.Job+"/"+h.Trigger]
			byNumber[h.Request] = &request{Hit: h, fire: fire{id, h.ScheduledAt.UnixMilli(), kindNumbers[h.Kind]}}
		} else if r := byNumber[h.Request]; r != nil {
			r.answered, r.response = h.At, h.Status
		}
	}
	return slices.SortedFunc(maps.Values(byNumber), func(a, b *request) int { return a.At.Compare(b.At) })
}

// checkRequests compares what the receiver saw with what the ledger says.
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
		} else if q.kindIs(scheduled) && j.bound(q.trigger).policy == "" {
			j.lateness = append(j.lateness, (-ahead).Milliseconds())
		}
		if t := j.tryOf(q); t == nil {
			j.add(unexplained, "%s: a request of attempt %d, of which the ledger has nothing", j.name(q.fire), q.Attempt)
		} else {
			j.checkRequest(q, *t)
			j.checkLease(q, t.node)
		}
	}
	for f, requests := range of {
		j.checkRepeats(f, requests, j.triesOf[f])
	}
	for f, r := range runs {
		j.checkResponses(r, of[f])
	}
	j.checkPayloads(of, runs)
}

func (q *request) kindIs(kind int) bool { return q.kind == kind }

// late is how long after it was taken from its node an attempt's request may still arrive.
const mostOnTheWay = 250

// checkRequest compares a request with its attempt.
func (j *judge) checkRequest(q *request, t try) {
	at := q.At.UnixMilli()
	if at < t.began-slack || t.started != 0 && at < t.started-slack {
		j.add(unexplained, "%s: the request of attempt %d came at %s, before it began at %s", j.name(q.fire), t.number, instant(at), instant(max(t.began, t.started)))
	}
	switch late := t.state == "lost" && at > t.ended+mostOnTheWay; {
	case late && j.woke(q, t.node):
		j.waking++
	case late && j.held(q, t.node):
		j.delivered++
	case late:
		j.add(overlaps, "%s: the request of attempt %d was sent at %s, when it had been taken from node %s at %s", j.name(q.fire), t.number, instant(at), j.nodesByID[t.node].name, instant(t.ended))
	}
	// That a run is cancelled reaches its node later, and it keeps its slot until then.
	if t.state != "lost" && t.state != "cancelled" && t.ended != 0 && at > t.ended+slack && !j.held(q, t.node) {
		j.add(unexplained, "%s: the request of attempt %d came at %s, after its end at %s", j.name(q.fire), t.number, instant(at), instant(t.ended))
	}
}

// woke tells whether a request left its node as it woke, and was due when it froze: then the node
// froze, as it may, between its last look at its lease and the write of the request, which nothing
// can prevent. What was not due yet when it froze must wait for a new lease.
func (j *judge) woke(q *request, node int64) bool {
	return slices.ContainsFunc(j.faults, func(f history.Fault) bool {
		return strings.HasPrefix(f.Kind, "freeze") && j.befell(f, node) && q.At.Sub(f.To).Abs() < mostOnTheWay*time.Millisecond &&
			!q.ScheduledAt.After(f.From)
	})
}

// checkRepeats requires a reason for each repetition of a request.
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
			j.add(unexplained, "%s: sent %d times, and wanted once at most", j.name(f), len(requests))
		}
		before := requests[i-1]
		switch {
		case q.Attempt < before.Attempt && q.Attempt <= len(tries) && (j.woke(q, tries[q.Attempt-1].node) || j.held(q, tries[q.Attempt-1].node)):
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
	case r.live:
	case r.state == "succeeded" && !answered:
		j.add(unexplained, "%s: succeeded by the ledger, where the receiver %s", j.name(r.fire), describe(last))
	case r.state == "failed" && answered && !j.disturbed(r):
		j.add(unexplained, "%s: failed (%s) by the ledger, where the receiver %s", j.name(r.fire), r.class, describe(last))
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

// disturbed tells whether something happened to the node of a run's last attempt during it.
func (j *judge) disturbed(r run) bool {
	return j.upset(r.node, orZero(r.claimed), orZero(r.ended)) || j.cutOff(r.trigger, r.node, orZero(r.claimed), orZero(r.ended))
}

// checkPayloads requires that a run was sent as it was defined when it was claimed, or later.
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
			case j.outdated(t, d, runs[f]):
				j.add(unexplained, "%s: with payload %d, which was replaced before its claim", j.name(f), q.Put)
			}
		}
	}
}

// outdated tells whether a declaration was replaced by another before a run was claimed.
func (j *judge) outdated(t trigger, d history.Declaration, r run) bool {
	return slices.ContainsFunc(j.declared, func(later history.Declaration) bool {
		return later.App == t.app && later.Job == t.job && later.Put > d.Put && !later.Deleted &&
			!later.Answered.IsZero() && later.Answered.UnixMilli() < r.claimedFirst()-2*slack
	})
}

// claimedFirst is when the run came to be: of a run that was taken over, its instant.
func (r run) claimedFirst() int64 {
	if r.attempt > 1 {
		return r.at - 2*slack
	}
	return orZero(r.claimed)
}
