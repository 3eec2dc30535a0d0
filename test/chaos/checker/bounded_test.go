package main

import (
	"slices"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// The triggers of the made-up history whose jobs may have one run at a time. The first run of each
// takes longer than the time between two fires.
const (
	single = 6 + iota // forbid
	turns             // queue
	newest            // replace
)

// addBounded makes up six fires of each of these.
func (s *story) addBounded() {
	const second = time.Second
	for id, policy := range map[int64]string{single: forbid, turns: queue, newest: replace} {
		d := declared("south", policy, "at_least_once", "rate(5s)")
		d.Concurrency, d.QueueLimit = policy, 1
		s.declare(id, d)
	}
	slices.SortFunc(s.triggers, func(a, b trigger) int { return int(a.id - b.id) })
	for id := range int64(3) {
		for due := 15 * second; due <= 30*second; due += 5 * second {
			s.fired(single+id, due, scheduled)
		}
	}
	s.took(single, 5*second, 5*second, 12*second, "succeeded")
	s.skipped(single, 10*second)
	s.took(turns, 5*second, 5*second, 12*second, "succeeded")
	s.took(turns, 10*second, 12*second, 12100*time.Millisecond, "succeeded")
	s.took(newest, 5*second, 5*second, 10*second, "cancelled")
	s.took(newest, 10*second, 10100*time.Millisecond, 11*second, "succeeded")
	slices.SortStableFunc(s.runs, func(a, b run) int { return int(a.at - b.at) })
}

// took is a run from one instant to another.
func (s *story) took(id int64, due, from, until time.Duration, state string) {
	r := run{
		fire: fire{id, ms(due), scheduled}, revision: 1, node: n2, attempt: 1, state: state,
		claimed: at(from - 40*time.Millisecond), started: at(from), ended: at(until),
	}
	s.requested(id, due, scheduled, 1, from+4*time.Millisecond, 0)
	response := history.Hit{Request: s.requests, At: base.Add(until - 4*time.Millisecond), Status: 204}
	if state == "cancelled" {
		r.class = state
		s.attempts = append(s.attempts, attempt{fire: r.fire, attempt: 1, node: n2, began: *r.claimed, ended: *r.ended, state: state})
		response.Status, response.At = -1, base.Add(until+50*time.Millisecond)
	}
	s.runs, s.hits = append(s.runs, r), append(s.hits, response)
}

// skipped is a run that found no slot.
func (s *story) skipped(id int64, due time.Duration) {
	s.runs = append(s.runs, run{
		fire: fire{id, ms(due), scheduled}, revision: 1, node: n2, state: "skipped",
		claimed: at(due - 40*time.Millisecond), ended: at(due),
	})
}

// skip makes a run that succeeded one that was skipped.
func (s *story) skip(id int64, due time.Duration) {
	s.drop(id, due)
	s.skipped(id, due)
}

// came moves the request of a run to another instant.
func (s *story) came(id int64, due, to time.Duration) {
	s.hit(id, due, 1).At = base.Add(to)
	r := s.run(id, due)
	r.claimed, r.started = at(to-50*time.Millisecond), at(to-10*time.Millisecond)
}

// responseAt moves the response to the first request of a fire.
func (s *story) responseAt(id int64, due, to time.Duration) {
	number := s.hit(id, due, 1).Request
	for i := range s.hits {
		if s.hits[i].Request == number && s.hits[i].Status != 0 {
			s.hits[i].At = base.Add(to)
		}
	}
}

// badBounded are histories with one thing wrong about slots.
func badBounded() map[string]spoiled {
	const second = time.Second
	return map[string]spoiled{
		"a run that was to be skipped": {func(s *story) { s.drop(single, 10*second); s.fired(single, 10*second, scheduled) }, overlaps},
		"a run that did not wait":      {func(s *story) { s.came(turns, 10*second, 11*second) }, overlaps},
		"a run that did not wait for its turn": {func(s *story) {
			s.came(turns, 10*second, 17*second)
			s.responseAt(turns, 10*second, 17100*time.Millisecond)
		}, overlaps},
		"a run that did not wait for its place": {func(s *story) { s.responseAt(newest, 5*second, 10400*time.Millisecond) }, overlaps},
		"a cancelled run that went on": {func(s *story) {
			s.response(newest, 5*second, 204)
			s.responseAt(newest, 5*second, 10500*time.Millisecond)
		}, overlaps},
		"a run skipped for nobody":         {func(s *story) { s.skip(single, 20*second) }, unexplained},
		"a run skipped when it could wait": {func(s *story) { s.skip(turns, 10*second) }, unexplained},
		"a run cancelled for nobody": {
			func(s *story) { r := s.run(newest, 30*second); r.state, r.class = "cancelled", "cancelled" }, unexplained},
		"a run that was skipped and sent": {func(s *story) {
			s.run(single, 15*second).state,
				s.run(single, 15*second).attempt = "skipped", 0
		}, unexplained},
		"a run skipped that knows no others": {func(s *story) { s.skip(dense, 5*second) }, lost},
		"a run that waits for ever": {
			func(s *story) { r := s.run(turns, 10*second); r.live, r.state, r.node = true, "queued", -1 }, unrecovered},
		"a slot that nobody gave back": {func(s *story) { s.slots = []fire{{single, ms(5 * second), scheduled}} }, unrecovered},
	}
}
