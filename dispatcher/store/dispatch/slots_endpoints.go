package dispatch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/series"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Slots of endpoints are arbitrated like those of jobs, by the same code and under the same lock of the job's
// row, with these differences:
//   - A run takes the slot in each attempt, when the strategy has chosen the endpoint. Between attempts it has none.
//   - Runs that have not asked yet have no place in the order, because their endpoints are unknown.
//   - The row of the slot has the endpoint that a run waits for, so that it goes there when it is woken.

// goneEndpoints are the endpoints of the batch that get no more requests. Members from DNS are in no table, so they are
// left out: a run that waits for a removed one is woken when the run there ends. The limit makes PostgreSQL look up one
// after the other by its key.
// From $1 on: db.WaitedColumns
const goneEndpoints = ` SELECT b.id, b.endpoint FROM b WHERE NOT EXISTS (
	SELECT 1 FROM jobs AS j JOIN endpoint_groups AS g ON g.app_id = j.app_id AND g.name = j.target_group AND g.deleted_at IS NULL
		JOIN endpoints AS e ON e.group_id = g.id
	WHERE j.id = b.id AND e.id = b.endpoint AND NOT e.draining LIMIT 1 OFFSET 0)
	AND NOT EXISTS (SELECT 1 FROM jobs AS j JOIN endpoint_groups AS g ON g.app_id = j.app_id AND g.name = j.target_group
	WHERE j.id = b.id AND g.deleted_at IS NULL AND g.definition LIKE '%"dns":{%' LIMIT 1 OFFSET 0)`

// AcquireEndpoints gives slots of endpoints to runs that are about to send their requests.
func (s *Store) AcquireEndpoints(ctx context.Context, requests []target.EndpointRequest) (
	grants []target.EndpointGrant, err error,
) {
	runs, at := make([]run.HeldRun, len(requests)), make(map[run.Key]target.EndpointRequest, len(requests))
	for i, request := range requests {
		runs[i], at[request.Key] = request.HeldRun, request
		s.Rollbacks.handedBack(request.Key) // it may have to wait
	}
	if err := s.unfoldRuns(ctx, runs); err != nil {
		return nil, err
	}
	err = s.decideSlots(ctx, runs, func(ctx context.Context, t *Tx, jobs map[int64]lockedJob,
		some []run.HeldRun) (func(), error) {
		c, err := s.arbitrate(ctx, t, jobs, question{runs: some, at: at})
		return func() {
			for _, r := range c.begin {
				grants = append(grants, target.EndpointGrant{HeldRun: r.Held, Endpoint: r.endpoint})
			}
			for _, r := range c.busy {
				grants = append(grants, target.EndpointGrant{HeldRun: at[r.Key].HeldRun, Busy: r.Why})
			}
		}, err
	}, s.heldAside(ctx, dispatcher.WorkSlots))
	if err != nil {
		err = fmt.Errorf("acquire slots of endpoints for %d runs: %w", len(runs), err)
	}
	return grants, err
}

// goesTo returns the endpoint where a run gets its slot: the one that it waited for, or had in an earlier attempt, or
// else the requested one. The run leaves all others.
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

// leave removes a contender from the slot or the waiting order of an endpoint.
func (r *reading) leave(c *Contender) {
	r.forget(c)
	r.stale = append(r.stale, c)
}

// forget drops a contender for the slot of an endpoint.
func (r *reading) forget(c *Contender) {
	of := slotKey{c.Held.JobID, c.endpoint}
	same := func(o *Contender) bool { return o == c }
	r.all[of] = slices.DeleteFunc(r.all[of], same)
	r.atEndpoint[c.Key] = slices.DeleteFunc(r.atEndpoint[c.Key], same)
	delete(r.byKey, contenderKey{c.Key, c.endpoint})
}

