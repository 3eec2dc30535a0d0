package target

// FollowDestination is where a job delivers what happened to it; at most one of its fields is set. Its JSON has the
// form of a target with few settings, so the pointers of its problems and secrets are those of its Target.
type FollowDestination struct {
	Webhook *FollowWebhook `json:"webhook,omitempty"`
	Lambda  *FollowLambda  `json:"lambda,omitempty"`
	// SQS is a queue, and SNS is a topic, that gets a message.
	SQS *FollowQueue `json:"sqs,omitempty"`
	SNS *FollowTopic `json:"sns,omitempty"`
}

// FollowWebhook is an HTTP request with method POST.
type FollowWebhook struct {
	// URL and Signing are as in Webhook.
	URL     string   `json:"url" schema:"required,max=2048"`
	Signing *Signing `json:"signing,omitempty"`
}

// FollowLambda is a function to invoke.
type FollowLambda struct {
	// Function is as in Lambda.
	Function string `json:"function" schema:"required"`
}

// FollowQueue is an Amazon SQS queue.
type FollowQueue struct {
	// QueueARN is as in SQS.
	QueueARN string `json:"queue_arn" schema:"required"`
}

// FollowTopic is an Amazon SNS topic.
type FollowTopic struct {
	// TopicARN is as in SNS.
	TopicARN string `json:"topic_arn" schema:"required"`
}

// Target returns the destination as a target with the defaults of its kind; nil if there is none.
func (d FollowDestination) Target() *Target {
	if d == (FollowDestination{}) {
		return nil
	}
	var t Target
	if w := d.Webhook; w != nil {
		t.Webhook = &Webhook{URL: w.URL, Signing: w.Signing}
		t.Webhook.SetDefaults()
	}
	if l := d.Lambda; l != nil {
		t.Lambda = &Lambda{Function: l.Function}
		t.Lambda.SetDefaults()
	}
	if q := d.SQS; q != nil {
		t.SQS = &SQS{QueueARN: q.QueueARN}
		t.SQS.SetDefaults()
	}
	if topic := d.SNS; topic != nil {
		t.SNS = &SNS{TopicARN: topic.TopicARN}
		t.SNS.SetDefaults()
	}
	return &t
}
