package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/lambda"
)

// heartbeatEvery is the pause between heartbeats of long work, unless Long sets another. It is far
// below the shortest sensible timeout of a callback.
const heartbeatEvery = 15 * time.Second

// Accepted is returned by a handler that accepts an attempt and finishes it later. The worker responds 202, does
// the work in the background, sends heartbeats and reports the outcome by a callback, which the job must have.
type Accepted struct {
	work  func(ctx context.Context, progress func(lambda.Progress)) (any, error)
	every time.Duration
}

// Long returns the value by which a handler has work done in the background. The context of work
// ends when the run is cancelled, when its attempt is over for another reason, or when a stopping
// worker has waited for StopTimeout. The result of work is sent even then. progress sends a
// heartbeat at once; the worker also sends one after each interval of every (0 means 15 s).
func Long(every time.Duration, work func(ctx context.Context, progress func(lambda.Progress)) (any, error)) Accepted {
	if every == 0 {
		every = heartbeatEvery
	}
	return Accepted{work: work, every: every}
}

// errNotLong means that a handler accepted an attempt of a job that has no callback.
var errNotLong = errors.New("the handler accepts the work to finish it later, but the job has no callback; add one to its target")

// finish does the work of an accepted attempt and reports its outcome. Nothing cancels its context.
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

// tellTimeout bounds how long a worker tries to report an outcome: longer than a failover of the database takes.
const tellTimeout = 15 * time.Minute

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

// textOf returns a result as the text of a callback: a string as it is, and any other value as JSON.
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
