package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
)

// contender is a run that has or wants a slot, as the tables have it.
type contender struct {
	dispatcher.Contender
	held     dispatcher.HeldRun
	node     dispatcher.NodeID // of the run
	slotNode dispatcher.NodeID // of the slot
}

// arbitration is what is decided about the slots of some jobs.
type arbitration struct {
	stale             []dispatcher.HeldRun // whose slots no run needs any more
	begin, wait, wake []*contender
	skip, cancel      []ending
}

// ending is a run that ends because of others.
type ending struct {
	*contender
	why string
}

// arbitrate decides about the slots of jobs and writes its decisions. It returns the runs among
// asking that may begin.
func (s *store) arbitrate(ctx context.Context, t *tx, ids []int64, asking []dispatcher.HeldRun) ([]dispatcher.HeldRun, error) {
	jobs, err := t.lockJobs(ctx, ids)
	if err != nil {
		return nil, err
	}
	all, err := t.liveContenders(ctx, ids, asking)
	if err != nil {
		return nil, err
	}
	var c arbitration
	if c.stale, err = t.addSlots(ctx, ids, all); err != nil {
		return nil, err
	}
	for _, id := range ids {
		c.decide(t, jobs[id], all[id])
	}
	granted := make([]dispatcher.HeldRun, len(c.begin))
	for i, r := range c.begin {
		granted[i] = r.held
	}
	return granted, s.writeDecisions(ctx, t, c)
}

// liveContenders reads the live runs of jobs. asking are those that are about to begin. A run that
// its node no longer holds does not ask, and is read like any other.
func (t *tx) liveContenders(ctx context.Context, jobs []int64, asking []dispatcher.HeldRun) (map[int64][]*contender, error) {
	asks := make(map[dispatcher.RunKey]dispatcher.HeldRun, len(asking))
	for _, run := range asking {
		asks[run.RunKey] = run
	}
	all := map[int64][]*contender{}
	_, err := collect(ctx, t, func(row scanner) (struct{}, error) {
		r := &contender{Contender: dispatcher.Contender{Live: true}}
		err := row.Scan(&r.held.JobID, instantColumn(&r.ScheduledAt), &r.TriggerID, kindColumn(&r.Kind), &r.node,
			&r.held.Token, &r.held.Attempt)
		r.held.RunKey = r.RunKey
		if run, ok := asks[r.RunKey]; ok && run.Token == r.held.Token && run.Attempt == r.held.Attempt {
			r.Asks, r.held = true, run
		}
		r.Waits = r.node == waitingNode
		all[r.held.JobID] = append(all[r.held.JobID], r)
		return struct{}{}, err
	}, t.hot.slots.live, t.batch(jobs)...)
	return all, err
}

// addSlots marks the contenders that have a slot. It returns the stale slots: those of runs that have
// ended, unless a live node may still have a request of the run in flight. It has none once the
// outcome is recorded under the token of the slot.
func (t *tx) addSlots(ctx context.Context, jobs []int64, all map[int64][]*contender) (stale []dispatcher.HeldRun, err error) {
	byKey := map[dispatcher.RunKey]*contender{}
	for _, contenders := range all {
		for _, r := range contenders {
			byKey[r.RunKey] = r
		}
	}
	_, err = collect(ctx, t, func(row scanner) (struct{}, error) {
		var slot dispatcher.HeldRun
		var node dispatcher.NodeID
		var runToken dispatcher.Token
		var state dispatcher.NodeState
		err := row.Scan(&slot.JobID, instantColumn(&slot.ScheduledAt), &slot.TriggerID, kindColumn(&slot.Kind), &node,
			&slot.Token, &runToken, &state)
		if err != nil {
			return struct{}{}, err
		}
		busy := node != 0 && state != dispatcher.NodeDead
		switch r := byKey[slot.RunKey]; {
		case r != nil:
			// To go on under the token that the slot has is no second attempt.
			r.Slot, r.slotNode, r.Busy = true, node, busy && !(r.Asks && slot.Token == r.held.Token)
		case busy && slot.Token != runToken:
			all[slot.JobID] = append(all[slot.JobID], &contender{
				Contender: dispatcher.Contender{RunKey: slot.RunKey, Slot: true, Busy: true}, held: slot, slotNode: node,
			})
		default:
			stale = append(stale, slot)
		}
		return struct{}{}, nil
	}, t.hot.slots.held, t.batch(jobs)...)
	return stale, err
}

