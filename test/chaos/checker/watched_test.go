package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// flaky is a trigger whose target fails twice at its second fire.
const flaky = 9

// addWatched makes up that fire and the records of the database's own triggers: one advance of each trigger,
// three grants of one lock, and heartbeats of both nodes, one of which dies.
func (s *story) addWatched() {
	const second = time.Second
	s.deadAfter, s.drain, s.recovery = 2*second, 3*second, 2700*time.Millisecond
	d := declared("north", "flaky", "at_least_once", "rate(10s)")
	d.Retry = &history.Retry{MaxAttempts: 3, Delays: []string{"300ms", "900ms"}}
	s.declare(flaky, d)
	s.fired(flaky, 10*second, scheduled)
	s.fired(flaky, 20*second, scheduled)
	s.fired(flaky, 30*second, scheduled)
	s.failed(flaky, 20*second, 1, 20*second, 20100*time.Millisecond)
	s.failed(flaky, 20*second, 2, 20410*time.Millisecond, 20500*time.Millisecond)
	r := s.run(flaky, 20*second)
	r.attempt, r.claimed, r.started, r.ended = 3, at(21405*time.Millisecond), at(21406*time.Millisecond), at(21430*time.Millisecond)
	first := s.hit(flaky, 20*second, 1)
	first.Attempt, first.At = 3, base.Add(21410*time.Millisecond)
	s.responseOf(first.Request).At = base.Add(21420 * time.Millisecond)
	s.requested(flaky, 20*second, scheduled, 1, 20010*time.Millisecond, 503)
	s.requested(flaky, 20*second, scheduled, 2, 20415*time.Millisecond, 503)

	for _, t := range s.triggers {
		s.advances = append(s.advances, advance{trigger: t.id, same: true, was: at(5 * second), next: at(6 * second)})
	}
	for i := range int64(3) {
		from := ms(time.Duration(i) * second)
		s.grants = append(s.grants, grant{name: "handler", wasFence: i, fence: i + 1, wasUntil: from, at: from})
	}
	for t := -second; t <= 32*second; t += 400 * time.Millisecond {
		s.heartbeats = append(s.heartbeats, heartbeat{n2, ms(t)})
		if t < 10*second {
			s.heartbeats = append(s.heartbeats, heartbeat{n1, ms(t)})
		}
	}
	s.faults = append(s.faults, history.Fault{Kind: history.Drain, Node: "n2", From: base.Add(31 * second), To: base.Add(33 * second)})
	s.verifications = []history.Verification{{App: "north"}, {App: "south"}}
}

// failed is an attempt that failed.
func (s *story) failed(id int64, due time.Duration, number int, from, until time.Duration) {
	s.attempts = append(s.attempts,
		attempt{fire: fire{id, ms(due), scheduled}, attempt: number, node: n2, began: ms(from), ended: ms(until), state: "failed"})
}

// responseOf finds the response to a request.
func (s *story) responseOf(request int64) *history.Hit {
	return &s.hits[slices.IndexFunc(s.hits, func(h history.Hit) bool { return h.Request == request && h.Status != 0 })]
}

