package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// inputReads read the inputs of runs, many at once: 10,000 alert notifications that begin at the same time would
// otherwise take all connections of the node.
type inputReads = permits[run.HeldRun, givenInput]

// mostInputs is how many inputs are read at once: together at most 16 MiB.
const mostInputs = 64

// givenInput is the response to a read of an input.
type givenInput struct {
	read  bool // the database responded
	input *run.Input
}

func newInputReads(store Store, batch int, log *slog.Logger) *inputReads {
	read := readEach(store.RunInputs, func(r run.HeldRun) run.Key { return r.Key },
		func(found run.Input, there bool) givenInput {
			if !there {
				return givenInput{read: true}
			}
			return givenInput{true, &found}
		})
	return newPermits("read the inputs of runs", pool.KeyOf, read, batch, log)
}

// readEach turns a read by keys into one for runs. by returns the key of a run, and of returns the response for it.
func readEach[K comparable, V, A any](
	read func(context.Context, []K) (map[K]V, error), by func(run.HeldRun) K, of func(found V, there bool) A,
) func(context.Context, []run.HeldRun) (map[pool.AttemptKey]A, error) {
	return func(ctx context.Context, runs []run.HeldRun) (map[pool.AttemptKey]A, error) {
		keys := make([]K, len(runs))
		for i := range runs {
			keys[i] = by(runs[i])
		}
		found, err := read(ctx, keys)
		if err != nil {
			return nil, err
		}
		all := make(map[pool.AttemptKey]A, len(runs))
		for _, run := range runs {
			one, there := found[by(run)]
			all[pool.KeyOf(run)] = of(one, there)
		}
		return all, nil
	}
}

// errOvertaken ends a run whose notification would be out of date.
var errOvertaken = errors.New("not sent")

// heldError defers a run until another one has ended.
type heldError struct{ run string }

func (h *heldError) Error() string { return "waits for run " + h.run + ", which tells what was before" }

// A run that comes after another one checks again after an eighth of the time for which it has waited, within these
// bounds: while a receiver is down for hours, 10,000 of them would otherwise write 10,000 rows a second.
const leastHeldPause, mostHeldPause = time.Second, time.Minute

func heldPause(waited time.Duration) time.Duration {
	const share = 8
	return min(max(waited/share, leastHeldPause), mostHeldPause)
}

// wait defers a run that comes after another one. It is attempted then, however long that takes.
func (e *Engine) wait(ctx context.Context, a *attempt, why error) {
	outcome := e.inDatabaseTime(notAttempted(run.Failed, run.ClassOther, why, time.Now()))
	next := retryFrom(a.call.Retry, a.run.HeldRun, outcome.StartedAt)
	pause := loop.Spread(heldPause(outcome.EndedAt.Sub(a.run.ScheduledAt)))
	next.At, next.NotAttempted = outcome.EndedAt.Add(pause).Truncate(time.Millisecond), true
	next.Until = input.Later(next.Until, next.At)
	e.record(ctx, a.run, outcome, next)
}

// addInput adds to a call the input of its run. It waits until the database responds.
func (e *Engine) addInput(ctx context.Context, r run.HeldRun, call *target.Call) error {
	given := e.inputs.request(ctx, r)
	switch {
	case !given.read:
		return errCutOff
	case given.input == nil:
		return fmt.Errorf("the input of run %s is not in the database any more", r.Key)
	case given.input.Err != nil:
		return given.input.Err
	case given.input.Held != "":
		return &heldError{given.input.Held}
	case given.input.Overtaken != "":
		return fmt.Errorf("%w: %s", errOvertaken, given.input.Overtaken)
	}
	call.Cause = given.input.Cause
	if from, ok := run.ParseTraceparent(given.input.Traceparent); ok {
		call.Requester = &from
	}
	if given.input.Payload != nil {
		call.Payload = given.input.Payload
	}
	return nil
}

// stateReads read the states of jobs for runs that are about to begin, many at once.
type stateReads = permits[run.HeldRun, *run.CarriedState]

func newStateReads(store Store, batch int, log *slog.Logger) *stateReads {
	read := readEach(store.CarriedStatesByID, func(r run.HeldRun) int64 { return r.JobID },
		func(state run.CarriedState, has bool) *run.CarriedState {
			if !has {
				state.State = json.RawMessage("null")
			}
			return &state
		})
	return newPermits("read carried states", pool.KeyOf, read, batch, log)
}

// readState reads the state that the run before has left, for a job that carries a state. It is a step of an attempt,
// after the run has its slot: the run before has ended by then, and its state was stored with its end.
func (e *Engine) readState(ctx context.Context, a *attempt) result {
	if a.call.Carried == nil {
		return proceed
	}
	a.call.Carried = e.states.request(ctx, a.run.HeldRun)
	return allowed(a.call.Carried != nil)
}
