package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// lambdaTarget is the kind lambda.
type lambdaTarget struct{}

func (lambdaTarget) name() string { return string(target.KindLambda) }

type lambdaModel struct {
	Function      types.String   `tfsdk:"function"`
	Invocation    types.String   `tfsdk:"invocation"`
	Region        types.String   `tfsdk:"region"`
	ClientContext jsonString     `tfsdk:"client_context"`
	AssumeRole    types.Object   `tfsdk:"assume_role"`
	Concurrency   types.Number   `tfsdk:"concurrency"`
	Timeout       durationString `tfsdk:"timeout"`
	Callback      types.Object   `tfsdk:"callback"`
	TraceContext  types.Bool     `tfsdk:"trace_context"`
}

func (lambdaTarget) attribute() schema.SingleNestedAttribute {
	var defaults target.Lambda
	defaults.SetDefaults()
	return optionalObject("An AWS Lambda function, invoked once for each attempt with the credentials of the node. Default: the "+
		"target is of another kind.", map[string]schema.Attribute{
		"function": requiredString("Name (`my-function`), partial ARN (`123456789012:function:my-function`) or ARN, each with or " +
			"without `:QUALIFIER`, a version or alias."),
		"invocation": stringWithDefault(defaults.Invocation, "`RequestResponse` waits for the result of the function. `Event` "+
			"succeeds as soon as Lambda accepts the invocation, and leaves it to Lambda's own queue and retries."),
		"region": optionalString("Region of the function. Default: that of its ARN, or else that of the node."),
		"client_context": optionalEquivalent[documents]("JSON object that the function finds in its context, at most 3583 bytes " +
			"in base64; only with `RequestResponse`. Default: none."),
		"assume_role": assumeRoleAttribute("invoke the function"),
		"concurrency": numberWithDefault(0, "How many attempts a node makes at once, at most `10000`. With `0`, the node's limit for "+
			"any host applies."),
		"timeout": durationWithDefault(defaults.Timeout, "Time limit of one attempt, from `100ms` to `15m`. Set it longer than the "+
			"function's own timeout: the function keeps running when an attempt is abandoned."),
		"callback": callbackAttribute("Lets a function that is invoked with `Event` finish the attempt: the run waits for its callback. " +
			"The nodes need `--callback-url`. Default: the attempt succeeds as soon as Lambda accepts the event."),
		"trace_context": traceContextAttribute("as `carillon.traceparent` of its event"),
	})
}

func (lambdaTarget) expand(
	ctx context.Context, e *expander, pointer string, object types.Object, to *target.Target,
) {
	var m lambdaModel
	if !e.object(ctx, pointer, object, &m) {
		return
	}
	var l target.Lambda
	l.SetDefaults()
	l.Function = e.required(pointer+"/function", m.Function)
	expandOptional(e, pointer+"/invocation", m.Invocation, &l.Invocation)
	expandOptional(e, pointer+"/region", m.Region, &l.Region)
	var clientContext string
	expandOptional(e, pointer+"/client_context", m.ClientContext.StringValue, &clientContext)
	l.ClientContext = []byte(clientContext)
	l.Concurrency = e.whole(pointer+"/concurrency", m.Concurrency, 0, input.CodeCountRange,
		"give how many attempts a node makes at once, or 0 for no limit of its own")
	l.Timeout = e.duration(pointer+"/timeout", m.Timeout, l.Timeout)
	l.AssumeRole = expandAssumeRole(ctx, e, pointer+"/assume_role", m.AssumeRole)
	if m.Function.IsUnknown() || m.Region.IsUnknown() { // function, region and role must agree
		e.incomplete = append(e.incomplete, pointer+"/region", pointer+"/assume_role/role_arn")
	}
	l.Callback = expandCallback(ctx, e, pointer+"/callback", m.Callback)
	if m.Invocation.IsUnknown() { // only one kind of invocation has a context, and only the other a callback
		e.incomplete = append(e.incomplete, pointer+"/client_context", pointer+"/callback")
	}
	l.TraceContext = e.bool(pointer+"/trace_context", m.TraceContext, false)
	to.Lambda = &l
}

func (k lambdaTarget) flatten(
	ctx context.Context, diags *diag.Diagnostics, target target.Target, prior types.Object,
) types.Object {
	of := objectType(targetType(), k.name())
	l := target.Lambda
	if l == nil {
		return nullObject(of)
	}
	var before lambdaModel
	(&expander{}).object(ctx, "", prior, &before)
	return flattenObject(ctx, diags, of, lambdaModel{
		Function:      types.StringValue(l.Function),
		Invocation:    types.StringValue(string(l.Invocation)),
		Region:        flattenOptional(l.Region),
		ClientContext: flattenJSON(l.ClientContext),
		AssumeRole:    flattenAssumeRole(ctx, diags, of, l.AssumeRole, before.AssumeRole),
		Concurrency:   flattenNumber(l.Concurrency),
		Timeout:       flattenDuration(l.Timeout),
		Callback:      flattenCallback(ctx, diags, l.Callback),
		TraceContext:  flattenOptionalBool(l.TraceContext, before.TraceContext),
	})
}
