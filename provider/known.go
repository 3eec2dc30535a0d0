package provider

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/provider/binding"
)

// known is what plans of one kind of thing have found out, by the names of the things. The zero value is ready to use.
type known[V any] struct {
	mu     sync.Mutex
	values map[string]V
}

func (k *known[V]) set(name string, value V) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.put(name, value)
}

func (k *known[V]) put(name string, value V) {
	if k.values == nil {
		k.values = map[string]V{}
	}
	k.values[name] = value
}

func (k *known[V]) get(name string) (value V, there bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	value, there = k.values[name]
	return value, there
}

func (k *known[V]) has(name string) bool {
	_, there := k.get(name)
	return there
}

// once returns the value of a name. Only the first call reads it; others wait instead of reading it, too.
func (k *known[V]) once(name string, read func() V) V {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, there := k.values[name]; !there {
		k.put(name, read())
	}
	return k.values[name]
}

// readAll returns what an app has, from all pages of a list; nil if it cannot be read.
func readAll[T any](
	ctx context.Context, app string, list func(context.Context, string, input.Page) (client.List[T], error),
) []T {
	all := []T{}
	for page := (input.Page{}); ; {
		some, err := list(ctx, app, page)
		if err != nil && !client.IsNotFound(err) { // an app that does not exist yet has none
			return nil
		}
		all = append(all, some.Items...)
		if page.Cursor = some.Next; page.Cursor == "" {
			return all
		}
	}
}

// checkCalendar adds a problem if an app has no such calendar, neither stored nor planned. What cannot be known now, the
// API judges at apply.
func (c *connection) checkCalendar(ctx context.Context, problems *input.Problems, pointer, app, name string) {
	if c == nil || len(c.unknown) > 0 || app == "" || name == "" || c.calendars.named.has(app+"/"+name) {
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
		input.Echo(app), kind, input.Echo(name), binding.ResourceType(kind), input.DidYouMean(name, names))
}

// checkCalendars refuses triggers whose calendar neither exists nor is created by the same plan.
func (r *jobResource) checkCalendars(ctx context.Context, diags *diag.Diagnostics, e *binding.Expander, job dispatcher.Job) {
	var problems input.Problems
	for _, name := range slices.Sorted(maps.Keys(job.Triggers)) {
		at := input.Pointer("triggers", name, "calendar")
		r.conn.checkCalendar(ctx, &problems, at, job.App, job.Triggers[name].Calendar)
	}
	reportProblems(diags, e.AboutKnown(problems))
}

// knownGroups are the endpoint groups that jobs refer to.
type knownGroups struct {
	planned known[bool]     // app/name of those that an apply of this plan leaves; Terraform plans them before the jobs
	stored  known[[]string] // names by app; nil: they cannot be read
}

// groupsOf returns the names of the groups that an app has; nil if they cannot be read.
func (c *connection) groupsOf(ctx context.Context, app string) []string {
	return c.groups.stored.once(app, func() []string {
		groups := readAll(ctx, app, c.Groups)
		if groups == nil {
			return nil
		}
		names := make([]string, len(groups))
		for i, group := range groups {
			names[i] = group.Name
		}
		return names
	})
}

// checkGroup refuses a job whose target is a group that neither exists nor is created by the same plan. What cannot be known
// now, the API judges at apply.
func (r *jobResource) checkGroup(ctx context.Context, diags *diag.Diagnostics, e *binding.Expander, job dispatcher.Job) {
	group := job.Target.Group
	if group == nil || r.conn == nil || len(r.conn.unknown) > 0 || job.App == "" || group.Name == "" ||
		r.conn.groups.planned.has(job.App+"/"+group.Name) {
		return
	}
	if names := r.conn.groupsOf(ctx, job.App); names != nil && !slices.Contains(names, group.Name) {
		var problems input.Problems
		addUnknownName(&problems, "/target/group/name", input.CodeGroupUnknown, groupKind, job.App, group.Name, names)
		reportProblems(diags, e.AboutKnown(problems))
	}
}
