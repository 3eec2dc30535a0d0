package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// The slots of endpoints are decided about as those of jobs are, by the same code and under the same lock of the job's
// row. They differ in this:
//   - A run takes the slot in each attempt, when the strategy has chosen the endpoint. Between attempts it has none.
//   - Runs that have not asked yet have no place in the order, because nobody knows their endpoints.
//   - The row of the slot tells for which endpoint a run waits, so that it goes there when it is woken.

// goneEndpoints are those of the batch that get no requests any more. Those of a group with members from DNS may be such,
// which no table has: who waits for one that is gone is woken when the run there ends. The limit lets PostgreSQL look for one after the
// other by its key.
// From $1 on: db.WaitedColumns
const goneEndpoints = ` SELECT b.id, b.endpoint FROM b WHERE NOT EXISTS (
	SELECT 1 FROM jobs AS j JOIN endpoint_groups AS g ON g.app_id = j.app_id AND g.name = j.target_group AND g.deleted_at IS NULL
		JOIN endpoints AS e ON e.group_id = g.id
	WHERE j.id = b.id AND e.id = b.endpoint AND NOT e.draining LIMIT 1 OFFSET 0)
	AND NOT EXISTS (SELECT 1 FROM jobs AS j JOIN endpoint_groups AS g ON g.app_id = j.app_id AND g.name = j.target_group
	WHERE j.id = b.id AND g.deleted_at IS NULL AND g.definition LIKE '%"dns":{%' LIMIT 1 OFFSET 0)`

// AcquireEndpoints gives runs that are about to send their requests the slots of endpoints.
func (s *Store) AcquireEndpoints(ctx context.Context, requests []target.EndpointRequest) (
	grants []target.EndpointGrant, err error,
) {
	runs, at := make([]run.HeldRun, len(requests)), make(map[run.Key]target.EndpointRequest, len(requests))
	for i, request := range requests {
		runs[i], at[request.Key] = request.HeldRun, request
		s.rollbacks.handedBack(request.Key) // it may have to wait
	}
	if err := s.unfoldRuns(ctx, runs); err != nil {
		return nil, err
	}
	err = s.decideSlots(ctx, runs, func(ctx context.Context, t *tx, jobs map[int64]lockedJob,
		some []run.HeldRun) (func(), error) {
		c, err := s.arbitrate(ctx, t, jobs, question{runs: some, at: at})
		return func() {
			for _, r := range c.begin {
				grants = append(grants, target.EndpointGrant{HeldRun: r.held, Endpoint: r.endpoint})
			}
			for _, r := range c.busy {
				grants = append(grants, target.EndpointGrant{HeldRun: at[r.Key].HeldRun, Busy: r.why})
			}
		}, err
	}, s.heldAside(ctx, dispatcher.WorkSlots))
	if err != nil {
		err = fmt.Errorf("acquire slots of endpoints for %d runs: %w", len(runs), err)
	}
	return grants, err
}

// goesTo returns the endpoint of which a run gets the slot: the one that it waited for, or had in an attempt before, or
// else the one that it asks for. It leaves all others.
func (r *reading) goesTo(request target.EndpointRequest) (endpoint string) {
	endpoint = request.Endpoint
	known := slices.Clone(r.atEndpoint[request.Key])
	for _, c := range known {
		if c.slotToken != request.Token && (c.Slot || !request.IfFree) {
			endpoint = c.endpoint
		}
	}
	for _, c := range known {
		if c.endpoint != endpoint {
			r.leave(c)
		}
	}
	return endpoint
}

// leave takes the slot of an endpoint, or its place in the order, from a contender.
func (r *reading) leave(c *contender) {
	r.forget(c)
	r.stale = append(r.stale, c)
}

