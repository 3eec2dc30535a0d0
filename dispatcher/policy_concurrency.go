package dispatcher

import (
	"cmp"
	"slices"
	"time"
)

// ConcurrencyPolicy says what becomes of a run of a job that finds all slots taken. It is not
// named after overlaps, because Schedule.Overlap is about daylight saving.
type ConcurrencyPolicy string

// The policies of concurrency. Without Job.MaxConcurrency, ConcurrencyAllow has slots without
// end, and the others have one.
const (
	ConcurrencyAllow   ConcurrencyPolicy = "allow"   // the run waits, as with queue, if there is a bound at all
	ConcurrencyForbid  ConcurrencyPolicy = "forbid"  // the run is skipped
	ConcurrencyQueue   ConcurrencyPolicy = "queue"   // the run waits for its turn; beyond Job.QueueLimit it is skipped
	ConcurrencyReplace ConcurrencyPolicy = "replace" // the oldest run is cancelled, and the new one begins when that has stopped
)

// Bounds and default of Job.MaxConcurrency and Job.QueueLimit.
const (
	MaxMaxConcurrency = 1000
	MaxQueueLimit     = 1000
	DefaultQueueLimit = 100
)

// Slots returns how many runs of the job there may be at once, over all nodes; 0: no bound.
func (j Job) Slots() int {
	if j.MaxConcurrency == 0 && j.ConcurrencyPolicy != ConcurrencyAllow && j.ConcurrencyPolicy != "" {
		return 1
	}
	return j.MaxConcurrency
}

// checkConcurrency adds what is wrong with how j bounds its runs.
func (j Job) checkConcurrency(problems *Problems) {
	switch j.ConcurrencyPolicy {
	case "", ConcurrencyAllow, ConcurrencyForbid, ConcurrencyQueue, ConcurrencyReplace:
	default:
		problems.Add("/concurrency_policy", CodeEnum, "concurrency_policy %s is not one of %s, %s, %s, %s", Echo(string(j.ConcurrencyPolicy)),
			ConcurrencyAllow, ConcurrencyForbid, ConcurrencyQueue, ConcurrencyReplace)
	}
	checkRange(problems, "/max_concurrency", j.MaxConcurrency, 0, MaxMaxConcurrency)
	checkRange(problems, "/queue_limit", j.QueueLimit, 0, MaxQueueLimit)
}

// Slot is the right of a run to be one of those that its job may have at once. The run holds it,
// whichever node works on it, until it has ended; of a run that was cancelled, until its request
// has been given up, or its node is dead.
type Slot struct {
	// Run is the id of the run.
	Run string `json:"run"`
	// Node makes an attempt of it; nil: none does at present.
	Node *NodeID `json:"node,omitempty"`
	// Since is when the run got the slot.
	Since time.Time `json:"since"`
}

// Contender is a run of a job that has a slot or is to have one.
type Contender struct {
	RunKey
	// Live tells that the run has not ended. One that has may still have a request in flight.
	Live bool
	// Slot tells that it has a slot, and Busy that a live node makes an attempt of it under that.
	Slot, Busy bool
	// Asks tells that it is about to begin, and Waits that it was told to wait.
	Asks, Waits bool
}

// Verdict is what becomes of a contender.
type SlotDecision int

// The verdicts.
const (
	SlotStay   SlotDecision = iota // nothing changes
	SlotBegin                      // it has a slot and may begin
	SlotWait                       // it is to wait
	SlotWake                       // it waited, and is to ask again
	SlotSkip                       // it ends without having begun
	SlotCancel                     // it has a slot and ends
)

// Contend says what becomes of the runs of a job that have a slot or are to have one, by its
// policy. It puts them in order, the earliest first, and returns as many verdicts. Runs that
// neither ask nor wait, because a node is only about to begin them, keep their place in line.
func (j Job) Contend(all []Contender) []SlotDecision {
	slices.SortFunc(all, func(a, b Contender) int {
		return cmp.Or(a.ScheduledAt.Compare(b.ScheduledAt), cmp.Compare(a.TriggerID, b.TriggerID), cmp.Compare(a.Kind.Code(), b.Kind.Code()))
	})
	verdicts := make([]SlotDecision, len(all))
	free, waiting := j.Slots(), 0
	if free == 0 {
		free = len(all) // the bound was lifted
	}
	for i, c := range all {
		if c.Waits {
			waiting++
		}
		if c.Slot {
			free--
			verdicts[i] = c.resume()
		}
	}
	if j.ConcurrencyPolicy == ConcurrencyReplace {
		j.replace(all, verdicts, free)
		return verdicts
	}
	for i, c := range all {
		switch {
		case c.Slot || !c.Live:
		case free > 0:
			free--
			verdicts[i] = c.admit()
		case !c.Asks:
		case j.ConcurrencyPolicy == ConcurrencyForbid || waiting >= max(j.QueueLimit, 1):
			verdicts[i] = SlotSkip
		default:
			waiting++
			verdicts[i] = SlotWait
		}
	}
	return verdicts
}

// replace lets the latest runs stay, as many as there are slots. The slot of one that is
// cancelled is free when its request has been given up, at once if it has none.
func (j Job) replace(all []Contender, verdicts []SlotDecision, free int) {
	stay := j.Slots()
	for i, c := range slices.Backward(all) {
		switch {
		case !c.Live:
		case stay > 0:
			stay--
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

// admit is what becomes of a contender for whom there is a slot.
func (c Contender) admit() SlotDecision {
	switch {
	case c.Asks:
		return SlotBegin
	case c.Waits:
		return SlotWake
	}
	return SlotStay
}

// resume is what becomes of a run that has its slot from an earlier attempt: it goes on unless
// that is still in flight, because the run was cancelled and then requested again.
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
