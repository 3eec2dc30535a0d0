package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	dataschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// calendars is carillon_calendar.
func calendars(c *connection) kind {
	return &definition[dispatcher.Calendar]{
		heading: heading{"calendar", calendarSchema, importNested("calendar", "billing/holidays")}, conn: c,
		expand: expandedBy[dispatcher.Calendar](calendarRows), flatten: flattenedBy[dispatcher.Calendar](calendarRows),
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

// utc is the zone of a calendar that names none.
const utc = "UTC"

var calendarRows = rowsOf(func() *dispatcher.Calendar { return &dispatcher.Calendar{Timezone: utc} },
	definitionRows("calendar", func(c *dispatcher.Calendar) *named { return &named{&c.App, &c.Name, &c.Description, &c.Revision} }),
	textsRow("bases", func(c *dispatcher.Calendar) *[]string { return &c.Bases }, standard, "Names of calendars of the app whose "+
		"exclusions apply too, at most 10. Refer to the resources, so that Terraform creates them first. Default: none.",
		shownAs("Names of calendars whose exclusions apply too.")),
	textRow("timezone", func(c *dispatcher.Calendar) *string { return &c.Timezone }, standard,
		"IANA time zone of the days and times in the rules, such as `Europe/Berlin`.",
		shownAs("Time zone of the days and times in the rules.")),
	blocksRow("rule", func(c *dispatcher.Calendar) *[]schedule.CalendarRule { return &c.Rules }, ruleRows, optional, "A rule, which says what the "+
		"calendar excludes: exactly one of `dates`, `weekdays`, `days_of_month`, `from` and `to`, `expression`, or `icalendar`. A "+
		"calendar has at most 100. Default: nothing is excluded.",
		token("rules"), alwaysThere, asValue, shownAs("What it excludes; see the resource `carillon_calendar`.")),
)

var ruleRows = rowsOf(fresh[schedule.CalendarRule],
	boolRow("only", func(r *schedule.CalendarRule) *bool { return &r.Only }, standard, "Inverts the rule: it excludes everything that does "+
		"not match."),
	textsRow("dates", func(r *schedule.CalendarRule) *[]string { return &r.Dates }, standard, "Days (`2026-12-25`, or `12-25` for every "+
		"year) and spans (`2026-12-24/2027-01-02` or `12-24/01-02`, both ends included), at most 1000. Default: none."),
	textsRow("weekdays", func(r *schedule.CalendarRule) *[]string { return &r.Weekdays }, standard, "Weekdays: `SAT`, or `MON-FRI`. "+
		"Default: none."),
	wholesRow("days_of_month", func(r *schedule.CalendarRule) *[]int { return &r.DaysOfMonth }, standard, "Days of the month, `1` to "+
		"`31`. Default: none.", advice(input.CodeCronRange, "give a day from 1 to 31")),
	textRow("from", func(r *schedule.CalendarRule) *string { return &r.From }, optional, "Time of day at which the span begins, such as "+
		"`22:00`, inclusive. Default: the beginning of the day, if `to` is set."),
	textRow("to", func(r *schedule.CalendarRule) *string { return &r.To }, optional, "Time of day at which the span ends, such as `06:00`, "+
		"exclusive. If it is not after `from`, the span passes midnight. Default: the end of the day, if `from` is set."),
	textRow("expression", func(r *schedule.CalendarRule) *string { return &r.Expression }, optional, "A cron expression of five, six or "+
		"seven fields. It matches the whole second that starts at each of its local times. Default: none."),
	textRow("icalendar", func(r *schedule.CalendarRule) *string { return &r.ICalendar }, optional, "iCalendar text (RFC 5545) of whole-day "+
		"events, single or with `RRULE:FREQ=YEARLY`, such as `file(\"holidays.ics\")`. At most 64 KiB. Default: none."),
	rule(func(e *expander, at string, _ values, _ any) {
		if !e.allKnown(at) {
			e.incomplete = append(e.incomplete, at) // an unknown attribute may turn out to be null
		}
	}),
)

func calendarSchema() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "A calendar: a named set of exclusions, such as holidays, freezes or opening hours, that triggers of " +
			"its app refer to. It excludes an instant if one of its rules or bases does. Import it by `app/calendar`.\n\n" +
			"When a calendar changes, the triggers that use it get new fire times at once. The revisions of their jobs stay.\n\n" +
			"Terraform destroys a calendar before it updates the jobs that used it. Carillon therefore keeps a destroyed calendar until " +
			"its last use is gone, so you remove a calendar together with its uses in one apply. If something outside of this " +
			"configuration still names it, it stays as long.",
		Attributes: calendarRows.attributes(),
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

// newCalendarDataSource returns carillon_calendar: a calendar that somebody else declares.
func newCalendarDataSource() datasource.DataSource {
	return &dataSource{name: "calendar", read: readCalendar, schema: func() dataschema.Schema {
		return dataschema.Schema{
			MarkdownDescription: "A calendar, so that a trigger can name one that another configuration declares. A plan fails if it does " +
				"not exist.",
			Attributes: calendarRows.dataAttributes(),
		}
	}}
}

func readCalendar(ctx context.Context, c *connection, diags *diag.Diagnostics, m values) values {
	app, name := m.text("app"), m.text("name")
	if !validNames(diags, app, name) {
		return m
	}
	calendar, err := c.Calendar(ctx, app.ValueString(), name.ValueString())
	if err != nil {
		c.report(diags, fmt.Sprintf("read calendar %q", importID(app, name)), err)
		return m
	}
	return calendarRows.shown(diags, &calendar)
}
