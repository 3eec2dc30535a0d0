package dispatcher_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// phase is how far a run of the model has come.
type phase uint8

const (
	unborn   phase = iota // its fire is still to come
	idle                  // a node has it, or will adopt it; it has not asked for a slot
	waits                 // it has to wait
	sent                  // it has a slot and a request in flight
	between               // it has a slot and waits for its next attempt
	stopping              // it was cancelled while its request was in flight, and keeps its slot until that has stopped
	done                  // it ended after an attempt
	ended                 // it ended before an attempt without a decision: cancelled, lost, deleted
	skipped               // it was skipped
)

// contenders are the runs of a model, the earliest first. asked has those that have ever asked for a slot.
type contenders struct {
	phase [3]phase
	asked [3]bool
}

// replacing explores what may happen to three runs of a job that replaces, in every order.
type replacing struct {
	*testing.T
	job  dispatcher.Job
	seen map[contenders]bool
}

// decide applies the decisions of the real function. asks is the run that asks, or -1.
func (m *replacing) decide(c contenders, asks int) contenders {
	var all []dispatcher.Contender
	var runs []int
	for i, p := range c.phase {
		if p == unborn || p >= done {
			continue
		}
		runs = append(runs, i)
		all = append(all, dispatcher.Contender{
			Key:  run.Key{TriggerID: 1, ScheduledAt: monday.Add(time.Duration(i) * time.Second), Kind: run.KindSchedule},
			Live: p != stopping, Slot: p == sent || p == between || p == stopping, Busy: p == sent || p == stopping,
			Asks: i == asks, Waits: p == waits,
		})
	}
	for n, verdict := range m.job.Contend(all) {
		i := runs[n]
		switch verdict {
		case dispatcher.SlotBegin:
			c.phase[i] = sent
		case dispatcher.SlotWait:
			c.phase[i] = waits
		case dispatcher.SlotWake:
			c.phase[i] = idle
		case dispatcher.SlotSkip:
			c.phase[i] = skipped
			m.replaced(c, i)
		case dispatcher.SlotCancel:
			m.replaced(c, i)
			c.phase[i] = map[phase]phase{sent: stopping, between: done}[c.phase[i]]
		}
	}
	return c
}

// replaced requires, if a run was replaced, that as many later runs as there are slots have asked for one and did not
// end before they began.
func (m *replacing) replaced(c contenders, i int) {
	later := 0
	for n := i + 1; n < len(c.phase); n++ {
		if c.asked[n] && c.phase[n] != ended && c.phase[n] != skipped {
			later++
		}
	}
	if later < m.job.Slots() {
		m.Fatalf("%v: run %d ends, and only %d later runs have asked for a slot", c, i, later)
	}
}

// explore continues a state in every possible way. A request in flight may end the run, or leave it to its next
// attempt; a run may end at any time before it begins.
func (m *replacing) explore(c contenders) {
	if m.seen[c] {
		return
	}
	m.seen[c] = true
	for i, p := range c.phase {
		next := func(to phase, asks int) {
			after := c
			after.phase[i] = to
			if asks >= 0 {
				after.asked[i] = true
			}
			m.explore(m.decide(after, asks))
			if asks < 0 {
				m.explore(after) // no decision until the handler runs
			}
		}
		switch p {
		case unborn:
			next(idle, -1)
		case idle:
			next(idle, i)
			next(ended, -1)
		case waits:
			next(ended, -1)
		case sent:
			next(done, -1)
			next(between, -1)
		case between:
			next(between, i)
			next(done, -1)
		case stopping:
			next(done, -1)
		}
	}
	m.explore(m.decide(c, -1)) // the handler
	m.goesOn(c)
}

// goesOn requires that the latest unfinished run begins once the requests in flight have ended and it has asked,
// unless it has begun.
func (m *replacing) goesOn(c contenders) {
	latest := -1
	for i, p := range c.phase {
		switch p {
		case sent, stopping:
			c.phase[i] = done
		case idle, waits, between:
			latest = i
		}
	}
	if latest < 0 || c.phase[latest] == between {
		return
	}
	c = m.decide(c, -1)
	if c.phase[latest] == idle {
		c.asked[latest] = true
		c = m.decide(c, latest)
	}
	if c.phase[latest] == waits { // for the request of a run that it replaced
		m.Fatalf("%v: run %d waits, and nothing is in flight", c, latest)
	}
	if c.phase[latest] != sent {
		m.Fatalf("%v: run %d is the latest and does not begin", c, latest)
	}
}

// A run is replaced only by later ones that have asked for a slot. So the latest run that does not end for another
// cause is always attempted: a later one that has not asked yet may still end before it asks.
func TestReplaceAttemptsTheLatestRunInEveryOrder(t *testing.T) {
	t.Parallel()
	for slots := 1; slots <= 2; slots++ {
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			t.Parallel()
			m := &replacing{t,
				dispatcher.Job{JobSpec: dispatcher.JobSpec{JobPolicies: dispatcher.JobPolicies{ConcurrencyPolicy: run.ConcurrencyReplace,
					MaxConcurrency: slots}}}, map[contenders]bool{}}
			m.explore(contenders{})
			t.Logf("%d states", len(m.seen))
		})
	}
}
