package provider

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/carillon-dev/carillon/dispatcher"
)

// name notes that an apply of this plan leaves a calendar.
func (k *knownCalendars) name(app, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.named == nil {
		k.named = map[string]bool{}
	}
	k.named[app+"/"+name] = true
}

// isNamed reports whether an apply of this plan leaves a calendar. Terraform plans it before what refers to it.
func (k *knownCalendars) isNamed(app, name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.named[app+"/"+name]
}

// checkCalendar adds a problem if an app has no such calendar, neither stored nor planned. What cannot be known now, the
// API judges at apply.
func (c *connection) checkCalendar(ctx context.Context, problems *dispatcher.Problems, pointer, app, name string) {
	if c == nil || len(c.unknown) > 0 || app == "" || name == "" || c.calendars.isNamed(app, name) {
		return
	}
	stored := c.storedOf(ctx, app)
	var names []string
	for _, calendar := range stored {
		names = append(names, calendar.Name)
	}
	if stored != nil && !slices.Contains(names, name) {
		problems.Add(pointer, dispatcher.CodeCalendarUnknown,
			"app %s has no calendar %s; declare it as a carillon_calendar and refer to its name, so that Terraform creates it first%s",
			dispatcher.Echo(app), dispatcher.Echo(name), dispatcher.DidYouMean(name, names))
	}
}

// checkCalendars refuses triggers whose calendar neither exists nor is created by the same plan.
func (r *jobResource) checkCalendars(ctx context.Context, diags *diag.Diagnostics, e *expander, job dispatcher.Job) {
	var problems dispatcher.Problems
	for _, name := range slices.Sorted(maps.Keys(job.Triggers)) {
		at := dispatcher.Pointer("triggers", name, "calendar")
		r.conn.checkCalendar(ctx, &problems, at, job.App, job.Triggers[name].Calendar)
	}
	reportProblems(diags, e.aboutKnown(problems))
}

// checkBases refuses bases that neither exist nor are created by the same plan.
func (r *calendarResource) checkBases(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	var config calendarModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	var e expander
	calendar := expandCalendar(ctx, &e, config)
	var problems dispatcher.Problems
	for i, base := range calendar.Bases {
		if base != calendar.Name { // another rule refuses that
			r.conn.checkCalendar(ctx, &problems, "/bases/"+strconv.Itoa(i), calendar.App, base)
		}
	}
	reportProblems(&resp.Diagnostics, e.aboutKnown(problems))
	r.conn.calendars.name(calendar.App, calendar.Name)
}
