package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// newCalendarDataSource returns carillon_calendar: a calendar that somebody else declares.
func newCalendarDataSource() datasource.DataSource {
	return &dataSource[calendarModel]{name: "calendar", schema: calendarDataSchema, read: readCalendar}
}

func calendarDataSchema() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "A calendar, so that a trigger can name one that another configuration declares. A plan fails if it does not exist.",
		Attributes: map[string]schema.Attribute{
			"app":         schema.StringAttribute{Required: true, MarkdownDescription: "Name of the app."},
			"name":        schema.StringAttribute{Required: true, MarkdownDescription: "Name of the calendar."},
			"id":          computedString("The import id, `app/calendar`."),
			"description": computedString("Free text."),
			"timezone":    computedString("Time zone of the days and times in the rules."),
			"rule": schema.ListAttribute{
				Computed: true, ElementType: ruleType(), MarkdownDescription: "What it excludes; see the resource `carillon_calendar`.",
			},
			"bases": schema.ListAttribute{
				Computed: true, ElementType: types.StringType, MarkdownDescription: "Names of calendars whose exclusions apply too.",
			},
			"revision": computedInt("Number of the current version of the calendar."),
		},
	}
}

func readCalendar(ctx context.Context, c *connection, diags *diag.Diagnostics, m calendarModel) calendarModel {
	if !validNames(diags, m.App, m.Name) {
		return m
	}
	calendar, err := c.Calendar(ctx, m.App.ValueString(), m.Name.ValueString())
	if err != nil {
		c.report(diags, fmt.Sprintf("read calendar %q", importID(m.App, m.Name)), err)
		return m
	}
	return flattenCalendar(ctx, diags, calendar)
}