// occupied returns why a contender would not get the slot of its endpoint at once; empty: it would.
func (r *reading) occupied(c *Contender) (why string) {
	if c.Busy {
		return "runs an earlier attempt of the run"
	}
	for _, o := range r.all[slotKey{c.Held.JobID, c.endpoint}] {
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

// gone takes the slots of removed endpoints from the runs that wait for them. These runs then wait for nothing, so they
// are woken like runs with a lifted bound, and are routed again.
func (r *reading) gone(ctx context.Context) error {
	waited := slices.SortedFunc(maps.Keys(r.all), func(a, b slotKey) int { return strings.Compare(a.endpoint, b.endpoint) })
	waited = slices.DeleteFunc(waited, func(of slotKey) bool {
		return !slices.ContainsFunc(r.all[of], func(c *Contender) bool { return c.slotNode == waitingNode })
	})
	if len(waited) == 0 {
		return nil
	}
	var jobs []int64
	var endpoints []string
	for _, of := range waited {
		jobs, endpoints = append(jobs, of.job), append(endpoints, of.endpoint)
	}
	gone, err := db.ReadRows(ctx, r.t, func(of *slotKey) []any { return []any{&of.job, &of.endpoint} },
		r.t.Hot.Slots.Gone, r.t.Batch(jobs, endpoints)...)
	for _, of := range gone {
		for _, c := range slices.Clone(r.all[of]) {
			if c.slotNode == waitingNode {
				r.leave(c)
			}
		}
	}
	return err
}

// decideEndpoints adds the decisions for the slots of a job at endpoints.
func (c *arbitration) decideEndpoints(t *Tx, job lockedJob, id int64, r *reading) {
	ended := map[run.Key]bool{} // by the decisions about the slots of the job
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

func countWaiting(contenders []*Contender) (n int) {
	for _, c := range contenders {
		if c.Waits {
			n++
		}
	}
	return n
}

// leftSlots are slots of a page that a node has although it does not work on their runs under the token of the slot,
// and the last of the page. A run that the node works on according to the database is for reclaim. The page follows the
// primary key, so that it needs no index of nodes, which each grant and release of a slot would have to change.
// $1 node, $2 job, $3 scheduled instant, $4 trigger, $5 kind, $6 endpoint of the last slot of the page before, $7 limit
func leftSlots(f db.Flavor) string {
	return `SELECT s.job_id, s.scheduled_at, s.trigger_id, s.kind, s.endpoint, s.token, s.gone, s.place FROM (
		SELECT p.*, CASE WHEN p.node = $1 THEN NOT EXISTS (SELECT 1 FROM live_runs AS r WHERE` +
		f.SameRun("r", "p.scheduled_at", "p.trigger_id", "p.kind") + ` AND r.node = p.node AND r.token = p.token LIMIT 1 OFFSET 0)
			ELSE FALSE END AS gone
		FROM (SELECT x.job_id, x.scheduled_at, x.trigger_id, x.kind, x.endpoint, x.node, x.token,
				row_number() OVER (ORDER BY x.job_id, x.scheduled_at, x.trigger_id, x.kind, x.endpoint) AS place
			FROM slots AS x WHERE (x.job_id, x.scheduled_at, x.trigger_id, x.kind, x.endpoint) > ($2, $3, $4, $5, $6)
			ORDER BY x.job_id, x.scheduled_at, x.trigger_id, x.kind, x.endpoint LIMIT $7) AS p) AS s
	WHERE s.gone OR s.place = $7 ORDER BY s.place`
}

// LeftSlots returns slots that a node has for attempts that it does not have according to the database.
func (s *Store) LeftSlots(ctx context.Context, node run.NodeID, after dispatcher.SlotKey, limit int) (
	left dispatcher.LeftSlots, err error,
) {
	err = db.EachRow(ctx, s.db.Read, func(row db.Scanner) error {
		var key dispatcher.SlotKey
		var token run.Token
		var gone bool
		var place int
		err := row.Scan(&key.JobID, db.InstantColumn(&key.ScheduledAt), &key.TriggerID, db.KindColumn(&key.Key), &key.Endpoint, &token,
			&gone, &place)
		if gone {
			left.Runs = append(left.Runs, run.HeldRun{Key: key.Key, JobID: key.JobID, Token: token})
		}
		if place == limit {
			left.Last, left.More = key, true
		}
		return err
	}, s.Hot.Slots.Left, int64(node), after.JobID, after.ScheduledAt.UnixMilli(), after.TriggerID, int64(after.Code()),
		after.Endpoint, int64(limit))
	if err != nil {
		return dispatcher.LeftSlots{}, fmt.Errorf("look for slots that were left: %w", err)
	}
	return left, nil
}

// SkipReason is the reason why a run that wanted a slot was skipped.
type SkipReason string

// The reasons.
const (
	skipForbidden    SkipReason = "forbid"        // another run of the job has not ended, and its policy is forbid
	skipQueueFull    SkipReason = "queue_full"    // as many runs wait as queue_limit allows
	skipReplaced     SkipReason = "replaced"      // a later run took its place before it began
	skipEndpointBusy SkipReason = "endpoint_busy" // the endpoint runs the job already
	SkipWaiting      SkipReason = "waiting_runs"  // as many runs of the app wait as its bounds allow
	SkipChain        SkipReason = "chain"         // it would exceed the bounds of its chain of followers
	SkipAlert        SkipReason = "alert_deleted" // it would deliver to the destination of an alert that was deleted
)

func reasonOfSkip(policy run.ConcurrencyPolicy, endpoint string) SkipReason {
	switch {
	case endpoint != "":
		return skipEndpointBusy
	case policy == run.ConcurrencyReplace:
		return skipReplaced
	case policy == run.ConcurrencyForbid:
		return skipForbidden
	}
	return skipQueueFull
}

// skips counts the runs that this process skipped.
type skips struct {
	total *prometheus.CounterVec
	apps  *series.Apps[map[SkipReason]prometheus.Counter]
}

func newSkips() *skips {
	s := &skips{total: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carillon_skipped_runs_total",
		Help: "Runs that this node did not attempt, because they got no slot or because of a quota of their app, by app and reason.",
	}, []string{"app", "reason"})}
	s.apps = series.New(func(app string) map[SkipReason]prometheus.Counter {
		all := map[SkipReason]prometheus.Counter{}
		for _, reason := range []SkipReason{skipForbidden, skipQueueFull, skipReplaced, skipEndpointBusy, SkipWaiting, SkipChain, SkipAlert} {
			all[reason] = s.total.WithLabelValues(app, string(reason))
		}
		return all
	})
	return s
}

// Skipped is a run that a transaction skipped.
type Skipped struct {
	App    string
	Reason SkipReason
}

// noteSkipped notes the runs that a transaction skips. Few do, so it reads the names of their apps only then.
func noteSkipped(ctx context.Context, t *Tx, skips []Ending) error {
	if len(skips) == 0 {
		return nil
	}
	ids := make([]int64, len(skips))
	for i, one := range skips {
		ids[i] = one.Held.JobID
	}
	query := t.Rows(0, 1, "", db.IDColumns...) + ` SELECT DISTINCT j.id, a.name FROM b JOIN jobs AS j ON j.id = b.id
		JOIN apps AS a ON a.id = j.app_id`
	apps, err := db.ReadMap[int64, string](ctx, t, query, t.Batch(ids)...)
	if err != nil {
		return fmt.Errorf("read the apps of skipped runs: %w", err)
	}
	for i, one := range skips {
		t.Skipped = append(t.Skipped, Skipped{apps[ids[i]], one.reason})
	}
	return nil
}
