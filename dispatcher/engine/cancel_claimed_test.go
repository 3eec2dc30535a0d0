package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// forgotten is late for runs that the node has without knowing it, too.
type forgotten struct {
	late
	keeps bool // nothing happens
}

func (f *forgotten) Held(ctx context.Context, node run.NodeID, token run.Token) ([]run.HeldRun, error) {
	held, err := f.late.Held(ctx, node, token)
	f.meanwhile(held)
	return held, err
}

// The notification may come between the commit of a claim and the pool, where it finds nothing.
func TestCancelReachesAnAttemptOnItsWayToThePool(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*rig, *forgotten) error{
		"claimed": func(r *rig, _ *forgotten) error {
			r.poll(time.Second)
			r.claimOnce(r.t.Context(), r.now.Add(time.Second))
			return nil
		},
		"caught up": func(r *rig, _ *forgotten) error { return r.chores.SettleMisfires(r.t.Context(), r.now.Add(time.Hour)) },
		"adopted": func(r *rig, _ *forgotten) error {
			_, err := r.store.RequestRun(r.t.Context(), "app", "job", nil, input.Change{Actor: "test"})
			return errors.Join(err, r.adopt(r.t.Context()))
		},
		"reclaimed": func(r *rig, slow *forgotten) error {
			_, err := r.store.RequestRun(r.t.Context(), "app", "job", nil, input.Change{Actor: "test"})
			_, more := r.store.Adopt(r.t.Context(), dispatcher.AdoptQuery{Node: r.fleet.ID(), Token: 7}, r.adoptable())
			slow.keeps = true // the first round misses the run
			err = errors.Join(err, more, r.chores.Reclaim(r.t.Context(), r.now))
			slow.keeps = false
			return errors.Join(err, r.chores.Reclaim(r.t.Context(), r.now.Add(r.opts.Handler)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slow := &forgotten{}
			r := newRig(t, func(s Store) Store {
				slow.Store = s
				return slow
			})
			r.declare("job", "rate(1s)", func(t *dispatcher.Trigger) { t.MisfireAfter = dispatcher.DefaultMisfireAfter })
			r.invoke = func(ctx context.Context, _ target.Call) run.Outcome { return r.cutOff(ctx) }
			slow.meanwhile = func(held []run.HeldRun) {
				if slow.keeps {
					return
				}
				for _, one := range held {
					if _, err := r.store.CancelRun(t.Context(), one.Key.String(), input.Change{Actor: "test"}); err != nil {
						t.Error(err)
					}
					r.hear(dispatcher.Notification{Run: one.Key.String(), Token: one.Token, Attempt: one.Attempt})
				}
			}
			if err := begin(r, slow); err != nil {
				t.Fatal(err)
			}
			all := r.settled()
			if len(all) == 0 {
				t.Error("no run was won")
			}
			for _, one := range all {
				if one.State != run.Cancelled {
					t.Errorf("run %s is %s, want cancelled", one.ID, one.State)
				}
			}
		})
	}
}
