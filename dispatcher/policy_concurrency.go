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
	defaultQueueLimit = 100
)

// Slots returns how many runs of the job there may be at once, over all nodes; 0 means no bound.
func (p JobPolicies) Slots() int {
	if p.MaxConcurrency == 0 && p.ConcurrencyPolicy != run.ConcurrencyAllow && p.ConcurrencyPolicy != "" {
		return 1
	}
	return p.MaxConcurrency
}

// checkConcurrency adds the problems of the bounds in p.
func (p JobPolicies) checkConcurrency(problems *input.Problems) {
	if p.ConcurrencyPolicy != "" {
		input.CheckEnum(problems, "/concurrency_policy", "concurrency_policy", p.ConcurrencyPolicy, run.ConcurrencyPolicies)
	}
	input.CheckRange(problems, "/max_concurrency", p.MaxConcurrency, 0, MaxMaxConcurrency)
	input.CheckRange(problems, "/queue_limit", p.QueueLimit, 0, MaxQueueLimit)
}

// Slot is the right of a run to execute, if its job bounds how many may at once. The run holds it until it ends,
// whichever node works on it. A cancelled run holds it until its request has stopped or its node is dead.
type Slot struct {
	// Run is the id of the run.
	Run string `json:"run" schema:"RunID"`
	// Endpoint is the endpoint that the slot belongs to; empty for a slot of the job. See
	// GroupTarget.EndpointConcurrency.
	Endpoint string `json:"endpoint,omitempty"`
	// Node is making an attempt of the run now; nil if no node is.
	Node *run.NodeID `json:"node,omitempty"`
	// Since is when the run got the slot.
	Since time.Time `json:"since"`
	// Ended is true if the run has ended. Its slot stays taken until Node has stopped its request.
	Ended bool `json:"ended,omitempty"`
}

// UndecidedError lists runs for which a Store could not decide about slots, because another transaction, such as a
// change of the definition, has locked their jobs. It decided about all others.
type UndecidedError struct {
	Runs []run.HeldRun
}

func (e *UndecidedError) Error() string {
	return fmt.Sprintf("%d runs have to ask again: their jobs are locked, the first of them run %s", len(e.Runs), e.Runs[0])
}

// Contender is a run that has a slot or wants one.
type Contender struct {
	run.Key
	// Live is true if the run has not ended. A run that ended may still have a request in flight.
	Live bool
	// Slot is true if it has a slot, and Busy if a live node makes an attempt with it.
	Slot, Busy bool
	// Asks is true if a node asks to begin it, and Waits if it has to wait.
	Asks, Waits bool
}

// TakesPart reports whether the run has a slot, or wants one now: it asks or waits.
func (c Contender) TakesPart() bool { return c.Live && (c.Slot || c.Asks || c.Waits) }

// backfills reports whether the run is part of a backfill. Such a run comes after all others, waits under every
// policy, because its instant is not requested again, and does not count toward QueueLimit. It may be replaced.
func (c Contender) backfills() bool { return c.Kind == run.KindBackfill }

// SlotDecision is what happens to a contender.
type SlotDecision int

// The decisions.
const (
	SlotStay   SlotDecision = iota // nothing changes
	SlotBegin                      // it has a slot and may begin
	SlotWait                       // it waits
	SlotWake                       // it stops waiting and asks again
	SlotSkip                       // it ends without an attempt
	SlotCancel                     // it has a slot and ends
)

// Contend decides, by the job's policy, about its runs that have a slot or want one. It sorts them, the earliest
// first, and returns a decision for each. Runs that neither ask nor wait yet keep their place in the order.
func (p JobPolicies) Contend(all []Contender) []SlotDecision { return p.contend(all, 0) }

// contend is Contend with the number of waiting runs that are not in all but count toward the job's QueueLimit.
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

// replace keeps the latest runs, as many as there are slots. The slot of a cancelled run is free when its request has
// stopped, or at once if it has none. A run is replaced only by runs that take part: one that has not asked yet may
// still end before it asks, and then no run would be attempted. Until it asks, the run before it waits.
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

// EndpointPolicy returns the policy for a run of the job that the strategy sends to an endpoint with another run of
// the job under way. With ConcurrencyAllow, which all targets but groups have, endpoints have no slots.
func (j Job) EndpointPolicy() run.ConcurrencyPolicy {
	if j.Target.Group == nil {
		return run.ConcurrencyAllow
	}
	return cmp.Or(j.Target.Group.EndpointConcurrency, run.ConcurrencyAllow)
}

// ContendForEndpoint is Contend for the slot of one endpoint, by a policy. waiting is how many runs of the job wait
// for other endpoints: they count toward the job's QueueLimit.
func (p JobPolicies) ContendForEndpoint(policy run.ConcurrencyPolicy, all []Contender, waiting int) []SlotDecision {
	return JobPolicies{ConcurrencyPolicy: policy, QueueLimit: p.QueueLimit}.contend(all, waiting)
}

// LeakKind is the kind of a leak.
type LeakKind string

// The kinds of leaks.
const (
	LeakSlot      LeakKind = "slot"      // a finished run still has a slot of its job or of an endpoint
	LeakHostWait  LeakKind = "host_wait" // a wait for a host exists without a waiting run
	LeakWaiting   LeakKind = "waiting"   // a run waits for a host, and no probe will release it
	LeakCallback  LeakKind = "callback"  // a run waits for a callback without a deadline
	LeakShard     LeakKind = "shard"     // a shard outlives the broadcast that it is part of
	LeakFollowing LeakKind = "following" // the end of a run was not followed
)

// Leak is something that a finished run still holds, or that keeps a run from going on, for longer than nodes take to
// free it. The cause is a fault of Carillon or its database, or an edit of the database.
type Leak struct {
	// slot: a finished run still has a slot. host_wait: a wait for a host exists without a waiting run. waiting: a
	// run waits for a host, and no probe will release it. callback: a run waits for a callback without a deadline.
	// shard: a shard outlives its broadcast. following: the end of a run was not followed.
	Kind LeakKind `json:"kind"`
	Job  string   `json:"job"` // name of the job
	// Run is the id of the run; empty if there is none.
	Run string `json:"run,omitempty" schema:"RunID"`
	// Of is the host, or the endpoint of the slot; empty for other leaks.
	Of string `json:"of,omitempty"`
	// Node has the slot; nil if the leak is not a slot.
	Node *run.NodeID `json:"node,omitempty"`
	// Since is when it was taken, or when the run that was not followed ended; nil if that is not known.
	Since *time.Time `json:"since,omitempty"`
}
