package dispatch

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Contender is a run that has or wants a slot, as read from the tables.
type Contender struct {
	dispatcher.Contender
	Held      run.HeldRun
	endpoint  string     // of the slot; empty: a slot of the job
	Node      run.NodeID // of the run
	slotNode  run.NodeID // of the slot
	slotToken run.Token
}

// question is the request of an arbitration, besides granting free slots.
type question struct {
	runs []run.HeldRun // that want to begin
	// at has the endpoints of the wanted slots; nil: the runs want slots of their jobs.
	at map[run.Key]target.EndpointRequest
	// gone asks to search for runs that wait for removed endpoints.
	gone bool
}

// arbitration has the decisions about the slots of some jobs.
type arbitration struct {
	stale             []*Contender // with slots that no run needs any more
	begin, wait, wake []*Contender
	skip, cancel      []Ending
	busy              []Ending // these do not end: they may ask for the slot of another endpoint
}

// Ending is a run that ends because of another.
type Ending struct {
	*Contender
	Why    string
	reason SkipReason // of a skipped run
}

// arbitrate decides about the slots of locked jobs, and writes and returns its decisions. begin contains only runs that
// ask.
func (s *Store) arbitrate(ctx context.Context, t *Tx, jobs map[int64]lockedJob, q question) (arbitration, error) {
	r := reading{
		t: t, jobs: slices.Sorted(maps.Keys(jobs)), all: map[slotKey][]*Contender{}, byKey: map[contenderKey]*Contender{},
		atEndpoint: map[run.Key][]*Contender{},
	}
	if err := r.read(ctx, jobs, q); err != nil {
		return arbitration{}, err
	}
	c := arbitration{stale: r.stale, busy: r.busy}
	for _, id := range r.jobs {
		job := jobs[id]
		c.decide(t, job.JobPolicies, job.Contend, c.withoutShards(r.all[slotKey{job: id}]))
		c.decideEndpoints(t, job, id, &r)
	}
	return c, s.writeDecisions(ctx, t, c)
}

// withoutShards returns the contenders for the slots of a job without shards: a broadcast has one slot for all of them.
// A shard counts only if an ended parent left it a slot. A shard that waits, but no longer for an endpoint, is woken.
func (c *arbitration) withoutShards(all []*Contender) []*Contender {
	runs := make([]*Contender, 0, len(all))
	for _, r := range all {
		switch {
		case r.Shard == 0 || r.Slot:
			runs = append(runs, r)
		case r.Waits:
			c.wake = append(c.wake, r)
		}
	}
	return runs
}

// decide adds the decisions for the slots of one job, or for one endpoint.
func (c *arbitration) decide(
	t *Tx, of dispatcher.JobPolicies, contend func([]dispatcher.Contender) []dispatcher.SlotDecision, contenders []*Contender,
) {
	byKey, all := make(map[run.Key]*Contender, len(contenders)), make([]dispatcher.Contender, len(contenders))
	for i, r := range contenders {
		byKey[r.Key], all[i] = r, r.Contender
	}
	verdicts := contend(all)
	for i, verdict := range verdicts {
		r := byKey[all[i].Key]
		switch verdict {
		case dispatcher.SlotStay:
			if !r.Live {
				// Its node may have missed the cancellation. The token identifies the attempt.
				t.Notify(dispatcher.Notification{Run: r.String(), Token: r.slotToken})
			}
		case dispatcher.SlotBegin:
			c.begin = append(c.begin, r)
		case dispatcher.SlotWait:
			c.wait = append(c.wait, r)
		case dispatcher.SlotWake:
			c.wake = append(c.wake, r)
		case dispatcher.SlotSkip:
			c.end(Ending{r, whySkipped(of, all, verdicts, byKey, r), reasonOfSkip(of.ConcurrencyPolicy, r.endpoint)})
		case dispatcher.SlotCancel:
			c.cancel = append(c.cancel, Ending{Contender: r, Why: "replaced by run " + latest(all).String()})
			t.Notify(dispatcher.Notification{Run: r.String(), Token: r.Held.Token, Attempt: r.Held.Attempt})
		}
	}
	if len(c.wake)+len(c.skip) > 0 {
		// Also for fixed delays, which continue from a skipped run.
		t.Notify(dispatcher.Notification{Adopt: true})
	}
}

// end adds a run that gets no slot. It is skipped, unless it was attempted before: skipping would hide the outcome of
// that attempt.
func (c *arbitration) end(e Ending) {
	if e.endpoint != "" && e.Held.Attempt > 1 {
		c.cancel = append(c.cancel, e)
		return
	}
	c.skip = append(c.skip, e)
}

// latest returns the latest participating contender, in favor of which others end.
func latest(all []dispatcher.Contender) run.Key {
	for _, c := range slices.Backward(all) {
		if c.TakesPart() {
			return c.Key
		}
	}
	return run.Key{}
}

