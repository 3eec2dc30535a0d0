package dispatcher_test

import (
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestSummaryNamesTheTarget(t *testing.T) {
	t.Parallel()
	for want, target := range map[target.TargetSummary]target.Target{
		{Kind: "webhook", Name: "example.com:8443"}: {Webhook: &target.Webhook{URL: "https://Example.com:8443/a?b"}},
		{Kind: "webhook", Name: "example.com"}:      {Webhook: &target.Webhook{URL: "https://example.com:443/{{.Payload.x}}"}},
		{Kind: "lambda", Name: "bill"}:              {Lambda: &target.Lambda{Function: "123456789012:function:bill:live"}},
		{Kind: "group", Name: "workers"}:            {Group: &target.GroupTarget{Name: "workers"}},
		{Kind: "sqs", Name: "jobs.fifo"}:            {SQS: &target.SQS{QueueARN: "arn:aws:sqs:eu-west-1:123456789012:jobs.fifo"}},
		{Kind: "sns", Name: "topic"}:                {SNS: &target.SNS{TopicARN: "arn:aws:sns:eu-west-1:123456789012:topic"}},
		{}:                                          {},
	} {
		if got := target.Summary(); got != want {
			t.Errorf("summary %+v, want %+v", got, want)
		}
	}
}
