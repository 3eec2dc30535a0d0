package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

type assumeRoleModel struct {
	RoleARN     types.String `tfsdk:"role_arn"`
	SessionTags types.Map    `tfsdk:"session_tags"`
}

// assumeRoleAttribute is the role of a target of AWS. verb says what a node does as the role.
func assumeRoleAttribute(verb string) schema.SingleNestedAttribute {
	return optionalObject("A role to "+verb+" as. Default: the node's own.", map[string]schema.Attribute{
		"role_arn":     requiredString("ARN of the role."),
		"session_tags": optionalStringMap("Tags of the session, at most 48; none that begins with `carillon:` or `aws:`. Default: none."),
	})
}

func expandAssumeRole(ctx context.Context, e *expander, pointer string, object types.Object) *target.AssumeRole {
	var role assumeRoleModel
	if !e.object(ctx, pointer, object, &role) {
		return nil
	}
	return &target.AssumeRole{
		RoleARN:     e.required(pointer+"/role_arn", role.RoleARN),
		SessionTags: e.stringMap(pointer+"/session_tags", role.SessionTags),
	}
}

// flattenAssumeRole returns the role of a target whose type is of.
func flattenAssumeRole(
	ctx context.Context, diags *diag.Diagnostics, of types.ObjectType, role *target.AssumeRole, prior types.Object,
) types.Object {
	roleType := objectType(of, "assume_role")
	if role == nil {
		return nullObject(roleType)
	}
	var before assumeRoleModel
	(&expander{}).object(ctx, "", prior, &before)
	return flattenObject(ctx, diags, roleType, assumeRoleModel{
		RoleARN:     types.StringValue(role.RoleARN),
		SessionTags: flattenStringMap(ctx, diags, role.SessionTags, before.SessionTags),
	})
}
