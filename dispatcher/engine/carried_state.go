package engine

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// stateReads read the states of jobs for runs that are about to begin, many at once.
type stateReads = permits[run.HeldRun, *run.CarriedState]

func newStateReads(store Store, batch int, log *slog.Logger) *stateReads {
	grant := func(ctx context.Context, runs []run.HeldRun) (map[pool.AttemptKey]*run.CarriedState, error) {
		jobs := make([]int64, len(runs))
		for i := range runs {
			jobs[i] = runs[i].JobID
		}
		known, err := store.CarriedStatesByID(ctx, jobs)
		if err != nil {
			return nil, err
		}
		states := make(map[pool.AttemptKey]*run.CarriedState, len(runs))
		for _, run := range runs {
			state, has := known[run.JobID]
			if !has {
				state.State = json.RawMessage("null")
			}
			states[pool.KeyOf(run)] = &state
		}
		return states, nil
	}
	return newPermits("read carried states", pool.KeyOf, grant, batch, log)
}

// readState reads what the run before has left, for a job that carries a state. It is a step of an attempt, after the run
// has its slot: the run before has ended by then, and its state was stored with its end.
func (e *Engine) readState(ctx context.Context, a *attempt) result {
	if a.call.Carried == nil {
		return proceed
	}
	a.call.Carried = e.states.request(ctx, a.run.HeldRun)
	return allowed(a.call.Carried != nil)
}
