package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

// secretModel is a secret. Its value is write-only: it is in the configuration, and never in
// plan or state.
type secretModel struct {
	Reference    types.String `tfsdk:"reference"`
	Value        types.String `tfsdk:"value"`
	ValueVersion types.String `tfsdk:"value_version"`
}

func secretAttribute(description string) schema.Attribute {
	return schema.SingleNestedAttribute{
		Required:            true,
		MarkdownDescription: description + " Give `reference` or `value`.",
		Attributes:          secretAttributes(),
	}
}

// secretAttributes are those of a secret.
func secretAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"reference": schema.StringAttribute{
			Optional: true,
			MarkdownDescription: "Where each node finds it when it makes a call: `env:NAME` for a variable of its environment whose name begins " +
				"with `" + dispatcher.SecretEnvPrefix + "`, or `file:PATH` for a file below the directory of `carillon serve --secret-dir`. Default: `value` holds it.",
		},
		"value": schema.StringAttribute{
			Optional: true, WriteOnly: true, Sensitive: true,
			MarkdownDescription: "The secret itself. It is stored encrypted and never comes out again, and is in neither plan nor state, so " +
				"Terraform cannot see that it changed: change `value_version` with it. Needs Terraform 1.11. Default: `reference` says where it is.",
		},
		"value_version": schema.StringAttribute{
			Optional: true,
			MarkdownDescription: "Any text, such as a number: `value` is sent when this is another than before. It has to be another when the scheme, " +
				"host or port of the URL changes. Default: none, so that `value` is sent once.",
		},
	}
}

func readSecret(ctx context.Context, read *reader, pointer string, object types.Object) dispatcher.Secret {
	var m secretModel
	var s dispatcher.Secret
	if !read.object(ctx, pointer, object, &m) {
		return s
	}
	readWord(read, pointer+"/reference", m.Reference, &s.Reference)
	if m.Reference.IsUnknown() || m.Value.IsUnknown() {
		read.unknown(pointer, types.StringUnknown()) // whether one of the two is given
	}
	if !m.Value.IsNull() && !m.Value.IsUnknown() {
		s.Value = dispatcher.NewSensitive(m.Value.ValueString())
	}
	if read.versions == nil {
		read.versions = map[string]types.String{}
	}
	read.versions[pointer] = m.ValueVersion
	return s
}

// newSecret makes the model of a secret that the API answered.
func newSecret(s dispatcher.Secret, version types.String) secretModel {
	return secretModel{Reference: word(s.Reference), ValueVersion: version}
}
