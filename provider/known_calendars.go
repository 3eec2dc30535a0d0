package provider

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/carillon-dev/carillon/dispatcher"
)

// knownCalendars are the names of calendars that a plan may refer to.
type knownCalendars struct {
	mu     sync.Mutex
	stored map[string]map[string]bool // by app, read once; nil: they cannot be read
	// planned are the calendars of this plan by import id. Terraform plans a calendar before what refers to it.
	planned map[string]bool
}

// planCalendar notes that an apply of this plan leaves a calendar.
func (c *connection) planCalendar(app, name string) {
	c.calendars.mu.Lock()
	defer c.calendars.mu.Unlock()
	if c.calendars.planned == nil {
		c.calendars.planned = map[string]bool{}
	}
	c.calendars.planned[app+"/"+name] = true
}

// checkCalendar adds a problem if an app has no such calendar, neither stored nor planned. What cannot be known now, the
// API judges at apply.
func (c *connection) checkCalendar(ctx context.Context, problems *dispatcher.Problems, pointer, app, name string) {
	if c == nil || len(c.unknown) > 0 || app == "" || name == "" {
		return
	}
	c.calendars.mu.Lock()
	defer c.calendars.mu.Unlock() // others wait instead of reading the list, too
	if c.calendars.planned[app+"/"+name] {
		return
	}
	stored, read := c.calendars.stored[app]
	if !read {
		stored = c.storedCalendars(ctx, app)
		if c.calendars.stored == nil {
			c.calendars.stored = map[string]map[string]bool{}
		}
		c.calendars.stored[app] = stored
	}
	if stored != nil && !stored[name] {
		problems.Add(pointer, dispatcher.CodeCalendarUnknown,
			"app %s has no calendar %s; declare it as a carillon_calendar and refer to its name, so that Terraform creates it first%s",
			dispatcher.Echo(app), dispatcher.Echo(name), dispatcher.DidYouMean(name, slices.Sorted(maps.Keys(stored))))
	}
}

// storedCalendars returns the names of an app's calendars; nil: they cannot be read. An app that does not exist yet has
// none.
func (c *connection) storedCalendars(ctx context.Context, app string) map[string]bool {
	names, page := map[string]bool{}, dispatcher.Page{Limit: 1000}
	for {
		list, err := c.Calendars(ctx, app, page)
		if isNotFound(err) {
			return names
		}
		if err != nil {
			return nil
		}
		for _, calendar := range list.Items {
			names[calendar.Name] = true
		}
		if page.Cursor = list.Next; page.Cursor == "" {
			return names
		}
	}
}

// checkCalendars refuses triggers whose calendar neither exists nor is created by the same plan.
func (r *jobResource) checkCalendars(ctx context.Context, diags *diag.Diagnostics, config jobModel) {
	var e expander
	job := expandJob(ctx, &e, config)
	var problems dispatcher.Problems
	for _, name := range slices.Sorted(maps.Keys(job.Triggers)) {
		at := dispatcher.Pointer("triggers", name, "calendar")
		r.conn.checkCalendar(ctx, &problems, at, job.App, job.Triggers[name].Calendar)
	}
	reportProblems(diags, e.aboutKnown(problems))
}

// ModifyPlan refuses bases that neither exist nor are created by the same plan.
func (r *calendarResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() || r.conn == nil {
		return
	}
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
	r.conn.planCalendar(calendar.App, calendar.Name)
}
