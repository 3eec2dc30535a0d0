package tfconfig_test

import (
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Written queues and topics are complete, without defaults, and the same when they are read again.
func TestJobsOfQueuesAndTopicsAreWrittenAndCompared(t *testing.T) {
	t.Parallel()
	sqs := target.SQS{QueueARN: "arn:aws:sqs:eu-central-1:123456789012:orders", Attributes: map[string]string{"app": "{{.App}}"},
		AssumeRole: &target.AssumeRole{RoleARN: "arn:aws:iam::123456789012:role/r"}}
	sqs.SetDefaults()
	sns := target.SNS{TopicARN: "arn:aws:sns:eu-central-1:123456789012:orders.fifo", Subject: "{{.Job}}"}
	sns.SetDefaults()
	for want, target := range map[string]target.Target{
		`= "arn:aws:sqs:eu-central-1:123456789012:orders"`:      {SQS: &sqs},
		`= "arn:aws:sns:eu-central-1:123456789012:orders.fifo"`: {SNS: &sns},
	} {
		c := content(t)
		c.Jobs[0].Target, c.Jobs[0].Payload = target, nil
		dir, text := written(t, c)
		if !strings.Contains(text, want) || strings.Contains(text, "timeout") || lint(t, dir) != "" {
			t.Errorf("written is\n%s\nwant %s and no default; lint: %s", text, want, lint(t, dir))
		}
		if found := compare(t, dir, c); len(found) > 0 {
			t.Errorf("differences %+v, want none", found)
		}
	}
}
