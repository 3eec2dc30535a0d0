package pool

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func runs(n int) []dispatcher.HeldRun {
	some := make([]dispatcher.HeldRun, n)
	for i := range some {
		some[i] = dispatcher.HeldRun{RunKey: dispatcher.RunKey{TriggerID: int64(i + 1), Kind: dispatcher.KindSchedule}, Attempt: 1}
	}
	return some
}

// testPool is a pool whose runs carry nothing.
type testPool = Pool[struct{}]

type testRun = Run[struct{}]

func held(runs []dispatcher.HeldRun) []*testRun {
	all := make([]*testRun, len(runs))
	for i, run := range runs {
		all[i] = &testRun{HeldRun: run, Node: 1}
	}
	return all
}

// startPool returns a started pool whose runs begin at once and last as long as attempt says.
func startPool(t *testing.T, o Options, attempt func(context.Context, testRun)) *testPool {
	p := newPool(o, attempt)
	p.Start(t.Context())
	return p
}

// newPool is startPool without the start.
func newPool(o Options, attempt func(context.Context, testRun)) *testPool {
	return New(o, Work[struct{}]{
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
	})
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
		for _, run := range early {
			p.Admit(run.Queue)
		}
		p.Submit(early)
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

func TestPoolReservesOnlyTheRoomItHas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := startPool(t, fixed(8, 8), func(context.Context, testRun) { <-release })
		if got := p.Reserve(100, false).Places; got != 16 {
			t.Errorf("room = %d in an empty pool, want 16", got)
		}
		p.Enqueue(held(runs(16)), Reservation{Places: 16})
		synctest.Wait()
		if got := p.Reserve(100, false).Places; got != 0 {
			t.Errorf("room = %d in a full pool, want 0", got)
		}
		close(release)
		synctest.Wait()
		select {
		case <-p.freed:
		default:
			t.Error("the pool did not announce that it has room again")
		}
		if got := p.Reserve(5, false).Places; got != 5 {
			t.Errorf("room = %d, want the limit of 5", got)
		}
		p.TakeNotAttempted()
		p.Drain(time.Second)
	})
}

func TestClosedPoolReturnsRunsNotBegun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempt, began := counted(func(context.Context) { time.Sleep(5 * time.Second) })
		p := startPool(t, fixed(4, 10), attempt)
		p.Enqueue(held(runs(10)), Reservation{})
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
		p.Enqueue(held(runs(1)), Reservation{})
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
		p.Enqueue(held(three), Reservation{})
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

func TestOverfullPoolStillDrains(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startPool(t, fixed(2, 2), func(ctx context.Context, _ testRun) { <-ctx.Done() })
		p.Enqueue(held(runs(50)), Reservation{Places: 4})
		synctest.Wait()
		if got := p.Reserve(1, false).Places; got != 0 {
			t.Errorf("%d places were reserved in an overfull pool", got)
		}
		notAttempted := p.TakeNotAttempted()
		if cut, _ := p.Drain(time.Second); len(notAttempted) != 48 || cut != 2 {
			t.Errorf("%d runs handed back and %d cut off, want 48 and 2", len(notAttempted), cut)
		}
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
		p.Enqueue(held([]dispatcher.HeldRun{next}), Reservation{})
		synctest.Wait()
		p.Cancel(KeyOf(first))
		synctest.Wait()
		if cut.Load() != 0 || p.Held() != 1 {
			t.Errorf("a cancellation of attempt 1 cut off %d attempts, and %d are left; want attempt 2 to go on", cut.Load(), p.Held())
		}
		p.Cancel(AttemptKey{RunKey: next.RunKey, Token: next.Token})
		synctest.Wait()
		if cut.Load() != 1 || p.Held() != 0 {
			t.Errorf("a cancellation of attempt 2 cut off %d attempts, and %d are left; want it cut off", cut.Load(), p.Held())
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
		p.Enqueue(held(both), Reservation{})
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
		p.Enqueue(held(runs(64)), Reservation{})
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
			// The workers that waited without end get a run, and an idle time again, before there are more.
			p.Enqueue(held(runs(16)), Reservation{})
		}
		p.TakeNotAttempted()
		p.Drain(time.Second)
	})
}

