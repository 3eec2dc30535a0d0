package provider

import (
	"context"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/provider/binding"
	"github.com/carillon-dev/carillon/provider/plan"
)

// calendars is carillon_calendar.
func calendars(c *connection) kind {
	return &definition[dispatcher.Calendar]{
		heading: heading{"calendar", calendarRows, importNested("calendar", "billing/holidays"),
			"A calendar: a named set of exclusions, such as holidays, freezes or opening hours, that triggers of " +
				"its app refer to. It excludes an instant if one of its rules or bases does. Import it by `app/calendar`.\n\n" +
				"When a calendar changes, the triggers that use it get new fire times at once. The revisions of their jobs stay.\n\n" +
				"Terraform destroys a calendar before it updates the jobs that used it. Carillon therefore keeps a destroyed calendar until " +
				"its last use is gone, so you remove a calendar together with its uses in one apply. If something outside of this " +
				"configuration still names it, it stays as long."},
		conn: c, check: dispatcher.Calendar.Validate,
		api: requests[dispatcher.Calendar]{
			put: (*client.Client).PutCalendar, get: (*client.Client).Calendar,
			// Terraform destroys the calendar before it updates the jobs that used it.
			remove: func(c *client.Client, ctx context.Context, app, name string, cond client.Condition) error {
				_, err := c.DeleteCalendarWhenUnused(ctx, app, name, cond)
				return err
			},
			revision: func(c dispatcher.Calendar) int64 { return c.Revision },
		},
		planning: (*plan.Plan).OfCalendar,
		leaving:  func(c dispatcher.Calendar) bool { return c.RemovalRequestedAt != nil },
	}
}

// utc is the default time zone of a calendar.
const utc = "UTC"

var calendarRows = binding.Of(
	func() *dispatcher.Calendar {
		return &dispatcher.Calendar{CalendarSpec: dispatcher.CalendarSpec{Timezone: utc}}
	},
	definitionRows("calendar", func(c *dispatcher.Calendar) *named { return &named{&c.App, &c.Name, &c.Description, &c.Revision} }),
	binding.Texts("bases", func(c *dispatcher.Calendar) *[]string { return &c.Bases }, binding.Default, "Names of calendars of the "+
		"app whose exclusions apply too, at most 10. Refer to the resources, so that Terraform creates them first. Default: none.",
		binding.Data("Names of calendars whose exclusions apply too.")),
	binding.Text("timezone", func(c *dispatcher.Calendar) *string { return &c.Timezone }, binding.Default,
		"IANA time zone of the days and times in the rules, such as `Europe/Berlin`.",
		binding.Data("Time zone of the days and times in the rules.")),
	binding.Blocks("rule", binding.Nested(func(c *dispatcher.Calendar) *[]schedule.CalendarRule { return &c.Rules }, ruleRows),
		binding.Optional, "A rule, which says what the calendar excludes: exactly one of `dates`, `weekdays`, `days_of_month`, `from` and "+
			"`to`, `expression`, or `icalendar`. A calendar has at most 100. Default: nothing is excluded.", binding.Token("rules"),
		binding.AlwaysThere, binding.AsValue, binding.Data("What it excludes; see the resource `carillon_calendar`.")),
)

var ruleRows = binding.Of(binding.Fresh[schedule.CalendarRule],
	binding.Bool("only", func(r *schedule.CalendarRule) *bool { return &r.Only }, binding.Default, "Inverts the rule: it excludes "+
		"everything that does not match."),
	binding.Texts("dates", func(r *schedule.CalendarRule) *[]string { return &r.Dates }, binding.Default, "Days (`2026-12-25`, or "+
		"`12-25` for every year) and spans (`2026-12-24/2027-01-02` or `12-24/01-02`, both ends included), at most 1000. Default: none."),
	binding.Texts("weekdays", func(r *schedule.CalendarRule) *[]string { return &r.Weekdays }, binding.Default,
		"Weekdays: `SAT`, or `MON-FRI`. Default: none."),
	binding.Wholes("days_of_month", func(r *schedule.CalendarRule) *[]int { return &r.DaysOfMonth }, binding.Default,
		"Days of the month, `1` to `31`. Default: none.", binding.Advice(input.CodeCronRange, "give a day from 1 to 31")),
	binding.Text("from", func(r *schedule.CalendarRule) *string { return &r.From }, binding.Optional, "Time of day at which the span "+
		"begins, such as `22:00`, inclusive. Default: the beginning of the day, if `to` is set."),
	binding.Text("to", func(r *schedule.CalendarRule) *string { return &r.To }, binding.Optional, "Time of day at which the span "+
		"ends, such as `06:00`, exclusive. If it is not after `from`, the span passes midnight. Default: the end of the day, if "+
		"`from` is set."),
	binding.Text("expression", func(r *schedule.CalendarRule) *string { return &r.Expression }, binding.Optional,
		"A cron expression of five, six or seven fields. It matches the whole second that starts at each of its local times. "+
			"Default: none."),
	binding.Text("icalendar", func(r *schedule.CalendarRule) *string { return &r.ICalendar }, binding.Optional,
		"iCalendar text (RFC 5545) of whole-day events, single or with `RRULE:FREQ=YEARLY`, such as `file(\"holidays.ics\")`. At "+
			"most 64 KiB. Default: none."),
	binding.Rule(func(e *binding.Expander, at string, _ binding.Values, _ any) {
		if !e.AllKnown(at) {
			e.Incomplete = append(e.Incomplete, at) // an unknown attribute may still become null
		}
	}),
)

// calendarSource is carillon_calendar: a calendar of another configuration.
var calendarSource = dataSource{
	name: "calendar", attributes: calendarRows.DataAttributes,
	read: readNamed("calendar", calendarRows, (*client.Client).Calendar, nil),
	text: "A calendar, so that a trigger can name one that another configuration declares. A plan fails if it does not exist.",
}
