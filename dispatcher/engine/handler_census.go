package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
)

const (
	// mostCounted bounds each count, and with it what it costs.
	mostCounted = 100_000
	// overdueAfter is for how long a fire is due that counts as overdue: no node that works leaves one alone for so long.
	overdueAfter = 10 * time.Second
)

// census is what this node counted last.
type census struct {
	mu    sync.Mutex
	found dispatcher.Census
	at    time.Time
	turns turns // only takeCensus uses them
}

// takeCensus counts what there is in the installation. As with upcoming fires, one node counts in a minute. It may be a
// paused one: that no node is active is one of the things to find out.
func (e *Engine) takeCensus(ctx context.Context, now time.Time) error {
	if e.fleet.id() == 0 {
		return nil
	}
	if mine, err := e.census.turns.take(ctx, e, dispatcher.LockCensus, now); err != nil || !mine {
		return err
	}
	found, err := e.store.Census(ctx, now.Add(-overdueAfter), mostCounted)
	if err != nil {
		return fmt.Errorf("take a census: %w", err)
	}
	e.census.mu.Lock()
	defer e.census.mu.Unlock()
	e.census.found, e.census.at = found, now
	return nil
}

// read returns the census until another node must have taken one; nil: this node knows none.
func (c *census) read(now time.Time, handler time.Duration) *dispatcher.Census {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() || now.Sub(c.at) > countInterval+2*handler {
		return nil
	}
	found := c.found
	return &found
}

// censusGauges exports the census. All counts are 0 on nodes that know none; what is no count is missing there.
type censusGauges struct {
	engine                                                         *Engine
	jobs, runs, nodes, overdue, overdueAge, tokenExpiry, daysAhead *prometheus.Desc
	forgotten, silentGroups, certificateExpiry, retentionBehind    *prometheus.Desc
	setAside                                                       *prometheus.Desc
}

func newCensusGauges(e *Engine) *censusGauges {
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help+" The node that counted in the last minute reports it; take the largest of all nodes.", labels, nil)
	}
	return &censusGauges{
		engine: e,
		jobs:   gauge("carillon_jobs", "Jobs by state, of 100,000 at most.", "state"),
		runs: gauge("carillon_runs_live", "Live runs by state, of 100,000 at most, without fires that nodes hold in their first attempt.",
			"state"),
		nodes:      gauge("carillon_nodes", "Nodes by state.", "state"),
		overdue:    gauge("carillon_overdue_fires", "Triggers that are due for more than 10 s and that no node has claimed, 100,000 at most."),
		overdueAge: gauge("carillon_overdue_age_seconds", "How long the oldest of carillon_overdue_fires has been due; 0 if there is none."),
		tokenExpiry: gauge("carillon_token_expiry_timestamp_seconds",
			"When the next API token expires, or one expired within a day, in Unix seconds; absent if no token expires."),
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
		g.forgotten, g.silentGroups, g.certificateExpiry, g.retentionBehind, g.setAside} {
		to <- one
	}
}

// Collect sends the metrics.
func (g *censusGauges) Collect(to chan<- prometheus.Metric) {
	now := g.engine.clock.now()
	known := g.engine.census.read(now, g.engine.opts.Handler)
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
	send(g.overdue, float64(found.Overdue))
	age := 0.0
	if !found.Oldest.IsZero() {
		age = now.Sub(found.Oldest).Seconds()
	}
	send(g.overdueAge, age)
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
