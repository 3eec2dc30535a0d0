package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/provider/binding"
)

// dataSource is a data source, as Terraform's framework calls it.
type dataSource struct {
	name       string // its type follows from it
	text       string
	attributes func() map[string]schema.Attribute
	read       reading
	// validate checks the known values of a configuration; nil if the schema does.
	validate func(*diag.Diagnostics, binding.Values)
	conn     *connection
}

// reading returns what the API has for the configuration of a data source. What it returns with an error is not used.
type reading func(context.Context, *connection, *diag.Diagnostics, binding.Values) binding.Values

var (
	_ datasource.DataSourceWithConfigure      = (*dataSource)(nil)
	_ datasource.DataSourceWithValidateConfig = (*dataSource)(nil)
)

func (d *dataSource) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + d.name
}

func (d *dataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{MarkdownDescription: d.text, Attributes: d.attributes()}
}

func (d *dataSource) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	d.conn = configured(req.ProviderData)
}

func (d *dataSource) ValidateConfig(
	ctx context.Context, req datasource.ValidateConfigRequest, resp *datasource.ValidateConfigResponse,
) {
	var config binding.Values
	if d.validate != nil && got(&resp.Diagnostics, read(ctx, req.Config, &config)) {
		d.validate(&resp.Diagnostics, config)
	}
}

func (d *dataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var config binding.Values
	if !got(&resp.Diagnostics, read(ctx, req.Config, &config)) || !d.conn.ready(&resp.Diagnostics) {
		return
	}
	setState(ctx, &resp.State, &resp.Diagnostics, d.read(ctx, d.conn, &resp.Diagnostics, config))
}

// setState stores attributes, unless flattening them has failed.
func setState(ctx context.Context, state *tfsdk.State, diags *diag.Diagnostics, v binding.Values) {
	if !diags.HasError() {
		diags.Append(state.Set(ctx, objectOf(v))...)
	}
}

// readNamed returns the reading of the definition of an app that a configuration names. more may add to its attributes.
func readNamed[T any](
	kind string, rows *binding.Rows, get func(*client.Client, context.Context, string, string) (T, error),
	more func(context.Context, *connection, *diag.Diagnostics, T, binding.Values),
) reading {
	return func(ctx context.Context, c *connection, diags *diag.Diagnostics, config binding.Values) binding.Values {
		app, name := config.Text("app"), config.Text("name")
		if !validNames(diags, config, "app", "name") {
			return config
		}
		one, err := get(c.Client, ctx, app.ValueString(), name.ValueString())
		if err != nil {
			c.report(diags, fmt.Sprintf("read %s %q", kind, importID(app, name)), err)
			return config
		}
		shown := rows.Shown(diags, &one)
		if more != nil {
			more(ctx, c, diags, one, shown)
		}
		return shown
	}
}

// validNames reports whether attributes can be names. If not, it adds errors that say why.
func validNames(diags *diag.Diagnostics, config binding.Values, attributes ...string) bool {
	var problems input.Problems
	for _, attribute := range attributes {
		input.CheckName(&problems, "/"+attribute, config.Text(attribute).ValueString())
	}
	reportProblems(diags, problems)
	return len(problems) == 0
}
