package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// advance is a change of when a trigger is next.
type advance struct {
	trigger   int64
	same      bool // its definition did not change
	was, next *int64
}

// grant is a change of the holder of a lock.
type grant struct {
	name            string
	wasFence, fence int64
	wasUntil, at    int64
}

// heartbeat is a node's heartbeat.
type heartbeat struct{ node, at int64 }

// checkAdvances requires that triggers only go forward while their definition does not change.
func (j *judge) checkAdvances() {
	for _, a := range j.advances {
		if a.same && a.was != nil && a.next != nil && *a.next <= *a.was {
			j.add(unexplained, "%s: its trigger went back to %s", j.name(fire{a.trigger, *a.was, scheduled}), instant(*a.next))
		}
	}
}

// checkGrants requires that a lock has one holder at a time, and that its lease had expired before it changed.
func (j *judge) checkGrants() {
	for _, g := range j.grants {
		switch {
		case g.fence != g.wasFence+1:
			j.add(unexplained, "lock %s: fence %d came after %d", g.name, g.fence, g.wasFence)
		case g.at < g.wasUntil:
			j.add(overlaps, "lock %s: taken at %s, while another node held it until %s", g.name, instant(g.at), instant(g.wasUntil))
		}
	}
}

// checkLease requires that the last heartbeat of a request's node was younger than deadAfter.
func (j *judge) checkLease(q *request, node int64) {
	heartbeats, at := j.heartbeatsOf[node], q.At.UnixMilli()
	n, _ := slices.BinarySearch(heartbeats, at+slack)
	if n == 0 {
		j.add(unexplained, "%s: sent by node %s, which had no heartbeat", j.name(q.fire), j.nodesByID[node].name)
		return
	}
	if since := at - heartbeats[n-1]; since > j.deadAfter.Milliseconds()+maxTransit && !j.leftOnWaking(q, node) &&
		!j.heldByKernel(q, node) && j.stalled(heartbeats[n-1], at) == 0 {
		j.add(overlaps, "%s: the request of attempt %d came %s after the last heartbeat of node %s", j.name(q.fire),
			q.Attempt, time.Duration(since)*time.Millisecond, j.nodesByID[node].name)
	}
}

// stalled returns for how many milliseconds of a period the machine itself stood still.
func (j *judge) stalled(from, to int64) (sum int64) {
	for _, f := range j.faults {
		if f.Kind == history.MachineStalled {
			sum += max(0, min(to, f.To.UnixMilli())-max(from, f.From.UnixMilli()))
		}
	}
	return sum
}

// frozen reports whether a node was frozen in a period.
func (j *judge) frozen(node, from, to int64) bool {
	return slices.ContainsFunc(j.faults, func(f history.Fault) bool {
		return strings.HasPrefix(f.Kind, "freeze") && j.affects(f, node) && f.From.UnixMilli() <= to && f.To.UnixMilli() >= from
	})
}

// repeatable are the failures, of those that chaos causes, after which another attempt may succeed.
var repeatable = []string{"http_5xx", "reset", "timeout", "connect_timeout", "connect_refused"}

// checkRetries requires that attempts which failed were made again as often, and as long after,
// as the job says.
func (j *judge) checkRetries(r run, tries []try) {
	policy := j.retries[r.trigger]
	failures := 0
	for i, t := range tries {
		if t.class == "connect_timeout" {
			j.unreached++
			// A node that is frozen while it connects finds the timeout expired when it wakes.
			if !j.cutOff(t.trigger, t.node, t.began, t.ended) && !j.frozen(t.node, t.began, t.ended) {
				j.add(unexplained, "%s: attempt %d of node %s did not reach its target, although the node was not cut off from it",
					j.name(r.fire), t.number, j.nodesByID[t.node].name)
			}
		}
		if t.state != "failed" && t.state != "timed_out" {
			continue
		}
		failures++
		if i+1 == len(tries) || tries[i+1].began == 0 {
			continue
		}
		least, most := waits(policy, failures)
		waited := time.Duration(tries[i+1].began-t.ended) * time.Millisecond
		switch {
		case policy == nil:
		case waited < least:
			j.add(early, "%s: attempt %d followed %s after the one before, but had to wait %s", j.name(r.fire), t.number+1, waited, least)
		case waited > most+patience*time.Millisecond+j.recovery && !j.noisy(r.trigger) && !j.anyFault(t.ended, tries[i+1].began):
			j.add(unrecovered, "%s: attempt %d followed %s after the one before, but had to wait %s at most", j.name(r.fire),
				t.number+1, waited, most)
		}
		j.retried++
	}
	switch {
	case policy == nil || r.live:
	case failures > policy.MaxAttempts:
		j.add(unexplained, "%s: %d attempts failed, but %d are allowed", j.name(r.fire), failures, policy.MaxAttempts)
	case (r.state == "failed" || r.state == "timed_out") && failures < policy.MaxAttempts && slices.Contains(repeatable, r.class):
		j.add(lost, "%s: given up (%s) after %d failed attempts, not %d", j.name(r.fire), r.class, failures, policy.MaxAttempts)
	}
}

// anyFault reports whether there was any fault in a period or shortly before.
func (j *judge) anyFault(from, to int64) bool {
	return slices.ContainsFunc(j.faults, func(f history.Fault) bool {
		return f.From.UnixMilli() <= to && f.To.UnixMilli() >= from-2*j.noticeDelay()
	})
}

// waits returns the least and the longest wait after failures.
func waits(policy *history.Retry, failures int) (least, most time.Duration) {
	if policy == nil {
		return 0, 0
	}
	duration := func(text string) time.Duration {
		d, _ := time.ParseDuration(text) // the node has taken it
		return d
	}
	if n := len(policy.Delays); n > 0 {
		least = duration(policy.Delays[min(failures, n)-1])
		return least, least
	}
	return 0, min(duration(policy.Base)<<(failures-1), duration(policy.Cap))
}

// readWatched indexes the records of the database's own triggers.
func (j *judge) readWatched() {
	for _, b := range j.heartbeats {
		j.heartbeatsOf[b.node] = append(j.heartbeatsOf[b.node], b.at)
	}
	for _, heartbeats := range j.heartbeatsOf {
		slices.Sort(heartbeats)
	}
	latest := map[string]history.Declaration{}
	for _, d := range slices.SortedFunc(slices.Values(j.declared), func(a, b history.Declaration) int { return cmp.Compare(a.Put, b.Put) }) {
		if !d.Deleted {
			latest[d.App+"/"+d.Job] = d // its retries are those of all of them
		}
	}
	for _, t := range j.triggers {
		d := latest[t.app+"/"+t.job]
		j.retries[t.id], j.far[t.id], j.grouped[t.id] = d.Retry, d.Far, d.Grouped
	}
}
