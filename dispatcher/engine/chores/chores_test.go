package chores

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// newNode returns the chores of a node in a state, over a store.
func newNode(s allStores, id run.NodeID, state dispatcher.NodeState, o plan.Options) *Chores {
	f := plan.NewFleet(o.DeadAfter, 0, 5*time.Second)
	f.Joined(id, state, time.Now())
	of := plan.Node{Log: plan.Log{Logger: slog.New(slog.DiscardHandler), Fleet: f}, Fleet: f, Clock: plan.NewClock(nil), Options: o}
	return New(Parts{
		Store: s, Plan: plan.New(s, plan.NewDefinitions(s, of, func(string) {}), nil),
		Claims: plan.NewClaims(s, of, func(pool.AttemptKey) {}), Registry: prometheus.NewRegistry(),
	})
}

type allStores interface {
	Store
	plan.Store
}

// openStore returns a store with an app and, in it, some jobs that are due in less than a quarter of an hour from now.
func openStore(t *testing.T, now time.Time, jobs ...string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), sqlitetest.New(t), store.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	change := input.Change{Actor: "test", Now: now}
	if _, _, err := s.PutApp(t.Context(), access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, change); err != nil {
		t.Fatal(err)
	}
	trigger := dispatcher.Trigger{}
	trigger.SetDefaults()
	trigger.Expression = "rate(5m)"
	for _, name := range jobs {
		job := dispatcher.Job{App: "app", Name: name,
			JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: map[string]dispatcher.Trigger{"only": trigger}}}
		job.Target.Webhook = &target.Webhook{URL: "http://127.0.0.1/", Method: "POST", Timeout: target.DefaultTimeout}
		if _, _, err := s.PutJob(t.Context(), job, change); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// count makes the steps that one of the nodes makes in a minute.
