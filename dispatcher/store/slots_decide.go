package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
)

// contender is a run that has or wants a slot, as the tables have it.
type contender struct {
	dispatcher.Contender
	held      dispatcher.HeldRun
	node      dispatcher.NodeID // of the run
	slotNode  dispatcher.NodeID // of the slot
	slotToken dispatcher.Token
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

// arbitrate decides about the slots of jobs that are locked, and writes its decisions. It returns the runs among
// asking that may begin.
func (s *store) arbitrate(ctx context.Context, t *tx, jobs map[int64]dispatcher.Job, asking []dispatcher.HeldRun) (
	[]dispatcher.HeldRun, error,
) {
	r := reading{t: t, jobs: slices.Sorted(maps.Keys(jobs)), all: map[int64][]*contender{}, byKey: map[dispatcher.RunKey]*contender{}}
	if err := r.read(ctx, jobs, asking); err != nil {
		return nil, err
	}
	c := arbitration{stale: r.stale}
	for _, id := range r.jobs {
		c.decide(t, jobs[id], r.all[id])
	}
	granted := make([]dispatcher.HeldRun, len(c.begin))
	for i, r := range c.begin {
		granted[i] = r.held
	}
	return granted, s.writeDecisions(ctx, t, c)
}

// reading collects the contenders of jobs: of the live runs of a job, of which there may be any number, those about
// which there is something to decide.
type reading struct {
	t     *tx
	jobs  []int64
	all   map[int64][]*contender
	byKey map[dispatcher.RunKey]*contender
	// stale are the slots of runs that have ended, unless a live node may still have a request of the run in flight.
	stale []dispatcher.HeldRun
	most  int // slots of one job that are taken
}

// liftedAtOnce is how many runs of a job go on at once when its bound was lifted.
const liftedAtOnce = 1000

// read reads the runs that have a slot, ask for one or wait for one, and the first and last of all, as many as
// there are slots: these get the free ones, whether they ask already or only hold their place in the order.
func (r *reading) read(ctx context.Context, jobs map[int64]dispatcher.Job, asking []dispatcher.HeldRun) error {
	hot := r.t.hot.slots
	if err := r.slots(ctx, hot.held); err != nil {
		return err
	}
	if len(asking) > 0 {
		if err := r.runs(ctx, hot.asking, asking, keysIn(r.t, asking)...); err != nil {
			return err
		}
	}
	edge := 0
	for _, job := range jobs {
		n := job.Slots()
		if n == 0 {
			n = liftedAtOnce
		}
		edge = max(edge, n)
	}
	ids := r.t.batch(r.jobs)
	return errors.Join(r.runs(ctx, hot.waiting, nil, ids...), r.runs(ctx, hot.edges, nil, append([]any{int64(edge + r.most)}, ids...)...))
}

// runs adds live runs. asking are those that are about to begin, and which their node still holds.
func (r *reading) runs(ctx context.Context, query string, asking []dispatcher.HeldRun, args ...any) error {
	asks := make(map[dispatcher.RunKey]dispatcher.HeldRun, len(asking))
	for _, run := range asking {
		asks[run.RunKey] = run
	}
	_, err := collect(ctx, r.t, func(row scanner) (struct{}, error) {
		c := &contender{Contender: dispatcher.Contender{Live: true}}
		err := row.Scan(&c.held.JobID, instantColumn(&c.ScheduledAt), &c.TriggerID, kindColumn(&c.Kind), &c.node,
			&c.held.Token, &c.held.Attempt)
		if run, ok := asks[c.RunKey]; ok {
			c = r.add(c)
			c.Asks, c.held = true, run
			// To go on under the token that the slot has is no second attempt.
			c.Busy = c.Busy && c.slotToken != run.Token
		} else {
			r.add(c)
		}
		return struct{}{}, err
	}, query, args...)
	return err
}

// add adds a contender, unless it is there already, and returns what is there.
func (r *reading) add(c *contender) *contender {
	c.held.RunKey = c.RunKey
	if old := r.byKey[c.RunKey]; old != nil {
		return old
	}
	c.Waits = c.Live && c.node == waitingNode
	r.byKey[c.RunKey] = c
	r.all[c.held.JobID] = append(r.all[c.held.JobID], c)
	return c
}

// slots adds the runs that have slots. A run that has ended keeps its slot while its node lives and has not said
// that the attempt is over.
func (r *reading) slots(ctx context.Context, query string) error {
	taken := map[int64]int{}
	_, err := collect(ctx, r.t, func(row scanner) (struct{}, error) {
		c := &contender{Contender: dispatcher.Contender{Slot: true}}
		var state dispatcher.NodeState
		err := row.Scan(&c.held.JobID, instantColumn(&c.ScheduledAt), &c.TriggerID, kindColumn(&c.Kind), &c.node, &c.held.Token,
			&c.held.Attempt, &c.Live, &c.slotNode, &c.slotToken, &state)
		c.Busy = c.slotNode != 0 && state != dispatcher.NodeDead
		switch {
		case c.Live:
		case c.Busy:
			c.held.Token = c.slotToken
		default:
			c.held.RunKey = c.RunKey
			r.stale = append(r.stale, c.held)
			return struct{}{}, err
		}
		r.add(c)
		taken[c.held.JobID]++
		r.most = max(r.most, taken[c.held.JobID])
		return struct{}{}, err
	}, query, r.t.batch(r.jobs)...)
	return err
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
				// Its node may have missed that it was cancelled. Which attempt that was follows from the token.
				t.notify(dispatcher.Notification{Run: r.String(), Token: r.slotToken})
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
			t.notify(dispatcher.Notification{Run: r.String(), Token: r.held.Token, Attempt: r.held.Attempt})
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
	slots, now := t.hot.slots, t.now.UnixMilli()
	if len(c.cancel)+len(c.skip) > 0 && t.by.Now.IsZero() {
		// The jobs' locks may have been waited for, and the runs in whose favor others end came meanwhile.
		at, err := t.clock(ctx, t)
		if err != nil {
			return err
		}
		now = at.UnixMilli()
	}
	for _, step := range []struct {
		what  string
		by    statement
		count int
		args  func() []any
	}{
		{"free slots", write(slots.free), len(c.stale), func() []any { return s.slotsOf(c.stale) }},
		{"cancel runs", slots.cancel, len(c.cancel), func() []any { return endingArgs(t, now, c.cancel) }},
		{"skip runs", slots.skip, len(c.skip), func() []any { return endingArgs(t, now, c.skip) }},
		{"make runs wait", write(slots.wait), len(c.wait), func() []any { return keysIn(t, runsOf(c.wait)) }},
		{"wake runs", write(slots.wake), len(c.wake), func() []any { return keysIn(t, runsOf(c.wake)) }},
		{"grant slots", write(slots.grant), len(c.begin), func() []any { return s.slotArgs(c.begin) }},
	} {
		if step.count == 0 {
			continue
		}
		if err := t.take(ctx, step.by, step.args()...); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// take runs the parts of a hot statement in the transaction.
func (t *tx) take(ctx context.Context, hot statement, args ...any) error {
	for _, part := range hot.parts {
		if _, err := t.ExecContext(ctx, part, args...); err != nil {
			return err
		}
	}
	return nil
}

// runsOf returns the runs of contenders.
func runsOf(contenders []*contender) []dispatcher.HeldRun {
	all := make([]dispatcher.HeldRun, len(contenders))
	for i, r := range contenders {
		all[i] = r.held
	}
	return all
}

// endingArgs returns the parameters of runs that end: now and the batch, with reasons, in the order in which all
// statements lock them.
func endingArgs(f flavor, now int64, all []ending) []any {
	var k keys
	var why []string
	for _, one := range sortedBy(all, func(e ending) dispatcher.RunKey { return e.held.RunKey }) {
		k.add(one.held.RunKey, one.held.Token, one.held.Attempt)
		why = append(why, one.why)
	}
	return append([]any{now}, f.batch(k.at, k.trigger, k.kind, k.token, k.attempt, why)...)
}

// slotArgs returns the batch of slots.
func (s *store) slotArgs(all []*contender) []any {
	var k keys
	var node, job []int64
	for _, r := range all {
		k.add(r.held.RunKey, r.held.Token, r.held.Attempt)
		node, job = append(node, int64(r.node)), append(job, r.held.JobID)
	}
	return s.batch(k.at, k.trigger, k.kind, k.token, k.attempt, node, job)
}
