package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

// snsTarget is the kind sns.
type snsTarget struct{}

func (snsTarget) name() string { return string(target.KindSNS) }

type snsModel struct {
	TopicARN       types.String   `tfsdk:"topic_arn"`
	Subject        types.String   `tfsdk:"subject"`
	Body           types.String   `tfsdk:"body"`
	Attributes     types.Map      `tfsdk:"attributes"`
	MessageGroupID types.String   `tfsdk:"message_group_id"`
	AssumeRole     types.Object   `tfsdk:"assume_role"`
	Timeout        durationString `tfsdk:"timeout"`
	TraceContext   types.Bool     `tfsdk:"trace_context"`
}

func (snsTarget) attribute() schema.SingleNestedAttribute {
	attributes := messageAttributes("topic", "publish the message")
	attributes["topic_arn"] = requiredString("ARN of the topic, such as `aws_sns_topic.orders.arn`.")
	attributes["subject"] = optionalString("Template for the subject of mails, which is cut to 99 characters. Default: none.")
	return optionalObject("An Amazon SNS topic, which gets one message for each attempt, published with the credentials of the "+
		"node. The message has at most 256 KiB with its attributes. Default: the target is of another kind.", attributes)
}

func (snsTarget) expand(
	ctx context.Context, e *expander, pointer string, object types.Object, to *target.Target,
) {
	var m snsModel
	if !e.object(ctx, pointer, object, &m) {
		return
	}
	var s target.SNS
	s.SetDefaults()
	s.TopicARN = e.required(pointer+"/topic_arn", m.TopicARN)
	expandOptional(e, pointer+"/subject", m.Subject, &s.Subject)
	expandOptional(e, pointer+"/body", m.Body, &s.Body)
	s.Attributes = e.stringMap(pointer+"/attributes", m.Attributes)
	expandOptional(e, pointer+"/message_group_id", m.MessageGroupID, &s.MessageGroupID)
	s.AssumeRole = expandAssumeRole(ctx, e, pointer+"/assume_role", m.AssumeRole)
	s.Timeout = e.duration(pointer+"/timeout", m.Timeout, s.Timeout)
	s.TraceContext = e.bool(pointer+"/trace_context", m.TraceContext, false)
	e.ofResource(pointer, m.TopicARN)
	to.SNS = &s
}

func (k snsTarget) flatten(
	ctx context.Context, diags *diag.Diagnostics, target target.Target, prior types.Object,
) types.Object {
	of, s := objectType(targetType(), k.name()), target.SNS
	if s == nil {
		return nullObject(of)
	}
	var before snsModel
	(&expander{}).object(ctx, "", prior, &before)
	return flattenObject(ctx, diags, of, snsModel{
		TopicARN:       types.StringValue(s.TopicARN),
		Subject:        flattenOptional(s.Subject),
		Body:           flattenOptional(s.Body),
		Attributes:     flattenStringMap(ctx, diags, s.Attributes, before.Attributes),
		MessageGroupID: flattenOptional(s.MessageGroupID),
		AssumeRole:     flattenAssumeRole(ctx, diags, of, s.AssumeRole, before.AssumeRole),
		Timeout:        flattenDuration(s.Timeout),
		TraceContext:   flattenOptionalBool(s.TraceContext, before.TraceContext),
	})
}
