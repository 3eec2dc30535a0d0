package provider

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// importID returns the import id of a thing that belongs to an app.
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
