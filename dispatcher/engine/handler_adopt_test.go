package engine

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// late is a store whose responses to statements that win runs arrive two rounds of the handler after
// the commit, as at a node that was frozen.
type late struct {
	Store
	rounds func()
}

func (l *late) Claim(ctx context.Context, batch dispatcher.ClaimBatch) ([]dispatcher.HeldRun, error) {
	held, err := l.Store.Claim(ctx, batch)
	l.rounds()
	return held, err
}

func (l *late) Adopt(ctx context.Context, query dispatcher.AdoptQuery, runs []dispatcher.Adoptable) ([]dispatcher.HeldRun, error) {
	held, err := l.Store.Adopt(ctx, query, runs)
	l.rounds()
	return held, err
}

func (l *late) Settle(ctx context.Context, batch dispatcher.SettleBatch) ([]dispatcher.HeldRun, error) {
	held, err := l.Store.Settle(ctx, batch)
	l.rounds()
	return held, err
}

// They would be executed twice.
func TestRunsAreNotReclaimedWhileTheirResponseIsOnItsWay(t *testing.T) {
	t.Parallel()
	slow := &late{}
	r := newRig(t, func(s Store) Store {
		slow.Store = s
		return slow
	})
	slow.rounds = func() {
		for i := range 2 {
			if err := r.reclaim(t.Context(), r.now.Add(time.Duration(i)*r.opts.Handler)); err != nil {
				t.Error(err)
			}
		}
	}
	r.declare("claimed", "rate(10s)", nil)
	r.declare("missed", "rate(1s)", func(trigger *dispatcher.Trigger) { trigger.MisfireAfter = dispatcher.Duration(time.Second) })
	if _, err := r.store.RequestRun(t.Context(), "app", "claimed", dispatcher.Change{Actor: "test"}); err != nil {
		t.Fatal(err)
	}
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.now = r.now.Add(10 * time.Second)
	if err := r.settle(t.Context(), []string{"app"}, r.now); err != nil {
		t.Fatal(err)
	}
	r.poll(0)
	for r.claimOnce(t.Context(), r.now) > 0 {
	}
	r.settled()
	times, kinds := map[dispatcher.RunKey]int{}, map[dispatcher.RunKind]int{}
	for _, call := range r.calls {
		times[call.Key]++
		kinds[call.Key.Kind]++
	}
	for key, n := range times {
		if n > 1 {
			t.Errorf("run %s of kind %s was executed %d times", key, key.Kind, n)
		}
	}
	if len(kinds) != 3 {
		t.Errorf("executed were kinds %v, want one that was asked for, one scheduled and one caught up", kinds)
	}
}
