package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"
)

const (
	// nodesRate is how many fires a second several nodes share.
	nodesRate = 10_000
	// settling is the time nodes need to know each other: a heartbeat, and some time to start.
	settling = 7 * time.Second
	// missing is how long the others are observed after a node was killed.
	missing = 8 * time.Second
)

// fleets are the numbers of nodes that are measured, and in how many processes they live. A hundred nodes are real
// nodes, too, but those of one process share its store, or this machine would be busy with processes and PostgreSQL
// with a thousand connections.
var fleets = []struct{ nodes, processes int }{{1, 1}, {2, 2}, {4, 4}, {100, 4}}

// nodes measures 1, 2, 4 and 100 nodes at the same load: triggers that fire at each whole second, as nearly all
// schedules do. At the end one process of several is killed.
func (b *bench) nodes(ctx context.Context) error {
	if b.pool == nil {
		return errors.New("SQLite has one node; give a PostgreSQL database")
	}
	d := idleJobs("fleet", nodesRate)
	if err := declare(ctx, b.database, d); err != nil {
		return err
	}
	var one Result
	for _, f := range fleets {
		r, err := b.nodesOf(ctx, f.nodes, f.processes)
		if err != nil {
			return err
		}
		if f.nodes == 1 {
			one = r
		}
		r.StatementsRatio, r.RowsRatio = some(*r.Statements / *one.Statements), some(*r.Rows / *one.Rows)
		if err := b.Report(r); err != nil {
			return err
		}
	}
	return nil
}

// nodesOf measures a fleet of that many nodes in processes.
func (b *bench) nodesOf(ctx context.Context, count, processes int) (r Result, err error) {
	// Nothing is due until the nodes know each other; no fire is left over from the fleet before.
	start := nextSecond(settling)
	if count > processes {
		start = start.Add(3 * settling) // each that joins moves the shares of the others, and the old ones stay for a while
	}
	if err := b.makeDue(ctx, "fleet", start); err != nil {
		return r, err
	}
	var fleet []*process
	defer func() {
		for _, p := range fleet {
			err = errors.Join(err, p.end())
		}
	}()
	for range processes {
		p, err := b.startProcess(ctx, count/processes)
		if err != nil {
			return r, err
		}
		fleet = append(fleet, p)
	}
	if err := pause(ctx, time.Until(start.Add(time.Second))); err != nil {
		return r, err
	}
	all, rows, err := b.during(ctx, fleet, b.Time/5)
	if err != nil {
		return r, err
	}
	won := 0.0
	for _, one := range all {
		won += one.Won
	}
	r = summary(all)
	r.Bench, r.Database, r.Nodes, r.Triggers, r.Unit = "nodes", b.kind, some(count), some(nodesRate), "fires/s"
	r.Value, r.Processes, r.Rows = r.Value/(b.Time/5).Seconds(), some(processes), some(rows/max(1, won))
	if r.Connections, err = b.connections(ctx); err != nil {
		return r, err
	}
	if count < 4 || processes < 2 {
		return r, nil
	}
	if err := fleet[0].kill(); err != nil {
		return r, err
	}
	fleet = fleet[1:]
	if err := pause(ctx, missing); err != nil {
		return r, err
	}
	survivors, err := reports(fleet)
	if err != nil {
		return r, err
	}
	r.Recovery = summary(survivors).Max
	return r, nil
}

// during returns what a fleet does in a time, and how many rows PostgreSQL reads from tables meanwhile. The server
// learns of them up to a second later, at the begin as at the end.
func (b *bench) during(ctx context.Context, fleet []*process, span time.Duration) (all []report, rows float64, err error) {
	// Of this schema alone.
	const read = `SELECT CAST(coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0) AS float8) FROM pg_stat_user_tables
		WHERE schemaname = current_schema()`
	var before float64
	if err := b.pool.QueryRow(ctx, read).Scan(&before); err != nil {
		return nil, 0, err
	}
	if _, err := reports(fleet); err != nil {
		return nil, 0, err
	}
	if err := pause(ctx, span); err != nil {
		return nil, 0, err
	}
	if all, err = reports(fleet); err != nil {
		return nil, 0, err
	}
	err = b.pool.QueryRow(ctx, read).Scan(&rows)
	return all, rows - before, err
}

// connections counts those of all nodes.
func (b *bench) connections(ctx context.Context) (*int, error) {
	var n int
	err := b.pool.QueryRow(ctx, `SELECT count(*)::int FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'carillon'`).Scan(&n)
	return &n, err
}

// reports asks all nodes what they did.
func reports(fleet []*process) ([]report, error) {
	all := make([]report, len(fleet))
	for i, p := range fleet {
		var err error
		if all[i], err = p.report(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// summary sums up what nodes did; the value is their fires.
func summary(all []report) Result {
	var sum report
	var r Result
	for _, one := range all {
		sum.Won, sum.Lost = sum.Won+one.Won, sum.Lost+one.Lost
		sum.Statements, sum.CPU = sum.Statements+one.Statements, sum.CPU+one.CPU
		sum.Polls, sum.Polling, sum.RSS = sum.Polls+one.Polls, sum.Polling+one.Polling, max(sum.RSS, one.RSS)
		sum.Latencies = append(sum.Latencies, one.Latencies...)
	}
	slices.Sort(sum.Latencies)
	r.lateness(sum.Latencies)
	r.Value, r.RSS = sum.Won, some(sum.RSS)
	if sum.Polls > 0 {
		r.Poll = some(sum.Polling / sum.Polls * 1000)
	}
	if sum.Won == 0 {
		return r
	}
	r.Statements, r.Lost = some(sum.Statements/sum.Won), some(sum.Lost/(sum.Won+sum.Lost))
	if even := sum.Won / float64(len(all)); len(all) > 1 {
		r.Uneven = some(0.0)
		for _, one := range all {
			*r.Uneven = max(*r.Uneven, math.Abs(one.Won/even-1))
		}
	}
	return r
}
