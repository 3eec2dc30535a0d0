package chores

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// countInterval is how often one of the nodes counts the objects of the installation and its upcoming fires.
const countInterval = time.Minute

const (
	// upcomingWithin is how far the count of upcoming fires looks ahead: time enough to start nodes.
	upcomingWithin = 15 * time.Minute
	// mostUpcoming bounds the count, and with it its cost.
	mostUpcoming = 100_000
)

// upcoming is the latest count of this node.
type upcoming struct {
	mu      sync.Mutex
	count   int
	awaited int // callbacks
	at      time.Time
	tried   time.Time // when this node last tried to count; only its loop uses it
}

// countUpcoming counts the triggers that are due soon, so that a fleet can grow before a herd, and the runs that wait
// for their callbacks. One node counts each minute.
func (c *Chores) countUpcoming(ctx context.Context, now time.Time) error {
	count, err := c.Store.Upcoming(ctx, c.Options.Apps, now.Add(upcomingWithin), mostUpcoming)
	if err != nil {
		return fmt.Errorf("count upcoming fires: %w", err)
	}
	awaited, err := c.Store.AwaitedCallbacks(ctx, c.Options.Apps, mostUpcoming)
	if err != nil {
		return err
	}
	c.upcoming.mu.Lock()
	defer c.upcoming.mu.Unlock()
	c.upcoming.count, c.upcoming.awaited, c.upcoming.at = count, awaited, now
	return nil
}

// read returns the count until another node must have a newer one, which can be two handler intervals late. Another
// node that counts meanwhile gets about the same, so the largest count of all nodes is the fleet's.
func (u *upcoming) read(now time.Time, handler time.Duration) int {
	fires, _ := u.counts(now, handler)
	return fires
}

func (u *upcoming) counts(now time.Time, handler time.Duration) (fires, callbacks int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.at.IsZero() || now.Sub(u.at) > countInterval+2*handler {
		return 0, 0
	}
	return u.count, u.awaited
}

const (
	// mostCounted bounds each count, and with it its cost.
	mostCounted = 100_000
	// overdueAfter is the age from which a due fire counts as overdue: a working node claims its fires much earlier.
	overdueAfter = 10 * time.Second
)

// census is the latest census of this node.
type census struct {
	mu    sync.Mutex
	found dispatcher.Census
	at    time.Time
	tried time.Time // see upcoming
}

// takeCensus counts the objects of the installation. As with upcoming fires, one node counts each minute. It may be a
// paused one, because the census also shows that no node is active.
func (c *Chores) takeCensus(ctx context.Context, now time.Time) error {
	found, err := c.Store.Census(ctx, now.Add(-overdueAfter), mostCounted)
	if err != nil {
		return fmt.Errorf("take a census: %w", err)
	}
	c.census.mu.Lock()
	defer c.census.mu.Unlock()
	c.census.found, c.census.at = found, now
	return nil
}

// read returns the census until another node must have taken a newer one; nil: this node has no valid census.
func (c *census) read(now time.Time, handler time.Duration) *dispatcher.Census {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() || now.Sub(c.at) > countInterval+2*handler {
		return nil
	}
	found := c.found
	return &found
}

// OverdueInRollback returns how long the oldest due fire has waited while all nodes await a choice about a rollback, as
// the census knows it; 0 otherwise. Paused nodes look for no due fires.
func (c *Chores) OverdueInRollback(now time.Time) time.Duration {
	known := c.census.read(now, c.Options.Handler)
	if known == nil || known.Oldest.IsZero() || !c.Fleet.AwaitsRollbackChoice() {
		return 0
	}
	return now.Sub(known.Oldest)
}

// censusGauges exports the census. On nodes without a census, counts are 0 and other metrics are missing.
type censusGauges struct {
	chores                                                         *Chores
	jobs, runs, nodes, overdue, overdueAge, tokenExpiry, daysAhead *prometheus.Desc
	forgotten, silentGroups, certificateExpiry, retentionBehind    *prometheus.Desc
	setAside, blocked, undelivered                                 *prometheus.Desc
}

