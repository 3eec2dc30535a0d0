package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	// fleetRate is how many fires a second the nodes share in the first reading, whatever their number.
	fleetRate = 10_000
	// settling is the time until nodes know each other: their start and a heartbeat.
	settling = 7 * time.Second
	// missing is how long the other nodes are observed after a kill.
	missing = 8 * time.Second
)

// fleet is a number of nodes to measure, in so many processes, with so many fires a second. A
// hundred nodes are real nodes, too, but nodes of one process share its store. Otherwise this
// machine would be busy with processes, and PostgreSQL with a thousand connections.
type fleet struct{ nodes, processes, rate int }

// readings are two ways to measure the cost of more nodes, each compared with its first fleet.
//
// "nodes, same load" divides one load among ever more nodes. Its statements per fire must grow: a node claims and
// records its own fires, in at least two statements for each second with fires. One node sends 20 of each for
// 10,000 fires a second in batches of 500; a hundred nodes send at least 100 of each, five times as many, for 100
// fires each. The batches of a hundred nodes are full, and the ratio can be 1, from 50,000 fires a second on.
//
// "nodes, same load each" adds the load of a node with each node, as people do who add nodes for more work. It
// shows the statements that nodes send only because other nodes exist. Two cores can carry the loads of a hundred
// nodes, and 20 fires a second each are so few that these statements weigh most.
var readings = []struct {
	name   string
	fleets []fleet
}{
	{"nodes, same load", []fleet{{1, 1, fleetRate}, {2, 2, fleetRate}, {4, 4, fleetRate}, {100, 4, fleetRate}}},
	{"nodes, same load each", []fleet{{1, 1, 2000}, {4, 4, 4 * 2000}}},
	{"nodes, same load each", []fleet{{1, 1, 20}, {100, 4, 100 * 20}}},
}

// nodes measures fleets with triggers that fire at each whole second, as nearly all schedules do.
// At the end it kills one process of several.
func (b *bench) nodes(ctx context.Context) error {
	if b.pool == nil {
		return errors.New("SQLite has one node; give a PostgreSQL database")
	}
	for i, reading := range readings {
		if err := b.read(ctx, fmt.Sprintf("fleet-%d", i), reading.name, reading.fleets); err != nil {
			return err
		}
	}
	return nil
}

// read measures fleets and reports each, compared with the first. Fleets with one rate share their triggers.
func (b *bench) read(ctx context.Context, prefix, name string, fleets []fleet) error {
	var one Result
	app := ""
	for i, f := range fleets {
		if next := fmt.Sprintf("%s-%d", prefix, f.rate); next != app {
			if err := errors.Join(b.silence(ctx, app), declare(ctx, b.database, idleJobs(next, f.rate))); err != nil {
				return err
			}
			app = next
		}
		r, err := b.nodesOf(ctx, f, app)
		if err != nil {
			return err
		}
		if i == 0 {
			one = r
		}
		r.Bench, r.StatementsRatio, r.RowsRatio = name, some(*r.Statements / *one.Statements), some(*r.Rows / *one.Rows)
		if err := b.Report(r); err != nil {
			return err
		}
	}
	return b.silence(ctx, app)
}

// nodesOf measures a fleet with the triggers of app.
func (b *bench) nodesOf(ctx context.Context, f fleet, app string) (r Result, err error) {
	// Nothing is due until the nodes know each other, and no fire is left over from the previous fleet.
	start := nextSecond(settling)
	if f.nodes > f.processes {
		start = start.Add(3 * settling) // each new node moves shares, and the old nodes stay for a while
	}
	if err := b.makeDue(ctx, app, start); err != nil {
		return r, err
	}
	var all []*process
	defer func() {
		for _, p := range all {
			err = errors.Join(err, p.end())
		}
	}()
	for range f.processes {
		p, err := b.startProcess(ctx, f.nodes/f.processes)
		if err != nil {
			return r, err
		}
		all = append(all, p)
	}
	if err := pause(ctx, time.Until(start.Add(time.Second))); err != nil {
		return r, err
	}
	done, rows, err := b.during(ctx, all, b.Time/5)
	if err != nil {
		return r, err
	}
	r = summary(done)
	if r.Value == 0 {
		return r, fmt.Errorf("%d nodes fired nothing", f.nodes)
	}
	r.Database, r.Nodes, r.Triggers, r.Unit, r.Rows = b.kind, some(f.nodes), some(f.rate), "fires/s", some(rows/r.Value)
	r.Value, r.Processes = r.Value/(b.Time/5).Seconds(), some(f.processes)
	if r.Connections, err = b.connections(ctx); err != nil {
		return r, err
	}
	if f.nodes < 4 || f.processes < 2 {
		return r, nil
	}
	if err := all[0].kill(); err != nil {
		return r, err
	}
	all = all[1:]
	if err := pause(ctx, missing); err != nil {
		return r, err
	}
	survivors, err := reports(all)
	if err != nil {
		return r, err
	}
	r.Recovery = summary(survivors).Max
	return r, nil
}

// during returns the work of a fleet in a time, and the number of rows that PostgreSQL reads from
// tables meanwhile. The server counts them up to a second late, at the start as at the end.
func (b *bench) during(ctx context.Context, fleet []*process, span time.Duration) (all []report, rows float64, err error) {
	// In this schema only.
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

// connections counts the connections of all nodes.
func (b *bench) connections(ctx context.Context) (*int, error) {
	var n int
	err := b.pool.QueryRow(ctx, `SELECT count(*)::int FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'carillon'`).Scan(&n)
	return &n, err
}

// reports collects the reports of all nodes.
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

// summary sums up the reports of nodes; its value is the fires.
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