// badWatched are histories with one thing wrong about retries, locks, leases or next fires.
func badWatched() map[string]spoiled {
	const second = time.Second
	last := func(s *story) *attempt { return &s.attempts[len(s.attempts)-1] }
	return map[string]spoiled{
		"a retry too soon": {func(s *story) { s.run(flaky, 20*second).claimed = at(21300 * time.Millisecond) }, early},
		"a retry too late": {func(s *story) { s.run(flaky, 20*second).claimed = at(30500 * time.Millisecond) }, unrecovered},
		"a retry too many": {func(s *story) {
			r := s.run(flaky, 20*second)
			r.state, r.attempt = "failed", 4
			s.failed(flaky, 20*second, 3, 21*second, 21*second)
		}, unexplained},
		"a retry that was never made": {func(s *story) {
			r := s.run(flaky, 20*second)
			r.state, r.class, r.attempt = "failed", "http_5xx", 2
			r.ended = &last(s).ended
		}, lost},
		"a trigger set back":           {func(s *story) { s.advances[0].next = at(5 * second) }, unexplained},
		"a fence given twice":          {func(s *story) { s.grants[2].fence = 2 }, unexplained},
		"a lock taken from its holder": {func(s *story) { s.grants[2].at = s.grants[2].wasUntil - 1 }, overlaps},
		"a request of a node that was silent": {func(s *story) {
			s.heartbeats = slices.DeleteFunc(s.heartbeats,
				func(b heartbeat) bool { return b.node == n2 && b.at > ms(15*second) && b.at < ms(19*second) })
		}, overlaps},
		"a drain without an end":    {func(s *story) { s.faults[1].To = base.Add(38 * second) }, unrecovered},
		"a drain that failed":       {func(s *story) { s.faults[1].Problem = "it ended with exit status 1" }, unrecovered},
		"a drain that lost a claim": {(*story).loseClaim, lost},
		"a claim lost by the older of two of a name": {func(s *story) {
			s.faults[1].Kind = history.Storm
			s.namesake()
			s.loseClaim()
		}, lost},
		"a drain without an end as a namesake is killed": {func(s *story) {
			s.namesake()
			s.faults[1].To = base.Add(38 * second)
			s.faults = append(s.faults,
				history.Fault{Kind: "SIGKILL in a storm", Node: "n2", Process: 8, From: base.Add(32 * second), To: base.Add(32 * second)})
		}, unrecovered},
		"an attempt lost as a namesake is killed": {func(s *story) { s.faults[0].Process = 9 }, unexplained},
		"a node that ended by itself":             {func(s *story) { s.faults[0].Problem = "it had ended with exit status 2" }, unrecovered},
		"a request of a node that never was":      {func(s *story) { s.run(dense, 5*second).node = 99 }, unexplained},
		"a target out of reach for no reason":     {func(s *story) { last(s).class = "connect_timeout" }, unexplained},
		"a rollback that was none":                {func(s *story) { s.rollbacks = []string{"a node misses a run"} }, unexplained},
		"an audit that objects":                   {func(s *story) { s.verifications[1].Failed = true }, lost},
	}
}

// loseClaim has n2 lose a fire, as it ends in good order, that it had not sent.
func (s *story) loseClaim() {
	const due = 30 * time.Second
	r := s.run(dense, due)
	s.attempts = append(s.attempts, attempt{fire: r.fire, attempt: 1, node: n2, began: ms(due), ended: ms(due + 3*time.Second), state: "lost"})
	r.attempt, r.node, r.claimed, r.started, r.ended = 2, n1, at(due+3*time.Second), at(due+3*time.Second), at(due+4*time.Second)
	h := s.hit(dense, due, 1)
	h.Attempt, h.At = 2, base.Add(due+3010*time.Millisecond)
}

// namesake adds another process of the name of n2, shortly before that ends.
func (s *story) namesake() {
	s.nodes[1].process, s.faults[1].Process = 7, 7
	s.nodes = append(s.nodes, node{13, "n2", ms(30 * time.Second), 8})
}

// Who is frozen as he connects to a target finds his time over, whatever the network was like.
func TestFrozenNodeNeedNotReachItsTarget(t *testing.T) {
	t.Parallel()
	s := newStory()
	last := &s.attempts[len(s.attempts)-1]
	last.class = "connect_timeout"
	for _, node := range []string{"n1", "n2"} {
		s.faults = append(s.faults, history.Fault{Kind: "freeze K7", Node: node, From: time.UnixMilli(last.began),
			To: time.UnixMilli(last.ended)})
	}
	for kind, found := range judged(t, s).found {
		t.Errorf("%s: %s", kind, strings.Join(found, "; "))
	}
}