func newCensusGauges(c *Chores) *censusGauges {
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help+" The node that counted in the last minute reports it; take the largest of all nodes.", labels, nil)
	}
	return &censusGauges{
		chores: c,
		jobs:   gauge("carillon_jobs", "Jobs by state, of 100,000 at most.", "state"),
		runs: gauge("carillon_runs_live", "Live runs by state, of 100,000 at most, without fires that nodes hold in their first attempt.",
			"state"),
		nodes:      gauge("carillon_nodes", "Nodes by state.", "state"),
		overdue:    gauge("carillon_overdue_fires", "Triggers that are due for more than 10 s and that no node has claimed, 100,000 at most."),
		overdueAge: gauge("carillon_overdue_age_seconds", "How long the oldest of carillon_overdue_fires has been due; 0 if there is none."),
		tokenExpiry: gauge("carillon_token_expiry_timestamp_seconds",
			"When the next API token expires, or one expired within a day, in Unix seconds; absent if no token expires."),
		blocked: gauge("carillon_blocked_jobs",
			"Slots of jobs that a run has had for unusually long, while later fires only wait or are skipped, 100,000 at most."),
		undelivered: gauge("carillon_undelivered_alerts",
			"Alerts with a notification that is to be attempted again (retrying), and others whose latest one was given up (failed), "+
				"of 100,000 at most.", "state"),
		forgotten: gauge("carillon_forgotten_pauses",
			"Pauses of apps, jobs and triggers that have lasted for more than 7 days and have no end, 300,000 at most."),
		silentGroups: gauge("carillon_groups_without_endpoint",
			"Endpoint groups that enabled jobs call and that have no endpoint for them, 100,000 at most."),
		certificateExpiry: gauge("carillon_target_certificate_expiry_timestamp_seconds",
			"When the first client certificate for a target expires, in Unix seconds; absent if there is none."),
		setAside: gauge("carillon_set_aside",
			"Rows that work goes on without, because they made their batch fail, by work, 100,000 of each at most.", "work"),
		retentionBehind: gauge("carillon_retention_behind_seconds", "For how long the oldest history should have been gone; 0 if it is kept."),
		daysAhead:       gauge("carillon_partitions_ahead", "Days after today with partitions for the history, on databases that have them."),
	}
}

// Describe sends the descriptions of the metrics.
func (g *censusGauges) Describe(to chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{g.jobs, g.runs, g.nodes, g.overdue, g.overdueAge, g.tokenExpiry, g.daysAhead,
		g.forgotten, g.silentGroups, g.certificateExpiry, g.retentionBehind, g.setAside, g.blocked, g.undelivered} {
		to <- one
	}
}

// Collect sends the metrics.
func (g *censusGauges) Collect(to chan<- prometheus.Metric) {
	now := g.chores.Clock.Now()
	known := g.chores.census.read(now, g.chores.Options.Handler)
	found := dispatcher.Census{}
	if known != nil {
		found = *known
	}
	send := func(of *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, value, labels...)
	}
	for _, state := range dispatcher.JobStates {
		send(g.jobs, float64(found.Jobs[state]), string(state))
	}
	for _, state := range dispatcher.LiveStates {
		send(g.runs, float64(found.Runs[state]), string(state))
	}
	for _, state := range dispatcher.NodeStates {
		send(g.nodes, float64(found.Nodes[state]), string(state))
	}
	for _, work := range dispatcher.Works {
		send(g.setAside, float64(found.SetAside[work]), string(work))
	}
	for _, state := range []run.State{run.Retrying, run.Failed} {
		send(g.undelivered, float64(found.Undelivered[state]), string(state))
	}
	send(g.overdue, float64(found.Overdue))
	age := 0.0
	if !found.Oldest.IsZero() {
		age = now.Sub(found.Oldest).Seconds()
	}
	send(g.overdueAge, age)
	send(g.blocked, float64(found.Blocked))
	send(g.forgotten, float64(found.Forgotten))
	send(g.silentGroups, float64(found.SilentGroups))
	send(g.retentionBehind, found.RetentionBehind.Seconds())
	if !found.CertificateEnd.IsZero() {
		send(g.certificateExpiry, float64(found.CertificateEnd.Unix()))
	}
	if !found.TokenExpiry.IsZero() {
		send(g.tokenExpiry, float64(found.TokenExpiry.Unix()))
	}
	if found.DaysAhead != nil {
		send(g.daysAhead, float64(*found.DaysAhead))
	}
}

