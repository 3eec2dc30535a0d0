package target

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDestinationsHaveTheDefaultsOfTheirTargets(t *testing.T) {
	t.Parallel()
	webhook, lambda := Webhook{URL: "https://a.example/"}, Lambda{Function: "f"}
	queue, topic := SQS{QueueARN: "q"}, SNS{TopicARN: "t"}
	for _, one := range []interface{ SetDefaults() }{&webhook, &lambda, &queue, &topic} {
		one.SetDefaults()
	}
	for name, tt := range map[string]struct {
		to   FollowDestination
		want *Target
	}{
		"none":    {FollowDestination{}, nil},
		"webhook": {FollowDestination{Webhook: &FollowWebhook{URL: webhook.URL}}, &Target{Webhook: &webhook}},
		"lambda":  {FollowDestination{Lambda: &FollowLambda{lambda.Function}}, &Target{Lambda: &lambda}},
		"sqs":     {FollowDestination{SQS: &FollowQueue{queue.QueueARN}}, &Target{SQS: &queue}},
		"sns":     {FollowDestination{SNS: &FollowTopic{topic.TopicARN}}, &Target{SNS: &topic}},
	} {
		if diff := cmp.Diff(tt.want, tt.to.Target()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
