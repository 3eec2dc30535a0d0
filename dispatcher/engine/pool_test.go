package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
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

func held(runs []dispatcher.HeldRun) []*heldRun {
	all := make([]*heldRun, len(runs))
	for i, run := range runs {
		all[i] = &heldRun{HeldRun: run, node: 1}
	}
	return all
}

// poolOf returns a started pool whose runs begin at once and last as long as fire says.
func poolOf(t *testing.T, workers, queue int, fire func(context.Context)) (*pool, *sync.Map) {
	p, fired := newPoolOf(workers, queue, fire)
	p.start(t.Context())
	return p, fired
}

// newPoolOf is poolOf without the start.
func newPoolOf(workers, queue int, fire func(context.Context)) (*pool, *sync.Map) {
	p := newPool(poolSize{least: workers, most: workers, queue: queue, perApp: workers, perHost: workers})
	fired := &sync.Map{}
	p.hold = func(ctx context.Context, _ heldRun, stop <-chan struct{}) bool {
		select {
		case <-stop:
			return false
		default:
			return ctx.Err() == nil
		}
	}
	p.fire = func(ctx context.Context, run heldRun) {
		fired.Store(run.TriggerID, true)
		fire(ctx)
	}
	return p, fired
}

// A node may win a fire before its pool has begun its work.
func TestPoolKeepsWhatComesBeforeItsStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, fired := newPoolOf(2, 2, func(context.Context) {})
		early := held(runs(3))
		early[2].due = time.Now().Add(time.Minute)
		for _, run := range early {
			p.admit(run.lane)
		}
		p.submit(early)
		p.start(t.Context())
		synctest.Wait()
		if n := size(fired); n != 2 {
			t.Errorf("%d runs were executed at the start, want the 2 that are due", n)
		}
		<-time.After(time.Minute) // virtual
		synctest.Wait()
		if n := size(fired); n != 3 {
			t.Errorf("%d runs were executed a minute later, want all 3", n)
		}
		p.stop()
		p.wait(0)
	})
}

func size(m *sync.Map) (n int) {
	m.Range(func(any, any) bool { n++; return true })
	return n
}

func TestPoolPromisesOnlyTheRoomItHas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p, _ := poolOf(t, 8, 8, func(context.Context) { <-release })
		if got := p.reserve(100, false); got != 16 {
			t.Errorf("room = %d in an empty pool, want 16", got)
		}
		p.place(held(runs(16)), promise{any: 16})
		synctest.Wait()
		if got := p.reserve(100, false); got != 0 {
			t.Errorf("room = %d in a full pool, want 0", got)
		}
		close(release)
		synctest.Wait()
		select {
		case <-p.freed:
		default:
			t.Error("nobody was told that there is room again")
		}
		if got := p.reserve(5, false); got != 5 {
			t.Errorf("room = %d, want the limit of 5", got)
		}
		p.stop()
		p.wait(time.Second)
	})
}

func TestStoppedPoolHandsBackWhatWasNotBegun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, fired := poolOf(t, 4, 10, func(ctx context.Context) { <-time.After(5 * time.Second) })
		p.place(held(runs(10)), promise{})
		synctest.Wait()
		unsent := p.stop()
		if len(unsent) != 6 || size(fired) != 4 {
			t.Errorf("%d runs handed back and %d begun, want 6 and 4", len(unsent), size(fired))
		}
		if cut, _ := p.wait(10 * time.Second); cut != 0 || p.held() != 0 {
			t.Errorf("%d runs cut off and %d held, want none: they had time to finish", cut, p.held())
		}
	})
}

func TestPoolCutsOffWhatOutlastsTheDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cause error
		p, _ := poolOf(t, 1, 1, func(ctx context.Context) { <-ctx.Done(); cause = context.Cause(ctx) })
		p.place(held(runs(1)), promise{})
		synctest.Wait()
		p.stop()
		if cut, _ := p.wait(time.Second); cut != 1 || !errors.Is(cause, errCutOff) {
			t.Errorf("%d runs cut off for %v, want 1 for %v", cut, cause, errCutOff)
		}
	})
}