// metrics are the metrics of the chores of a node.
type metrics struct {
	leftSlots   prometheus.Counter
	mendedLeaks *prometheus.CounterVec // by kind
	misfires    prometheus.Counter
	rollbacks   prometheus.Gauge
}

func newMetrics(c *Chores, registry prometheus.Registerer) *metrics {
	m := &metrics{
		leftSlots: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "carillon_left_slots_total",
			Help: "Slots of attempts that the database gave to this node and that it did not make, as after a rollback, and that it freed.",
		}),
		mendedLeaks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "carillon_mended_leaks_total",
			Help: "Runs that nothing would have let go on and that this node let go, by kind: waiting for a host without probes, or for a " +
				"callback without a deadline.",
		}, []string{"kind"}),
		misfires: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "carillon_misfires_total", Help: "Misfire decisions that this node took. One decision may cover many fires.",
		}),
		rollbacks: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "carillon_rolled_back", Help: "1 while nodes are paused because the database lost commits, else 0.",
		}),
	}
	for _, kind := range []dispatcher.LeakKind{dispatcher.LeakWaiting, dispatcher.LeakCallback} {
		m.mendedLeaks.WithLabelValues(string(kind))
	}
	registry.MustRegister(m.leftSlots, m.mendedLeaks, m.misfires, m.rollbacks, newCensusGauges(c),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "carillon_upcoming_fires",
			Help: "Triggers that are due within 15 minutes, 100,000 at most, if this node counted them in the last minute; else 0.",
		}, func() float64 { return float64(c.upcoming.read(c.Clock.Now(), c.Options.Handler)) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "carillon_awaited_callbacks",
			Help: "Runs that wait for a callback, 100,000 at most, if this node counted them in the last minute; else 0.",
		}, func() float64 {
			_, callbacks := c.upcoming.counts(c.Clock.Now(), c.Options.Handler)
			return float64(callbacks)
		}),
	)
	return m
}

// rolledBack notes a rollback that no operator has resolved, or its end.
func (m *metrics) rolledBack(yes bool) {
	m.rollbacks.Set(0)
	if yes {
		m.rollbacks.Set(1)
	}
}

// bytesKept keeps the stored responses of apps within their quotas. It is an estimate: the node knows the total of all
// nodes as of its latest report, and the bytes that it has stored itself since.
type bytesKept struct {
	mu     sync.Mutex
	stored map[string]int64 // by app, since the latest report
	kept   map[string]int64 // by app, as of that report
	over   map[string]bool  // apps with dropped responses since; a report of them tells when there is room again
}

// Take returns the part of a response that may be stored: all of it, or a note that the app has no room for it.
func (b *bytesKept) Take(app string, most int64, response *run.Response) *run.Response {
	size := int64(sizeOf(response))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept[app]+b.stored[app]+size <= most {
		b.stored[app] += size
		return response
	}
	b.over[app] = true
	return &run.Response{
		Endpoint: response.Endpoint, Addresses: response.Addresses, Omitted: target.BytesKeptReached(app, most),
	}
}

// sizeOf estimates how many bytes a response takes in the history.
func sizeOf(r *run.Response) int {
	size := 100 + len(r.Body) + len(r.LogTail) + len(r.State)
	for name, value := range r.Headers {
		size += len(name) + len(value)
	}
	return size
}

// reportBytes reports the bytes that the node has stored, and learns the total of all nodes. A report whose outcome is
// unknown counts again: the estimate is then too high by at most the bytes that one node stores between two reports.
func (c *Chores) reportBytes(ctx context.Context, _ time.Time) error {
	b := c.Bytes
	b.mu.Lock()
	added := make(map[string]int64, len(b.stored)+len(b.over))
	for app := range b.over {
		added[app] = 0
	}
	maps.Copy(added, b.stored)
	b.mu.Unlock()
	if len(added) == 0 {
		return nil
	}
	kept, err := c.Store.KeepBytes(ctx, added, time.Time{})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for app, bytes := range added {
		if b.stored[app] -= bytes; b.stored[app] == 0 {
			delete(b.stored, app)
		}
		b.kept[app] = kept[app]
		delete(b.over, app)
	}
	return nil
}
