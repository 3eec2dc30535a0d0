package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// intents ask the database, before the first byte, whether runs may begin, in batches as the
// recorder does. There are two kinds. Those of at_most_once jobs commit that their requests are
// about to be sent: a run that was begun is never repeated, and if its node dies, it ends as lost.
// Those of jobs that bound how many runs there may be at once get slots.
type begins struct {
	store dispatcher.Store
	what  string
	ask   question
	batch int
	log   *slog.Logger
	inbox chan intent
}

// question asks a store about runs, and returns those that may begin: dispatcher.Store.Begin, or
// dispatcher.Store.Acquire.
type question func(dispatcher.Store, context.Context, []dispatcher.HeldRun) ([]dispatcher.HeldRun, error)

// intent is a run that wants to begin, and where the response goes.
type intent struct {
	run   dispatcher.HeldRun
	begun chan bool // has room for the response
}

func newIntents(store dispatcher.Store, what string, ask question, batch int, log *slog.Logger) *begins {
	return &begins{store: store, what: what, ask: ask, batch: batch, log: log, inbox: make(chan intent, batch)}
}

// commit tells whether a run may begin. It waits for the database; false means that it may not, as
// when the run is another's by now, or that ctx ended.
func (n *begins) commit(ctx context.Context, run dispatcher.HeldRun) bool {
	one := intent{run, make(chan bool, 1)}
	select {
	case n.inbox <- one:
	case <-ctx.Done():
		return false
	}
	select {
	case begun := <-one.begun:
		return begun
	case <-ctx.Done():
		return false
	}
}

// run commits what comes until ctx ends.
func (n *begins) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-n.inbox:
			batch := append(make([]intent, 0, n.batch), first)
			for len(batch) < n.batch && len(n.inbox) > 0 {
				batch = append(batch, <-n.inbox)
			}
			n.begin(ctx, batch)
		}
	}
}

// begin commits one batch, again and again until the database has answered: doing it twice
// does no harm, and who guessed would send twice or never.
func (n *begins) begin(ctx context.Context, batch []intent) {
	runs := make([]dispatcher.HeldRun, len(batch))
	for i := range batch {
		runs[i] = batch[i].run
	}
	begun := map[attemptKey]bool{}
	for pause := 100 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		held, err := n.ask(n.store, ctx, runs)
		if err == nil {
			for _, run := range held {
				begun[keyOf(run)] = true
			}
			break
		}
		n.log.WarnContext(ctx, "ask whether runs may begin", "step", n.what, "count", len(runs), "err", err)
		sleep(ctx, pause)
	}
	for _, one := range batch {
		one.begun <- begun[keyOf(one.run)]
	}
}