// whySkipped names the run that blocks another one. all are in order.
func whySkipped(by dispatcher.JobPolicies, all []dispatcher.Contender, verdicts []dispatcher.SlotDecision,
	byKey map[run.Key]*Contender, of *Contender) string {
	if by.ConcurrencyPolicy == run.ConcurrencyReplace {
		return fmt.Sprintf("replaced by run %s before it began", latest(all))
	}
	at := slices.IndexFunc(all, func(o dispatcher.Contender) bool { return o.Slot })
	for i := range all {
		// Otherwise the run that gets it now, or is about to.
		if at < 0 && all[i].Key != of.Key && verdicts[i] != dispatcher.SlotSkip {
			at = i
		}
	}
	holder := byKey[all[max(at, 0)].Key]
	why := fmt.Sprintf("run %s has the slot", holder)
	if n := by.Slots(); of.endpoint != "" {
		why = fmt.Sprintf("endpoint %s runs run %s already", of.endpoint, holder)
	} else if n > 1 {
		why = fmt.Sprintf("%d runs have the slots, the first of them run %s", n, holder)
	}
	if node := max(holder.slotNode, holder.Node); node > 0 {
		why += fmt.Sprintf(" on node %s", node)
	}
	if by.ConcurrencyPolicy != run.ConcurrencyForbid {
		why = fmt.Sprintf("%d runs wait already, the most that queue_limit allows; %s", max(by.QueueLimit, 1), why)
	}
	return why
}

