package dispatcher

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Bounds and default of Job.MaxConcurrency and Job.QueueLimit.
const (
	MaxMaxConcurrency = 1000
	MaxQueueLimit     = 1000
	DefaultQueueLimit = 100
)

// Slots returns how many runs of the job there may be at once, over all nodes; 0: no bound.
func (p JobPolicies) Slots() int {
	if p.MaxConcurrency == 0 && p.ConcurrencyPolicy != run.ConcurrencyAllow && p.ConcurrencyPolicy != "" {
		return 1
	}
	return p.MaxConcurrency
}

// checkConcurrency adds what is wrong with how p bounds runs.
func (p JobPolicies) checkConcurrency(problems *input.Problems) {
	if p.ConcurrencyPolicy != "" {
		input.CheckEnum(problems, "/concurrency_policy", "concurrency_policy", p.ConcurrencyPolicy, run.ConcurrencyPolicies)
	}
	input.CheckRange(problems, "/max_concurrency", p.MaxConcurrency, 0, MaxMaxConcurrency)
	input.CheckRange(problems, "/queue_limit", p.QueueLimit, 0, MaxQueueLimit)
}

// Slot is the right of a run to execute when its job bounds how many may. The run holds it until
// it ends, whichever node works on it. A cancelled run holds it until its request has stopped or its
// node is dead.
type Slot struct {
	// Run is the id of the run.
	Run string `json:"run" schema:"RunID"`
	// Endpoint is the endpoint whose slot it is; empty: the slot is the job's. See GroupTarget.EndpointConcurrency.
	Endpoint string `json:"endpoint,omitempty"`
	// Node makes an attempt of it now; nil: none does.
	Node *run.NodeID `json:"node,omitempty"`
	// Since is when the run got the slot.
	Since time.Time `json:"since"`
	// Ended tells that the run has ended. Its slot is taken until Node has given its request up.
	Ended bool `json:"ended,omitempty"`
}

// UndecidedError is the error of a Store for runs about whose slots it could not decide, because somebody else, for
// example a change of the definition, has locked their jobs. It decided about all others.
type UndecidedError struct {
	Runs []run.HeldRun
}

func (e *UndecidedError) Error() string {
	return fmt.Sprintf("%d runs have to ask again: their jobs are locked, the first of them run %s", len(e.Runs), e.Runs[0])
}

// Contender is a run that has a slot or wants one.
type Contender struct {
	run.Key
	// Live tells that the run has not ended. A run that ended may still have a request in flight.
	Live bool
	// Slot tells that it has a slot, and Busy that a live node makes an attempt with it.
	Slot, Busy bool
	// Asks tells that a node asks to begin it, and Waits that it was told to wait.
	Asks, Waits bool
}

// TakesPart reports whether the run has a slot, or wants one now: it asks or waits.
func (c Contender) TakesPart() bool { return c.Live && (c.Slot || c.Asks || c.Waits) }

// backfills tells whether the run is of a backfill. Such a run goes after all others, waits whatever the policy is, because
// nobody asks for its instant again, and does not count to QueueLimit. It may be replaced.
func (c Contender) backfills() bool { return c.Kind == run.KindBackfill }

// SlotDecision is what happens to a contender.
type SlotDecision int

// The decisions.
const (
	SlotStay   SlotDecision = iota // nothing changes
	SlotBegin                      // it has a slot and may begin
	SlotWait                       // it waits
	SlotWake                       // it waited, and asks again
	SlotSkip                       // it ends without an attempt
	SlotCancel                     // it has a slot and ends
)

// Contend decides, by the job's policy, what happens to its runs that have a slot or want one. It
// sorts them, the earliest first, and returns a decision for each. Runs that neither ask nor wait
// yet keep their place in the order.
func (p JobPolicies) Contend(all []Contender) []SlotDecision { return p.contend(all, 0) }

// contend is Contend where some runs wait already that are not among all, but count to the job's QueueLimit.
func (p JobPolicies) contend(all []Contender, waiting int) []SlotDecision {
	slices.SortFunc(all, func(a, b Contender) int {
		if p.ConcurrencyPolicy != run.ConcurrencyReplace && a.backfills() != b.backfills() {
			return map[bool]int{true: 1, false: -1}[a.backfills()]
		}
		return cmp.Or(a.ScheduledAt.Compare(b.ScheduledAt), cmp.Compare(a.TriggerID, b.TriggerID), cmp.Compare(a.Code(), b.Code()))
	})
	verdicts := make([]SlotDecision, len(all))
	free := p.Slots()
	if free == 0 {
		free = len(all) // the bound was lifted
	}
	for i, c := range all {
		if c.Waits && !c.backfills() {
			waiting++
		}
		if c.Slot {
			free--
			verdicts[i] = c.resume()
		}
	}
	if p.ConcurrencyPolicy == run.ConcurrencyReplace {
		p.replace(all, verdicts, free)
		return verdicts
	}
	for i, c := range all {
		switch {
		case c.Slot || !c.Live:
		case free > 0:
			free--
			verdicts[i] = c.admit()
		case !c.Asks:
		case c.backfills():
			verdicts[i] = SlotWait
		case p.ConcurrencyPolicy == run.ConcurrencyForbid || waiting >= max(p.QueueLimit, 1):
			verdicts[i] = SlotSkip
		default:
			waiting++
			verdicts[i] = SlotWait
		}
	}
	return verdicts
}

