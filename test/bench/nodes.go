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

// nodes measures 1, 2 and 4 nodes, each a process of its own, at the same load: triggers that
// fire at each whole second, as nearly all schedules do. At the end one of four is killed.
func (b *bench) nodes(ctx context.Context) error {
	if b.pool == nil {
		return errors.New("SQLite has one node; give a PostgreSQL database")
	}
	d := idleJobs("fleet", nodesRate)
	if err := declare(ctx, b.database, d); err != nil {
		return err
	}
	for _, count := range []int{1, 2, 4} {
		if err := b.nodesOf(ctx, count); err != nil {
			return err
		}
	}
	return nil
}

// nodesOf measures a fleet of that many nodes.
func (b *bench) nodesOf(ctx context.Context, count int) (err error) {
	// Nothing is due until the nodes know each other; no fire is left over from the fleet before.
	start := nextSecond(settling)
	if err := b.makeDue(ctx, "fleet", start); err != nil {
		return err
	}
	var fleet []*process
	defer func() {
		for _, p := range fleet {
			err = errors.Join(err, p.end())
		}
	}()
	for range count {
		p, err := b.startProcess(ctx)
		if err != nil {
			return err
		}
		fleet = append(fleet, p)
	}
	if err := pause(ctx, time.Until(start.Add(time.Second))); err != nil {
		return err
	}
	if _, err := reports(fleet); err != nil {
		return err
	}
	if err := pause(ctx, b.Time/5); err != nil {
		return err
	}
	all, err := reports(fleet)
	if err != nil {
		return err
	}
	r := summary(all)
	r.Bench, r.Database, r.Nodes, r.Triggers, r.Unit = "nodes", b.kind, some(count), some(nodesRate), "fires/s"
	r.Value /= (b.Time / 5).Seconds()
	if count == 4 {
		if err := fleet[0].kill(); err != nil {
			return err
		}
		fleet = fleet[1:]
		if err := pause(ctx, missing); err != nil {
			return err
		}
		survivors, err := reports(fleet)
		if err != nil {
			return err
		}
		r.Recovery = summary(survivors).Max
	}
	return b.Report(r)
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
