package aws

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	smithy "github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/invoke/identity"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

type queues struct{ *clients[sendMessage] }

// sendMessage sends to a queue, which has an ARN, with one client.
type sendMessage func(ctx context.Context, queue string, input *sqs.SendMessageInput) (*sqs.SendMessageOutput, error)

// Queues returns the attempts that send messages to SQS queues.
func Queues(node *identity.Node) attempt.Func {
	return queues{newClients(node, func(c aws.Config) sendMessage {
		client := sqs.NewFromConfig(c)
		return func(ctx context.Context, queue string, input *sqs.SendMessageInput) (*sqs.SendMessageOutput, error) {
			// The URL identifies the queue. Requests do not go there: the SDK chooses the endpoint.
			o := client.Options()
			of, err := arn.Parse(queue)
			if err != nil {
				return nil, err
			}
			region := sqs.EndpointParameters{Region: aws.String(of.Region), Endpoint: o.BaseEndpoint}
			endpoint, err := o.EndpointResolverV2.ResolveEndpoint(ctx, region)
			if err != nil {
				return nil, err
			}
			url := endpoint.URI.JoinPath(of.AccountID, of.Resource).String()
			input.QueueUrl = aws.String(url)
			return client.SendMessage(ctx, input)
		}
	})}.call
}

func (q queues) call(ctx context.Context, call target.Call, started time.Time) run.Outcome {
	message, err := call.Message()
	if err != nil {
		return attempt.NotSent(ctx, err)
	}
	attributes := make(map[string]sqstypes.MessageAttributeValue, len(message.Attributes))
	for name, value := range message.Attributes {
		attributes[name] = sqstypes.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(value)}
	}
	in := &sqs.SendMessageInput{
		MessageBody: aws.String(message.Body), MessageAttributes: attributes,
		MessageGroupId: given(message.GroupID), MessageDeduplicationId: given(message.DeduplicationID),
	}
	timeout := input.Duration(call.Target.Timeout())
	return q.attempt(ctx, call, started, timeout, func(ctx context.Context, send sendMessage) (run.Outcome, attempt.ReturnedState, error) {
		output, err := send(ctx, call.Target.SQS.QueueARN, in)
		if err != nil {
			return run.Outcome{}, attempt.ReturnedState{}, err
		}
		return sent(output.ResultMetadata, output.MessageId), attempt.ReturnedState{}, nil
	})
}

// sent is the outcome of a message that AWS has accepted.
func sent(of smithy.Metadata, id *string) run.Outcome {
	response := &run.Response{MessageID: aws.ToString(id)}
	response.RequestID, _ = middleware.GetRequestIDMetadata(of)
	outcome := run.Outcome{State: run.Succeeded, Response: response}
	if raw, ok := middleware.GetRawResponse(of).(*smithyhttp.Response); ok {
		outcome.HTTPStatus = raw.StatusCode
	}
	return outcome
}

// given returns a text for the API, which distinguishes an empty text from none.
func given(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

type topics struct{ *clients[publishMessage] }

type publishMessage func(context.Context, *sns.PublishInput) (*sns.PublishOutput, error)

// Topics returns the attempts that publish messages to SNS topics.
func Topics(node *identity.Node) attempt.Func {
	return topics{newClients(node, func(c aws.Config) publishMessage {
		client := sns.NewFromConfig(c)
		return func(ctx context.Context, input *sns.PublishInput) (*sns.PublishOutput, error) {
			return client.Publish(ctx, input)
		}
	})}.call
}

func (t topics) call(ctx context.Context, call target.Call, started time.Time) run.Outcome {
	message, err := call.Message()
	if err != nil {
		return attempt.NotSent(ctx, err)
	}
	attributes := make(map[string]snstypes.MessageAttributeValue, len(message.Attributes))
	for name, value := range message.Attributes {
		attributes[name] = snstypes.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(value)}
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
