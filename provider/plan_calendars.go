package provider

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// knownCalendars are the calendars of apps, with which the fires of jobs are compared: as they are stored, and
// as this plan leaves them.
type knownCalendars struct {
	stored  known[[]dispatcher.Calendar] // by app; nil: they cannot be read
	named   known[bool]                  // app/name of those in the plan, also if they do not change or are not fully known
	mu      sync.Mutex
	planned map[string]map[string]dispatcher.Calendar
}

// plan notes what a plan makes of a calendar. Terraform plans it before the jobs that refer to it.
func (k *knownCalendars) plan(c dispatcher.Calendar) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.planned == nil {
		k.planned = map[string]map[string]dispatcher.Calendar{}
	}
	if k.planned[c.App] == nil {
		k.planned[c.App] = map[string]dispatcher.Calendar{}
	}
	k.planned[c.App][c.Name] = c
}

// plannedOf returns the calendars of an app that the plan creates or changes.
func (k *knownCalendars) plannedOf(app string) map[string]dispatcher.Calendar {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.planned[app])
}

// storedOf returns the calendars of an app as the API has them, read once; nil if they cannot be read.
func (c *connection) storedOf(ctx context.Context, app string) []dispatcher.Calendar {
	return c.calendars.stored.once(app, func() []dispatcher.Calendar { return readAll(ctx, app, c.Calendars) })
}

// calendarChange are the calendars of an app before and after a plan.
type calendarChange struct {
	before, after dispatcher.Calendars
	changed       map[string]bool // by name, with all that build on a changed one
}

// calendarChange returns the calendars of the app of a job. Of a job that uses none, or whose fires the plan
// leaves alone, they need not be read.
func (c *connection) calendarChange(ctx context.Context, app string, uses bool) calendarChange {
	planned := c.calendars.plannedOf(app)
	if !uses || len(c.unknown) > 0 {
		return calendarChange{}
	}
	before := c.storedOf(ctx, app)
	after := slices.DeleteFunc(slices.Clone(before), func(one dispatcher.Calendar) bool {
		_, replaced := planned[one.Name]
		return replaced
	})
	after = slices.AppendSeq(after, maps.Values(planned))
	change := calendarChange{dispatcher.CompileCalendars(before), dispatcher.CompileCalendars(after), map[string]bool{}}
	for name := range planned {
		maps.Copy(change.changed, dispatcher.BuiltOn(after, name))
	}
	return change
}

// calendarsAfter returns the calendars of a job as the plan leaves them; nil if it uses none, or if one is not known
// before apply.
func (c *connection) calendarsAfter(ctx context.Context, job dispatcher.Job) dispatcher.Calendars {
	var names []string
	for _, t := range job.Triggers {
		if t.Calendar != "" {
			names = append(names, t.Calendar)
		}
	}
	calendars := c.calendarChange(ctx, job.App, len(names) > 0).after
	for _, name := range names {
		if _, err := calendars.Find(name); err != nil {
			return nil
		}
	}
	return calendars
}

// planCalendar refuses bases that neither exist nor are created by the same plan, and notes the calendar as the plan leaves it,
// so that the plans of jobs show what it does to their fires.
func planCalendar(ctx context.Context, c *connection, diags *diag.Diagnostics, p planned[dispatcher.Calendar]) {
	calendar := p.declared
	var problems input.Problems
	for i, base := range calendar.Bases {
		if base != calendar.Name { // another rule refuses that
			c.checkCalendar(ctx, &problems, "/bases/"+strconv.Itoa(i), calendar.App, base)
		}
	}
	reportProblems(diags, p.e.AboutKnown(problems))
	c.calendars.named.set(calendar.App+"/"+calendar.Name, true)
	if p.changes && !diags.HasError() && len(p.e.Unknown) == 0 && len(p.e.Problems) == 0 {
		c.calendars.plan(calendar)
	}
}
