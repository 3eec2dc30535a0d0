package pool

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func runs(n int) []run.HeldRun {
	some := make([]run.HeldRun, n)
	for i := range some {
		some[i] = run.HeldRun{Key: run.Key{TriggerID: int64(i + 1), Kind: run.KindSchedule}, Attempt: 1}
	}
	return some
}

// testPool is a pool of runs without data.
type testPool struct{ *Pool[struct{}] }

type testRun = Run[struct{}]

// held returns runs of as many jobs.
func held(runs []run.HeldRun) []*testRun {
	all := make([]*testRun, len(runs))
	for i, run := range runs {
		all[i] = &testRun{HeldRun: run, Node: 1, Queue: QueueKey{Job: run.TriggerID}}
	}
	return all
}

// submit submits runs that find a place, and returns the others.
func (p *testPool) submit(runs []*testRun) (refused []*testRun) {
	var admitted []*testRun
	for _, run := range runs {
		if p.Admit(run.Queue) == Admitted {
			admitted = append(admitted, run)
		} else {
			refused = append(refused, run)
		}
	}
	p.Submit(admitted)
	return refused
}

// startPool returns a started pool whose runs begin at once and last as long as attempt does.
func startPool(t *testing.T, o Options, attempt func(context.Context, testRun)) *testPool {
	p := newPool(o, attempt)
	p.Start(t.Context())
	return p
}

// newPool is startPool without the start.
func newPool(o Options, attempt func(context.Context, testRun)) *testPool {
	return &testPool{New(o, Work[struct{}]{
		WaitUntilDue: func(ctx context.Context, _ testRun, stop <-chan struct{}) bool {
			select {
			case <-stop:
				return false
			default:
				return ctx.Err() == nil
			}
		},
		Attempt: attempt,
		Until:   time.Until,
	})}
}

// fixed is the size of a pool that neither grows nor limits an app or host.
func fixed(workers, queue int) Options {
	return Options{MinWorkers: workers, Workers: workers, AppWorkers: workers, HostWorkers: workers, Queue: queue}
}

// counted returns do as an attempt, and the triggers whose attempts began.
func counted(do func(context.Context)) (func(context.Context, testRun), *sync.Map) {
	began := &sync.Map{}
	return func(ctx context.Context, run testRun) {
		began.Store(run.TriggerID, true)
		do(ctx)
	}, began
}

// A node may win a fire before its pool has begun its work.
func TestPoolKeepsRunsSubmittedBeforeItsStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempt, began := counted(func(context.Context) {})
		p := newPool(fixed(2, 2), attempt)
		early := held(runs(3))
		early[2].Due = time.Now().Add(time.Minute)
		p.submit(early)
		p.Start(t.Context())
		synctest.Wait()
		if n := size(began); n != 2 {
			t.Errorf("%d runs were executed at the start, want the 2 that are due", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := size(began); n != 3 {
			t.Errorf("%d runs were executed a minute later, want all 3", n)
		}
		p.TakeNotAttempted()
		p.Drain(0)
	})
}

func size(m *sync.Map) (n int) {
	m.Range(func(any, any) bool { n++; return true })
	return n
}

func TestPoolTakesOnlyRunsThatFit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := startPool(t, fixed(8, 8), func(context.Context, testRun) { <-release })
		refused := p.submit(held(runs(100)))
		if len(refused) != 84 || p.Held() != 16 {
			t.Errorf("%d of 100 runs were refused and %d are held, want 84 and 16", len(refused), p.Held())
		}
		close(release)
		synctest.Wait()
		select {
		case <-p.Freed():
		default:
			t.Error("the pool did not announce that it has room again")
		}
		if refused = p.submit(refused[:16]); len(refused) > 0 {
			t.Errorf("%d of 16 runs were refused by an empty pool", len(refused))
		}
		p.TakeNotAttempted()
		p.Drain(time.Second)
		if p.Admit(QueueKey{}) != PoolFull {
			t.Error("a closed pool gave a place")
		}
	})
}