func (c *Chores) count(t *testing.T, now time.Time) {
	t.Helper()
	for _, one := range c.rows {
		if one.every == countInterval && one.lock != "" {
			if err := c.do(t.Context(), one, now); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// lateLocks takes locks a little after the round that asks for them began, as databases do, each time sooner.
type lateLocks struct {
	allStores
	began time.Time
	after time.Duration
}

func (l *lateLocks) Lock(ctx context.Context, r dispatcher.LockRequest) ([]dispatcher.Lock, error) {
	l.after -= time.Millisecond
	r.Now = l.began.Add(l.after)
	return l.allStores.Lock(ctx, r)
}

func TestSingleNodeCountsEachMinute(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	locks := &lateLocks{allStores: openStore(t, now), after: time.Second}
	c := newNode(locks, 1, dispatcher.NodeActive, plan.Options{DeadAfter: time.Hour})
	for range 3 {
		locks.began = now
		if c.count(t, now); !c.census.at.Equal(now) || !c.upcoming.at.Equal(now) {
			t.Errorf("at %s the latest counts are of %s and %s", now, c.census.at, c.upcoming.at)
		}
		now = now.Add(countInterval)
	}
}

func TestUpcomingFiresAreCountedByOneNodeInAMinute(t *testing.T) {
	t.Parallel()
	const handler = 15 * time.Second
	now := time.Now().UTC().Truncate(time.Second)
	s := openStore(t, now, "soon", "sooner")
	mine := newNode(s, 1, dispatcher.NodeActive, plan.Options{DeadAfter: time.Hour})
	theirs := newNode(s, 2, dispatcher.NodeActive, plan.Options{DeadAfter: time.Hour})
	mine.count(t, now)
	theirs.count(t, now)
	if mine, theirs := mine.upcoming.read(now, 0), theirs.upcoming.read(now, 0); mine != 2 || theirs != 0 {
		t.Errorf("the nodes say %d and %d, want 2 and 0", mine, theirs)
	}
	if got := mine.upcoming.read(now.Add(90*time.Second), handler); got != 2 {
		t.Errorf("while nobody has counted again, the node says %d, want 2", got)
	}
	if got := mine.upcoming.read(now.Add(91*time.Second), handler); got != 0 {
		t.Errorf("when another node must have counted, the node says %d, want 0", got)
	}
	elsewhere := newNode(s, 3, dispatcher.NodeActive, plan.Options{DeadAfter: time.Hour, Apps: []string{"none"}})
	elsewhere.upcoming.count = 7
	if elsewhere.count(t, now); elsewhere.upcoming.read(now, 0) != 0 || elsewhere.upcoming.at.IsZero() {
		t.Errorf("a node of other apps says %d, want its own count of 0", elsewhere.upcoming.read(now, 0))
	}
}

// Paused nodes must find out that no node is active.
func TestCensusIsTakenByPausedNodesToo(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	s := openStore(t, now, "report")
	if err := s.Register(t.Context(), dispatcher.Node{ID: 1, Name: "test", State: dispatcher.NodePaused}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	c := newNode(s, 1, dispatcher.NodePaused, plan.Options{DeadAfter: time.Hour, Handler: time.Hour})
	gauges := newCensusGauges(c)
	read := func() map[string]float64 {
		all, registry := map[string]float64{}, prometheus.NewRegistry()
		registry.MustRegister(gauges)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				name := family.GetName()
				for _, label := range metric.GetLabel() {
					name += " " + label.GetValue()
				}
				all[name] = metric.GetGauge().GetValue()
			}
		}
		return all
	}
	if before := read(); before["carillon_jobs executing"] != 0 || len(before) != 23+len(dispatcher.Works) {
		t.Errorf("before the census: %v, want %d times 0", before, 23+len(dispatcher.Works))
	}
	c.count(t, now)
	after := read()
	if after["carillon_jobs executing"] != 1 || after["carillon_nodes paused"] != 1 || after["carillon_overdue_fires"] != 0 {
		t.Errorf("after the census: %v, want one job and one node", after)
	}
}

// It may finish the statement that was on its way, which is a compare-and-swap, but begins no other.
func TestNodeFrozenUnderALockStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks, lost := &lockedOnce{}, errors.New("connection lost")
		c := newNode(locks, 1, dispatcher.NodeActive, plan.Options{DeadAfter: 10 * time.Second})
		steps := 0
		err := c.withLocks(t.Context(), []string{"x"}, func(ctx context.Context, won []string) error {
			for steps = 0; ctx.Err() == nil; steps++ {
				time.Sleep(4 * time.Second)
			}
			return ctx.Err()
		})
		if err != nil || steps != 3 || locks.freed {
			t.Errorf("withLocks = %v after %d steps of 4 s, given back %v; want no error, an end within 10 s less a second, and the lock kept",
				err, steps, locks.freed)
		}
		err = c.withLocks(t.Context(), []string{"x"}, func(context.Context, []string) error { return lost })
		if !errors.Is(err, lost) || !locks.freed {
			t.Errorf("withLocks = %v, given back %v; want the error of the step, and the lock back", err, locks.freed)
		}
	})
}

// lockedOnce gives every lock.
type lockedOnce struct {
	allStores
	freed bool
}

func (l *lockedOnce) Lock(_ context.Context, r dispatcher.LockRequest) ([]dispatcher.Lock, error) {
	return []dispatcher.Lock{{Name: r.Names[0], Node: r.Node, Fence: 1}}, nil
}

func (l *lockedOnce) Unlock(context.Context, []dispatcher.Lock) error {
	l.freed = true
	return nil
}

// judging notes how long a node has to be silent to be marked dead.
type judging struct {
	allStores
	after time.Duration
}

func (j *judging) MarkDead(_ context.Context, _ run.NodeID, _ time.Time, after time.Duration, _ time.Time) (int, error) {
	j.after = after
	return 0, nil
}

func (j *judging) FailLostRuns(context.Context, time.Time) (int, error) { return 0, nil }
func (j *judging) GrantWaiting(context.Context) error                   { return nil }

func (j *judging) EndBroadcasts(context.Context, []run.Key, time.Time) (int, error) {
	return 0, nil
}

func TestNodesCountAsDeadLaterByTheClockMargin(t *testing.T) {
	t.Parallel()
	s := &judging{}
	c := newNode(s, 1, dispatcher.NodeActive, plan.Options{DeadAfter: 10 * time.Second, ClockMargin: 2 * time.Second})
	if err := c.markDeadNodes(t.Context(), time.Time{}); err != nil || s.after != 12*time.Second {
		t.Errorf("others are marked dead after %s, %v; want 10s and the margin of 2s", s.after, err)
	}
}
