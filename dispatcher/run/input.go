package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

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

// SlotRelease says which slot of a job a person frees, and why.
type SlotRelease struct {
	// Run has the slot. It may be left out if one run alone has slots of the job.
	Run string `json:"run,omitempty" schema:"RunID"`
	// Reason is free text of at most 1024 characters, for the audit log.
	Reason string `json:"reason" schema:"required,max=1024"`
	// Cancel also frees the slot of a run that has not ended, which it cancels. Its target may go on working, so two runs
	// of the job may be at work at once.
	Cancel bool `json:"cancel,omitempty"`
}

// Validate returns everything wrong with r, as Problems, or nil.
func (r SlotRelease) Validate() error {
	var problems input.Problems
	if input.CheckText(&problems, "/reason", r.Reason); r.Reason == "" {
		problems.Add("/reason", input.CodeRequired, "reason is missing; say why the slot is freed, for the audit log")
	}
	return problems.Err()
}

// A job with CarryState has a state: a small JSON value that a run gets from the previous run and returns for the
// next. It is stored with the outcome of the attempt that returned it, so it is as durable as the end of the run, and
// only the attempt that ends the run as succeeded changes it. Because such a job has one slot, a run begins after the
// end of the previous run is stored. Operators may read, set and clear the state at any time; a state that a run
// returns for an older one is then discarded.

// MaxCarriedState bounds the JSON text of a state, in bytes, without white space and with characters outside ASCII
// as escapes.
const MaxCarriedState = 4 << 10

// HeaderState is the header in which a webhook or an endpoint gets the state and may return it.
const HeaderState = "Carillon-State"

// CarriedState is the state of a job.
type CarriedState struct {
	// State is the value; null if there is none.
	State json.RawMessage `json:"state" schema:"required"`
	// Revision counts the changes; it is the ETag. 0 if there was none yet.
	Revision int64 `json:"revision" body:"-"`
	// UpdatedAt is when it was last written; nil if it never was.
	UpdatedAt *time.Time `json:"updated_at,omitempty" body:"-"`
	// Run is the run that returned it; empty if an operator, SetBy, set or cleared it.
	Run string `json:"run,omitempty" body:"-"`
	// The operator that set or cleared it; left out if a run returned it.
	SetBy string `json:"set_by,omitempty" body:"-"`
	// DiscardedRun is the latest run with a discarded state, because an operator set or cleared the state after that
	// run began; empty if there was none since a run last wrote it.
	DiscardedRun string `json:"discarded_run,omitempty" body:"-"`
}

// Validate returns everything wrong with a state that an operator sets, as Problems, or nil.
func (s CarriedState) Validate() error {
	var problems input.Problems
	if len(s.State) == 0 || string(s.State) == "null" {
		problems.Add("/state", input.CodeRequired, "state is missing; to have none, clear it with DELETE")
	} else if _, err := ReadCarriedState(s.State); err != nil {
		problems.Add("/state", input.CodeStateInvalid, "%s", err)
	}
	return problems.Err()
}

// ReturnedState is the state that a target returned for the next run of its job.
type ReturnedState struct {
	// State is the text to store; null clears the state.
	State json.RawMessage
	// Revision is the revision of the state that the attempt got. If it is not the current one, State is discarded.
	Revision int64
}

// CarriedStates are the states of jobs. Dispatch.Record and Callbacks.CompleteRun write the states that runs return.
type CarriedStates interface {
	// CarriedState returns the state of a job, also if it no longer carries one. ErrNotFound: the job does not exist.
	CarriedState(ctx context.Context, app, job string) (CarriedState, error)
	// SetCarriedState sets the state of a job; nil clears it. Problems: state is not nil, and the job carries none.
	// Change.IfAbsent requires that the job has no state yet.
	SetCarriedState(ctx context.Context, app, job string, state json.RawMessage, change input.Change) (CarriedState, error)
	// CarriedStatesByID returns the states of jobs by their ids, without jobs that have none.
	CarriedStatesByID(ctx context.Context, jobs []int64) (map[int64]CarriedState, error)
}

// ReadCarriedState returns a state as it is stored: JSON on one line, in ASCII, so that it fits into a header. The
// error explains why a text is not a state.
func ReadCarriedState(text []byte) (json.RawMessage, error) {
	const most = 4 * MaxCarriedState // with white space; longer texts are not parsed
	switch {
	case len(text) > most:
		return nil, fmt.Errorf("the state has %d bytes; the maximum is %d", len(text), MaxCarriedState)
	case !utf8.Valid(text):
		return nil, fmt.Errorf("the state is not UTF-8")
	case !json.Valid(text):
		return nil, fmt.Errorf("the state is not JSON")
	}
	if depth := input.JSONDepth(text); depth > input.MaxPayloadDepth {
		return nil, fmt.Errorf("the state is nested %d deep; the maximum is %d", depth, input.MaxPayloadDepth)
	}
	if input.CheckJSONText(text, 1) != nil {
		return nil, fmt.Errorf(`the state holds NUL (\u0000) or half of a surrogate pair, which no database stores`)
	}
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return nil, fmt.Errorf("the state is not JSON")
	}
	stored := appendASCII(nil, line.String())
	if len(stored) > MaxCarriedState {
		return nil, fmt.Errorf("the state has %d bytes without white space and with characters outside ASCII as \\u escapes; the maximum is %d",
			len(stored), MaxCarriedState)
	}
	return stored, nil
}

// appendASCII writes valid JSON with each character outside ASCII, which only strings have, as an escape.
func appendASCII(out []byte, text string) []byte {
	for _, char := range text {
		switch {
		case char < 0x7F: // a header cannot hold DEL
			out = append(out, byte(char))
		case char > 0xFFFF:
			char -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xD800+char>>10, 0xDC00+char&0x3FF)
		default:
			out = fmt.Appendf(out, `\u%04x`, char)
		}
	}
	return out
}

// envelope is the part of a body that is meant for Carillon: it returns a state, or refuses a stale request.
type envelope struct {
	Carillon struct {
		State   json.RawMessage `json:"state"`
		Outcome string          `json:"outcome"`
	} `json:"carillon"`
}

// StateInBody returns the state in the body of a response, {"carillon": {"state": …}}; nil without one.
func StateInBody(body []byte) json.RawMessage {
	return envelopeIn(body).Carillon.State
}

// envelopeIn returns the envelope in a body; the zero value if it has none.
func envelopeIn(body []byte) (said envelope) {
	body = bytes.TrimSpace(body)
	if !bytes.HasPrefix(body, []byte("{")) || !bytes.Contains(body, []byte(`"carillon"`)) || json.Unmarshal(body, &said) != nil {
		return envelope{}
	}
	return said
}

// WhyStateStays explains why a run does not change the state of its job; empty if it does. Runs of a backfill, and
// those that follow them, get the state, but they repeat the past, so their result would set the job back.
func WhyStateStays(kind Kind, cause *Cause) string {
	switch {
	case kind == KindBackfill:
		return "a run of kind backfill does not change the state of its job"
	case cause.OfBackfill():
		return "a run that follows one of a backfill does not change the state of its job"
	}
	return ""
}
