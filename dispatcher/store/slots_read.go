package store

import (
	"context"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// slotKey names what runs contend for: the slots of a job or, with an endpoint, the one slot that the job has there.
type slotKey struct {
	job      int64
	endpoint string
}

type contenderKey struct {
	run.Key
	endpoint string
}

// reading collects the contenders of jobs: of the live runs of a job, of which there may be any number, those about
// which there is something to decide.
type reading struct {
	t     *tx
	jobs  []int64
	all   map[slotKey][]*contender
	byKey map[contenderKey]*contender
	// atEndpoint are the contenders for slots of endpoints, by their runs.
	atEndpoint map[run.Key][]*contender
	// stale are the slots of runs that have ended, unless a live node may still have a request of the run in flight.
	stale []*contender
	most  int // slots of one job that are taken
	busy  []ending
}

// liftedAtOnce is how many runs of a job go on at once when its bound was lifted.
const liftedAtOnce = 1000

// read reads the runs that have a slot, ask for one or wait for one, and the first and last of all, as many as
// there are slots: these get the free ones, whether they ask already or only hold their place in the order.
func (r *reading) read(ctx context.Context, jobs map[int64]lockedJob, q question) error {
	hot := r.t.hot.slots
	if err := r.slots(ctx, hot.held); err != nil {
		return err
	}
	if len(q.runs) > 0 {
		if err := r.runs(ctx, hot.asking, r.asks(q), db.KeysIn(r.t, q.runs)...); err != nil {
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
	err := r.runs(ctx, hot.waiting, r.add, ids...)
	if edge += r.most; err == nil && edge > 0 {
		err = r.runs(ctx, hot.edges, r.add, append([]any{int64(edge)}, ids...)...)
	}
	if err == nil && q.gone {
		err = r.gone(ctx)
	}
	r.waits()
	return err
}

// runs adds live runs.
func (r *reading) runs(ctx context.Context, query string, add func(*contender) *contender, args ...any) error {
	_, err := db.Collect(ctx, r.t, func(row db.Scanner) (struct{}, error) {
		c := &contender{Contender: dispatcher.Contender{Live: true}}
		err := row.Scan(&c.held.JobID, db.InstantColumn(&c.ScheduledAt), &c.TriggerID, db.KindColumn(&c.Key), &c.node,
			&c.held.Token, &c.held.Attempt)
		add(c)
		return struct{}{}, err
	}, query, args...)
	return err
}

// asks adds runs that are about to begin, and which their node still holds.
func (r *reading) asks(q question) func(*contender) *contender {
	asking := make(map[run.Key]run.HeldRun, len(q.runs))
	for _, run := range q.runs {
		asking[run.Key] = run
	}
	return func(c *contender) *contender {
		run, request := asking[c.Key], q.at[c.Key]
		if q.at != nil {
			c.endpoint = r.goesTo(request)
		}
		c = r.add(c)
		// To go on under the token that the slot has is no second attempt.
		c.Busy = c.Busy && c.slotToken != run.Token
		if request.IfFree {
			if why := r.occupied(c); why != "" {
				r.busy = append(r.busy, ending{contender: c, why: why})
				if !c.Slot && c.slotNode != waitingNode {
					r.forget(c)
				}
				return c
			}
		}
		c.Asks, c.held = true, run
		return c
	}
}

// add adds a contender, unless it is there already, and returns what is there.
func (r *reading) add(c *contender) *contender {
	c.held.Key = c.Key
	key := contenderKey{c.Key, c.endpoint}
	if old := r.byKey[key]; old != nil {
		return old
	}
	r.byKey[key] = c
	of := slotKey{c.held.JobID, c.endpoint}
	r.all[of] = append(r.all[of], c)
	if c.endpoint != "" {
		r.atEndpoint[c.Key] = append(r.atEndpoint[c.Key], c)
	}
	return c
}

// waits finds out what runs wait for, of which the tables only tell that they do: for the endpoint whose slot has the
// waiting node, or else for a slot of the job.
func (r *reading) waits() {
	for _, c := range r.byKey {
		waits := c.Live && c.node == waitingNode
		for _, o := range r.atEndpoint[c.Key] {
			if o.slotNode == waitingNode {
				waits = waits && o == c
			}
		}
		c.Waits = waits && (c.endpoint == "" || c.slotNode == waitingNode)
	}
}

// slots adds the runs that have slots, or wait for those of endpoints. A run that has ended keeps its slot while its node
// lives and has not said that the attempt is over.
func (r *reading) slots(ctx context.Context, query string) error {
	taken := map[int64]int{}
	_, err := db.Collect(ctx, r.t, func(row db.Scanner) (struct{}, error) {
		c := &contender{}
		var state dispatcher.NodeState
		var shards int
		err := row.Scan(&c.held.JobID, db.InstantColumn(&c.ScheduledAt), &c.TriggerID, db.KindColumn(&c.Key), &c.node, &c.held.Token,
			&c.held.Attempt, &c.Live, &c.slotNode, &c.slotToken, &state, &shards, &c.endpoint)
		c.Slot = c.slotNode != waitingNode
		c.Busy = c.slotNode > 0 && state != dispatcher.NodeDead || shards > 0
		switch {
		case c.Live:
		case c.Busy:
			c.held.Token = c.slotToken
		default:
			c.held.Key = c.Key
			r.stale = append(r.stale, c)
			return struct{}{}, err
		}
		r.add(c)
		if c.endpoint == "" {
			taken[c.held.JobID]++
			r.most = max(r.most, taken[c.held.JobID])
		}
		return struct{}{}, err
	}, query, r.t.Batch(r.jobs)...)
	return err
}
