package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

var (
	_ resource.ResourceWithConfigure      = (*calendarResource)(nil)
	_ resource.ResourceWithImportState    = (*calendarResource)(nil)
	_ resource.ResourceWithValidateConfig = (*calendarResource)(nil)
)

// calendarResource is carillon_calendar. Its rules are in calendar_rules.go.
type calendarResource struct{ conn *connection }

func newCalendarResource() resource.Resource { return &calendarResource{} }

// calendarModel is a carillon_calendar in configuration, plan and state. Its lists are
// Terraform values and not slices, because any of them may be unknown in a plan.
type calendarModel struct {
	ID          types.String `tfsdk:"id"`
	App         types.String `tfsdk:"app"`
	Name        types.String `tfsdk:"name"`
	Description types.String `tfsdk:"description"`
	Timezone    types.String `tfsdk:"timezone"`
	Rules       types.List   `tfsdk:"rule"`
	Bases       types.List   `tfsdk:"bases"`
	Revision    types.Int64  `tfsdk:"revision"`
}

// utc is the zone of a calendar that names none.
const utc = "UTC"

func (r *calendarResource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_calendar"
}

func (r *calendarResource) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A calendar: a named set of exclusions, such as holidays, freezes or opening hours, that triggers of " +
			"its app refer to. It excludes an instant if one of its rules or bases does. Import it by `app/calendar`.\n\n" +
			"When a calendar changes, the triggers that use it get new fire times at once. The revisions of their jobs stay.\n\n" +
			"Terraform destroys a calendar before it updates the jobs that used it. Carillon therefore keeps a destroyed calendar until " +
			"its last use is gone, so you remove a calendar together with its uses in one apply. If something outside of this " +
			"configuration still names it, it stays as long.",
		Attributes: map[string]schema.Attribute{
			"id":          idAttribute("calendar", planImportID{}),
			"app":         appAttribute("calendar"),
			"name":        nameAttribute("calendar", ""),
			"description": descriptionAttribute(),
			"timezone": stringWithDefault(utc, "IANA time zone of the days and times in the rules, such as "+
				"`Europe/Berlin`."),
			"rule": ruleAttribute(),
			"bases": listWithDefault(types.StringType, "Names of calendars of the app whose exclusions apply too, at most 10. "+
				"Refer to the resources, so that Terraform creates them first. Default: none."),
			"revision": revisionAttribute("calendar", ""),
		},
	}
}

func (r *calendarResource) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.conn = configured(req.ProviderData)
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
	var problems input.Problems
	input.CheckName(&problems, "/app", calendar.App) // Validate leaves it out: the API has it in the URL
	problems.AddError("", calendar.Validate())
	reportProblems(&resp.Diagnostics, e.problemsWith(problems.Err()))
}

func (r *calendarResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var plan calendarModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	calendar, problems := plannedCalendar(ctx, plan)
	if reportProblems(&resp.Diagnostics, problems); resp.Diagnostics.HasError() {
		return
	}
	calendar, err := r.create(ctx, calendar)
	if err != nil {
		r.conn.reportCreate(&resp.Diagnostics, "calendar", importID(plan.App, plan.Name), err)
		return
	}
	setState(ctx, &resp.State, &resp.Diagnostics, flattenCalendar(ctx, &resp.Diagnostics, calendar))
}

// create writes a new calendar. One that waits for the end of its last use, as after -replace, stays instead.
func (r *calendarResource) create(ctx context.Context, calendar dispatcher.Calendar) (dispatcher.Calendar, error) {
	created, err := r.conn.PutCalendar(ctx, calendar, client.Condition{Absent: true})
	if !errors.Is(err, dispatcher.ErrPrecondition) {
		return created, err
	}
	stored, readErr := r.conn.Calendar(ctx, calendar.App, calendar.Name)
	if readErr != nil || stored.RemovalRequestedAt == nil {
		return created, err
	}
	return r.conn.PutCalendar(ctx, calendar, client.Condition{Revision: stored.Revision})
}

func (r *calendarResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state calendarModel
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	calendar, err := r.conn.Calendar(ctx, state.App.ValueString(), state.Name.ValueString())
	// It was deleted outside of Terraform, perhaps on condition that nothing uses it, so the plan creates it again.
	if isNotFound(err) || err == nil && calendar.RemovalRequestedAt != nil {
		resp.State.RemoveResource(ctx)
		return
	}
	if err != nil {
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("read calendar %q", importID(state.App, state.Name)), err)
		return
	}
	setState(ctx, &resp.State, &resp.Diagnostics, flattenCalendar(ctx, &resp.Diagnostics, calendar))
}

func (r *calendarResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan, state calendarModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	calendar, problems := plannedCalendar(ctx, plan)
	if reportProblems(&resp.Diagnostics, problems); resp.Diagnostics.HasError() {
		return
	}
	id, revision := importID(state.App, state.Name), state.Revision.ValueInt64()
	calendar, err := r.conn.PutCalendar(ctx, calendar, client.Condition{Revision: revision})
	if isConflict(err) { // read the calendar again, so that the error can name both revisions
		current, readErr := r.conn.Calendar(ctx, state.App.ValueString(), state.Name.ValueString())
		r.conn.reportConflict(&resp.Diagnostics, "calendar", id, revision, current.Revision, err, readErr)
		return
	}
	if err != nil {
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("update calendar %q", id), err)
		return
	}
	setState(ctx, &resp.State, &resp.Diagnostics, flattenCalendar(ctx, &resp.Diagnostics, calendar))
}

func (r *calendarResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var state calendarModel
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	id, revision := importID(state.App, state.Name), state.Revision.ValueInt64()
	app, name := state.App.ValueString(), state.Name.ValueString()
	// Terraform destroys it before it updates the jobs that used it.
	_, err := r.conn.DeleteCalendarWhenUnused(ctx, app, name, client.Condition{Revision: revision})
	switch {
	case err == nil || isNotFound(err): // if it is already deleted, nothing is left to do
	case isConflict(err):
		current, readErr := r.conn.Calendar(ctx, app, name)
		r.conn.reportConflict(&resp.Diagnostics, "calendar", id, revision, current.Revision, err, readErr)
	default:
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("delete calendar %q", id), err)
	}
}

func (r *calendarResource) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	importNested(ctx, "calendar", "billing/holidays", req, resp)
}

// plannedCalendar returns the calendar to write, and the problems that could not be found at
// plan because their values were unknown.
func plannedCalendar(ctx context.Context, plan calendarModel) (dispatcher.Calendar, input.Problems) {
	var e expander
	calendar := expandCalendar(ctx, &e, plan)
	return calendar, e.problemsWith(calendar.Validate())
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
func flattenCalendar(ctx context.Context, diags *diag.Diagnostics, calendar dispatcher.Calendar) calendarModel {
	return calendarModel{
		ID:          types.StringValue(calendar.App + "/" + calendar.Name),
		App:         types.StringValue(calendar.App),
		Name:        types.StringValue(calendar.Name),
		Description: types.StringValue(calendar.Description),
		Timezone:    types.StringValue(cmp.Or(calendar.Timezone, utc)),
		Rules:       flattenRules(ctx, diags, calendar.Rules),
		Bases:       flattenList(ctx, diags, types.StringType, calendar.Bases),
		Revision:    types.Int64Value(calendar.Revision),
	}
}