func TestClosedPoolReturnsRunsNotBegun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempt, began := counted(func(context.Context) { time.Sleep(5 * time.Second) })
		p := startPool(t, fixed(4, 10), attempt)
		p.submit(held(runs(10)))
		synctest.Wait()
		notAttempted := p.TakeNotAttempted()
		if len(notAttempted) != 6 || size(began) != 4 {
			t.Errorf("%d runs handed back and %d begun, want 6 and 4", len(notAttempted), size(began))
		}
		if cut, _ := p.Drain(10 * time.Second); cut != 0 || p.Held() != 0 {
			t.Errorf("%d runs cut off and %d held, want none: they had time to finish", cut, p.Held())
		}
	})
}

func TestDrainCutsOffLongAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cause error
		p := startPool(t, fixed(1, 1), func(ctx context.Context, _ testRun) { <-ctx.Done(); cause = context.Cause(ctx) })
		p.submit(held(runs(1)))
		synctest.Wait()
		p.TakeNotAttempted()
		if cut, _ := p.Drain(time.Second); cut != 1 || !errors.Is(cause, ErrCutOff) {
			t.Errorf("%d runs cut off for %v, want 1 for %v", cut, cause, ErrCutOff)
		}
	})
}

func TestCancelledWaitingRunIsNeverBegun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		attempt, began := counted(func(context.Context) { <-release })
		p := startPool(t, fixed(1, 4), attempt)
		three := runs(3)
		p.submit(held(three))
		synctest.Wait()
		p.Cancel(KeyOf(three[1]))
		close(release)
		synctest.Wait()
		if _, begun := began.Load(three[1].TriggerID); begun || size(began) != 2 || p.Held() != 0 {
			t.Errorf("%d runs were begun, the cancelled one among them: %v; %d are held", size(began), begun, p.Held())
		}
		p.TakeNotAttempted()
		p.Drain(time.Second)
	})
}

// A cancellation may arrive when the next attempt of its run is in flight here.
func TestLateCancelDoesNotReachTheNextAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cut atomic.Int32
		p := startPool(t, fixed(2, 2), func(ctx context.Context, _ testRun) {
			select {
			case <-ctx.Done():
				cut.Add(1)
			case <-time.After(time.Minute):
			}
		})
		first := runs(1)[0]
		first.Token, first.Attempt = 5, 1
		next := first
		next.Token, next.Attempt = 6, 2
		p.submit(held([]run.HeldRun{next}))
		synctest.Wait()
		p.Cancel(KeyOf(first))
		synctest.Wait()
		if cut.Load() != 0 || p.Held() != 1 {
			t.Errorf("a cancellation of attempt 1 cut off %d attempts, and %d are left; want attempt 2 to go on", cut.Load(), p.Held())
		}
		p.Cancel(Attempt(next.Key, next.Token, 0))
		synctest.Wait()
		if cut.Load() != 1 || p.Held() != 0 {
			t.Errorf("a cancellation of attempt 2 cut off %d attempts, and %d are left; want it cut off", cut.Load(), p.Held())
		}
		p.TakeNotAttempted()
		p.Drain(time.Second)
	})
}

// A worker makes its attempts under one context while none of them is cancelled.
func TestCancelDoesNotReachTheNextRunOfTheWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var began, cut atomic.Int32
		var current atomic.Value
		p := startPool(t, fixed(1, 2), func(ctx context.Context, run testRun) {
			current.Store(KeyOf(run.HeldRun))
			began.Add(1)
			select {
			case <-ctx.Done():
				cut.Add(1)
			case <-time.After(time.Minute):
			}
		})
		p.submit(held(runs(3)))
		for n := range 3 {
			synctest.Wait()
			if began.Load() != int32(n+1) || cut.Load() != int32(n) {
				t.Errorf("%d attempts began and %d were cut off, want %d and %d", began.Load(), cut.Load(), n+1, n)
			}
			p.Cancel(current.Load().(AttemptKey))
		}
		p.TakeNotAttempted()
		p.Drain(time.Second)
	})
}

func TestCancelEndsOneRunOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startPool(t, fixed(2, 2), func(ctx context.Context, _ testRun) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
		})
		both := runs(2)
		p.submit(held(both))
		synctest.Wait()
		p.Cancel(KeyOf(both[0]))
		synctest.Wait()
		if p.Held() != 1 {
			t.Errorf("%d runs are held after one was cancelled, want 1", p.Held())
		}
		p.TakeNotAttempted()
		p.Drain(2 * time.Minute)
	})
}

func TestPoolGrowsUnderLoadAndShrinksWhenIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		o := fixed(64, 64)
		o.MinWorkers = 2
		p := startPool(t, o, func(context.Context, testRun) { <-release })
		p.submit(held(runs(64)))
		synctest.Wait()
		if got := p.Workers(); got != 2 {
			t.Errorf("%d workers at once, want the least, 2", got)
		}
		time.Sleep(100 * time.Millisecond)
		if got := p.Workers(); got != 64 {
			t.Errorf("%d workers after runs have waited, want one for each, 64", got)
		}
		close(release)
		for range 2 {
			time.Sleep(3 * idleAfter)
			if got := p.Workers(); got != 2 || p.Held() != 0 {
				t.Errorf("%d workers when idle for long, want 2; %d runs are held", got, p.Held())
			}
			// The workers that waited without a limit get a run, and an idle time again, before more start.
			p.submit(held(runs(16)))
		}
		p.TakeNotAttempted()
		p.Drain(time.Second)
	})
}

func TestUseIsThePartOfTheWorkersInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := startPool(t, fixed(4, 4), func(context.Context, testRun) { <-release })
		all := held(runs(8))
		for step, want := range []float64{0.75, 1} {
			p.submit(all[:3+step*5][step*3:])
			time.Sleep(100 * time.Millisecond)
			if got, _ := p.Load(); got != want {
				t.Errorf("with %d of 4 attempts the use is %v, want %v", 3+step*5, got, want)
			}
		}
		close(release)
		synctest.Wait()
		if got, _ := p.Load(); got != 0 {
			t.Errorf("when all have ended, the use is %v, want 0", got)
		}
		p.TakeNotAttempted()
		p.Drain(time.Second)
	})
}

// A run on time overtakes the late runs of other triggers, but none of its own.
func TestCatchUpIsOvertakenOnlyByOtherTriggers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var order []int64
		p := startPool(t, fixed(1, 20), func(_ context.Context, run testRun) {
			order = append(order, run.ScheduledAt.Unix())
			time.Sleep(100 * time.Millisecond)
		})
		all := held(runs(6))
		for i, of := range []struct {
			trigger int64
			late    bool
		}{{1, false}, {2, true}, {3, true}, {3, false}, {4, false}, {3, true}} {
			all[i].TriggerID, all[i].Queue.Job, all[i].Queue.Late = of.trigger, of.trigger, of.late
			all[i].ScheduledAt = time.Unix(int64(i), 0)
			p.submit([]*testRun{all[i]})
		}
		time.Sleep(time.Second)
		synctest.Wait()
		want := []int64{0, 2, 3, 4, 1, 5}
		if diff := cmp.Diff(want, order); diff != "" {
			t.Errorf("begun (-want +got):\n%s", diff)
		}
		p.TakeNotAttempted()
		p.Drain(time.Second)
		if p.Held() != 0 || p.shares.late.taken != [uses]int{} || len(p.late) != 0 {
			t.Errorf("%d places are still taken, %d of them late; %d triggers are late", p.Held(), p.shares.late.taken, len(p.late))
		}
	})
}
