package aws

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/invoke/identity"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// topics publishes messages to SNS topics.
type topics struct{ *clients[publishMessage] }

// publishMessage publishes with one client.
type publishMessage func(context.Context, *sns.PublishInput) (*sns.PublishOutput, error)

// Topics returns what publishes messages to SNS topics.
func Topics(node *identity.Node) attempt.Func {
	return topics{newClients(node, func(c aws.Config) publishMessage {
		client := sns.NewFromConfig(c)
		return func(ctx context.Context, input *sns.PublishInput) (*sns.PublishOutput, error) {
			return client.Publish(ctx, input)
		}
	})}.call
}

// call publishes one message.
func (t topics) call(ctx context.Context, call target.Call, started time.Time) run.Outcome {
	message, err := call.Message()
	if err != nil {
		return attempt.NotSent(ctx, err)
	}
	attributes := make(map[string]types.MessageAttributeValue, len(message.Attributes))
	for name, value := range message.Attributes {
		attributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(value)}
	}
	in := &sns.PublishInput{
		TopicArn: aws.String(call.Target.SNS.TopicARN), Subject: given(message.Subject), Message: aws.String(message.Body),
		MessageAttributes: attributes, MessageGroupId: given(message.GroupID), MessageDeduplicationId: given(message.DeduplicationID),
	}
	timeout := input.Duration(call.Target.Timeout())
	once := func(ctx context.Context, publish publishMessage) (run.Outcome, attempt.ReturnedState, error) {
		output, err := publish(ctx, in)
		if err != nil {
			return run.Outcome{}, attempt.ReturnedState{}, err
		}
		return sent(output.ResultMetadata, output.MessageId), attempt.ReturnedState{}, nil
	}
	return t.attempt(ctx, call, started, timeout, once)
}
