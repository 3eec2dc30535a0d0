package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// base is when the made-up history begins.
var base = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// ms returns an instant of it.
func ms(after time.Duration) int64 { return base.Add(after).UnixMilli() }

// The triggers and nodes of the made-up history.
const (
	dense, payout, delayed, once, brief = 1, 2, 3, 4, 5
	n1, n2                              = 11, 12
)

// story makes up a history in which all is well: thirty seconds of five triggers, in which one
// node is killed with a request in flight and three fires are missed.
type story struct {
	record
	requests int64
}

func newStory() *story {
	s := &story{record: record{nodes: []node{{n1, "n1", ms(-2 * time.Second), 0}, {n2, "n2", ms(-2 * time.Second), 0}}}}
	s.faults = []history.Fault{{Kind: "kill K8", Node: "n1", From: base.Add(10100 * time.Millisecond), To: base.Add(10100 * time.Millisecond)}}
	for id, job := range map[int64]history.Declaration{
		dense:   declared("north", "dense", "at_least_once", "rate(1s)"),
		payout:  declared("north", "payout", "at_most_once", "*/2 * * * * ?"),
		delayed: declared("south", "delayed", "at_least_once", "delay(1s)"),
		once:    declared("south", "once", "at_least_once", "at(2026-11-21T10:00:07.250Z)"),
		brief:   declared("north", "brief", "at_least_once", "rate(1s)"),
	} {
		s.declare(id, job)
	}
	slices.SortFunc(s.triggers, func(a, b trigger) int { return int(a.id - b.id) })
	for second := time.Second; second <= 30*time.Second; second += time.Second {
		switch {
		case second == 10*time.Second:
			s.takenOver(dense, second)
		default:
			s.fired(dense, second, scheduled)
		}
		if second%(2*time.Second) == 0 {
			s.fired(payout, second, scheduled)
		}
		if second < 11*time.Second || second > 13*time.Second {
			s.fired(brief, second, scheduled)
		}
	}
	caughtUp := ms(13 * time.Second)
	s.misfires = []misfire{{trigger: brief, from: ms(11 * time.Second), to: caughtUp, count: 3, decision: "fire_once", catchUp: &caughtUp}}
	s.fired(brief, 13*time.Second, catchUp)
	for at := time.Second; at < 29*time.Second; at += 1010 * time.Millisecond {
		s.fired(delayed, at, scheduled)
	}
	s.fired(once, 7250*time.Millisecond, scheduled)
	s.gaveUp(10 * time.Second)
	s.addBounded()
	s.addWatched()
	return s
}

func declared(app, job, delivery, expression string) history.Declaration {
	t := history.Trigger{Expression: expression}
	if expression[0] == 'r' {
		t.StartAt = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return history.Declaration{App: app, Job: job, Delivery: delivery, Enabled: true, Triggers: map[string]history.Trigger{"t": t}}
}

// declare declares a job shortly before the beginning, and disables it after the end.
func (s *story) declare(id int64, d history.Declaration) {
	s.triggers = append(s.triggers, trigger{id: id, app: d.App, job: d.Job, name: "t", state: "waiting", once: d.Delivery == "at_most_once"})
	for i, at := range []time.Duration{-200 * time.Millisecond, 30500 * time.Millisecond} {
		d.Put, d.Enabled = int(id)+10*i, i == 0
		d.Begun, d.Answered = base.Add(at-10*time.Millisecond), base.Add(at+10*time.Millisecond)
		s.declared = append(s.declared, d)
		s.changes = append(s.changes, change{at: ms(at), action: "put", app: d.App, subject: "job " + d.Job, revision: int64(i + 1)})
	}
	slices.SortStableFunc(s.changes, func(a, b change) int { return int(a.at - b.at) })
}

// at returns a pointer to an instant.
func at(after time.Duration) *int64 {
	value := ms(after)
	return &value
}

// fired is a run that succeeded at once.
func (s *story) fired(id int64, due time.Duration, kind int) {
	s.runs = append(s.runs, run{
		fire: fire{id, ms(due), kind}, revision: 1, node: n2, attempt: 1, state: "succeeded",
		claimed: at(due - 40*time.Millisecond), started: at(due + 2*time.Millisecond), ended: at(due + 10*time.Millisecond),
	})
	s.requested(id, due, kind, 1, due+4*time.Millisecond, 204)
}

// requested is a request, and its response 4 ms later.
func (s *story) requested(id int64, due time.Duration, kind, attempt int, came time.Duration, response int) {
	t := s.triggers[slices.IndexFunc(s.triggers, func(t trigger) bool { return t.id == id })]
	s.requests++
	kinds := map[int]string{scheduled: "schedule", catchUp: "catch_up"}
	s.hits = append(s.hits, history.Hit{
		Request: s.requests, At: base.Add(came), App: t.app, Job: t.job, Trigger: "t", Kind: kinds[kind], Attempt: attempt,
		Event: fmt.Sprint("evt_", id, "_", due.Milliseconds(), "_", kind), ScheduledAt: base.Add(due), Put: int(id),
	})
	if response != 0 {
		s.hits = append(s.hits, history.Hit{Request: s.requests, At: base.Add(came + 4*time.Millisecond), Status: response})
	}
}

// takenOver is a run whose node was killed after the request, and that another repeated.
func (s *story) takenOver(id int64, due time.Duration) {
	f := fire{id, ms(due), scheduled}
	adopted := due + 2600*time.Millisecond
	s.attempts = append(s.attempts,
		attempt{fire: f, attempt: 1, node: n1, began: ms(due - 40*time.Millisecond), ended: ms(adopted), state: "lost"})
	s.runs = append(s.runs, run{
		fire: f, revision: 1, node: n2, attempt: 2, state: "succeeded",
		claimed: at(adopted), started: at(adopted + time.Millisecond), ended: at(adopted + 9*time.Millisecond),
	})
	s.requested(id, due, scheduled, 1, due+50*time.Millisecond, 0)
	s.requested(id, due, scheduled, 2, adopted+3*time.Millisecond, 204)
}

// gaveUp turns the payout of an instant into one whose node was killed after the request.
func (s *story) gaveUp(due time.Duration) {
	r := s.run(payout, due)
	r.node, r.state, r.started, r.ended = n1, "lost", at(due), at(due+2600*time.Millisecond)
	s.attempts = append(s.attempts, attempt{fire: r.fire, attempt: 1, node: n1, began: *r.started, ended: *r.ended, state: "lost"})
}

// run finds a scheduled run.
func (s *story) run(id int64, due time.Duration) *run {
	return &s.runs[slices.IndexFunc(s.runs, func(r run) bool { return r.fire == fire{id, ms(due), scheduled} })]
}

// drop removes a scheduled run with its requests.
func (s *story) drop(id int64, due time.Duration) {
	s.runs = slices.DeleteFunc(s.runs, func(r run) bool { return r.fire == fire{id, ms(due), scheduled} })
	job := s.triggers[id-1].job
	s.hits = slices.DeleteFunc(s.hits, func(h history.Hit) bool { return h.Job == job && h.ScheduledAt.Equal(base.Add(due)) })
}

// hit finds the request of an attempt.
func (s *story) hit(id int64, due time.Duration, attempt int) *history.Hit {
	job := s.triggers[id-1].job
	return &s.hits[slices.IndexFunc(s.hits, func(h history.Hit) bool {
		return h.Status == 0 && h.Job == job && h.ScheduledAt.Equal(base.Add(due)) && h.Attempt == attempt
	})]
}
