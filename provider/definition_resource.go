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
	read(ctx context.Context, diags *diag.Diagnostics, state binding.Values, kept *private) (model binding.Values, found bool)
	// written creates or updates a definition as planned. It returns the API's result if there is one to store.
	written(ctx context.Context, diags *diag.Diagnostics, change change) (model binding.Values, done bool)
	deleted(ctx context.Context, diags *diag.Diagnostics, state binding.Values, kept private)
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
	isNew               bool     // the state has no such resource
	kept                *private // nil during a plan
}

// kinds are all kinds of resources.
var kinds = []func(*connection) kind{
	apps, calendars, groups, alerts, func(c *connection) kind { return jobs(c) },
}

// definitionResource is a kind for the framework, which only needs its schema and the form of its import ids: server
// serves all other requests.
type definitionResource struct {
	resource.Resource // nil
	heading
}

var _ resource.ResourceWithImportState = definitionResource{}

func (r definitionResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = binding.ResourceType(r.kind)
}

func (r definitionResource) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = r.schema()
}

func (r definitionResource) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	r.importState(ctx, req, resp)
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
					input.Echo(req.ID), kind, example, strings.ReplaceAll(binding.NameRule, "`", "")))
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
