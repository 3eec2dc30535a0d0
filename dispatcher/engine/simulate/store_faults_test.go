// Package simulate runs whole fleets in virtual time: the real engine with its pool, handler and
// recorder, on the real SQLite store, with faults drawn from a seed. A day takes milliseconds. The
// package has only tests; run them with make simulate.
package simulate

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine"
)

// Every method of the store that the engine calls fails now and then, before or after it is executed, or takes long.
// Every fire must still happen once.
func TestNoFireIsLostOrAddedWhenTheStoreFails(t *testing.T) {
	t.Parallel()
	triggers := min(max(*fires/20, 20), 250)
	for _, percent := range []int64{1, 5, 20} {
		t.Run(fmt.Sprint(percent, " %"), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, *seed+uint64(percent), engine.Options{PurgeInterval: time.Hour})
				for i := range triggers {
					w.declare(fmt.Sprintf("job-%d", i), "rate(1s)", func(j *dispatcher.Job, _ *dispatcher.Trigger) {
						if i%5 == 0 {
							j.Delivery = dispatcher.AtMostOnce
						}
					})
				}
				a := newAuditor(w)
				for i := range 3 {
					w.add(fmt.Sprintf("n%d", i), percent*10)
				}
				for a.fires < *fires {
					time.Sleep(20 * time.Second)
					a.account()
					a.tables()
				}
				injected := map[fault]int{}
				for _, n := range w.nodes {
					n.store.rate.Store(0)
					for kind, count := range n.store.injected {
						injected[kind] += count
					}
				}
				// Dead after 60 s, handler 15 s, window 5 s.
				time.Sleep(80 * time.Second)
				if behind := a.account(); behind > time.Second {
					t.Errorf("80s after the last fault a trigger is %s behind", behind)
				}
				a.ended(5 * time.Second)
				for _, n := range w.nodes {
					n.drain()
				}
				a.tables()
				a.unclaimed()
				t.Logf("%d fires, %d requests; faults of calls: %v", a.fires, len(w.requests), injected)
			})
		})
	}
}
