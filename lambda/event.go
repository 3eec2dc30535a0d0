// Package lambda helps to write an AWS Lambda function in Go that Carillon invokes. It defines the
// event that the function receives. It also helps the function to do the work of a fire once,
// although Carillon may invoke it more than once.
//
// IAM decides who may invoke a function, so events carry no signature. A handler makes the checks
// that IAM cannot: [Once] checks whether the work of an event is already done, and [Fenced] checks
// whether a newer attempt or fire has come first.
package lambda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// Event is the input with which Carillon invokes a function.
type Event struct {
	Carillon Fire `json:"carillon"`
	// Payload is the payload of the job; nil if it has none.
	Payload json.RawMessage `json:"payload,omitempty"`
}

// Fire describes the attempt for which a function is invoked.
type Fire struct {
	// EventID is the same on every attempt of a run, and after a restore of the dispatcher's
	// database.
	EventID string `json:"event_id"`
	// App, Job and Trigger are names. Trigger is empty for a run without one, such as a manual run.
	App     string `json:"app"`
	Job     string `json:"job"`
	Trigger string `json:"trigger"`
	// Run is the id of the run. Kind is schedule, manual, catch_up, chain or backfill.
	Run  string `json:"run"`
	Kind string `json:"kind"`
	// ScheduledAt is the scheduled time of the run.
	ScheduledAt time.Time `json:"scheduled_at"`
	// Attempt counts from 1.
	Attempt int `json:"attempt"`
	// Fence grows with each attempt of a run and with each scheduled time of a trigger.
	Fence int64 `json:"fence"`
	// Traceparent is the W3C trace context of the attempt; empty unless the job sends it, with trace_context.
	Traceparent string `json:"traceparent,omitempty"`
	// Missed describes the fires that a catch-up run replaces; nil for other runs.
	Missed *Missed `json:"missed,omitempty"`
	// Cause is why the run exists, if its kind alone does not say it; nil for other runs.
	Cause *Cause `json:"cause,omitempty"`
	// ShardIndex, from 0, and ShardTotal are the part of a broadcast. ShardTotal is 0 for other runs.
	ShardIndex int `json:"shard_index,omitempty"`
	ShardTotal int `json:"shard_total,omitempty"`
	// State is the state left by earlier runs of a job with carry_state, or nil. [WithState] sets it.
	State json.RawMessage `json:"state,omitempty"`
	// Callback ends the attempt; zero if the job has no callback.
	Callback Callback `json:"callback,omitzero"`
}

// Missed describes missed fires, from the first to the last.
type Missed struct {
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Count int       `json:"count"`
}

// Cause is the reason for a run.
type Cause struct {
	// Run is the id of the run that this one follows, and On the outcome that started it.
	Run string `json:"run,omitempty"`
	On  string `json:"on,omitempty"`
	// State, Class and Error are how that run ended.
	State string `json:"state,omitempty"`
	Class string `json:"class,omitempty"`
	Error string `json:"error,omitempty"`
	// Backfill is the id of the backfill of the run, and Range the span that it covers.
	Backfill string `json:"backfill,omitempty"`
	Range    *Range `json:"range,omitempty"`
}

// Range is a span of times, both ends inclusive.
type Range struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// ErrNoEvent means that the input of a function is not an event of Carillon.
var ErrNoEvent = errors.New("not an event of Carillon")

// ErrStale means that a newer attempt, or a newer fire of the same trigger, has come first.
var ErrStale = errors.New("a newer attempt or fire has come first")

// HeaderOutcome and OutcomeSuperseded mark a response with status 409 as the refusal of a stale request. The
// run then ends as superseded, not as failed. Package worker sends them if a handler returns ErrStale.
const (
	HeaderOutcome     = "Carillon-Outcome"
	OutcomeSuperseded = "superseded"
)

// Superseded is the error of [Fenced]. Lambda reports the name of its type, which tells Carillon that the
// request was stale: the run ends as superseded, not as failed. errors.Is finds ErrStale in it.
type Superseded struct {
	Run     string
	Attempt int
}

func (s *Superseded) Error() string {
	return fmt.Sprintf("attempt %d of run %s: %v", s.Attempt, s.Run, ErrStale)
}

func (s *Superseded) Unwrap() error { return ErrStale }