// replace keeps the latest runs, as many as there are slots. The slot of a cancelled run is free when
// its request has stopped, or at once if it has none. A run ends only in favor of runs that take part:
// one that has not asked yet may still end before it does, and then nothing would be attempted. Until
// it asks, the run before it waits.
func (p JobPolicies) replace(all []Contender, verdicts []SlotDecision, free int) {
	stay := p.Slots()
	for i, c := range slices.Backward(all) {
		switch {
		case !c.Live:
		case stay > 0:
			if c.TakesPart() {
				stay--
			}
		case c.Slot:
			verdicts[i] = SlotCancel
			if !c.Busy {
				free++
			}
		case c.Asks || c.Waits:
			verdicts[i] = SlotSkip
		}
	}
	for i, c := range slices.Backward(all) {
		switch {
		case c.Slot || !c.Live || verdicts[i] == SlotSkip:
		case free > 0:
			free--
			verdicts[i] = c.admit()
		case c.Asks:
			verdicts[i] = SlotWait
		}
	}
}

// admit decides about a contender that gets a slot.
func (c Contender) admit() SlotDecision {
	switch {
	case c.Asks:
		return SlotBegin
	case c.Waits:
		return SlotWake
	}
	return SlotStay
}

// resume decides about a run that has its slot from an earlier attempt. It goes on unless that
// attempt is still in flight, because the run was cancelled and then requested again.
func (c Contender) resume() SlotDecision {
	switch {
	case !c.Live:
		return SlotStay
	case c.Asks && c.Busy:
		return SlotWait
	case c.Waits && c.Busy:
		return SlotStay
	}
	return c.admit()
}

// EndpointPolicy returns what happens to a run of the job that the strategy sends to an endpoint at which another run of
// the job is under way. With ConcurrencyAllow, as for all targets but groups, endpoints have no slots.
func (j Job) EndpointPolicy() run.ConcurrencyPolicy {
	if j.Target.Group == nil {
		return run.ConcurrencyAllow
	}
	return cmp.Or(j.Target.Group.EndpointConcurrency, run.ConcurrencyAllow)
}

// ContendForEndpoint is Contend for the slot of one endpoint, by a policy. waiting is how many runs of the job wait for
// other endpoints: they count to the job's QueueLimit.
func (p JobPolicies) ContendForEndpoint(policy run.ConcurrencyPolicy, all []Contender, waiting int) []SlotDecision {
	return JobPolicies{ConcurrencyPolicy: policy, QueueLimit: p.QueueLimit}.contend(all, waiting)
}

// LeakKind says what is held for a run, or keeps it, although nothing will free it.
type LeakKind string

// The kinds of leaks.
const (
	LeakSlot      LeakKind = "slot"      // a run that has ended still has a slot of its job or of an endpoint
	LeakHostWait  LeakKind = "host_wait" // a host is waited for, and no run does
	LeakWaiting   LeakKind = "waiting"   // a run waits for a host, and no probe will let it go
	LeakCallback  LeakKind = "callback"  // a run waits for a callback without a deadline
	LeakShard     LeakKind = "shard"     // a shard outlives the broadcast that it is part of
	LeakFollowing LeakKind = "following" // the end of a run was not followed
)

// Leak is something that is held for a run which has ended, or that keeps a run from going on, for longer than nodes take to free it.
// It is a fault of Carillon, of its database, or of somebody who edited that.
type Leak struct {
	// slot: a run that has ended still has a slot. host_wait: a host is waited for, and no run does. waiting:
	// a run waits for a host, and no probe will let it go. callback: a run waits for a callback without a
	// deadline. shard: a shard outlives its broadcast. following: the end of a run was not followed.
	Kind LeakKind `json:"kind"`
	Job  string   `json:"job"` // its name
	// Run is the id of the run; empty: there is none.
	Run string `json:"run,omitempty" schema:"RunID"`
	// Of is the endpoint of the slot or the host; empty: it is about neither.
	Of string `json:"of,omitempty"`
	// Node has the slot; nil: it is no slot.
	Node *run.NodeID `json:"node,omitempty"`
	// Since is when it was taken, or the run ended that is not followed; nil: that is not known.
	Since *time.Time `json:"since,omitempty"`
}
