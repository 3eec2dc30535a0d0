package provider

import (
	"cmp"
	"context"
	"errors"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

// calendars is carillon_calendar. Its rules are in calendar_rules.go.
func calendars(c *connection) kind[calendarModel] {
	return &definition[dispatcher.Calendar, calendarModel]{
		heading: heading{"calendar", calendarSchema, importNested("calendar", "billing/holidays")}, conn: c,
		expand: expandCalendar,
		flatten: func(ctx context.Context, diags *diag.Diagnostics, stored dispatcher.Calendar, _ calendarModel) calendarModel {
			return flattenCalendar(ctx, diags, stored)
		},
		check: dispatcher.Calendar.Validate,
		api: requests[dispatcher.Calendar]{
			put: putCalendar, get: (*client.Client).Calendar,
			// Terraform destroys it before it updates the jobs that used it.
			remove: func(c *client.Client, ctx context.Context, app, name string, cond client.Condition) error {
				_, err := c.DeleteCalendarWhenUnused(ctx, app, name, cond)
				return err
			},
			revision: func(c dispatcher.Calendar) int64 { return c.Revision },
		},
		planning: planCalendar,
		// It was deleted outside of Terraform on condition that nothing uses it.
		gone: func(c dispatcher.Calendar) bool { return c.RemovalRequestedAt != nil },
	}
}

// calendarModel is a carillon_calendar in configuration, plan and state. Its lists are
// Terraform values and not slices, because any of them may be unknown in a plan.
type calendarModel struct {
	definitionModel
	Timezone types.String `tfsdk:"timezone"`
	Rules    types.List   `tfsdk:"rule"`
	Bases    types.List   `tfsdk:"bases"`
}

// utc is the zone of a calendar that names none.
const utc = "UTC"

func calendarSchema() schema.Schema {
	return schema.Schema{
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

// putCalendar writes a calendar. One that waits for the end of its last use, as after -replace, stays instead of a new one.
func putCalendar(
	//nolint:revive // the order of (*client.Client).PutCalendar
	c *client.Client, ctx context.Context, calendar dispatcher.Calendar, cond client.Condition,
) (dispatcher.Calendar, error) {
	written, err := c.PutCalendar(ctx, calendar, cond)
	if !cond.Absent || !errors.Is(err, dispatcher.ErrPrecondition) {
		return written, err
	}
	stored, readErr := c.Calendar(ctx, calendar.App, calendar.Name)
	if readErr != nil || stored.RemovalRequestedAt == nil {
		return written, err
	}
	return c.PutCalendar(ctx, calendar, client.Condition{Revision: stored.Revision})
}

// expandCalendar returns the calendar that a model describes.
func expandCalendar(ctx context.Context, e *expander, m calendarModel) dispatcher.Calendar {
	calendar := dispatcher.Calendar{
		App:  e.string("/app", m.App),
		Name: e.string("/name", m.Name),
		CalendarSpec: dispatcher.CalendarSpec{
			Description: e.string("/description", m.Description),
			Bases:       e.stringList("/bases", m.Bases),
		},
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
		definitionModel: flattenDefinition(calendar.App, calendar.Name, calendar.Description, calendar.Revision),
		Timezone:        types.StringValue(cmp.Or(calendar.Timezone, utc)),
		Rules:           flattenRules(ctx, diags, calendar.Rules),
		Bases:           flattenList(ctx, diags, types.StringType, calendar.Bases),
	}
}
