package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

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

// poolOf returns a started pool whose runs begin at once and last as long as fire says.
func poolOf(t *testing.T, workers, queue int, fire func(context.Context)) (*pool, *sync.Map) {
	p, fired := newPool(workers, queue), &sync.Map{}
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
	p.start(t.Context())
	return p, fired
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
		if got := p.reserve(100); got != 16 {
			t.Errorf("room = %d in an empty pool, want 16", got)
		}
		p.submit(heldBy(1, runs(15)), 16)
		synctest.Wait()
		if got := p.reserve(100); got != 0 {
			t.Errorf("room = %d with one place left, want 0: too little for a claim", got)
		}
		close(release)
		synctest.Wait()
		select {
		case <-p.freed:
		default:
			t.Error("nobody was told that there is room again")
		}
		if got := p.reserve(5); got != 5 {
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
		p.submit(heldBy(1, runs(10)), 0)
		synctest.Wait()
		unsent := p.stop()
		if len(unsent) != 6 || size(fired) != 4 {
			t.Errorf("%d runs handed back and %d begun, want 6 and 4", len(unsent), size(fired))
		}
		if cut := p.wait(10 * time.Second); cut != 0 || p.held() != 0 {
			t.Errorf("%d runs cut off and %d held, want none: they had time to finish", cut, p.held())
		}
	})
}

func TestPoolCutsOffWhatOutlastsTheDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cause error
		p, _ := poolOf(t, 1, 1, func(ctx context.Context) { <-ctx.Done(); cause = context.Cause(ctx) })
		p.submit(heldBy(1, runs(1)), 0)
		synctest.Wait()
		p.stop()
		if cut := p.wait(time.Second); cut != 1 || !errors.Is(cause, errCutOff) {
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
		p.submit(heldBy(1, three), 0)
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
		p.submit(heldBy(1, runs(50)), 4)
		synctest.Wait()
		if got := p.reserve(1); got != 0 {
			t.Errorf("%d places were promised in an overdrawn pool", got)
		}
		if unsent, cut := p.stop(), p.wait(time.Second); len(unsent) != 48 || cut != 2 {
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
		p.submit(heldBy(1, both), 0)
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
