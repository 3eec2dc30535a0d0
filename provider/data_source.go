package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"

	"github.com/carillon-dev/carillon/provider/binding"
)

// dataSource is a data source, as Terraform's framework calls it.
type dataSource struct {
	name   string // its type follows from it
	schema func() schema.Schema
	// read returns what the API has for a configuration. What it returns with an error is not used.
	read func(context.Context, *connection, *diag.Diagnostics, binding.Values) binding.Values
	// validate checks the known values of a configuration; nil if the schema does.
	validate func(*diag.Diagnostics, binding.Values)
	conn     *connection
}

var (
	_ datasource.DataSourceWithConfigure      = (*dataSource)(nil)
	_ datasource.DataSourceWithValidateConfig = (*dataSource)(nil)
)

func (d *dataSource) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + d.name
}

func (d *dataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = d.schema()
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
