package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// handler does the work of a run.
type handler func(ctx context.Context, param string, log func(string)) error

// handlers are the handlers of this executor, by job.
var handlers = map[string]handler{
	"demoJobHandler":    succeed,
	"invoiceJobHandler": succeed,
	"failing":           func(_ context.Context, param string, _ func(string)) error { return errors.New(param) },
	"sleeping": func(ctx context.Context, param string, log func(string)) error {
		length, err := time.ParseDuration(param)
		if err != nil {
			return err
		}
		log("asleep")
		timer := time.NewTimer(length)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			log("awake")
			return nil
		}
	},
}

func succeed(_ context.Context, _ string, log func(string)) error {
	log("the work is done")
	return nil
}

// queued is a run in the queue.
type queued struct {
	trigger
	handler handler
}

// thread runs the queued runs of one job, one after the other.
type thread struct {
	executor *executor
	ctx      context.Context //nolint:containedctx // the lifetime of the thread
	cancel   context.CancelCauseFunc
	ended    chan struct{}
	more     chan struct{} // has an element if the queue may have one

	mu      sync.Mutex
	queue   []queued
	running bool
	known   map[int64]bool // log ids of its runs
}

func newThread(e *executor) *thread {
	t := &thread{executor: e, ended: make(chan struct{}), more: make(chan struct{}, 1), known: map[int64]bool{}}
	t.ctx, t.cancel = context.WithCancelCause(context.Background()) //nolint:forbidigo // it outlives the request that starts it
	go t.run()
	return t
}

// push queues a run, and returns false if it was queued before.
func (t *thread) push(one queued) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known[one.LogID] {
		return false
	}
	t.known[one.LogID] = true
	t.queue = append(t.queue, one)
	select {
	case t.more <- struct{}{}:
	default:
	}
	return true
}

func (t *thread) busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running || len(t.queue) > 0
}

// stop ends the current run and drops the queue.
func (t *thread) stop(why string) { t.cancel(errors.New(why)) }

func (t *thread) run() {
	defer close(t.ended)
	for {
		one, some := t.next()
		switch {
		case some && t.ctx.Err() != nil:
			t.finish(one, fmt.Errorf("%w [job not executed, in the job queue, killed.]", context.Cause(t.ctx)))
		case some:
			t.execute(one)
		case t.ctx.Err() != nil:
			return
		default:
			select {
			case <-t.more:
			case <-t.ctx.Done():
			}
		}
	}
}

// next takes the first run from the queue.
func (t *thread) next() (one queued, some bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running = len(t.queue) > 0; t.running {
		one, t.queue = t.queue[0], t.queue[1:]
	}
	return one, t.running
}

// errTimeout is the cause of runs that take too long.
var errTimeout = errors.New("job execute timeout")

func (t *thread) execute(one queued) {
	ctx, cancel := context.WithCancel(t.ctx)
	if one.TimeoutSeconds > 0 {
		ctx, cancel = context.WithTimeoutCause(t.ctx, time.Duration(one.TimeoutSeconds)*time.Second, errTimeout)
	}
	defer cancel()
	log := func(line string) { t.executor.logs.add(one.LogID, one.LogDateTime, line) }
	log("job started with param " + one.Params)
	err := one.handler(ctx, one.Params, log)
	if err == nil {
		log("job succeeded")
	} else {
		log("job failed: " + err.Error())
	}
	t.finish(one, err)
}

// finish reports a result to the scheduler.
func (t *thread) finish(one queued, err error) {
	r := result{LogID: one.LogID, LogDateTim: one.LogDateTime, Code: codeSuccess}
	switch {
	case errors.Is(err, errTimeout):
		r.Code, r.Msg = codeTimeout, err.Error()
	case err != nil:
		r.Code, r.Msg = codeFailure, err.Error()
	}
	t.executor.admin.results <- r
}
