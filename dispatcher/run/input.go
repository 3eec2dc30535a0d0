package run

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Input is what a run was given when it was queued, apart from what follows from its key. Most runs have none.
type Input struct {
	// Cause says why the run exists; nil: its kind says all. It comes first, so that a database tells by how the text begins
	// whether a run is of a backfill; see OfBackfill.
	Cause *Cause `json:"cause,omitempty"`
	// Payload takes the place of the job's payload; nil: the run has that of the job.
	Payload json.RawMessage `json:"payload,omitempty"`
	// Missed is the id that the first of the missed fires would have as a run, if the run follows missed fires; empty: it
	// follows none.
	Missed string `json:"missed,omitempty" schema:"RunID"`
	// Traceparent is the trace context of the request that asked for the run, for its latest retry, or for the backfill or bulk
	// action that it is part of; empty: it had none. No target gets it.
	Traceparent string `json:"traceparent,omitempty"`
	// After is the instant of the run of the same trigger id and kind that the run comes after: the notification before, for
	// that of an alert; zero: it comes after none. Held names that run as long as it is under way, so that this one waits.
	After time.Time `json:"after,omitzero"`
	Held  string    `json:"-"`
	// Overtaken says why the run is not attempted any more: a later one has told what it would; empty: none has.
	Overtaken string `json:"-"`
	// Err says why the stored input cannot be read; nil: it can. Its run fails, and no other one.
	Err error `json:"-"`
}

// Cause says why a run exists.
type Cause struct {
	// Backfill is the id of the backfill that the run is part of, and Range what it covers. A run that follows one of a
	// backfill, or a follower of one, names the backfill too, without the range.
	Backfill string `json:"backfill,omitempty"`
	// What the backfill covers, both ends inclusive.
	Range *Range `json:"range,omitempty"`
	// Run is the id of the run that this one follows, and On what happened to it, as a FollowEvent. Run is empty for missed
	// fires that no run caught up.
	Run string `json:"run,omitempty" schema:"RunID"`
	// What happened to that run. For fires that were missed, run is left out if none caught them up.
	On string `json:"on,omitempty" schema:"FollowEvent"`
	// State, Class and Error are how the run that this one follows ended.
	State State  `json:"state,omitempty"`
	Class Class  `json:"class,omitempty"`
	Error string `json:"error,omitempty"`
	// Depth is how many runs come before the run in its chain: 1 for one that follows a run that follows none. MayFollow is how
	// many runs may follow it, directly and through others; see Quotas.ChainRuns. Both are 0 for runs that follow none.
	Depth int `json:"depth,omitempty"`
	// How many runs may follow this one of a chain, directly and through others; left out for none.
	MayFollow int `json:"may_follow,omitempty"`
	// Alert is the name of the alert of which the run delivers a notification.
	Alert string `json:"alert,omitempty"`
}

// OfBackfill tells whether a run is part of a backfill, or follows such a run: what it does is about the past.
func (c *Cause) OfBackfill() bool { return c != nil && c.Backfill != "" }

// Range is a span of instants, both ends inclusive.
type Range struct {
	From time.Time `json:"from" schema:"required"`
	To   time.Time `json:"to" schema:"required"`
}

// Encode returns the input as databases store it, or what of its payload cannot be stored.
func (i Input) Encode() (string, error) {
	if err := CheckPayload(i.Payload); err != nil {
		return "", err
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // the payload is sent as it was given
	if err := encoder.Encode(i); err != nil {
		return "", fmt.Errorf("write the input of a run: %w", err)
	}
	return string(bytes.ToValidUTF8(bytes.TrimSpace(text.Bytes()), []byte("\ufffd"))), nil
}

// DecodeInput reads what Input.Encode wrote.
func DecodeInput(text string) (input Input, err error) {
	if err := json.Unmarshal([]byte(text), &input); err != nil {
		return input, fmt.Errorf("read the input of a run: %w", err)
	}
	return input, nil
}

// CheckPayload returns everything wrong with a payload as Problems, or nil: it is JSON within the bounds of a payload, which
// every database stores.
func CheckPayload(payload json.RawMessage) error {
	var problems input.Problems
	input.CheckPayload(&problems, payload)
	if len(problems) == 0 && len(payload) > 0 {
		const most = 10
		problems.AddError("/payload", input.CheckJSONText(payload, most))
	}
	return problems.Err()
}
