package dispatcher

// Target is what a run calls. Exactly one of its fields is set.
type Target struct {
	Webhook *Webhook `json:"webhook,omitempty"`
}

// Validate returns everything wrong with t, as Faults with JSON pointers, or nil.
func (t Target) Validate() error {
	var faults Faults
	if t.Webhook == nil {
		faults.Add("/webhook", CodeRequired, "target names nothing to call; give it a webhook")
		return faults
	}
	faults.AddError("/webhook", t.Webhook.Validate())
	return faults.Err()
}
