package dispatcher_test

import (
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
)

func TestSummaryNamesWhatATargetCalls(t *testing.T) {
	t.Parallel()
	for want, target := range map[dispatcher.TargetSummary]dispatcher.Target{
		{Kind: "webhook", Name: "example.com:8443"}: {Webhook: &dispatcher.Webhook{URL: "https://Example.com:8443/a?b"}},
		{Kind: "webhook", Name: "example.com"}:      {Webhook: &dispatcher.Webhook{URL: "https://example.com:443/{{.Payload.x}}"}},
		{Kind: "lambda", Name: "bill"}:              {Lambda: &dispatcher.Lambda{Function: "123456789012:function:bill:live"}},
		{Kind: "group", Name: "workers"}:            {Group: &dispatcher.GroupTarget{Name: "workers"}},
		{Kind: "sqs", Name: "jobs.fifo"}:            {SQS: &dispatcher.SQS{QueueARN: "arn:aws:sqs:eu-west-1:123456789012:jobs.fifo"}},
		{Kind: "sns", Name: "topic"}:                {SNS: &dispatcher.SNS{TopicARN: "arn:aws:sns:eu-west-1:123456789012:topic"}},
		{}:                                          {},
	} {
		if got := target.Summary(); got != want {
			t.Errorf("summary %+v, want %+v", got, want)
		}
	}
}
