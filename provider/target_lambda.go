package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

// lambdaTarget is the kind lambda.
type lambdaTarget struct{}

func (lambdaTarget) name() string { return string(dispatcher.TargetLambda) }

type lambdaModel struct {
	Function      types.String   `tfsdk:"function"`
	Invocation    types.String   `tfsdk:"invocation"`
	Region        types.String   `tfsdk:"region"`
	ClientContext jsonString     `tfsdk:"client_context"`
	AssumeRole    types.Object   `tfsdk:"assume_role"`
	Concurrency   types.Number   `tfsdk:"concurrency"`
	Timeout       durationString `tfsdk:"timeout"`
}

type assumeRoleModel struct {
	RoleARN     types.String `tfsdk:"role_arn"`
	SessionTags types.Map    `tfsdk:"session_tags"`
}

func (lambdaTarget) attribute() schema.SingleNestedAttribute {
	var defaults dispatcher.Lambda
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
		"assume_role": optionalObject("A role to invoke the function as. Default: the node's own.",
			map[string]schema.Attribute{
				"role_arn":     requiredString("ARN of the role."),
				"session_tags": optionalStringMap("Tags of the session, at most 48; none that begins with `carillon:` or `aws:`. Default: none."),
			}),
		"concurrency": numberWithDefault(0, "How many attempts a node makes at once, at most `10000`. With `0`, the node's limit for "+
			"any host applies."),
		"timeout": durationWithDefault(defaults.Timeout, "Time limit of one attempt, from `100ms` to `15m`. Set it longer than the "+
			"function's own timeout: the function keeps running when an attempt is abandoned."),
	})
}

func (lambdaTarget) expand(
	ctx context.Context, e *expander, pointer string, object types.Object, target *dispatcher.Target,
) {
	var m lambdaModel
	if !e.object(ctx, pointer, object, &m) {
		return
	}
	var l dispatcher.Lambda
	l.SetDefaults()
	l.Function = e.required(pointer+"/function", m.Function)
	expandOptional(e, pointer+"/invocation", m.Invocation, &l.Invocation)
	expandOptional(e, pointer+"/region", m.Region, &l.Region)
	if text := e.string(pointer+"/client_context", m.ClientContext); !m.ClientContext.IsNull() {
		l.ClientContext = []byte(text)
	}
	l.Concurrency = e.whole(pointer+"/concurrency", m.Concurrency, 0, dispatcher.CodeCountRange,
		"give how many attempts a node makes at once, or 0 for no limit of its own")
	l.Timeout = e.duration(pointer+"/timeout", m.Timeout, l.Timeout)
	var role assumeRoleModel
	if at := pointer + "/assume_role"; e.object(ctx, at, m.AssumeRole, &role) {
		l.AssumeRole = &dispatcher.AssumeRole{
			RoleARN:     e.required(at+"/role_arn", role.RoleARN),
			SessionTags: e.stringMap(at+"/session_tags", role.SessionTags),
		}
	}
	if m.Function.IsUnknown() || m.Region.IsUnknown() { // function, region and role must agree
		e.incomplete = append(e.incomplete, pointer+"/region", pointer+"/assume_role/role_arn")
	}
	if m.Invocation.IsUnknown() { // only one kind of invocation has a context
		e.incomplete = append(e.incomplete, pointer+"/client_context")
	}
	target.Lambda = &l
}

func (k lambdaTarget) flatten(
	ctx context.Context, diags *diag.Diagnostics, target dispatcher.Target, prior types.Object,
) types.Object {
	of := objectType(targetType(), k.name())
	l := target.Lambda
	if l == nil {
		return nullObject(of)
	}
	var before lambdaModel
	var roleBefore assumeRoleModel
	(&expander{}).object(ctx, "", prior, &before)
	(&expander{}).object(ctx, "", before.AssumeRole, &roleBefore)
	roleType := objectType(of, "assume_role")
	m := lambdaModel{
		Function:      types.StringValue(l.Function),
		Invocation:    types.StringValue(string(l.Invocation)),
		Region:        flattenOptional(l.Region),
		ClientContext: flattenJSON(l.ClientContext),
		AssumeRole:    nullObject(roleType),
		Concurrency:   flattenNumber(l.Concurrency),
		Timeout:       flattenDuration(l.Timeout),
	}
	if role := l.AssumeRole; role != nil {
		m.AssumeRole = flattenObject(ctx, diags, roleType, assumeRoleModel{
			RoleARN:     types.StringValue(role.RoleARN),
			SessionTags: flattenStringMap(ctx, diags, role.SessionTags, roleBefore.SessionTags),
		})
	}
	return flattenObject(ctx, diags, of, m)
}