func TestCancelledRunThatWaitsIsNeverBegun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p, fired := poolOf(t, 1, 4, func(context.Context) { <-release })
		three := runs(3)
		p.place(held(three), promise{})
		synctest.Wait()
		p.cancel(three[1].RunKey)
		close(release)
		synctest.Wait()
		if _, begun := fired.Load(three[1].TriggerID); begun || size(fired) != 2 || p.held() != 0 {
			t.Errorf("%d runs were begun, the cancelled one among them: %v; %d are held", size(fired), begun, p.held())
		}
		p.stop()
		p.wait(time.Second)
	})
}

func TestOverdrawnPoolStillStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _ := poolOf(t, 2, 2, func(ctx context.Context) { <-ctx.Done() })
		p.place(held(runs(50)), promise{any: 4})
		synctest.Wait()
		if got := p.reserve(1, false); got != 0 {
			t.Errorf("%d places were promised in an overdrawn pool", got)
		}
		unsent := p.stop()
		if cut, _ := p.wait(time.Second); len(unsent) != 48 || cut != 2 {
			t.Errorf("%d runs handed back and %d cut off, want 48 and 2", len(unsent), cut)
		}
	})
}

func TestCancelEndsOneRunOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _ := poolOf(t, 2, 2, func(ctx context.Context) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
		})
		both := runs(2)
		p.place(held(both), promise{})
		synctest.Wait()
		p.cancel(both[0].RunKey)
		synctest.Wait()
		if p.held() != 1 {
			t.Errorf("%d runs are held after one was cancelled, want 1", p.held())
		}
		p.stop()
		p.wait(2 * time.Minute)
	})
}

func TestPoolGrowsWithWhatWaitsAndShrinksWhenIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPool(poolSize{least: 2, most: 64, queue: 64, perApp: 64, perHost: 64})
		release := make(chan struct{})
		p.hold = func(context.Context, heldRun, <-chan struct{}) bool { return true }
		p.fire = func(context.Context, heldRun) { <-release }
		p.start(t.Context())
		p.place(held(runs(64)), promise{})
		synctest.Wait()
		if got := p.size(); got != 2 {
			t.Errorf("%d workers at once, want the least, 2", got)
		}
		<-time.After(100 * time.Millisecond)
		if got := p.size(); got != 64 {
			t.Errorf("%d workers after runs have waited, want one for each, 64", got)
		}
		close(release)
		for range 2 {
			<-time.After(3 * idleAfter)
			if got := p.size(); got != 2 || p.held() != 0 {
				t.Errorf("%d workers when idle for long, want 2; %d runs are held", got, p.held())
			}
			// Those that waited without end have another run, and so a time, before there are more.
			p.place(held(runs(16)), promise{})
		}
		p.stop()
		p.wait(time.Second)
	})
}

// What hangs makes way: it moves to a share of its own, and so do later runs of its job.
func TestRunsThatHangLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPool(poolSize{least: 4, most: 4, queue: 4, perApp: 4, perHost: 4})
		var done sync.Map
		p.hold = func(context.Context, heldRun, <-chan struct{}) bool { return true }
		p.fire = func(ctx context.Context, run heldRun) {
			if run.JobID == 1 {
				<-time.After(30 * time.Second)
			}
			done.Store(run.TriggerID, true)
		}
		p.start(t.Context())
		hanging := held(runs(4))
		for _, run := range hanging {
			run.JobID = 1
		}
		p.place(hanging, promise{})
		good := held(runs(8)[4:])
		p.place(good, promise{})
		<-time.After(slowAfter + 100*time.Millisecond)
		if got := size(&done); got != 4 {
			t.Errorf("%d good runs are done while 4 hang, want all 4", got)
		}
		if !p.slow.is(1) || p.slow.is(0) {
			t.Errorf("job 1 counts as slow: %v, job 0: %v; want the one that hangs", p.slow.is(1), p.slow.is(0))
		}
		<-time.After(time.Minute)
		if p.held() != 0 || p.slow.is(1) {
			t.Errorf("%d runs are held at the end; job 1 counts as slow: %v", p.held(), p.slow.is(1))
		}
		p.stop()
		p.wait(time.Second)
	})
}

