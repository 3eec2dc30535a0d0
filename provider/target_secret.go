package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// secretModel is a secret. Its value is write-only: Terraform keeps it in neither plan nor
// state, so only the configuration has it.
type secretModel struct {
	Reference    types.String `tfsdk:"reference"`
	Value        types.String `tfsdk:"value"`
	ValueVersion types.String `tfsdk:"value_version"`
}

func secretAttribute(description string) schema.Attribute {
	return schema.SingleNestedAttribute{
		Required:            true,
		MarkdownDescription: description + " Set `reference` or `value`.",
		Attributes:          secretAttributes(),
	}
}

func secretAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"reference": optionalString("Where each node finds the secret when it makes a call: `env:NAME` for an environment " +
			"variable whose name begins with `" + target.SecretEnvPrefix + "`, `file:PATH` for a file below the directory of " +
			"`carillon serve --secret-dir`, `awssm:NAME` for AWS Secrets Manager, `ssm:NAME` for AWS Parameter Store, or `vault:PATH#KEY` " +
			"for HashiCorp Vault. The last three take `#KEY` for a key of a secret that is JSON, and then `@VERSION`. " +
			"Default: `value` holds the secret."),
		"value": schema.StringAttribute{
			Optional: true, WriteOnly: true, Sensitive: true,
			MarkdownDescription: "The secret itself. Carillon stores it encrypted and never returns it. Plan and state do not " +
				"contain it, so Terraform cannot see a change: change `value_version` together with it. Needs Terraform 1.11. " +
				"Default: `reference` says where the secret is. If that is missing too, as in the configuration of an imported job, the " +
				"stored value stays.",
		},
		"value_version": optionalString("Any text, such as a number. Terraform sends `value` when this changes. It must change when " +
			"the scheme, host or port of the URL changes. Default: none, so `value` is sent once."),
	}
}

func expandSecret(ctx context.Context, e *expander, pointer string, object types.Object) target.Secret {
	var m secretModel
	var s target.Secret
	if !e.object(ctx, pointer, object, &m) {
		return s
	}
	expandOptional(e, pointer+"/reference", m.Reference, &s.Reference)
	if m.Reference.IsUnknown() || m.Value.IsUnknown() { // one of the two must be set, and either may be null
		e.unknown = append(e.unknown, pointer)
	}
	if !m.Value.IsNull() && !m.Value.IsUnknown() {
		s.Value = input.NewSensitive(m.Value.ValueString())
	}
	if e.versions == nil {
		e.versions = map[string]types.String{}
	}
	e.versions[pointer] = m.ValueVersion
	return s
}

// secretFlattener flattens the secrets of a target. The API does not know their versions, so it
// takes them from the plan or state that the result replaces.
type secretFlattener struct {
	diags    *diag.Diagnostics
	versions map[string]types.String // by pointer inside the target, as in expander
}

func (f secretFlattener) model(pointer string, s target.Secret) secretModel {
	return secretModel{Reference: flattenOptional(s.Reference), ValueVersion: f.versions[pointer]}
}

// object returns the secret that is attribute name of an object, which has the pointer parent.
func (f secretFlattener) object(
	ctx context.Context, of types.ObjectType, name, parent string, s target.Secret,
) types.Object {
	return flattenObject(ctx, f.diags, objectType(of, name), f.model(parent+"/"+name, s))
}

// optional is object for a secret that may be missing.
func (f secretFlattener) optional(
	ctx context.Context, of types.ObjectType, name, parent string, s *target.Secret,
) types.Object {
	if s == nil {
		return nullObject(objectType(of, name))
	}
	return f.object(ctx, of, name, parent, *s)
}
