package dispatcher

import "net/url"

// Target is what a run calls. Exactly one of its fields is set.
type Target struct {
	Webhook *Webhook `json:"webhook,omitempty"`
	Lambda  *Lambda  `json:"lambda,omitempty"`
}

// Validate returns everything wrong with t, as Faults with JSON pointers, or nil.
func (t Target) Validate() error {
	var problems Problems
	switch {
	case t.Webhook == nil && t.Lambda == nil:
		problems.Add("/webhook", CodeRequired, "target names nothing to call; give it a webhook, or a lambda")
	case t.Webhook != nil && t.Lambda != nil:
		problems.Add("/lambda", CodeTargetKind, "target has a webhook and a lambda; a job calls one thing")
	case t.Lambda != nil:
		problems.AddError("/lambda", t.Lambda.Validate())
	default:
		problems.AddError("/webhook", t.Webhook.Validate())
	}
	return problems.Err()
}

// hostOf returns the host of a URL with its port; empty if there is none. It is no part of a template.
func hostOf(text string) string {
	if isTemplate(text) {
		text = urlBeginning.FindString(text)
	}
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Host
}
