package dispatcher

// TargetSummary says what a job calls.
type TargetSummary struct {
	Kind TargetKind `json:"kind"`
	// Name is the host of a webhook, with its port unless that is the scheme's, or the name of the function, group, queue or
	// topic.
	Name string `json:"name"`
}

// Summary returns what t calls, in short.
func (t Target) Summary() TargetSummary {
	s := TargetSummary{Kind: t.Kind()}
	switch {
	case t.Webhook != nil:
		s.Name = hostOf(t.Webhook.URL)
	case t.Lambda != nil:
		s.Name = t.Lambda.FunctionName()
	case t.Group != nil:
		s.Name = t.Group.Name
	case t.SQS != nil:
		s.Name = arnPart(t.SQS.QueueARN, arnName)
	case t.SNS != nil:
		s.Name = arnPart(t.SNS.TopicARN, arnName)
	}
	return s
}
