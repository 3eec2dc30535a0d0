package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
)

// permits ask the database, in batches, whether runs may begin. There are two kinds:
//   - Begin, for at_most_once jobs: it commits that a request is about to be sent. A run that was
//     begun is never repeated; if its node dies, it ends as lost.
//   - Acquire, for jobs that limit how many of their runs there may be at once: it takes a slot.
type permits struct {
	batcher[permitRequest]
	step  string
	grant func(context.Context, []dispatcher.HeldRun) ([]dispatcher.HeldRun, error)
	log   *slog.Logger
}

// permitRequest is a run that is to begin, and where the response goes.
type permitRequest struct {
	run     dispatcher.HeldRun
	granted chan bool // has room for the response
}

// newPermits returns permits by grant, which returns those of the runs that may begin.
func newPermits(
	step string, grant func(context.Context, []dispatcher.HeldRun) ([]dispatcher.HeldRun, error), batch int, log *slog.Logger,
) *permits {
	p := &permits{step: step, grant: grant, log: log}
	p.batcher = batcher[permitRequest]{inbox: make(chan permitRequest, batch), most: batch, handle: p.respond}
	return p
}

// request reports whether a run may begin. It waits for the database. False means that the run may
// not, for example because another node has it by now, or that ctx ended.
func (p *permits) request(ctx context.Context, run dispatcher.HeldRun) bool {
	one := permitRequest{run, make(chan bool, 1)}
	select {
	case p.inbox <- one:
	case <-ctx.Done():
		return false
	}
	select {
	case granted := <-one.granted:
		return granted
	case <-ctx.Done():
		return false
	}
}

// respond asks for one batch until the database answers. Asking again is harmless; guessing the
// response could send a request twice or not at all. Those about which the database could not decide ask again,
// with a later batch, so that no other waits for them.
func (p *permits) respond(ctx context.Context, batch []permitRequest) {
	runs := make([]dispatcher.HeldRun, len(batch))
	for i := range batch {
		runs[i] = batch[i].run
	}
	var may []dispatcher.HeldRun
	undecided := map[pool.AttemptKey]bool{}
	untilDone(ctx, p.log, p.step, len(runs), func() (err error) {
		may, err = p.grant(ctx, runs)
		var some *dispatcher.UndecidedError
		if errors.As(err, &some) {
			for _, run := range some.Runs {
				undecided[pool.KeyOf(run)] = true
			}
			return nil
		}
		return err
	})
	granted := map[pool.AttemptKey]bool{}
	for _, run := range may {
		granted[pool.KeyOf(run)] = true
	}
	for _, one := range batch {
		if key := pool.KeyOf(one.run); undecided[key] {
			time.AfterFunc(spread(undecidedPause), func() { p.repeat(ctx, one) })
		} else {
			one.granted <- granted[key]
		}
	}
}

// undecidedPause is how long a run waits whose job is locked. A change of the definition, which may
// have locked it, mostly takes less.
const undecidedPause = 100 * time.Millisecond

// repeat asks for a run again.
func (p *permits) repeat(ctx context.Context, one permitRequest) {
	select {
	case p.inbox <- one:
	case <-ctx.Done():
		one.granted <- false
	}
}

// begin commits that a request is about to be sent, for a job that wants it at most once. It is a
// step of an attempt.
func (e *Engine) begin(ctx context.Context, a *attempt) result {
	if a.call.Delivery != dispatcher.AtMostOnce {
		return proceed
	}
	return allowed(e.begins.request(ctx, a.run.HeldRun))
}
