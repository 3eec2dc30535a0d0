package provider

import (
	"context"
	"net/http"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/defaults"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/listdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

var (
	_ resource.ResourceWithConfigure      = (*calendarResource)(nil)
	_ resource.ResourceWithImportState    = (*calendarResource)(nil)
	_ resource.ResourceWithValidateConfig = (*calendarResource)(nil)
)

// calendarResource is carillon_calendar; its model is in calendar_model.go.
type calendarResource struct {
	definition[calendarModel, dispatcher.Calendar]
}

func newCalendarResource() resource.Resource {
	r := &calendarResource{}
	r.kind = "calendar"
	r.api = calls[calendarModel, dispatcher.Calendar]{
		put: putCalendar,
		read: func(ctx context.Context, conn *connection, m calendarModel) (dispatcher.Calendar, error) {
			return conn.Calendar(ctx, m.App.ValueString(), m.Name.ValueString())
		},
		remove: func(ctx context.Context, conn *connection, m calendarModel, cond client.Condition) error {
			return conn.DeleteCalendar(ctx, m.App.ValueString(), m.Name.ValueString(), cond)
		},
		model:    newCalendarModel,
		id:       func(m calendarModel) string { return importID(m.App, m.Name) },
		revision: func(m calendarModel) types.Int64 { return m.Revision },
		current:  func(calendar dispatcher.Calendar) int64 { return calendar.Revision },
		warnings: noWarnings[dispatcher.Calendar],
	}
	return r
}

func (r *calendarResource) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A calendar: a named set of exclusions, such as holidays, freezes or opening hours, that triggers of its app " +
			"refer to. An instant is excluded when a rule, or a base, excludes it. Import by `app/calendar`.\n\n" +
			"When a calendar changes, the triggers that it concerns get new fire times with it, and the revisions of their jobs stay. A calendar " +
			"that a trigger or another calendar names cannot be destroyed. By itself Terraform destroys a calendar before it updates a job " +
			"that named it, which is refused; with `lifecycle { create_before_destroy = true }` it does so afterwards, so give calendars " +
			"that. To remove one that has not, apply in two steps: first take it out of the jobs, then remove its block.",
		Attributes: map[string]schema.Attribute{
			"id": idAttribute(r.kind),
			"app": schema.StringAttribute{
				Required: true,
				MarkdownDescription: "Name of the app. Refer to the resource, `carillon_app.NAME.name`, so that it is " +
					"created first. Changing it replaces the calendar.",
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"name": schema.StringAttribute{
				Required: true,
				MarkdownDescription: "Name of the calendar: " + nameRule + ". Changing it replaces the calendar, which needs " +
					"`create_before_destroy` while something names the old one.",
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"description": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(""),
				MarkdownDescription: "Free text of at most 1024 characters. Default: empty.",
			},
			"timezone": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(utc),
				MarkdownDescription: "IANA zone in which the days and times of the rules are meant, such as `Europe/Berlin`. Default: `" + utc + "`.",
			},
			"rules": rulesAttribute(),
			"bases": listAttribute(types.StringType, "Names of calendars of the app whose exclusions hold too, at most 10. Refer to "+
				"the resources, so that they are created first. Default: none."),
			"revision": schema.Int64Attribute{
				Computed:            true,
				MarkdownDescription: "Counts the changes of the calendar. An update that was planned for another revision is refused.",
			},
		},
	}
}

func rulesAttribute() schema.ListNestedAttribute {
	text := func(description string) schema.Attribute {
		return schema.StringAttribute{Optional: true, MarkdownDescription: description}
	}
	rule := schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
		"only": schema.BoolAttribute{
			Optional: true, Computed: true, Default: booldefault.StaticBool(false),
			MarkdownDescription: "Turns the rule round: only what it matches is allowed. Default: `false`.",
		},
		"dates": listAttribute(types.StringType, "Days: `2026-12-25`, each year `12-25`, and spans `2026-12-24/2027-01-02` or "+
			"`12-24/01-02`, both ends included. At most 1000. Default: none."),
		"weekdays":      listAttribute(types.StringType, "Weekdays: `SAT`, or `MON-FRI`. Default: none."),
		"days_of_month": listAttribute(types.NumberType, "Days of the month, `1` to `31`. Default: none."),
		"from":          text("Time of day such as `22:00`, inclusive. Default: the beginning of the day, where `to` is set."),
		"to": text("Time of day such as `06:00`, exclusive; the span passes midnight if it is not after `from`. " +
			"Default: the end of the day, where `from` is set."),
		"expression": text("A cron expression of five, six or seven fields; it matches the second from each of its local times. Default: none."),
		"icalendar": text("iCalendar text (RFC 5545) of whole-day events, once or `RRULE:FREQ=YEARLY`, such as " +
			"`file(\"holidays.ics\")`. At most 64 KiB. Default: none."),
	}}
	return schema.ListNestedAttribute{
		Optional: true, Computed: true, Default: emptyList(rule.Type()),
		MarkdownDescription: "What is excluded, at most 100 rules. Each has exactly one of `dates`, `weekdays`, `days_of_month`, `from` and " +
			"`to`, `expression` and `icalendar`. Default: nothing. " + dropsUnknown,
		NestedObject: rule,
	}
}

// listAttribute is one of which null and [] are the same, as they are on the wire: the plan
// says [].
func listAttribute(element attr.Type, description string) schema.ListAttribute {
	return schema.ListAttribute{
		Optional: true, Computed: true, Default: emptyList(element), ElementType: element, MarkdownDescription: description,
	}
}

func emptyList(element attr.Type) defaults.List {
	return listdefault.StaticValue(types.ListValueMust(element, []attr.Value{}))
}

func (r *calendarResource) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var config calendarModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	var read reader
	calendar := readCalendar(ctx, &read, config)
	var problems dispatcher.Problems
	dispatcher.CheckName(&problems, "/app", calendar.App) // part of the calendar's address, so Validate leaves it out
	problems.AddError("", calendar.Validate())
	reportProblems(&resp.Diagnostics, read.judge(problems.Err()))
}

func (r *calendarResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	importNested(ctx, r.kind, "billing/holidays", req, resp)
}

// putCalendar writes the calendar of a plan; see putJob.
func putCalendar(ctx context.Context, conn *connection, w write[calendarModel], cond client.Condition) (dispatcher.Calendar, error) {
	var read reader
	calendar := readCalendar(ctx, &read, w.plan)
	if problems := read.judge(calendar.Validate()); len(problems) > 0 {
		return dispatcher.Calendar{}, &client.Error{Status: http.StatusUnprocessableEntity, Problems: problems}
	}
	return conn.PutCalendar(ctx, calendar, cond)
}

// ruleType is the type of the elements of rules.
func ruleType() types.ObjectType {
	return rulesAttribute().GetType().(attr.TypeWithElementType).ElementType().(types.ObjectType)
}
