package binding

import (
	"github.com/hashicorp/terraform-plugin-framework/attr"
	dataschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Secrets are the rows of every secret.
var Secrets = Of(Fresh[target.Secret],
	Text("reference", func(s *target.Secret) *string { return &s.Reference }, Optional, "Where each node finds the secret when it makes a "+
		"call: `env:NAME` for an environment variable whose name begins with `"+target.SecretEnvPrefix+"`, `file:PATH` for a file below the "+
		"directory of `carillon serve --secret-dir`, `awssm:NAME` for AWS Secrets Manager, `ssm:NAME` for AWS Parameter Store, or "+
		"`vault:PATH#KEY` for HashiCorp Vault. The last three take `#KEY` for a key of a secret that is JSON, and then `@VERSION`. "+
		"Default: `value` holds the secret.", Hides("")), // one of the two must be set, and either may be null
	newRow("value", Optional, "The secret itself. Carillon stores it encrypted and never returns it. Plan and state do not contain it, so "+
		"Terraform cannot see a change: change `value_version` together with it. Needs Terraform 1.11. Default: `reference` says where the "+
		"secret is. If that is missing too, as in the configuration of an imported job, the stored value stays.",
		secretForm{}, []Option{Hides("")}),
	newRow("value_version", Optional, "Any text, such as a number. Terraform sends `value` when this changes. It must change when the "+
		"scheme, "+
		"host or port of the URL changes. Default: none, so `value` is sent once.", versionForm{planForm{textForm{}}}, nil),
)

// secretForm is the form of the value of a secret. It is write-only: Terraform keeps it in neither plan nor state, so only the
// configuration has it.
type secretForm struct{}

func (secretForm) kind(*Row, bool) attr.Type { return types.StringType }

func (secretForm) resource(r *Row) schema.Attribute {
	return schema.StringAttribute{Optional: true, WriteOnly: true, Sensitive: true, MarkdownDescription: r.text}
}

func (secretForm) dataSource(*Row) dataschema.Attribute { return nil }

func (secretForm) expand(_ *Expander, _ *Row, _ string, v attr.Value, of any) {
	if text := textOf(v); !text.IsNull() && !text.IsUnknown() {
		of.(*target.Secret).Value = input.NewSensitive(text.ValueString())
	}
}

func (secretForm) flatten(*flattener, *Row, any, attr.Value) attr.Value { return types.StringNull() }

// versionForm is the form of the version of a secret's value. The API does not know it.
type versionForm struct{ planForm }

func (versionForm) expand(e *Expander, _ *Row, at string, v attr.Value, _ any) {
	if e.Versions == nil {
		e.Versions = map[string]types.String{}
	}
	e.Versions[below(at)] = textOf(v)
}
