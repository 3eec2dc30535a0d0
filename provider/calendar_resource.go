package provider

import (
	"cmp"
	"context"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

var (
	_ resource.ResourceWithImportState    = (*calendarResource)(nil)
	_ resource.ResourceWithValidateConfig = (*calendarResource)(nil)
)

// calendarResource is carillon_calendar. Its rules are in calendar_rules.go.
type calendarResource struct {
	definitionResource[calendarModel, dispatcher.Calendar]
}

func newCalendarResource() resource.Resource {
	return &calendarResource{definitionResource[calendarModel, dispatcher.Calendar]{
		kind:    "calendar",
		id:      func(m calendarModel) string { return importID(m.App, m.Name) },
		planned: func(m calendarModel) int64 { return m.Revision.ValueInt64() },
		current: func(calendar dispatcher.Calendar) int64 { return calendar.Revision },
		get: func(ctx context.Context, c *client.Client, m calendarModel) (dispatcher.Calendar, error) {
			return c.Calendar(ctx, m.App.ValueString(), m.Name.ValueString())
		},
		put: (*client.Client).PutCalendar,
		remove: func(ctx context.Context, c *client.Client, m calendarModel, cond client.Condition) error {
			return c.DeleteCalendar(ctx, m.App.ValueString(), m.Name.ValueString(), cond)
		},
		expand: func(ctx context.Context, plan, _ calendarModel, _ *calendarModel) (dispatcher.Calendar, dispatcher.Problems) {
			var e expander
			calendar := expandCalendar(ctx, &e, plan)
			return calendar, e.problemsWith(calendar.Validate())
		},
		flatten: flattenCalendar,
	}}
}

// calendarModel is a carillon_calendar in configuration, plan and state. Its lists are
// Terraform values and not slices, because any of them may be unknown in a plan.
type calendarModel struct {
	ID          types.String `tfsdk:"id"`
	App         types.String `tfsdk:"app"`
	Name        types.String `tfsdk:"name"`
	Description types.String `tfsdk:"description"`
	Timezone    types.String `tfsdk:"timezone"`
	Rules       types.List   `tfsdk:"rules"`
	Bases       types.List   `tfsdk:"bases"`
	Revision    types.Int64  `tfsdk:"revision"`
}

// utc is the zone of a calendar that names none.
const utc = "UTC"

func (r *calendarResource) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A calendar: a named set of exclusions, such as holidays, freezes or opening hours, that triggers of " +
			"its app refer to. It excludes an instant if one of its rules or bases does. Import it by `app/calendar`.\n\n" +
			"When a calendar changes, the triggers that use it get new fire times at once. The revisions of their jobs stay.\n\n" +
			"You cannot destroy a calendar that a trigger or another calendar names. Terraform destroys a calendar before it updates " +
			"the jobs that used it, so this fails. Give calendars `lifecycle { create_before_destroy = true }`, which reverses the order. " +
			"Without it, apply in two steps: first remove the calendar from the jobs, then remove its block.",
		Attributes: map[string]schema.Attribute{
			"id":          idAttribute("calendar"),
			"app":         appAttribute("calendar"),
			"name":        nameAttribute("calendar", ", which needs `create_before_destroy` while something names the old one"),
			"description": descriptionAttribute(),
			"timezone": stringWithDefault(utc, "IANA time zone of the days and times in the rules, such as "+
				"`Europe/Berlin`."),
			"rules": rulesAttribute(),
			"bases": listWithDefault(types.StringType, "Names of calendars of the app whose exclusions apply too, at most 10. "+
				"Refer to the resources, so that Terraform creates them first. Default: none."),
			"revision": revisionAttribute("calendar", ""),
		},
	}
}

func (r *calendarResource) ValidateConfig(
	ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse,
) {
	var config calendarModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	var e expander
	calendar := expandCalendar(ctx, &e, config)
	var problems dispatcher.Problems
	dispatcher.CheckName(&problems, "/app", calendar.App) // Validate leaves it out: the API has it in the URL
	problems.AddError("", calendar.Validate())
	reportProblems(&resp.Diagnostics, e.problemsWith(problems.Err()))
}

func (r *calendarResource) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	importNested(ctx, "calendar", "billing/holidays", req, resp)
}

// expandCalendar returns the calendar that a model describes.
func expandCalendar(ctx context.Context, e *expander, m calendarModel) dispatcher.Calendar {
	calendar := dispatcher.Calendar{
		App:         e.string("/app", m.App),
		Name:        e.string("/name", m.Name),
		Description: e.string("/description", m.Description),
		Bases:       e.stringList("/bases", m.Bases),
	}
	expandOptional(e, "/timezone", m.Timezone, &calendar.Timezone)
	for i, element := range e.list("/rules", m.Rules) {
		object, _ := element.(types.Object)
		calendar.Rules = append(calendar.Rules, expandRule(ctx, e, "/rules/"+strconv.Itoa(i), object))
	}
	return calendar
}

// flattenCalendar returns the model of a calendar from the API.
func flattenCalendar(
	ctx context.Context, diags *diag.Diagnostics, calendar dispatcher.Calendar, _ calendarModel,
) calendarModel {
	return calendarModel{
		ID: types.StringValue(calendar.App + "/" + calendar.Name), App: types.StringValue(calendar.App),
		Name: types.StringValue(calendar.Name), Description: types.StringValue(calendar.Description),
		Timezone: types.StringValue(cmp.Or(calendar.Timezone, utc)), Rules: flattenRules(ctx, diags, calendar.Rules),
		Bases:    flattenList(ctx, diags, types.StringType, calendar.Bases),
		Revision: types.Int64Value(calendar.Revision),
	}
}