// decide adds what becomes of the contenders of one job.
func (c *arbitration) decide(t *tx, job dispatcher.Job, contenders []*contender) {
	byKey, all := make(map[dispatcher.RunKey]*contender, len(contenders)), make([]dispatcher.Contender, len(contenders))
	for i, r := range contenders {
		byKey[r.RunKey], all[i] = r, r.Contender
	}
	verdicts := job.Contend(all)
	for i, verdict := range verdicts {
		r := byKey[all[i].RunKey]
		switch verdict {
		case dispatcher.SlotStay:
			if !r.Live {
				t.notify(r.String()) // its node may have missed that it was cancelled
			}
		case dispatcher.SlotBegin:
			c.begin = append(c.begin, r)
		case dispatcher.SlotWait:
			c.wait = append(c.wait, r)
		case dispatcher.SlotWake:
			c.wake = append(c.wake, r)
		case dispatcher.SlotSkip:
			c.skip = append(c.skip, ending{r, whySkipped(job, all, verdicts, byKey, r)})
		case dispatcher.SlotCancel:
			c.cancel = append(c.cancel, ending{r, "replaced by run " + latestLive(all).String()})
			t.notify(r.String())
		}
	}
	if len(c.wake)+len(c.skip) > 0 {
		// Also for fixed delays, which go on from a run that was skipped.
		t.notify(dispatcher.Notification{Adopt: true})
	}
}

// latestLive returns the latest of contenders in order that has not ended.
func latestLive(all []dispatcher.Contender) dispatcher.RunKey {
	for _, c := range slices.Backward(all) {
		if c.Live {
			return c.RunKey
		}
	}
	return dispatcher.RunKey{}
}

// whySkipped names the run that is in the way of another. all are in order.
func whySkipped(job dispatcher.Job, all []dispatcher.Contender, verdicts []dispatcher.SlotDecision,
	byKey map[dispatcher.RunKey]*contender, of *contender) string {
	if job.ConcurrencyPolicy == dispatcher.ConcurrencyReplace {
		return fmt.Sprintf("replaced by run %s before it began", latestLive(all))
	}
	at := slices.IndexFunc(all, func(o dispatcher.Contender) bool { return o.Slot })
	for i := range all {
		// Else who gets it now, or is about to.
		if at < 0 && all[i].RunKey != of.RunKey && verdicts[i] != dispatcher.SlotSkip {
			at = i
		}
	}
	holder := byKey[all[max(at, 0)].RunKey]
	why := fmt.Sprintf("run %s has the slot", holder)
	if n := job.Slots(); n > 1 {
		why = fmt.Sprintf("%d runs have the slots, the first of them run %s", n, holder)
	}
	if node := max(holder.slotNode, holder.node); node > 0 {
		why += fmt.Sprintf(" on node %s", node)
	}
	if job.ConcurrencyPolicy != dispatcher.ConcurrencyForbid {
		why = fmt.Sprintf("%d runs wait already, the most that queue_limit allows; %s", max(job.QueueLimit, 1), why)
	}
	return why
}

// writeDecisions writes what was decided.
func (s *store) writeDecisions(ctx context.Context, t *tx, c arbitration) error {
	slots := t.hot.slots
	for _, step := range []struct {
		what, query string
		args        []any
	}{
		{"free slots", slots.free, s.endingArgs(false, free(c.stale)...)},
		{"record cancelled attempts", slots.cancelAttempts, s.endingArgs(true, c.cancel...)},
		{"cancel runs", slots.cancel, s.endingArgs(true, c.cancel...)},
		{"skip runs", slots.skip, s.endingArgs(true, c.skip...)},
		{"make runs wait", slots.wait, s.endingArgs(false, plain(c.wait)...)},
		{"wake runs", slots.wake, s.endingArgs(false, plain(c.wake)...)},
		{"grant slots", slots.grant, s.slotArgs(c.begin)},
	} {
		if step.args == nil {
			continue
		}
		if _, err := t.ExecContext(ctx, step.query, step.args...); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// plain returns contenders that end without a reason, and free those of slots.
func plain(contenders []*contender) []ending {
	all := make([]ending, len(contenders))
	for i, r := range contenders {
		all[i].contender = r
	}
	return all
}

func free(slots []dispatcher.HeldRun) []ending {
	all := make([]ending, len(slots))
	for i, slot := range slots {
		all[i].contender = &contender{held: slot}
	}
	return all
}

// endingArgs returns the batch of runs, with the reason if withWhy, in the order in which all
// statements lock them; nil without any.
func (s *store) endingArgs(withWhy bool, all ...ending) []any {
	if len(all) == 0 {
		return nil
	}
	var k keys
	var why []string
	for _, one := range sortedBy(all, func(e ending) dispatcher.RunKey { return e.held.RunKey }) {
		k.add(one.held.RunKey, one.held.Token, one.held.Attempt)
		why = append(why, one.why)
	}
	columns := []any{k.at, k.trigger, k.kind, k.token, k.attempt}
	if withWhy {
		columns = append(columns, why)
	}
	return s.dated(columns...)
}

// slotArgs returns the batch of slots that are granted, nil without any.
func (s *store) slotArgs(all []*contender) []any {
	if len(all) == 0 {
		return nil
	}
	var k keys
	var node, job []int64
	for _, r := range all {
		k.add(r.held.RunKey, r.held.Token, r.held.Attempt)
		node, job = append(node, int64(r.node)), append(job, r.held.JobID)
	}
	return s.batch(k.at, k.trigger, k.kind, k.token, k.attempt, node, job)
}
