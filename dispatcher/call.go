package dispatcher

import "encoding/json"

// Call is one attempt as a target sees it.
type Call struct {
	App, Job, Trigger string // Trigger is empty for a manual run
	Key               RunKey
	EventID           string
	Attempt           int
	Target            Target
	Payload           json.RawMessage
}

// Body returns the payload, or, for a job without one, a description of the fire. It is
// the same on every attempt, as is all that receivers may sign or compare.
func (c Call) Body() []byte {
	if len(c.Payload) > 0 {
		return c.Payload
	}
	// No field of this struct can fail to marshal.
	body, _ := json.Marshal(struct {
		App         string  `json:"app"`
		Job         string  `json:"job"`
		Trigger     string  `json:"trigger"`
		Run         string  `json:"run"`
		Kind        RunKind `json:"kind"`
		ScheduledAt string  `json:"scheduled_at"`
	}{c.App, c.Job, c.Trigger, c.Key.String(), c.Key.Kind, FormatInstant(c.Key.ScheduledAt)})
	return body
}
