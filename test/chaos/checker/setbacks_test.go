package main

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// newRolledBack makes up a history of one trigger, in which the database is put back to what it was before two fires, and an operator
// chooses.
func newRolledBack(choice string) *story {
	const second = time.Second
	s := &story{record: record{nodes: []node{{n1, "n1", ms(-2 * second), 0}, {n2, "n2", ms(-2 * second), 0}}}}
	s.declare(dense, declared("north", "dense", "at_least_once", "rate(1s)"))
	for at := -second; at <= 31*second; at += second / 2 {
		s.heartbeats = append(s.heartbeats, heartbeat{n2, ms(at)})
	}
	s.deadAfter = 2 * second
	when := func(d time.Duration) time.Time { return base.Add(d) }
	b := rolledBack{Rollback: history.Rollback{
		Choice: choice, Dumped: when(17500 * time.Millisecond), Cut: when(19100 * time.Millisecond), Quiet: when(19200 * time.Millisecond),
		Chosen: when(19600 * time.Millisecond), Settled: when(19700 * time.Millisecond), Until: when(30 * second),
	}}
	for due := second; due <= 30*second; due += second {
		s.fired(dense, due, scheduled)
	}
	lost := func(r run) bool { return r.at == ms(18*second) || r.at == ms(19*second) }
	for _, r := range s.runs {
		if lost(r) {
			b.runs = append(b.runs, r)
		}
	}
	s.runs = slices.DeleteFunc(s.runs, lost)
	if choice == history.Skip {
		s.misfires = []misfire{{trigger: dense, from: ms(18 * second), to: ms(19 * second), count: 2, decision: "skipped"}}
	} else {
		s.again(18 * second)
		s.again(19 * second)
	}
	slices.SortFunc(s.runs, func(a, b run) int { return int(a.at - b.at) })
	s.rolledBack = []rolledBack{b}
	return s
}

// again is a run that is sent again after a rollback.
func (s *story) again(due time.Duration) {
	s.runs = append(s.runs, run{
		fire: fire{dense, ms(due), scheduled}, revision: 1, node: n2, attempt: 1, state: "succeeded",
		claimed: at(19800 * time.Millisecond), started: at(19810 * time.Millisecond), ended: at(19830 * time.Millisecond),
	})
	s.requested(dense, due, scheduled, 1, 19820*time.Millisecond, 204)
}

func TestRollbackPasses(t *testing.T) {
	t.Parallel()
	for choice, again := range map[string]int{history.Skip: 0, history.Replay: 2} {
		v := judged(t, newRolledBack(choice))
		if !v.passed() {
			t.Errorf("%s: found %v", choice, v.found)
		}
		if v.lostEnds != 2 || v.lostRequests != 2 || v.sentAgain != again || v.leftOut != 2-again {
			t.Errorf("%s: %d ends and %d requests lost, %d sent again, %d left out; want 2, 2, %d, %d", choice, v.lostEnds, v.lostRequests,
				v.sentAgain, v.leftOut, again, 2-again)
		}
	}
}

// Each of these histories is one with a rollback, with one thing wrong.
func TestBadRollbackIsFound(t *testing.T) {
	t.Parallel()
	const second = time.Second
	for name, tt := range map[string]struct {
		choice string
		spoil  func(s *story)
		want   fault
	}{
		"a skipped fire is sent": {history.Skip, func(s *story) { s.misfires = nil; s.again(18 * second); s.again(19 * second) }, unexplained},
		"a replayed fire has another event id": {history.Replay, func(s *story) {
			s.hits[slices.IndexFunc(s.hits, func(h history.Hit) bool { return h.At.Equal(base.Add(19820 * time.Millisecond)) })].Event = "evt_other"
		}, unexplained},
		"a request while nodes wait for the choice": {history.Replay, func(s *story) {
			s.hit(dense, 19*second, 1).At = base.Add(19400 * time.Millisecond)
		}, unexplained},
		"a request that no ledger has": {history.Replay, func(s *story) { s.rolledBack[0].runs = nil }, unexplained},
		"a fire that is gone with the lost ledger": {history.Replay, func(s *story) {
			s.runs = slices.DeleteFunc(s.runs, func(r run) bool { return r.at == ms(18*second) })
		}, lost},
		"a fire that nobody skipped": {history.Skip, func(s *story) { s.misfires = nil }, lost},
		"a job that does not go on": {history.Skip, func(s *story) {
			for due := 20 * second; due <= 30*second; due += second {
				s.drop(dense, due)
			}
			s.misfires[0].to, s.misfires[0].count = ms(30*second), 13
		}, unrecovered},
		"a run that is lost by no choice": {history.Replay, func(s *story) {
			r := s.run(dense, 18*second)
			r.state, r.message = "lost", "the database lost commits"
		}, lost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRolledBack(tt.choice)
			tt.spoil(s)
			if v := judged(t, s); len(v.found[tt.want]) == 0 {
				t.Errorf("found %v, want something %s", v.found, tt.want)
			}
		})
	}
}

