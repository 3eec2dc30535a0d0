package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

// sqsTarget is the kind sqs.
type sqsTarget struct{}

func (sqsTarget) name() string { return string(target.KindSQS) }

type sqsModel struct {
	QueueARN       types.String   `tfsdk:"queue_arn"`
	Body           types.String   `tfsdk:"body"`
	Attributes     types.Map      `tfsdk:"attributes"`
	MessageGroupID types.String   `tfsdk:"message_group_id"`
	AssumeRole     types.Object   `tfsdk:"assume_role"`
	Timeout        durationString `tfsdk:"timeout"`
	TraceContext   types.Bool     `tfsdk:"trace_context"`
}

func (sqsTarget) attribute() schema.SingleNestedAttribute {
	attributes := messageAttributes("queue", "send the message")
	attributes["queue_arn"] = requiredString("ARN of the queue, such as `aws_sqs_queue.orders.arn`.")
	return optionalObject("An Amazon SQS queue, which gets one message for each attempt, sent with the credentials of the node. "+
		"Default: the target is of another kind.", attributes)
}

// messageAttributes are the attributes of what gets messages, a queue or topic.
func messageAttributes(what, verb string) map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"body": optionalString("Template for the body, at most 256 KiB. Default: the payload, or without one a description of the fire."),
		"attributes": optionalStringMap("Attributes of the message, at most 9. Values may be templates; one that is empty once it " +
			"is filled in is left out. Carillon adds the attribute `carillon`, which describes the attempt. Default: none."),
		"message_group_id": optionalString("Template for the group of the message, up to 128 characters. Default: `APP/JOB` for a FIFO " +
			what + ", otherwise none."),
		"assume_role":   assumeRoleAttribute(verb),
		"trace_context": traceContextAttribute("as `traceparent` in the message's attribute `carillon`"),
		"timeout":       durationWithDefault(target.DefaultTimeout, "Time limit of one attempt, from `100ms` to `24h`."),
	}
}

func (sqsTarget) expand(
	ctx context.Context, e *expander, pointer string, object types.Object, to *target.Target,
) {
	var m sqsModel
	if !e.object(ctx, pointer, object, &m) {
		return
	}
	var s target.SQS
	s.SetDefaults()
	s.QueueARN = e.required(pointer+"/queue_arn", m.QueueARN)
	expandOptional(e, pointer+"/body", m.Body, &s.Body)
	s.Attributes = e.stringMap(pointer+"/attributes", m.Attributes)
	expandOptional(e, pointer+"/message_group_id", m.MessageGroupID, &s.MessageGroupID)
	s.AssumeRole = expandAssumeRole(ctx, e, pointer+"/assume_role", m.AssumeRole)
	s.Timeout = e.duration(pointer+"/timeout", m.Timeout, s.Timeout)
	s.TraceContext = e.bool(pointer+"/trace_context", m.TraceContext, false)
	e.ofResource(pointer, m.QueueARN)
	to.SQS = &s
}

// ofResource marks what cannot be judged while the ARN of a queue or topic is unknown: region and role must agree, and
// whether it is a FIFO one decides about its group.
func (e *expander) ofResource(pointer string, arn types.String) {
	if arn.IsUnknown() {
		e.incomplete = append(e.incomplete, pointer+"/assume_role/role_arn", pointer+"/message_group_id")
	}
}

func (k sqsTarget) flatten(
	ctx context.Context, diags *diag.Diagnostics, target target.Target, prior types.Object,
) types.Object {
	of, s := objectType(targetType(), k.name()), target.SQS
	if s == nil {
		return nullObject(of)
	}
	var before sqsModel
	(&expander{}).object(ctx, "", prior, &before)
	return flattenObject(ctx, diags, of, sqsModel{
		QueueARN:       types.StringValue(s.QueueARN),
		Body:           flattenOptional(s.Body),
		Attributes:     flattenStringMap(ctx, diags, s.Attributes, before.Attributes),
		MessageGroupID: flattenOptional(s.MessageGroupID),
		AssumeRole:     flattenAssumeRole(ctx, diags, of, s.AssumeRole, before.AssumeRole),
		Timeout:        flattenDuration(s.Timeout),
		TraceContext:   flattenOptionalBool(s.TraceContext, before.TraceContext),
	})
}
