package run

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Input has values that a run got when it was queued and that do not follow from its key. Most runs have none.
type Input struct {
	// Cause is why the run exists; nil if its kind is enough. It comes first, so that a database recognises runs of a
	// backfill by the beginning of the text; see OfBackfill.
	Cause *Cause `json:"cause,omitempty"`
	// Payload replaces the job's payload; nil if the run has the job's.
	Payload json.RawMessage `json:"payload,omitempty"`
	// Missed is the run id of the first of the missed fires that the run follows; empty if it follows none.
	Missed string `json:"missed,omitempty" schema:"RunID"`
	// Traceparent is the trace context of the request for the run, for its latest retry, or for its backfill or bulk
	// action; empty without one. It is not sent to targets.
	Traceparent string `json:"traceparent,omitempty"`
	// After is the instant of the run of the same trigger id and kind that must end first, such as the previous
	// notification of an alert; zero if there is none. Held names that run while it is under way, so that this one
	// waits.
	After time.Time `json:"after,omitzero"`
	Held  string    `json:"-"`
	// Overtaken is why the run is not attempted any more: a later run has delivered its message; empty if none has.
	Overtaken string `json:"-"`
	// Err is why the stored input cannot be read, or nil. It makes only its own run fail.
	Err error `json:"-"`
}

// Cause is why a run exists.
type Cause struct {
	// Backfill is the id of the backfill that the run is part of, and Range is its range. Runs that follow a run of a
	// backfill, directly or through others, name the backfill, too, without the range.
	Backfill string `json:"backfill,omitempty"`
	// The range of the backfill, both ends inclusive.
	Range *Range `json:"range,omitempty"`
	// Run is the id of the run that this one follows, and On is the FollowEvent of that run. Run is empty for missed
	// fires that no run caught up.
	Run string `json:"run,omitempty" schema:"RunID"`
	// The event of that run. For missed fires, run is left out if none caught them up.
	On string `json:"on,omitempty" schema:"FollowEvent"`
	// State, Class and Error are the outcome of the run that this one follows.
	State State  `json:"state,omitempty"`
	Class Class  `json:"class,omitempty"`
	Error string `json:"error,omitempty"`
	// Depth is how many runs come before the run in its chain: 1 after the first run of the chain. MayFollow is how
	// many runs may follow it, directly and through others; see Quotas.ChainRuns. Both are 0 for runs that follow none.
	Depth int `json:"depth,omitempty"`
	// How many runs may follow this run of a chain, directly and through others; left out for none.
	MayFollow int `json:"may_follow,omitempty"`
	// Alert is the name of the alert, if the run delivers a notification.
	Alert string `json:"alert,omitempty"`
}

// OfBackfill reports whether a run is part of a backfill, or follows such a run, and so concerns the past.
func (c *Cause) OfBackfill() bool { return c != nil && c.Backfill != "" }

// Range is a span of instants, both ends inclusive.
type Range struct {
	From time.Time `json:"from" schema:"required"`
	To   time.Time `json:"to" schema:"required"`
}

// Encode returns the input as databases store it, or an error if its payload cannot be stored.
func (i Input) Encode() (string, error) {
	if err := CheckPayload(i.Payload); err != nil {
		return "", err
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // the payload is sent unchanged
	if err := encoder.Encode(i); err != nil {
		return "", fmt.Errorf("write the input of a run: %w", err)
	}
	return string(bytes.ToValidUTF8(bytes.TrimSpace(text.Bytes()), []byte("\ufffd"))), nil
}

// DecodeInput is the inverse of Input.Encode.
func DecodeInput(text string) (input Input, err error) {
	if err := json.Unmarshal([]byte(text), &input); err != nil {
		return input, fmt.Errorf("read the input of a run: %w", err)
	}
	return input, nil
}

// CheckPayload returns everything wrong with a payload as Problems, or nil if it is JSON within the bounds of a
// payload that every database can store.
func CheckPayload(payload json.RawMessage) error {
	var problems input.Problems
	input.CheckPayload(&problems, payload)
	if len(problems) == 0 && len(payload) > 0 {
		const most = 10
		problems.AddError("/payload", input.CheckJSONText(payload, most))
	}
	return problems.Err()
}
