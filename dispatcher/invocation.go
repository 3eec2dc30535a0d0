package dispatcher

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// Call is one attempt as a target sees it.
type Call struct {
	App, Job, Trigger string // Trigger is empty for a manual run
	Key               RunKey
	EventID           string
	Attempt           int
	Missed            *MissedRange // what a catch-up run stands for; nil for other runs
	Target            Target
	// Group is the group that Target names; nil: it names none.
	Group   *GroupVersion
	Payload json.RawMessage
	// Templates are those of Target, nil if it has none. PreviousFire and NextFire are the scheduled
	// times of the trigger before and after this one, zero if there is none; they are set only if
	// Templates use them.
	Templates              *Templates
	PreviousFire, NextFire time.Time
	// Delivery and Retry tell the engine what to do when the call fails.
	Delivery Delivery
	Retry    Retry
	// Slots is how many runs of its job there may be at once; 0: any number. See Job.Slots.
	Slots int
	// Bounds are those of the app, with defaults; nil: the defaults. AWSExternalID is that of the app.
	Bounds        *Bounds
	AWSExternalID string
}

// fireText describes a fire in JSON. It is the same on every attempt, as is all that receivers may
// sign or compare.
type fireText struct {
	App         string      `json:"app"`
	Job         string      `json:"job"`
	Trigger     string      `json:"trigger"`
	Run         string      `json:"run"`
	Kind        RunKind     `json:"kind"`
	ScheduledAt string      `json:"scheduled_at"`
	Missed      *missedText `json:"missed,omitempty"`
}

func (c Call) fire() fireText {
	return fireText{c.App, c.Job, c.Trigger, c.Key.String(), c.Key.Kind, FormatInstant(c.Key.ScheduledAt), c.missed()}
}

// Body returns the body of a webhook: the payload or, without one, a description of the fire.
func (c Call) Body() []byte {
	if len(c.Payload) > 0 {
		return c.Payload
	}
	body, _ := json.Marshal(c.fire()) // no field of it can fail
	return body
}

// FunctionEvent returns the event of a Lambda function: the payload and, next to it, what a webhook
// gets as headers. Package lambda has its type for functions in Go.
func (c Call) FunctionEvent() ([]byte, error) {
	type attempt struct {
		EventID string `json:"event_id"`
		fireText
		Attempt     int    `json:"attempt"`
		Fence       int64  `json:"fence"`
		Traceparent string `json:"traceparent"`
	}
	text, err := json.Marshal(struct {
		Carillon attempt         `json:"carillon"`
		Payload  json.RawMessage `json:"payload,omitempty"`
	}{attempt{c.EventID, c.fire(), c.Attempt, c.Fence(), c.Traceparent()}, c.Payload})
	if err != nil {
		return nil, fmt.Errorf("write the event: %w", err)
	}
	return text, nil
}

// Traceparent returns the W3C trace context of the attempt: all attempts of a run share a
// trace, and each is a span of its own. It is a function of event id and attempt, so
// the trace of a run can be found. It says "sampled", because receivers that follow
// their caller would otherwise record nothing.
func (c Call) Traceparent() string {
	sum := sha256.Sum256([]byte(c.EventID))
	span := sum[16:24]
	binary.BigEndian.PutUint64(span, binary.BigEndian.Uint64(span)+uint64(c.Attempt))
	text := make([]byte, 0, 55)
	text = append(hex.AppendEncode(append(text, "00-"...), sum[:16]), '-')
	return string(append(hex.AppendEncode(text, span), "-01"...))
}

// Fence returns a number that grows with each attempt of a run and with each fire of a trigger. A
// receiver that remembers the highest number of a trigger can refuse late requests, such as one
// from a node that was marked dead. It is exact in languages whose numbers are floating-point.
func (c Call) Fence() int64 {
	const attempts = 1000
	return c.Key.ScheduledAt.UnixMilli()*attempts + int64(min(c.Attempt, attempts-1))
}

// missedText is a MissedRange as a body holds it.
type missedText struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Count int    `json:"count"`
}

// missed returns what a catch-up run stands for; nil for other runs.
func (c Call) missed() *missedText {
	if m := c.Missed; m != nil {
		return &missedText{FormatInstant(m.From), FormatInstant(m.To), m.Count}
	}
	return nil
}
