// Package lambda is the function side of Carillon: what an AWS Lambda function in Go is invoked
// with, and how it does a fire's work once although it may be invoked more than once.
//
// Who may invoke a function is for IAM to say, so events carry no signature. What a handler has to
// check is what IAM cannot: whether the work of an event was done before ([Once]), and whether
// something newer was done since ([Fenced]).
package lambda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Event is what Carillon invokes a function with.
type Event struct {
	Carillon Fire `json:"carillon"`
	// Payload is the job's; nil if it has none.
	Payload json.RawMessage `json:"payload,omitempty"`
}

// Fire says why a function is invoked.
type Fire struct {
	// EventID is the same on every attempt of a run, and after a restore of the dispatcher's
	// database.
	EventID string `json:"event_id"`
	// App, Job and Trigger are names; Trigger is empty for a run that was asked for by hand.
	App     string `json:"app"`
	Job     string `json:"job"`
	Trigger string `json:"trigger"`
	// Run is the run's id, Kind what asked for it: schedule, manual or catch_up.
	Run  string `json:"run"`
	Kind string `json:"kind"`
	// ScheduledAt is the instant that the run executes.
	ScheduledAt time.Time `json:"scheduled_at"`
	// Attempt counts from 1.
	Attempt int `json:"attempt"`
	// Fence grows from each attempt to the next and from each instant of a trigger to the next.
	Fence int64 `json:"fence"`
	// Traceparent is the W3C trace context of the attempt.
	Traceparent string `json:"traceparent"`
	// Missed is what a catch-up run stands for; nil for other runs.
	Missed *Missed `json:"missed,omitempty"`
}

// Missed are fires that were missed, from the first to the last.
type Missed struct {
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Count int       `json:"count"`
}

// ErrNoEvent says that a function was invoked by something else than Carillon.
var ErrNoEvent = errors.New("not an event of Carillon")

// ErrStale says that a newer attempt, or a newer fire of the same trigger, came before.
var ErrStale = errors.New("a newer fire was seen before")

// Check returns ErrNoEvent if e does not say why it was sent.
func (e Event) Check() error {
	if e.Carillon.EventID == "" || e.Carillon.Run == "" || e.Carillon.Attempt < 1 || e.Carillon.ScheduledAt.IsZero() {
		return ErrNoEvent
	}
	return nil
}

// Handler does the work of an event.
type Handler func(ctx context.Context, event Event) (any, error)

// Results keeps what events have led to. It has to be shared by all instances of a function, such
// as a table with the event id as its key; [Memory] is for tests and single instances.
type Results interface {
	// Result returns what was kept of an event; nil if nothing was.
	Result(ctx context.Context, eventID string) (json.RawMessage, error)
	// Keep keeps the result of an event.
	Keep(ctx context.Context, eventID string, result json.RawMessage) error
}

// Once returns a handler that answers with the kept result when an event comes again, instead of
// doing its work twice. An instance that dies between the work and Keep leaves it to be done again:
// where that must not be, the work itself has to be a transaction with its record.
func Once(results Results, handler Handler) Handler {
	return func(ctx context.Context, event Event) (any, error) {
		if err := event.Check(); err != nil {
			return nil, err
		}
		kept, err := results.Result(ctx, event.Carillon.EventID)
		if err != nil {
			return nil, fmt.Errorf("look for event %s: %w", event.Carillon.EventID, err)
		}
		if kept != nil {
			return kept, nil
		}
		result, err := handler(ctx, event)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(result)
		if err != nil {
			return nil, fmt.Errorf("write the result of event %s: %w", event.Carillon.EventID, err)
		}
		if err := results.Keep(ctx, event.Carillon.EventID, text); err != nil {
			return nil, fmt.Errorf("keep the result of event %s: %w", event.Carillon.EventID, err)
		}
		return json.RawMessage(text), nil
	}
}

// Fences remembers the highest fence of each trigger, for all instances of a function.
type Fences interface {
	// Raise sets the fence of a trigger, in one step with the comparison, and tells whether it was
	// at most as high before.
	Raise(ctx context.Context, trigger string, fence int64) (raised bool, err error)
}

// Fenced returns a handler that refuses with ErrStale what is older than what came before: an
// attempt that was given up for lost and arrives late, or a fire that a newer one has overtaken.
func Fenced(fences Fences, handler Handler) Handler {
	return func(ctx context.Context, event Event) (any, error) {
		if err := event.Check(); err != nil {
			return nil, err
		}
		fire := event.Carillon
		raised, err := fences.Raise(ctx, fire.App+"/"+fire.Job+"/"+fire.Trigger, fire.Fence)
		if err != nil {
			return nil, fmt.Errorf("raise the fence to %d: %w", fire.Fence, err)
		}
		if !raised {
			return nil, fmt.Errorf("attempt %d of run %s: %w", fire.Attempt, fire.Run, ErrStale)
		}
		return handler(ctx, event)
	}
}