// Check returns ErrNoEvent if e lacks the fields of an event of Carillon.
func (e Event) Check() error {
	if e.Carillon.EventID == "" || e.Carillon.Run == "" || e.Carillon.Attempt < 1 || e.Carillon.ScheduledAt.IsZero() {
		return ErrNoEvent
	}
	return nil
}

// Handler does the work of an event.
type Handler func(ctx context.Context, event Event) (any, error)

// Results stores the results of events. All instances of a function must share it, for example in a
// table with the event id as its key. [Memory] is for tests and single instances.
type Results interface {
	// Result returns the stored result of an event, or nil.
	Result(ctx context.Context, eventID string) (json.RawMessage, error)
	// Keep stores the result of an event.
	Keep(ctx context.Context, eventID string, result json.RawMessage) error
}

// Once returns a handler that does the work of an event once. If the event comes again, it returns
// the stored result. If an instance dies between the work and Keep, the work is repeated. To avoid
// that, do the work and store its result in one transaction.
func Once(results Results, handler Handler) Handler {
	return func(ctx context.Context, event Event) (any, error) {
		if err := event.Check(); err != nil {
			return nil, err
		}
		kept, err := results.Result(ctx, event.Carillon.EventID)
		if err != nil {
			return nil, fmt.Errorf("look up the result of event %s: %w", event.Carillon.EventID, err)
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
			return nil, fmt.Errorf("marshal the result of event %s: %w", event.Carillon.EventID, err)
		}
		if err := results.Keep(ctx, event.Carillon.EventID, text); err != nil {
			return nil, fmt.Errorf("store the result of event %s: %w", event.Carillon.EventID, err)
		}
		return json.RawMessage(text), nil
	}
}

// Fences stores the highest fence of each trigger, for all instances of a function.
type Fences interface {
	// Raise compares and sets the fence of a trigger in one atomic step. It returns false, and
	// changes nothing, if the stored fence is higher.
	Raise(ctx context.Context, trigger string, fence int64) (raised bool, err error)
}

// fenced names the scope of an event's fence: its trigger and, for a broadcast, its shard. An
// attempt of one shard does not make an attempt of another stale.
func (f Fire) fenced() string {
	name := f.App + "/" + f.Job + "/" + f.Trigger
	if f.ShardTotal > 0 {
		name += "#" + strconv.Itoa(f.ShardIndex)
	}
	return name
}

// Fenced returns a handler that refuses stale events with [Superseded], which is ErrStale. An event is stale
// if its attempt was given up as lost and arrives late, or if a newer fire has overtaken it.
func Fenced(fences Fences, handler Handler) Handler {
	return func(ctx context.Context, event Event) (any, error) {
		if err := event.Check(); err != nil {
			return nil, err
		}
		fire := event.Carillon
		raised, err := fences.Raise(ctx, fire.fenced(), fire.Fence)
		if err != nil {
			return nil, fmt.Errorf("raise the fence to %d: %w", fire.Fence, err)
		}
		if !raised {
			return nil, &Superseded{Run: fire.Run, Attempt: fire.Attempt}
		}
		return handler(ctx, event)
	}
}

// Memory keeps fences and the latest results in the memory of one instance. It is safe for
// concurrent use. The zero value is ready to use.
type Memory struct {
	// Most is the number of results to keep; 0 means 1,000.
	Most int

	mu      sync.Mutex
	results map[string]json.RawMessage
	order   []string
	fences  map[string]int64
}

var (
	_ Results = (*Memory)(nil)
	_ Fences  = (*Memory)(nil)
)

// Result returns the result of an event, or nil.
func (m *Memory) Result(_ context.Context, eventID string) (json.RawMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.results[eventID], nil
}

// Keep stores the result of an event, and drops the oldest result if there are too many.
func (m *Memory) Keep(_ context.Context, eventID string, result json.RawMessage) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.results == nil {
		m.results = map[string]json.RawMessage{}
	}
	if _, again := m.results[eventID]; !again {
		m.order = append(m.order, eventID)
	}
	m.results[eventID] = result
	most := m.Most
	if most == 0 {
		most = 1000
	}
	for len(m.order) > most {
		delete(m.results, m.order[0])
		m.order = m.order[1:]
	}
	return nil
}

// Raise sets the fence of a trigger. It returns false, and changes nothing, if the fence is higher.
func (m *Memory) Raise(_ context.Context, trigger string, fence int64) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fences == nil {
		m.fences = map[string]int64{}
	}
	if fence < m.fences[trigger] {
		return false, nil
	}
	m.fences[trigger] = fence
	return true, nil
}
