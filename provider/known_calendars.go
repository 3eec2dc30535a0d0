package provider

import (
	"context"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// checkCalendar adds a problem if an app has no such calendar, neither stored nor planned. What cannot be known now, the
// API judges at apply.
func (c *connection) checkCalendar(ctx context.Context, problems *input.Problems, pointer, app, name string) {
	if c == nil || len(c.unknown) > 0 || app == "" || name == "" || c.calendars.named.has(app, name) {
		return
	}
	stored := c.storedOf(ctx, app)
	var names []string
	for _, calendar := range stored {
		names = append(names, calendar.Name)
	}
	if stored != nil && !slices.Contains(names, name) {
		addUnknownName(problems, pointer, input.CodeCalendarUnknown, "calendar", app, name, names)
	}
}

// addUnknownName adds that an app has no thing of that kind and name; names are those that it has.
func addUnknownName(problems *input.Problems, pointer, code, kind, app, name string, names []string) {
	problems.Add(pointer, code, "app %s has no %s %s; declare it as a %s and refer to its name, so that Terraform creates it first%s",
		input.Echo(app), kind, input.Echo(name), resourceType(kind), input.DidYouMean(name, names))
}

// checkCalendars refuses triggers whose calendar neither exists nor is created by the same plan.
func (r *jobResource) checkCalendars(ctx context.Context, diags *diag.Diagnostics, e *expander, job dispatcher.Job) {
	var problems input.Problems
	for _, name := range slices.Sorted(maps.Keys(job.Triggers)) {
		at := input.Pointer("triggers", name, "calendar")
		r.conn.checkCalendar(ctx, &problems, at, job.App, job.Triggers[name].Calendar)
	}
	reportProblems(diags, e.aboutKnown(problems))
}