func TestBadRowsAreJudged(t *testing.T) {
	t.Parallel()
	shown := history.Poisoning{Kind: "slots", Certain: true, Reason: "a value does not fit", Work: "slots", Counted: true,
		From: base.Add(20 * time.Second), Mended: base.Add(25 * time.Second)}
	mended := history.Poisoning{Kind: history.AllMended, Mended: base.Add(26 * time.Second)}
	goesOn := []history.Hit{{Job: "slots", ScheduledAt: base.Add(27 * time.Second)}}
	hidden, uncounted := shown, shown
	hidden.Reason, hidden.Work, uncounted.Counted = "", "", false
	for name, tt := range map[string]struct {
		poisoned poisoned
		want     fault // empty: none
	}{
		"all is well":              {poisoned{times: []history.Poisoning{shown, mended}, hits: goesOn}, ""},
		"it was not shown":         {poisoned{times: []history.Poisoning{hidden, mended}, hits: goesOn}, unexplained},
		"it was not counted":       {poisoned{times: []history.Poisoning{uncounted, mended}, hits: goesOn}, unexplained},
		"its job does not go on":   {poisoned{times: []history.Poisoning{shown, mended}}, unrecovered},
		"something of it was left": {poisoned{times: []history.Poisoning{shown, mended}, hits: goesOn, left: 1}, unrecovered},
	} {
		s := newStory()
		s.poisoned = tt.poisoned
		switch v := judged(t, s); {
		case tt.want == "" && !v.passed():
			t.Errorf("%s: found %v", name, v.found)
		case tt.want != "" && len(v.found[tt.want]) == 0:
			t.Errorf("%s: found %v, want something %s", name, v.found, tt.want)
		}
	}
}

// A run that moved while it waited is one run, and an attempt that it left behind is one of it, unless it was made again.
func TestMovedRunsAreJoined(t *testing.T) {
	t.Parallel()
	const second = time.Second
	f := func(n int64) fire { return fire{1, n, scheduled} }
	gone := func(n int64, attempt int) run {
		return run{fire: f(n), attempt: attempt, state: "cancelled", class: "job_deleted", started: at(second), ended: at(12 * second)}
	}
	when := func(d time.Duration) time.Time { return base.Add(d) }
	waited := func(n int64) history.WaitingRun {
		return history.WaitingRun{Job: "queue", Trigger: "main", Kind: "schedule", ScheduledAt: time.UnixMilli(n)}
	}
	h := record{
		triggers: []trigger{{id: 1, app: history.Moved, job: "queue", name: "main"}},
		moves: []history.Move{{
			From: here, To: history.Elsewhere, Exported: when(10 * second), Imported: when(11 * second), Removed: when(12 * second),
			Waiting: []history.WaitingRun{waited(2), waited(3), waited(4), waited(8), waited(9)},
		}, {
			From: history.Elsewhere, To: here, Exported: when(13 * second), Imported: when(15 * second),
			Waiting: []history.WaitingRun{waited(9)},
		}},
		ledger: ledger{
			runs: []run{{fire: f(1), attempt: 1, state: "succeeded", ended: at(5 * second)}, gone(2, 0), gone(3, 1), gone(4, 1),
				{fire: f(8), state: "skipped", ended: at(12 * second)},                 // the queue of its job was full
				{fire: f(9), attempt: 1, state: "succeeded", ended: at(14 * second)},   // it has come back, and the answer to the import is late
				{fire: f(10), attempt: 1, state: "succeeded", ended: at(12 * second)}}, // a fault: it did not move
			misfires: []misfire{{trigger: 1, from: 5, decided: ms(12 * second)}, {trigger: 1, from: 6, decided: ms(9 * second)}},
			attempts: []attempt{{fire: f(7), attempt: 1, began: ms(second), ended: ms(13 * second), state: "cancelled"}},
		},
	}
	ended := func(n int64, attempt int) run {
		return run{fire: f(n), attempt: attempt, state: "succeeded", ended: at(12 * second)}
	}
	h.join(ledger{runs: []run{ended(2, 1), ended(3, 2), ended(4, 1), ended(5, 1), ended(7, 2), ended(8, 1)}})
	var runs, misfires []int64
	for _, r := range h.runs {
		runs = append(runs, r.at)
	}
	for _, m := range h.misfires {
		misfires = append(misfires, m.from)
	}
	slices.Sort(runs)
	if diff := cmp.Diff([]int64{1, 2, 3, 4, 5, 7, 8, 9, 10}, runs); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int64{6}, misfires); diff != "" {
		t.Errorf("misfires (-want +got):\n%s", diff)
	}
	slices.SortFunc(h.attempts, func(a, b attempt) int { return int(a.at - b.at) })
	want := []attempt{
		{fire: f(3), attempt: 1, began: ms(second), ended: ms(10 * second), state: "lost"},
		{fire: f(7), attempt: 1, began: ms(second), ended: ms(10 * second), state: "lost"},
	}
	if !slices.Equal(h.attempts, want) {
		t.Errorf("attempts are %+v, want %+v", h.attempts, want)
	}
}