// forget leaves out a contender for the slot of an endpoint.
func (r *reading) forget(c *contender) {
	of := slotKey{c.held.JobID, c.endpoint}
	same := func(o *contender) bool { return o == c }
	r.all[of] = slices.DeleteFunc(r.all[of], same)
	r.atEndpoint[c.Key] = slices.DeleteFunc(r.atEndpoint[c.Key], same)
	delete(r.byKey, contenderKey{c.Key, c.endpoint})
}

// occupied says why a contender would not get the slot of its endpoint at once; empty: it would.
func (r *reading) occupied(c *contender) (why string) {
	if c.Busy {
		return "runs an earlier attempt of the run"
	}
	for _, o := range r.all[slotKey{c.held.JobID, c.endpoint}] {
		switch {
		case o == c:
		case o.Slot:
			return fmt.Sprintf("runs run %s of the job already", o)
		default:
			why = fmt.Sprintf("run %s of the job is the next there", o)
		}
	}
	return why
}

// gone takes the slots of endpoints that get no requests any more from the runs that wait for them. As these now wait
// for nothing, they are woken as runs are whose bound was lifted, and are routed again.
func (r *reading) gone(ctx context.Context) error {
	waited := slices.SortedFunc(maps.Keys(r.all), func(a, b slotKey) int { return strings.Compare(a.endpoint, b.endpoint) })
	waited = slices.DeleteFunc(waited, func(of slotKey) bool {
		return !slices.ContainsFunc(r.all[of], func(c *contender) bool { return c.slotNode == waitingNode })
	})
	if len(waited) == 0 {
		return nil
	}
	var jobs []int64
	var endpoints []string
	for _, of := range waited {
		jobs, endpoints = append(jobs, of.job), append(endpoints, of.endpoint)
	}
	gone, err := db.Collect(ctx, r.t, func(row db.Scanner) (of slotKey, err error) {
		return of, row.Scan(&of.job, &of.endpoint)
	}, r.t.hot.slots.gone, r.t.Batch(jobs, endpoints)...)
	for _, of := range gone {
		for _, c := range slices.Clone(r.all[of]) {
			if c.slotNode == waitingNode {
				r.leave(c)
			}
		}
	}
	return err
}

// decideEndpoints adds what becomes of the contenders for the slots that a job has at endpoints.
func (c *arbitration) decideEndpoints(t *tx, job lockedJob, id int64, r *reading) {
	ended := map[run.Key]bool{} // by what was decided about the slots of the job
	for _, e := range slices.Concat(c.cancel, c.skip) {
		ended[e.Key] = true
	}
	var endpoints []string
	waiting := 0
	for of, contenders := range r.all {
		if of.job != id || of.endpoint == "" {
			continue
		}
		endpoints = append(endpoints, of.endpoint)
		waiting += countWaiting(contenders)
		for _, o := range contenders {
			o.Live, o.Asks = o.Live && !ended[o.Key], o.Asks && !ended[o.Key]
		}
	}
	slices.Sort(endpoints)
	of := dispatcher.JobPolicies{ConcurrencyPolicy: job.atEndpoint, QueueLimit: job.QueueLimit}
	for _, endpoint := range endpoints {
		contenders, before := r.all[slotKey{id, endpoint}], len(c.wait)
		elsewhere := waiting - countWaiting(contenders)
		c.decide(t, of, func(all []dispatcher.Contender) []dispatcher.SlotDecision {
			return job.ContendForEndpoint(job.atEndpoint, all, elsewhere)
		}, contenders)
		waiting += len(c.wait) - before
	}
}

func countWaiting(contenders []*contender) (n int) {
	for _, c := range contenders {
		if c.Waits {
			n++
		}
	}
	return n
}

// waitsForEndpoints returns, of runs that wait, the slots of endpoints that tell what they wait for.
func waitsForEndpoints(waiting []*contender) (slots []*contender) {
	for _, c := range waiting {
		if c.endpoint != "" {
			slot := *c
			slot.node, slot.held.Token = waitingNode, 0
			slots = append(slots, &slot)
		}
	}
	return slots
}
