package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// slots are the runs of this node that have a slot of their job, which bounds how many there may
// be at once. They ask for it just before they begin, and what has ended gives it back, so that
// those that wait are woken. It is only a shortcut: the slots of a node that dies are passed on
// with its runs, and what it did not give back any more by the handler of another.
type slots struct {
	store    dispatcher.Store
	log      *slog.Logger
	requests *begins

	mu   sync.Mutex
	held map[attemptKey]dispatcher.HeldRun
	over []dispatcher.HeldRun
	wake chan struct{}
}

func newSlots(store dispatcher.Store, batch int, log *slog.Logger) *slots {
	return &slots{
		store: store, log: log, requests: newIntents(store, "acquire slots", dispatcher.Store.Acquire, batch, log),
		held: map[attemptKey]dispatcher.HeldRun{}, wake: make(chan struct{}, 1),
	}
}

// acquire tells whether a run got its slot, or needs none.
func (e *Engine) acquire(ctx context.Context, run heldRun, call dispatcher.Call) bool {
	if call.Slots == 0 {
		return true
	}
	if !e.slots.requests.commit(ctx, run.HeldRun) {
		if ctx.Err() != nil {
			e.slots.leave(run.HeldRun) // it may have got one
		}
		if run.delayed {
			wake(e.wakeAdopt) // if it was skipped, no record arms the trigger
		}
		e.metrics.slots.WithLabelValues(claimLost).Inc()
		return false
	}
	e.metrics.slots.WithLabelValues(claimWon).Inc()
	e.slots.took(run.HeldRun)
	if run.node != e.fleet.id() || !e.fleet.leased() {
		e.slots.leave(run.HeldRun) // others may take the run
		return false
	}
	return true
}

// took notes that an attempt has a slot.
func (s *slots) took(run dispatcher.HeldRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[keyOf(run)] = run
}

// leave gives the slot of a run back that has one, or may have got one, without an attempt.
func (s *slots) leave(run dispatcher.HeldRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, keyOf(run))
	s.over = append(s.over, run)
	wake(s.wake)
}

// recorded gives the slots of attempts back whose outcome is stored.
func (s *slots) recorded(records []dispatcher.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) == 0 {
		return
	}
	for _, r := range records {
		key := attemptKey{r.RunKey, r.Token, r.Attempt}
		if run, ok := s.held[key]; ok {
			delete(s.held, key)
			s.over = append(s.over, run)
			wake(s.wake)
		}
	}
}

// run asks for slots and gives them back until ctx ends.
func (s *slots) run(ctx context.Context) {
	var asking sync.WaitGroup
	asking.Go(func() { s.requests.run(ctx) })
	defer asking.Wait()
	for {
		select {
		case <-ctx.Done():
			s.release(context.WithoutCancel(ctx)) // what was recorded at the last
			return
		case <-s.wake:
		}
		for pause := 100 * time.Millisecond; !s.release(ctx) && ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
			sleep(ctx, pause)
		}
	}
}

// vacate gives back what is over, and tells whether the database took it.
func (s *slots) release(ctx context.Context) bool {
	s.mu.Lock()
	over := s.over
	s.over = nil
	s.mu.Unlock()
	if len(over) == 0 {
		return true
	}
	err := s.store.ReleaseSlots(ctx, over)
	if err == nil {
		return true
	}
	s.log.WarnContext(ctx, "vacate slots", "count", len(over), "err", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = append(over, s.over...)
	return false
}