func (s *Store) writeDecisions(ctx context.Context, t *Tx, c arbitration) error {
	slots, now := t.Hot.Slots, t.At.UnixMilli()
	if len(c.cancel)+len(c.skip) > 0 && t.By.Now.IsZero() {
		// Waiting for the jobs' locks may have taken a while, in which the favored runs came.
		at, err := t.Now(ctx, t)
		if err != nil {
			return err
		}
		now = at.UnixMilli()
	}
	granted := c.begin[:len(c.begin):len(c.begin)]
	for _, waiting := range c.wait {
		if waiting.endpoint != "" { // the slot row shows which endpoint it waits for
			slot := *waiting
			slot.Node, slot.Held.Token = waitingNode, 0
			granted = append(granted, &slot)
		}
	}
	if err := CancelShards(ctx, t, KeysOfEndings(c.cancel, c.skip), now, "the run that it is part of has ended"); err != nil {
		return fmt.Errorf("cancel shards: %w", err)
	}
	if err := noteSkipped(ctx, t, c.skip); err != nil {
		return err
	}
	for _, step := range []struct {
		what  string
		by    db.Statement
		count int
		args  func() []any
	}{
		{"free slots", db.Writing(slots.Free), len(c.stale), func() []any { return slotArgs(t, c.stale) }},
		{"cancel runs", slots.Cancel, len(c.cancel), func() []any { return EndingArgs(t, now, c.cancel) }},
		{"skip runs", slots.Skip, len(c.skip), func() []any { return EndingArgs(t, now, c.skip) }},
		{"make runs wait", db.Writing(slots.Wait), len(c.wait), func() []any { return db.KeysIn(t, runsOf(c.wait)) }},
		{"wake runs", db.Writing(slots.Wake), len(c.wake), func() []any { return db.KeysIn(t, runsOf(c.wake)) }},
		{"grant slots", db.Writing(slots.Grant), len(granted), func() []any { return slotArgs(t, granted) }},
	} {
		if step.count == 0 {
			continue
		}
		if err := Take(ctx, t, step.by, step.args()...); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// Take runs the parts of a hot statement in the transaction.
func Take(ctx context.Context, t *Tx, hot db.Statement, args ...any) error {
	for _, part := range hot.Parts {
		if err := t.Exec(ctx, part, args...); err != nil {
			return err
		}
	}
	return nil
}

func runsOf(contenders []*Contender) []run.HeldRun {
	all := make([]run.HeldRun, len(contenders))
	for i, r := range contenders {
		all[i] = r.Held
	}
	return all
}

// EndingArgs returns the parameters for ending runs: now and the batch, with reasons, in the order in which all
// statements lock them.
func EndingArgs(f db.Flavor, now int64, all []Ending) []any {
	var k db.Keys
	var why []string
	for _, one := range db.SortedBy(all, func(e Ending) run.Key { return e.Held.Key }) {
		k.Add(one.Held.Key, one.Held.Token, one.Held.Attempt)
		why = append(why, one.Why)
	}
	return append([]any{now}, f.Batch(k.At, k.Trigger, k.Kind, k.Token, k.Attempt, why)...)
}

func slotArgs(f db.Flavor, all []*Contender) []any {
	var k db.Keys
	var node, job []int64
	var endpoint []string
	for _, r := range all {
		k.Add(r.Held.Key, r.Held.Token, r.Held.Attempt)
		node, job, endpoint = append(node, int64(r.Node)), append(job, r.Held.JobID), append(endpoint, r.endpoint)
	}
	return f.Batch(k.At, k.Trigger, k.Kind, k.Token, k.Attempt, node, job, endpoint)
}

// slotKey names the contended slots: those of a job or, with an endpoint, the job's one slot there.
type slotKey struct {
	job      int64
	endpoint string
}

type contenderKey struct {
	run.Key
	endpoint string
}

// reading collects the contenders of jobs: of any number of live runs only those that need a decision.
type reading struct {
	t     *Tx
	jobs  []int64
	all   map[slotKey][]*Contender
	byKey map[contenderKey]*Contender
	// atEndpoint are the contenders for slots of endpoints, by run.
	atEndpoint map[run.Key][]*Contender
	// stale are the slots of ended runs, unless a live node may still have a request of the run in flight.
	stale []*Contender
	most  int // taken slots of one job
	busy  []Ending
}

// liftedAtOnce is how many runs of a job continue at once when its bound was lifted.
const liftedAtOnce = 1000

// read reads the runs that have a slot, ask for one or wait for one, and also the first and last of all, as many as
// there are slots: these get the free ones, whether they already ask or only hold their place in the order.
func (r *reading) read(ctx context.Context, jobs map[int64]lockedJob, q question) error {
	hot := r.t.Hot.Slots
	if err := r.slots(ctx, hot.Held); err != nil {
		return err
	}
	if len(q.runs) > 0 {
		if err := r.runs(ctx, hot.Asking, r.asks(q), db.KeysIn(r.t, q.runs)...); err != nil {
			return err
		}
	}
	edge := 0
	for _, job := range jobs {
		n := job.Slots()
		if n == 0 && job.atEndpoint == run.ConcurrencyAllow {
			n = liftedAtOnce
		}
		edge = max(edge, n)
	}
	ids := r.t.Batch(r.jobs)
	err := r.runs(ctx, hot.Waiting, r.add, ids...)
	if edge += r.most; err == nil && edge > 0 {
		err = r.runs(ctx, hot.Edges, r.add, append([]any{int64(edge)}, ids...)...)
	}
	if err == nil && q.gone {
		err = r.gone(ctx)
	}
	r.waits()
	return err
}

func (r *reading) runs(ctx context.Context, query string, add func(*Contender) *Contender, args ...any) error {
	return db.EachRow(ctx, r.t, func(row db.Scanner) error {
		c := &Contender{Contender: dispatcher.Contender{Live: true}}
		err := row.Scan(db.ContenderRefs(&c.Held, &c.Node)...)
		c.Key = c.Held.Key
		add(c)
		return err
	}, query, args...)
}

// asks adds runs that are about to begin and are still held by their node.
func (r *reading) asks(q question) func(*Contender) *Contender {
	asking := make(map[run.Key]run.HeldRun, len(q.runs))
	for _, run := range q.runs {
		asking[run.Key] = run
	}
	return func(c *Contender) *Contender {
		run, request := asking[c.Key], q.at[c.Key]
		if q.at != nil {
			c.endpoint = r.goesTo(request)
		}
		c = r.add(c)
		// Continuing under the token of the slot is not a second attempt.
		c.Busy = c.Busy && c.slotToken != run.Token
		if request.IfFree {
			if why := r.occupied(c); why != "" {
				r.busy = append(r.busy, Ending{Contender: c, Why: why})
				if !c.Slot && c.slotNode != waitingNode {
					r.forget(c)
				}
				return c
			}
		}
		c.Asks, c.Held = true, run
		return c
	}
}

// add adds a contender, unless it is known already, and returns the known one.
func (r *reading) add(c *Contender) *Contender {
	key := contenderKey{c.Key, c.endpoint}
	if old := r.byKey[key]; old != nil {
		return old
	}
	r.byKey[key] = c
	of := slotKey{c.Held.JobID, c.endpoint}
	r.all[of] = append(r.all[of], c)
	if c.endpoint != "" {
		r.atEndpoint[c.Key] = append(r.atEndpoint[c.Key], c)
	}
	return c
}

// waits finds out what runs wait for, because the tables only record that they wait: for the endpoint with a slot of
// the waiting node, or else for a slot of the job.
func (r *reading) waits() {
	for _, c := range r.byKey {
		waits := c.Live && c.Node == waitingNode
		for _, o := range r.atEndpoint[c.Key] {
			if o.slotNode == waitingNode {
				waits = waits && o == c
			}
		}
		c.Waits = waits && (c.endpoint == "" || c.slotNode == waitingNode)
	}
}

// slots adds the runs that have slots, or wait for those of endpoints. An ended run keeps its slot while its node lives
// and has not released it.
func (r *reading) slots(ctx context.Context, query string) error {
	taken := map[int64]int{}
	return db.EachRow(ctx, r.t, func(row db.Scanner) error {
		c := &Contender{}
		var state dispatcher.NodeState
		var shards int
		err := row.Scan(db.ContenderRefs(&c.Held, &c.Node, &c.Live, &c.slotNode, &c.slotToken, &state, &shards, &c.endpoint)...)
		c.Key = c.Held.Key
		c.Slot = c.slotNode != waitingNode
		c.Busy = c.slotNode > 0 && state != dispatcher.NodeDead || shards > 0
		switch {
		case c.Live:
		case c.Busy:
			c.Held.Token = c.slotToken
		default:
			r.stale = append(r.stale, c)
			return err
		}
		r.add(c)
		if c.endpoint == "" {
			taken[c.Held.JobID]++
			r.most = max(r.most, taken[c.Held.JobID])
		}
		return err
	}, query, r.t.Batch(r.jobs)...)
}