func TestJobIsSlowUntilAMinuteWithoutManySlowAttempts(t *testing.T) {
	t.Parallel()
	s := newSlowJobs()
	for range slowAttempts + 1 {
		if s.is(7) {
			t.Error("the job counts as slow too early")
		}
		s.began(7)
		s.ended(7)
	}
	for turn, want := range []bool{true, true, false} {
		if s.is(7) != want {
			t.Errorf("after %d minutes the job counts as slow: %v, want %v", turn, !want, want)
		}
		s.turn()
	}
}

// Lanes overtake each other, and the runs of a trigger must not.
func TestTriggerOfAJobThatBecomesSlowOrRecoversStaysInOrder(t *testing.T) {
	t.Parallel()
	for name, firstIsSlow := range map[string]bool{"becomes slow": false, "recovers": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPool(poolSize{least: 1, most: 1, queue: 20, perApp: 1, perHost: 1})
				var mu sync.Mutex
				var order []int64
				p.hold = func(context.Context, heldRun, <-chan struct{}) bool { return true }
				p.fire = func(_ context.Context, run heldRun) {
					mu.Lock()
					order = append(order, run.ScheduledAt.Unix())
					mu.Unlock()
					<-time.After(100 * time.Millisecond)
				}
				p.start(t.Context())
				all := held(runs(5))
				// One keeps the share busy in which the next waits, of the slow one both workers.
				busy := 1
				if firstIsSlow {
					busy = 2
				}
				for i, run := range all {
					run.ScheduledAt = time.Unix(int64(i), 0)
					if i >= busy {
						run.TriggerID = 7
					}
					run.lane.slow = (i <= busy) == firstIsSlow
				}
				for _, run := range all {
					p.place([]*heldRun{run}, promise{})
				}
				<-time.After(time.Second)
				mu.Lock()
				defer mu.Unlock()
				if !slices.IsSorted(order) || len(order) != len(all) {
					t.Errorf("begun in the order %v", order)
				}
				p.stop()
				p.wait(time.Second)
				if p.claimed.total() != 0 || len(p.inLine) != 0 {
					t.Errorf("%d places and %d triggers in line are left", p.claimed.total(), len(p.inLine))
				}
			})
		})
	}
}

// What is on time overtakes what other triggers catch up, but nothing of its own.
func TestWhatCatchesUpIsOvertakenByOtherTriggersOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPool(poolSize{least: 1, most: 1, queue: 20, perApp: 1, perHost: 1})
		var order []int64
		p.hold = func(context.Context, heldRun, <-chan struct{}) bool { return true }
		p.fire = func(_ context.Context, run heldRun) {
			order = append(order, run.ScheduledAt.Unix())
			<-time.After(100 * time.Millisecond)
		}
		p.start(t.Context())
		all := held(runs(6))
		for i, of := range []struct {
			trigger int64
			late    bool
		}{{1, false}, {2, true}, {3, true}, {3, false}, {4, false}, {3, true}} {
			all[i].TriggerID, all[i].lane.late = of.trigger, of.late
			all[i].ScheduledAt = time.Unix(int64(i), 0)
			p.place([]*heldRun{all[i]}, promise{})
		}
		<-time.After(time.Second)
		want := []int64{0, 2, 3, 4, 5, 1}
		if diff := cmp.Diff(want, order); diff != "" {
			t.Errorf("begun (-want +got):\n%s", diff)
		}
		p.stop()
		p.wait(time.Second)
		if p.claimed.total() != 0 || p.claimed.fast.late.n != 0 {
			t.Errorf("%d places are left, %d of them of what catches up", p.claimed.total(), p.claimed.fast.late.n)
		}
	})
}
