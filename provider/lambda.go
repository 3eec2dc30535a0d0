package provider

import (
	"context"
	"math/big"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/numberdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

// lambdaModel is a dispatcher.Lambda.
type lambdaModel struct {
	Function      types.String    `tfsdk:"function"`
	Invocation    types.String    `tfsdk:"invocation"`
	Region        types.String    `tfsdk:"region"`
	ClientContext text[documents] `tfsdk:"client_context"`
	AssumeRole    types.Object    `tfsdk:"assume_role"`
	Concurrency   types.Number    `tfsdk:"concurrency"`
	Timeout       text[durations] `tfsdk:"timeout"`
}

type assumeRoleModel struct {
	RoleARN     types.String `tfsdk:"role_arn"`
	ExternalID  types.String `tfsdk:"external_id"`
	SessionTags types.Map    `tfsdk:"session_tags"`
}

func lambdaAttribute() schema.SingleNestedAttribute {
	var defaults dispatcher.Lambda
	defaults.SetDefaults()
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "An AWS Lambda function to invoke, once for each attempt, with the credentials of the node. Default: none; " +
			"give this or `webhook`. " + dropsUnknown,
		Attributes: map[string]schema.Attribute{
			"function": schema.StringAttribute{
				Required: true,
				MarkdownDescription: "Name (`my-function`), partial ARN (`123456789012:function:my-function`) or ARN, each with or without " +
					"`:QUALIFIER`, a version or alias.",
			},
			"invocation": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(string(defaults.Invocation)),
				MarkdownDescription: "`RequestResponse` waits for the result of the function; `Event` succeeds when Lambda has accepted it, and " +
					"leaves it to Lambda's own queue and retries. Default: `RequestResponse`.",
			},
			"region": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "Region of the function. Default: that of its ARN, else that of the node.",
			},
			"client_context": schema.StringAttribute{
				Optional: true, CustomType: textType[documents]{},
				MarkdownDescription: "JSON object that the function finds in its context, at most 3583 bytes in base64; only with " +
					"`RequestResponse`. Default: none.",
				PlanModifiers: []planmodifier.String{keepIfSame[documents]{}},
			},
			"assume_role": schema.SingleNestedAttribute{
				Optional:            true,
				MarkdownDescription: "A role to invoke the function as. Default: the node's own. " + dropsUnknown,
				Attributes: map[string]schema.Attribute{
					"role_arn":    schema.StringAttribute{Required: true, MarkdownDescription: "ARN of the role."},
					"external_id": schema.StringAttribute{Optional: true, MarkdownDescription: "External id that the role asks for. Default: none."},
					"session_tags": schema.MapAttribute{
						Optional: true, ElementType: types.StringType,
						MarkdownDescription: "Tags of the session, at most 50. Default: none.",
					},
				},
			},
			"concurrency": schema.NumberAttribute{
				Optional: true, Computed: true, Default: numberdefault.StaticBigFloat(big.NewFloat(0)),
				MarkdownDescription: "How many attempts a node makes at once at most, `0` to `10000`; with `0` as many as to any host. Default: `0`.",
			},
			"timeout": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(formatDuration(defaults.Timeout)),
				CustomType: textType[durations]{},
				MarkdownDescription: "How long one attempt may take, from `100ms` to `15m`. It should be longer than the function's own timeout: " +
					"an attempt that is given up may go on there. Default: `" + formatDuration(defaults.Timeout) + "`.",
				PlanModifiers: []planmodifier.String{keepIfSame[durations]{}},
			},
		},
	}
}

// readLambda returns nil where there is none to read.
func readLambda(ctx context.Context, read *reader, pointer string, object types.Object) *dispatcher.Lambda {
	var m lambdaModel
	if !read.object(ctx, pointer, object, &m) {
		return nil
	}
	var l dispatcher.Lambda
	l.SetDefaults()
	l.Function = read.required(pointer+"/function", m.Function)
	if !m.Invocation.IsNull() {
		readWord(read, pointer+"/invocation", m.Invocation, &l.Invocation)
	}
	readWord(read, pointer+"/region", m.Region, &l.Region)
	if l.ClientContext = []byte(read.text(pointer+"/client_context", m.ClientContext)); m.ClientContext.IsNull() {
		l.ClientContext = nil
	}
	l.Concurrency = read.whole(pointer+"/concurrency", m.Concurrency, dispatcher.CodeCountRange, "give how many attempts a node makes at once, or 0 for no limit of its own")
	l.Timeout = read.duration(pointer+"/timeout", m.Timeout, l.Timeout)
	var role assumeRoleModel
	if read.object(ctx, pointer+"/assume_role", m.AssumeRole, &role) {
		l.AssumeRole = &dispatcher.AssumeRole{RoleARN: read.required(pointer+"/assume_role/role_arn", role.RoleARN)}
		readWord(read, pointer+"/assume_role/external_id", role.ExternalID, &l.AssumeRole.ExternalID)
		l.AssumeRole.SessionTags = readStrings(read, pointer+"/assume_role/session_tags", role.SessionTags)
	}
	if m.Function.IsUnknown() || m.Region.IsUnknown() { // the three have to agree
		read.partial = append(read.partial, pointer+"/region", pointer+"/assume_role/role_arn")
	}
	if m.Invocation.IsUnknown() {
		read.partial = append(read.partial, pointer+"/client_context")
	}
	return &l
}

func newLambda(ctx context.Context, diags *diag.Diagnostics, l *dispatcher.Lambda, prior types.Object) types.Object {
	of := lambdaAttribute().GetType().(types.ObjectType)
	if l == nil {
		return types.ObjectNull(of.AttrTypes)
	}
	var before lambdaModel
	var roleBefore assumeRoleModel
	(&reader{}).object(ctx, "", prior, &before)
	(&reader{}).object(ctx, "", before.AssumeRole, &roleBefore)
	roleType := of.AttrTypes["assume_role"].(types.ObjectType)
	m := lambdaModel{
		Function: types.StringValue(l.Function), Invocation: types.StringValue(string(l.Invocation)), Region: word(l.Region),
		ClientContext: text[documents]{types.StringNull()}, AssumeRole: types.ObjectNull(roleType.AttrTypes),
		Concurrency: types.NumberValue(big.NewFloat(float64(l.Concurrency))), Timeout: newText[durations](formatDuration(l.Timeout)),
	}
	if len(l.ClientContext) > 0 {
		m.ClientContext = newText[documents](string(l.ClientContext))
	}
	if role := l.AssumeRole; role != nil {
		m.AssumeRole = objectFrom(ctx, diags, roleType, assumeRoleModel{
			RoleARN: types.StringValue(role.RoleARN), ExternalID: word(role.ExternalID),
			SessionTags: newStrings(ctx, diags, role.SessionTags, roleBefore.SessionTags),
		})
	}
	return objectFrom(ctx, diags, of, m)
}
