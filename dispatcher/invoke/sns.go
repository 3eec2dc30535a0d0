package invoke

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// topics publishes messages to SNS topics.
type topics struct{ *awsClients[publishMessage] }

// publishMessage publishes with one client.
type publishMessage func(context.Context, *sns.PublishInput) (*sns.PublishOutput, error)

// topicCaller returns what publishes messages to SNS topics.
func topicCaller(node *nodeConfig) attemptFunc {
	return topics{newAWSClients(node, func(c aws.Config) publishMessage {
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
		return notSent(ctx, err)
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
	once := func(ctx context.Context, publish publishMessage) (run.Outcome, returnedState, error) {
		output, err := publish(ctx, in)
		if err != nil {
			return run.Outcome{}, returnedState{}, err
		}
		return sent(output.ResultMetadata, output.MessageId), returnedState{}, nil
	}
	return t.attempt(ctx, call, started, timeout, once)
}
