package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/lambda"
)

// heartbeatEvery is how often a worker says that long work goes on, unless Long says otherwise. It is far below the shortest
// sensible timeout of a callback.
const heartbeatEvery = 15 * time.Second

// Accepted is what a handler returns to accept an attempt and finish it later. The worker responds 202, so the job needs
// callback; it does the work in the background, sends heartbeats meanwhile, and says by a callback how it ended.
type Accepted struct {
	work  func(ctx context.Context, progress func(lambda.Progress)) (any, error)
	every time.Duration
}

// Long returns what a handler returns to have work done in the background. The context of work ends when the run is
// cancelled, when its attempt is over for another reason, and when a worker that stops has waited long enough: what work
// returns then is sent all the same. progress sends a heartbeat at once; the worker sends others by itself, each
// after every, 0: 15 s.
func Long(every time.Duration, work func(ctx context.Context, progress func(lambda.Progress)) (any, error)) Accepted {
	if every == 0 {
		every = heartbeatEvery
	}
	return Accepted{work: work, every: every}
}

// errNotLong means that a handler accepted an attempt of a job that has no callback.
var errNotLong = errors.New("the handler accepts the work to finish it later, but the job has no callback; add one to its target")

// finish does the work of an accepted attempt, and says how it ended. Its context is whole, which nothing cancels.
func (w *Worker) finish(whole context.Context, a Accepted, event lambda.Event) {
	defer w.end(event.Carillon.Job)
	ctx, cancel := context.WithCancel(whole)
	defer cancel()
	callback := event.Carillon.Callback
	callback.Client = w.o.Client
	beats := make(chan lambda.Progress, 1)
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		w.beat(ctx, cancel, a, callback, beats)
	}()
	result, err := w.run(ctx, func(ctx context.Context, _ lambda.Event) (any, error) {
		return a.work(ctx, func(p lambda.Progress) {
			select {
			case beats <- p:
			case <-ctx.Done():
			}
		})
	}, event)
	cancel()
	<-beating
	w.tell(whole, callback, event, result, err)
}

// beat sends heartbeats until ctx ends. If the attempt is over, it ends the work.
func (w *Worker) beat(ctx context.Context, cancel context.CancelFunc, a Accepted, callback lambda.Callback, beats <-chan lambda.Progress) {
	ticker := time.NewTicker(a.every)
	defer ticker.Stop()
	for {
		var progress lambda.Progress
		select {
		case <-ctx.Done():
			return
		case <-w.over:
			cancel()
			return
		case progress = <-beats:
		case <-ticker.C:
		}
		err := callback.Heartbeat(ctx, progress)
		switch {
		case errors.Is(err, lambda.ErrOver):
			cancel()
			return
		case err != nil && ctx.Err() == nil:
			w.o.Log.WarnContext(ctx, "heartbeat failed", "err", err)
		}
	}
}

// tellTimeout bounds how long a worker tries to say how work ended: longer than a failover of the database takes.
const tellTimeout = 15 * time.Minute

// tell says how the work of an event ended.
func (w *Worker) tell(ctx context.Context, callback lambda.Callback, event lambda.Event, result any, err error) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	if err != nil {
		err = callback.Fail(ctx, err.Error())
	} else {
		err = callback.Complete(ctx, textOf(result))
	}
	if err != nil {
		w.o.Log.WarnContext(ctx, "callback failed", "job", event.Carillon.Job, "run", event.Carillon.Run, "err", err)
	}
}

// textOf returns a result as a callback says it: a text as it is, and everything else as JSON.
func textOf(result any) string {
	switch r := result.(type) {
	case nil:
		return ""
	case string:
		return r
	}
	text, err := json.Marshal(result)
	if err != nil {
		return fmt.Sprintf("the result cannot be written as JSON: %v", err)
	}
	return string(text)
}
