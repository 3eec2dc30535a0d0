package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

// definition is what the resources have in common: each is a definition with a revision that
// the API creates, reads, replaces and deletes. M is its model and T what the API answers.
type definition[M, T any] struct {
	kind string // app, calendar or job
	conn *connection
	api  calls[M, T]
}

// calls are the calls of the API about one kind of definition, and its models.
type calls[M, T any] struct {
	put    func(ctx context.Context, conn *connection, w write[M], cond client.Condition) (T, error)
	read   func(ctx context.Context, conn *connection, state M) (T, error)
	remove func(ctx context.Context, conn *connection, state M, cond client.Condition) error
	// model returns the model of what the API answered; prior is what it takes the place of.
	model func(ctx context.Context, response T, prior M) (M, diag.Diagnostics)
	// id is what the definition is imported by.
	id       func(M) string
	revision func(M) types.Int64
	current  func(T) int64
	warnings func(T) []dispatcher.Problem
	// gone warns of a definition that was not deleted by Terraform; nil: there is nothing to say.
	gone func(*diag.Diagnostics, M)
}

// write is what is to be written. Write-only attributes are in the configuration alone.
type write[M any] struct {
	plan, config M
	state        *M // that it replaces; nil for a new definition
}

func (d *definition[M, T]) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + d.kind
}

func (d *definition[M, T]) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	d.conn = configured(req.ProviderData)
}

func (d *definition[M, T]) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var plan, config M
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() || !d.conn.ready(&resp.Diagnostics) {
		return
	}
	response, err := d.api.put(ctx, d.conn, write[M]{plan: plan, config: config}, client.Condition{Absent: true})
	switch id := d.api.id(plan); {
	case errors.Is(err, dispatcher.ErrPrecondition):
		reportExisting(&resp.Diagnostics, d.kind, id)
	case absent(err):
		app, _, _ := strings.Cut(id, "/")
		resp.Diagnostics.AddAttributeError(path.Root("app"), "The app does not exist (not_found)",
			fmt.Sprintf("Could not create %s %q: there is no app %q. Declare it as a carillon_app and refer to its name, "+
				"so that Terraform creates it first.", d.kind, id, app))
	case err != nil:
		d.conn.report(&resp.Diagnostics, fmt.Sprintf("create %s %q", d.kind, id), err)
	default:
		d.store(ctx, &resp.State, &resp.Diagnostics, response, plan)
		reportWarnings(&resp.Diagnostics, d.api.warnings(response))
	}
}

func (d *definition[M, T]) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state M
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !d.conn.ready(&resp.Diagnostics) {
		return
	}
	response, err := d.api.read(ctx, d.conn, state)
	switch {
	case absent(err):
		if d.api.gone != nil {
			d.api.gone(&resp.Diagnostics, state)
		}
		resp.State.RemoveResource(ctx)
	case err != nil:
		d.conn.report(&resp.Diagnostics, fmt.Sprintf("read %s %q", d.kind, d.api.id(state)), err)
	default:
		d.store(ctx, &resp.State, &resp.Diagnostics, response, state)
	}
}

func (d *definition[M, T]) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan, config, state M
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !d.conn.ready(&resp.Diagnostics) {
		return
	}
	response, err := d.api.put(ctx, d.conn, write[M]{plan, config, &state}, client.Condition{Revision: d.api.revision(state).ValueInt64()})
	switch {
	case errors.Is(err, dispatcher.ErrPrecondition) || absent(err):
		d.stale(ctx, &resp.Diagnostics, state)
	case err != nil:
		d.conn.report(&resp.Diagnostics, fmt.Sprintf("update %s %q", d.kind, d.api.id(plan)), err)
	default:
		d.store(ctx, &resp.State, &resp.Diagnostics, response, plan)
		reportWarnings(&resp.Diagnostics, d.api.warnings(response))
	}
}

func (d *definition[M, T]) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var state M
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !d.conn.ready(&resp.Diagnostics) {
		return
	}
	err := d.api.remove(ctx, d.conn, state, client.Condition{Revision: d.api.revision(state).ValueInt64()})
	switch {
	case err == nil || absent(err):
	case errors.Is(err, dispatcher.ErrPrecondition):
		d.stale(ctx, &resp.Diagnostics, state)
	default:
		d.conn.report(&resp.Diagnostics, fmt.Sprintf("delete %s %q", d.kind, d.api.id(state)), err)
	}
}

// store sets the state to what the API answered.
func (d *definition[M, T]) store(ctx context.Context, state *tfsdk.State, diags *diag.Diagnostics, response T, prior M) {
	m, found := d.api.model(ctx, response, prior)
	diags.Append(found...)
	if !diags.HasError() {
		diags.Append(state.Set(ctx, m)...)
	}
}

func (d *definition[M, T]) stale(ctx context.Context, diags *diag.Diagnostics, state M) {
	d.conn.reportStale(diags, d.kind, d.api.id(state), d.api.revision(state).ValueInt64(), func() (int64, error) {
		response, err := d.api.read(ctx, d.conn, state)
		return d.api.current(response), err
	})
}

// importNested reads an import id of the form app/name into both attributes.
func importNested(ctx context.Context, kind, example string, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	app, name, _ := strings.Cut(req.ID, "/")
	var problems dispatcher.Problems
	dispatcher.CheckName(&problems, "", app)
	dispatcher.CheckName(&problems, "", name)
	if len(problems) > 0 {
		resp.Diagnostics.AddError("Invalid import id (import_id)",
			fmt.Sprintf("The id %s does not have the form app/%s, such as %s. Each part is %s.",
				dispatcher.Echo(req.ID), kind, example, strings.ReplaceAll(nameRule, "`", "")))
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("app"), app)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), name)...)
}

// importID is what a definition of an app is imported by.
func importID(app, name types.String) string { return app.ValueString() + "/" + name.ValueString() }

// idAttribute is the attribute that states importID.
func idAttribute(kind string) schema.StringAttribute {
	return schema.StringAttribute{
		Computed:            true,
		MarkdownDescription: "The import id, `app/" + kind + "`.",
		PlanModifiers:       []planmodifier.String{planImportID{}},
	}
}

// planImportID states the import id at plan, if the names in it are known.
type planImportID struct{}

func (planImportID) Description(context.Context) string { return "It is made of app and name." }

func (m planImportID) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

func (planImportID) PlanModifyString(ctx context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	var app, name types.String
	resp.Diagnostics.Append(req.Plan.GetAttribute(ctx, path.Root("app"), &app)...)
	resp.Diagnostics.Append(req.Plan.GetAttribute(ctx, path.Root("name"), &name)...)
	if resp.PlanValue = types.StringUnknown(); !app.IsUnknown() && !name.IsUnknown() {
		resp.PlanValue = types.StringValue(importID(app, name))
	}
}

// noWarnings is for definitions that the API never warns about.
func noWarnings[T any](T) []dispatcher.Problem { return nil }
