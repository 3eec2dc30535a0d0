package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
)

// dataSource is a data source whose model is M, as Terraform's framework calls it.
type dataSource[M any] struct {
	name   string // its type follows from it
	schema func() schema.Schema
	// read returns what the API has for a configuration. What it returns with an error is not used.
	read func(context.Context, *connection, *diag.Diagnostics, M) M
	// validate checks the known values of a configuration; nil if the schema does.
	validate func(*diag.Diagnostics, M)
	conn     *connection
}

var (
	_ datasource.DataSourceWithConfigure      = (*dataSource[any])(nil)
	_ datasource.DataSourceWithValidateConfig = (*dataSource[any])(nil)
)

func (d *dataSource[M]) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + d.name
}

func (d *dataSource[M]) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = d.schema()
}

func (d *dataSource[M]) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	d.conn = configured(req.ProviderData)
}

func (d *dataSource[M]) ValidateConfig(
	ctx context.Context, req datasource.ValidateConfigRequest, resp *datasource.ValidateConfigResponse,
) {
	var config M
	if d.validate != nil && got(&resp.Diagnostics, read(ctx, req.Config, &config)) {
		d.validate(&resp.Diagnostics, config)
	}
}

func (d *dataSource[M]) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var config M
	if !got(&resp.Diagnostics, read(ctx, req.Config, &config)) || !d.conn.ready(&resp.Diagnostics) {
		return
	}
	setState(ctx, &resp.State, &resp.Diagnostics, written(d.read(ctx, d.conn, &resp.Diagnostics, config)))
}
