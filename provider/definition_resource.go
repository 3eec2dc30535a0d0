package provider

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/provider/binding"
)

// kind has the operations on one kind of definition. definition implements it for all kinds but
// jobs, which need more plan checks and come by the thousand.
type kind interface {
	about() heading
	// validate checks all known values of a configuration with the rules of the domain.
	validate(ctx context.Context, diags *diag.Diagnostics, config binding.Values)
	// planned returns the plan that Terraform shows. After an error it returns the plan of the change.
	planned(ctx context.Context, diags *diag.Diagnostics, change change) binding.Values
	// read returns a definition as the API has it. found is false if it was deleted outside of Terraform.
	read(ctx context.Context, diags *diag.Diagnostics, state binding.Values) (model binding.Values, found bool)
	// written creates or updates a definition as planned. It returns the API's result if there is one to store.
	written(ctx context.Context, diags *diag.Diagnostics, change change) (model binding.Values, done bool)
	deleted(ctx context.Context, diags *diag.Diagnostics, state binding.Values)
}

// heading has the descriptions of a resource.
type heading struct {
	kind        string // its name in messages, which determines the type of the resource
	rows        *binding.Rows
	importState func(context.Context, resource.ImportStateRequest, *resource.ImportStateResponse)
	text        string
}

func (h heading) about() heading { return h }

func (h heading) schema() schema.Schema {
	return schema.Schema{MarkdownDescription: h.text, Attributes: h.rows.Attributes()}
}

// change is a planned or applied change of a definition.
type change struct {
	config, plan, state binding.Values
	isNew               bool // the state has no such resource
}

// definitionResource implements the resource of a kind for Terraform's framework. Its methods
// convert the framework's values, and leave the rest to the kind.
type definitionResource struct {
	conn *connection
	of   func(*connection) kind
}

var (
	_ resource.ResourceWithConfigure      = (*definitionResource)(nil)
	_ resource.ResourceWithImportState    = (*definitionResource)(nil)
	_ resource.ResourceWithModifyPlan     = (*definitionResource)(nil)
	_ resource.ResourceWithValidateConfig = (*definitionResource)(nil)
)

// resourceOf returns a function that creates the resource of a kind, as the framework needs it.
func resourceOf(of func(*connection) kind) func() resource.Resource {
	return func() resource.Resource { return &definitionResource{of: of} }
}

func (r *definitionResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = binding.ResourceType(r.of(nil).about().kind)
}

func (r *definitionResource) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = r.of(nil).about().schema()
}

func (r *definitionResource) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.conn = configured(req.ProviderData)
}

func (r *definitionResource) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	r.of(nil).about().importState(ctx, req, resp)
}

// ValidateConfig adds no warnings, because Terraform validates each resource several times, and
// before it knows the values of for_each.
func (r *definitionResource) ValidateConfig(
	ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse,
) {
	var config binding.Values
	if got(&resp.Diagnostics, read(ctx, req.Config, &config)) {
		r.of(r.conn).validate(ctx, &resp.Diagnostics, config)
	}
}

func (r *definitionResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		return // a destroy
	}
	change := change{isNew: req.State.Raw.IsNull()}
	ok := got(&resp.Diagnostics, read(ctx, req.Config, &change.config), read(ctx, req.Plan, &change.plan))
	if !change.isNew {
		ok = got(&resp.Diagnostics, read(ctx, req.State, &change.state)) && ok
	}
	if ok {
		planned := r.of(r.conn).planned(ctx, &resp.Diagnostics, change)
		resp.Diagnostics.Append(resp.Plan.Set(ctx, objectOf(planned))...)
	}
}

func (r *definitionResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	change := change{isNew: true}
	// A plan contains no write-only values.
	if !got(&resp.Diagnostics, read(ctx, req.Plan, &change.plan), read(ctx, req.Config, &change.config)) {
		return
	}
	if model, done := r.of(r.conn).written(ctx, &resp.Diagnostics, change); done {
		resp.Diagnostics.Append(resp.State.Set(ctx, objectOf(model))...)
	}
}

func (r *definitionResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state binding.Values
	if !got(&resp.Diagnostics, read(ctx, req.State, &state)) {
		return
	}
	model, found := r.of(r.conn).read(ctx, &resp.Diagnostics, state)
	if !found && !resp.Diagnostics.HasError() {
		resp.State.RemoveResource(ctx)
		return
	}
	setState(ctx, &resp.State, &resp.Diagnostics, model)
}

func (r *definitionResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var change change
	if !got(&resp.Diagnostics, read(ctx, req.Plan, &change.plan), read(ctx, req.Config, &change.config), read(ctx, req.State, &change.state)) {
		return
	}
	if model, done := r.of(r.conn).written(ctx, &resp.Diagnostics, change); done {
		resp.Diagnostics.Append(resp.State.Set(ctx, objectOf(model))...)
	}
}

func (r *definitionResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var state binding.Values
	if got(&resp.Diagnostics, read(ctx, req.State, &state)) {
		r.of(r.conn).deleted(ctx, &resp.Diagnostics, state)
	}
}

// got adds the problems of reading values, and reports whether the values can be used.
func got(diags *diag.Diagnostics, found ...diag.Diagnostics) bool {
	for _, some := range found {
		diags.Append(some...)
	}
	return !diags.HasError()
}

// read reads the attributes from a value of the framework.
func read(ctx context.Context, from interface {
	Get(ctx context.Context, target any) diag.Diagnostics
}, v *binding.Values) diag.Diagnostics {
	var object types.Object
	diags := from.Get(ctx, &object)
	*v = object.Attributes()
	return diags
}

// objectOf returns attributes as an object of the framework.
func objectOf(v binding.Values) types.Object {
	kinds := map[string]attr.Type{}
	for name, value := range v {
		kinds[name] = value.Type(context.Background()) //nolint:forbidigo // types do not use it
	}
	return types.ObjectValueMust(kinds, v)
}

// importID returns the import id of an object that belongs to an app.
func importID(app, name types.String) string { return app.ValueString() + "/" + name.ValueString() }

// importNested returns a function that reads an import id of the form app/name into both attributes.
func importNested(kind, example string) func(context.Context, resource.ImportStateRequest, *resource.ImportStateResponse) {
	return func(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
		app, name, _ := strings.Cut(req.ID, "/")
		var problems input.Problems
		input.CheckName(&problems, "", app)
		input.CheckName(&problems, "", name)
		if len(problems) > 0 {
			resp.Diagnostics.AddError("Invalid import id (import_id)",
				fmt.Sprintf("The id %s does not have the form app/%s, such as %s. Each part is %s.",
					input.Echo(req.ID), kind, example, strings.ReplaceAll(nameRule, "`", "")))
			return
		}
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("app"), app)...)
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), name)...)
	}
}

// plannedID returns the import id as soon as app and name are known, so that other resources can use it before apply.
func plannedID(app, name types.String) types.String {
	if app.IsUnknown() || name.IsUnknown() {
		return types.StringUnknown()
	}
	return types.StringValue(importID(app, name))
}

// planImportID plans the id of a resource whose ModifyPlan does not.
type planImportID struct{}

func (planImportID) Description(context.Context) string { return "The id consists of app and name." }

func (m planImportID) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

func (planImportID) PlanModifyString(
	ctx context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse,
) {
	var app, name types.String
	resp.Diagnostics.Append(req.Plan.GetAttribute(ctx, path.Root("app"), &app)...)
	resp.Diagnostics.Append(req.Plan.GetAttribute(ctx, path.Root("name"), &name)...)
	resp.PlanValue = plannedID(app, name)
}