// A run that hangs moves to the slow share, and so do later runs of its job.
func TestHangingRunsLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var done sync.Map
		p := startPool(t, fixed(4, 4), func(ctx context.Context, run testRun) {
			if run.JobID == 1 {
				time.Sleep(30 * time.Second)
			}
			done.Store(run.TriggerID, true)
		})
		hanging := held(runs(4))
		for _, run := range hanging {
			run.JobID = 1
		}
		p.Enqueue(hanging, Reservation{})
		good := held(runs(8)[4:])
		p.Enqueue(good, Reservation{})
		time.Sleep(slowAfter + 100*time.Millisecond)
		if got := size(&done); got != 4 {
			t.Errorf("%d good runs are done while 4 hang, want all 4", got)
		}
		if !p.IsSlow(1) || p.IsSlow(0) {
			t.Errorf("job 1 counts as slow: %v, job 0: %v; want the one that hangs", p.IsSlow(1), p.IsSlow(0))
		}
		time.Sleep(time.Minute)
		if p.Held() != 0 || p.IsSlow(1) {
			t.Errorf("%d runs are held at the end; job 1 counts as slow: %v", p.Held(), p.IsSlow(1))
		}
		p.TakeNotAttempted()
		p.Drain(time.Second)
	})
}

func TestUseIsThatOfTheShareThatIsUsedMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := startPool(t, fixed(4, 4), func(context.Context, testRun) { <-release })
		want := func(use float64, when string) {
			t.Helper()
			if got := p.Use(); got != use {
				t.Errorf("%s, the use is %v, want %v", when, got, use)
			}
		}
		want(0, "without a run")
		all := held(runs(9))
		p.Enqueue(all[:3], Reservation{})
		time.Sleep(100 * time.Millisecond)
		want(0.75, "with 3 of 4 quick attempts")
		time.Sleep(slowAfter)
		want(0.375, "when these are 3 of 8 slow attempts")
		p.Enqueue(all[3:], Reservation{})
		time.Sleep(100 * time.Millisecond)
		want(1, "with 4 quick attempts and 2 runs that wait for a worker")
		close(release)
		synctest.Wait()
		want(0, "when all have ended")
		p.TakeNotAttempted()
		p.Drain(time.Second)
	})
}

func TestJobIsSlowUntilAMinuteWithoutManySlowAttempts(t *testing.T) {
	t.Parallel()
	p := newPool(fixed(1, 1), nil)
	for range slowAttempts + 1 {
		if p.IsSlow(7) {
			t.Error("the job counts as slow too early")
		}
		p.slow.began(7)
		p.slow.ended(7)
	}
	for minute, want := range []bool{true, true, false} {
		if p.IsSlow(7) != want {
			t.Errorf("after %d minutes the job counts as slow: %v, want %v", minute, !want, want)
		}
		p.NextMinute()
	}
}

// Queues overtake each other, but the runs of a trigger must not.
func TestRunsStayInOrderWhenTheirJobBecomesSlowOrRecovers(t *testing.T) {
	t.Parallel()
	for name, firstIsSlow := range map[string]bool{"becomes slow": false, "recovers": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var order []int64
				p := startPool(t, fixed(1, 20), func(_ context.Context, run testRun) {
					mu.Lock()
					order = append(order, run.ScheduledAt.Unix())
					mu.Unlock()
					time.Sleep(100 * time.Millisecond)
				})
				all := held(runs(5))
				// Keep the share busy in which the next run waits; the slow share has two workers.
				busy := 1
				if firstIsSlow {
					busy = 2
				}
				for i, run := range all {
					run.ScheduledAt = time.Unix(int64(i), 0)
					if i >= busy {
						run.TriggerID = 7
					}
					run.Queue.Slow = (i <= busy) == firstIsSlow
				}
				for _, run := range all {
					p.Enqueue([]*testRun{run}, Reservation{})
				}
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				if !slices.IsSorted(order) || len(order) != len(all) {
					t.Errorf("begun in the order %v", order)
				}
				p.TakeNotAttempted()
				p.Drain(time.Second)
				if p.places.claimed.total() != 0 || len(p.order) != 0 {
					t.Errorf("%d places and %d queued triggers are left", p.places.claimed.total(), len(p.order))
				}
			})
		})
	}
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
			all[i].TriggerID, all[i].Queue.Late = of.trigger, of.late
			all[i].ScheduledAt = time.Unix(int64(i), 0)
			p.Enqueue([]*testRun{all[i]}, Reservation{})
		}
		time.Sleep(time.Second)
		synctest.Wait()
		want := []int64{0, 2, 3, 4, 5, 1}
		if diff := cmp.Diff(want, order); diff != "" {
			t.Errorf("begun (-want +got):\n%s", diff)
		}
		p.TakeNotAttempted()
		p.Drain(time.Second)
		if p.places.claimed.total() != 0 || p.places.claimed.fast.late.n != 0 {
			t.Errorf("%d places are still taken, %d of them late", p.places.claimed.total(), p.places.claimed.fast.late.n)
		}
	})
}
