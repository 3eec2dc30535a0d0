package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// fire measures the whole engine with a target that does nothing.
func (b *bench) fire(ctx context.Context) error {
	bare, err := b.newBareSQL(ctx, backlogTriggers)
	if err != nil {
		return err
	}
	defer bare.close()
	l, err := b.newBacklog(ctx, "http://127.0.0.1", false)
	if err != nil {
		return err
	}
	return b.throughput(ctx, "fire", l, ceilings{sql: bare.measure})
}

// webhook measures the whole way to a receiver on this machine and back.
func (b *bench) webhook(ctx context.Context) error {
	bare, err := b.newBareSQL(ctx, backlogTriggers)
	if err != nil {
		return err
	}
	defer bare.close()
	receiver, err := listen(swallow)
	if err != nil {
		return err
	}
	defer receiver.close()
	l, err := b.newBacklog(ctx, receiver.url, true)
	if err != nil {
		return err
	}
	return b.throughput(ctx, "webhook", l, ceilings{sql: bare.measure, http: bareHTTP(receiver.url)})
}

func (b *bench) throughput(ctx context.Context, name string, l *backlog, best ceilings) error {
	r := Result{Bench: name, Triggers: some(backlogTriggers)}
	if err := b.compare(ctx, &r, l.measure, best); err != nil {
		return err
	}
	l.spent.fill(&r)
	return b.Report(r)
}

// sqlite measures fire on SQLite; the other benchmarks use PostgreSQL.
func (b *bench) sqlite(ctx context.Context) (err error) {
	if b.pool == nil {
		return b.fire(ctx)
	}
	dir, err := os.MkdirTemp("", "carillon-bench-sqlite-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	options := b.Options
	options.Database, options.Peer = "sqlite:"+filepath.Join(dir, "carillon.db"), ""
	return runIn(ctx, options, (*bench).fire)
}

// backlogTriggers are so many that no batch waits for triggers.
const backlogTriggers = 20_000

// backlog has triggers that are so late that a node always has more to fire than it can.
type backlog struct {
	*space
	sends    bool
	profiles string // directory of profiles, or empty
	spent    usage  // over all rounds
}

// newBacklog declares triggers in the future and moves them into the past, as if no node had run
// for an hour: each is due for every second since then.
func (b *bench) newBacklog(ctx context.Context, url string, sends bool) (*backlog, error) {
	d := idleJobs("backlog", backlogTriggers)
	d.target, d.unsigned = to(url), b.Unsigned
	if err := declare(ctx, b.database, d); err != nil {
		return nil, err
	}
	return &backlog{space: b.space, sends: sends, profiles: b.Profile}, b.shift(ctx, -25*time.Hour)
}

// measure runs a node for that time, once it has warmed up.
func (l *backlog) measure(ctx context.Context, span time.Duration) (float64, error) {
	n, err := startNode(ctx, nodeOptions{database: l.database, sends: l.sends})
	if err != nil {
		return 0, err
	}
	defer func() { _ = n.stop() }() // a second call returns the same
	if err := l.warmUp(ctx, n); err != nil {
		return 0, err
	}
	endProfile, err := profile(l.profiles, "fires")
	if err != nil {
		return 0, err
	}
	before, err := l.usage(ctx, n)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := pause(ctx, span); err != nil {
		return 0, err
	}
	took := time.Since(began)
	after, err := l.usage(ctx, n)
	if err != nil {
		return 0, err
	}
	if err := endProfile(); err != nil {
		return 0, err
	}
	spent := after.minus(before)
	l.spent = l.spent.plus(spent)
	return spent.fires / took.Seconds(), n.stop()
}

// warmUp waits until the pool of a node has grown and its first poll has read all triggers into its caches.
func (l *backlog) warmUp(ctx context.Context, n *node) error {
	if err := n.await(ctx, 5000); err != nil {
		return err
	}
	for {
		t, err := n.totals()
		if err != nil || t.polls > 0 {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// usage is the cost of fires.
type usage struct {
	fires, statements, wal, allocs, cpu float64 // cpu in seconds
}

// usage reads all counters of this process and its node.
func (s *space) usage(ctx context.Context, n *node) (u usage, err error) {
	if u.wal, err = s.wal(ctx); err != nil {
		return u, err
	}
	t, err := n.totals()
	if err != nil {
		return u, err
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.allocs, u.statements, u.fires, u.cpu = float64(m.Mallocs), t.statements, float64(n.fires.Load()), processCPU()
	return u, nil
}

// processCPU returns the seconds of CPU that this process has used.
func processCPU() float64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
}

func (u usage) plus(v usage) usage {
	return usage{u.fires + v.fires, u.statements + v.statements, u.wal + v.wal, u.allocs + v.allocs, u.cpu + v.cpu}
}

func (u usage) minus(v usage) usage {
	return usage{u.fires - v.fires, u.statements - v.statements, u.wal - v.wal, u.allocs - v.allocs, u.cpu - v.cpu}
}

// fill reports the cost of one fire.
func (u usage) fill(r *Result) {
	r.Allocs, r.CPUPerMillion = some(u.allocs/u.fires), some(u.cpu/u.fires*1e6)
	if u.wal > 0 {
		r.WAL, r.Statements = some(u.wal/u.fires), some(u.statements/u.fires)
	}
}
