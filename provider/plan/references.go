package plan

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/provider/binding"
)

// calendarsPlanned returns the calendars of an app that the plan creates or changes.
func (p *Plan) calendarsPlanned(app string) map[string]dispatcher.Calendar {
	planned := map[string]dispatcher.Calendar{}
	for _, c := range p.calendars.all() {
		if c != nil && c.App == app {
			planned[c.Name] = *c
		}
	}
	return planned
}

// calendarsStored returns an app's calendars as the API has them, read once; nil if they cannot be read.
func (p *Plan) calendarsStored(ctx context.Context, app string) []dispatcher.Calendar {
	return p.calendarsRead.once(app, func() []dispatcher.Calendar { return readAll(ctx, app, p.Calendars) })
}

// calendarChange has the calendars of an app before and after a plan.
type calendarChange struct {
	before, after dispatcher.Calendars
	changed       map[string]bool // by name, including calendars that build on a changed one
}

// calendarChange returns the calendars of a job's app. It does not read them if the job uses none
// or its fires do not change.
func (p *Plan) calendarChange(ctx context.Context, app string, uses bool) calendarChange {
	planned := p.calendarsPlanned(app)
	if !uses || !p.reads() {
		return calendarChange{}
	}
	before := p.calendarsStored(ctx, app)
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

// calendarsAfter returns a job's calendars after the plan; nil if it uses none, or if one is
// unknown before apply.
func (p *Plan) calendarsAfter(ctx context.Context, job dispatcher.Job) dispatcher.Calendars {
	var names []string
	for _, t := range job.Triggers {
		if t.Calendar != "" {
			names = append(names, t.Calendar)
		}
	}
	calendars := p.calendarChange(ctx, job.App, len(names) > 0).after
	for _, name := range names {
		if _, err := calendars.Find(name); err != nil {
			return nil
		}
	}
	return calendars
}

// OfCalendar refuses bases that neither exist nor are created by the same plan. It records the
// planned calendar, so that the plans of jobs show the effect on their fires.
func (p *Plan) OfCalendar(ctx context.Context, diags *diag.Diagnostics, of Definition[dispatcher.Calendar]) {
	calendar := of.Declared
	var problems input.Problems
	for i, base := range calendar.Bases {
		if base != calendar.Name { // another rule refuses that
			p.checkCalendar(ctx, &problems, calendar.App, base, "/bases/"+strconv.Itoa(i))
		}
	}
	p.paths.Report(diags, of.E.AboutKnown(problems))
	var changed *dispatcher.Calendar
	if of.Changes && !diags.HasError() && len(of.E.Unknown) == 0 && len(of.E.Problems) == 0 {
		changed = &calendar
	}
	p.calendars.set(calendar.App+"/"+calendar.Name, changed)
}

// reference is the name of another object of an app, at a pointer of a definition. code is for a wrong name.
type reference struct{ kind, code, app, name, at string }

// unknown returns the problem that the app has no such object; names are the existing ones.
func (r reference) unknown(names []string) input.Problem {
	return input.Problem{Path: r.at, Code: r.code, Message: fmt.Sprintf(
		"app %s has no %s %s; declare it as a %s and refer to its name, so that Terraform creates it first%s",
		input.Echo(r.app), r.kind, input.Echo(r.name), binding.ResourceType(r.kind), input.DidYouMean(r.name, names))}
}

// checkCalendar adds a problem if an app has no such calendar, neither stored nor planned. If that
// is unknown now, the API checks it at apply.
func (p *Plan) checkCalendar(ctx context.Context, problems *input.Problems, app, name, at string) {
	if !p.reads() || app == "" || name == "" || p.calendars.has(app+"/"+name) {
		return
	}
	stored := p.calendarsStored(ctx, app)
	var names []string
	for _, calendar := range stored {
		names = append(names, calendar.Name)
	}
	if stored != nil && !slices.Contains(names, name) {
		*problems = append(*problems, reference{"calendar", input.CodeCalendarUnknown, app, name, at}.unknown(names))
	}
}

// missing returns the warning that nothing follows under a name until the app has it; names are the existing ones.
func (r reference) missing(names []string) input.Problem {
	return input.Problem{Path: r.at, Code: r.code, Message: fmt.Sprintf("app %s has no %s %s yet, and Terraform has not planned one; no "+
		"run follows under this name until there is one%s", input.Echo(r.app), r.kind, input.Echo(r.name), input.DidYouMean(r.name, names))}
}

// CheckReferences refuses a job that names calendars or a group that neither exist nor are created
// by the same plan, and warns of such jobs. e has expanded the job.
func (p *Plan) CheckReferences(ctx context.Context, diags *diag.Diagnostics, e *binding.Expander, job dispatcher.Job) {
	var problems input.Problems
	for _, name := range slices.Sorted(maps.Keys(job.Triggers)) {
		p.checkCalendar(ctx, &problems, job.App, job.Triggers[name].Calendar, input.Pointer("triggers", name, "calendar"))
	}
	p.paths.Report(diags, e.AboutKnown(problems))
	p.checkGroup(ctx, diags, e, job)
	p.checkFollows(ctx, diags, e, job)
}

// OfGroup records an endpoint group, which jobs of the same plan may have as their target.
// It warns of endpoints that no node may call.
func (p *Plan) OfGroup(ctx context.Context, diags *diag.Diagnostics, of Definition[target.EndpointGroup]) {
	group := of.Declared
	p.groups.planned.set(group.App+"/"+group.Name, true)
	if p.reads() {
		found := dispatcher.WarnOfNodes(group.App, nil, p.fleetOf(ctx, group.App), func(u *target.Unreachable) { u.Group(group) })
		p.WarnOfMistakes(diags, group.App, group.Name, of.E.AboutKnown(found), "more groups")
	}
}

// GroupKind is the name of endpoint groups in messages.
const GroupKind = "endpoint group"

// checkGroup refuses a job with a target group that neither exists nor is created by the same plan.
// If that is unknown now, the API checks it at apply.
func (p *Plan) checkGroup(ctx context.Context, diags *diag.Diagnostics, e *binding.Expander, job dispatcher.Job) {
	group := job.Target.Group
	if group == nil || !p.reads() {
		return
	}
	names, lacks := p.groups.lacks(job.App, group.Name, func() []target.EndpointGroup { return readAll(ctx, job.App, p.Groups) },
		func(g target.EndpointGroup) string { return g.Name })
	if lacks {
		unknown := reference{GroupKind, input.CodeGroupUnknown, job.App, group.Name, "/target/group/name"}.unknown(names)
		p.paths.Report(diags, e.AboutKnown(input.Problems{unknown}))
	}
}

// knownJobs has jobs that have followers, and these followers.
type knownJobs struct {
	mu sync.Mutex
	// planned has the followers of each job after this plan, by app/name.
	planned map[string][]string
	// stored has the followers of jobs that are not, or not yet, in the plan, as read; nil for a missing job.
	stored map[string]*[]string
}

// plan records a planned job with the names of its followers.
func (k *knownJobs) plan(app, name string, followers []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.planned == nil {
		k.planned = map[string][]string{}
	}
	k.planned[app+"/"+name] = followers
}

// followersOf returns the names of a job's followers, as planned or else as stored. known is false
// if they cannot be read now.
func (p *Plan) followersOf(ctx context.Context, app, name string) (followers []string, exists, planned, known bool) {
	k := &p.jobs
	k.mu.Lock()
	defer k.mu.Unlock() // concurrent plans of jobs that name the same one wait for the read
	key := app + "/" + name
	if followers, planned := k.planned[key]; planned {
		return followers, true, true, true
	}
	if stored, read := k.stored[key]; read {
		if stored == nil {
			return nil, false, false, true
		}
		return *stored, true, false, true
	}
	if k.stored == nil {
		k.stored = map[string]*[]string{}
	}
	job, err := p.Job(ctx, app, name)
	switch {
	case client.IsNotFound(err):
		k.stored[key] = nil
		return nil, false, false, true
	case err != nil:
		return nil, false, false, false
	}
	k.stored[key] = new(job.Followers())
	return job.Followers(), true, false, true
}

// checkFollows warns of names of jobs and alerts that neither exist nor are planned so far: Terraform may plan them later.
// It refuses jobs that follow one another in a circle. If that is unknown now, the API checks it at apply.
func (p *Plan) checkFollows(ctx context.Context, diags *diag.Diagnostics, e *binding.Expander, job dispatcher.Job) {
	if !p.reads() || job.App == "" || job.Name == "" || diags.HasError() {
		return
	}
	p.jobs.plan(job.App, job.Name, job.Followers())
	var problems input.Problems
	for event, follow := range job.EachFollow() {
		for i, name := range follow.Jobs {
			at := input.Pointer(string(event), "jobs", strconv.Itoa(i))
			if e.IsUnknown(at) || name == "" {
				continue
			}
			if _, exists, _, known := p.followersOf(ctx, job.App, name); known && !exists {
				missing := reference{"job", input.CodeFollowUnknown, job.App, name, at}
				problems = append(problems, missing.missing(p.someJobs(ctx, job.App)))
			}
		}
		names, lacks := p.alerts.lacks(job.App, follow.Alert, func() []alert.Alert { return readAll(ctx, job.App, p.Alerts) },
			func(a alert.Alert) string { return a.Name })
		if at := input.Pointer(string(event), "alert"); lacks {
			problems = append(problems, reference{"alert", input.CodeFollowUnknown, job.App, follow.Alert, at}.missing(names))
		}
	}
	p.WarnOfMistakes(diags, job.App, job.Name, e.AboutKnown(problems), "more jobs")
	p.checkCycle(ctx, diags, job)
}

// someJobs returns existing names for a message about a missing one.
func (p *Plan) someJobs(ctx context.Context, app string) []string {
	list, err := p.Jobs(ctx, app, input.Page{Limit: 1000})
	if err != nil {
		return nil
	}
	var names []string
	for _, job := range list.Items {
		names = append(names, job.Name)
	}
	return names
}

// checkCycle reports jobs that follow one another back to a planned job. It adds an error if the plan has all
// of them. If not, it adds a warning, because a later planned change may break the circle.
func (p *Plan) checkCycle(ctx context.Context, diags *diag.Diagnostics, job dispatcher.Job) {
	graph, stored := map[string][]string{}, map[string]bool{}
	for next := job.Followers(); len(next) > 0 && len(graph) < dispatcher.MostFollowing; next = next[1:] {
		name := next[0]
		if _, seen := graph[name]; seen || name == job.Name {
			continue
		}
		followers, _, planned, _ := p.followersOf(ctx, job.App, name)
		graph[name], stored[name] = followers, !planned
		next = append(next, followers...)
	}
	graph[job.Name] = job.Followers()
	cycle := dispatcher.FindFollowCycle(graph)
	if cycle == nil {
		return
	}
	way := strings.Join(cycle, " -> ")
	at := pointerOfFollower(job, cycle)
	if !slices.ContainsFunc(cycle, func(name string) bool { return stored[name] }) {
		p.paths.Report(diags, []input.Problem{{Path: at, Code: input.CodeFollowCycle,
			Message: fmt.Sprintf("jobs of app %s would follow one another in a circle, and run for ever: %s; leave one of them out",
				input.Echo(job.App), way)}})
		return
	}
	p.warn(diags, warning{
		kind: input.CodeFollowCycle, title: input.RowOf(input.CodeFollowCycle).Title, thing: job.App + "/" + job.Name,
		at: at, more: "more jobs", detail: binding.WithCode("Jobs follow one another in a circle: "+way+
			". The apply is refused, unless it changes one of them first", input.CodeFollowCycle),
	})
}

// pointerOfFollower returns the pointer to the first name in a job that is part of a cycle.
func pointerOfFollower(job dispatcher.Job, cycle []string) string {
	for event, follow := range job.EachFollow() {
		for i, name := range follow.Jobs {
			if slices.Contains(cycle, name) {
				return input.Pointer(string(event), "jobs", strconv.Itoa(i))
			}
		}
	}
	return ""
}

// OfAlert records an alert, which jobs of the same plan may name. It warns of job names in it that do not exist, neither
// in the plan nor on the server. The API reports labels without a job at apply.
func (p *Plan) OfAlert(ctx context.Context, diags *diag.Diagnostics, of Definition[alert.Alert]) {
	app, e := of.Declared.App, of.E
	p.alerts.planned.set(app+"/"+of.Declared.Name, true)
	if !p.reads() || app == "" || of.Declared.Name == "" || diags.HasError() {
		return
	}
	var problems input.Problems
	for i, name := range of.Declared.Jobs {
		at := input.Pointer("jobs", strconv.Itoa(i))
		if e.IsUnknown(at) || name == "" {
			continue
		}
		if _, exists, _, known := p.followersOf(ctx, app, name); known && !exists {
			problems = append(problems, reference{"job", input.CodeAlertJobUnknown, app, name, at}.unknown(p.someJobs(ctx, app)))
		}
	}
	problems = append(problems, dispatcher.WarnOfNodes(app, nil, p.fleetOf(ctx, app), func(u *target.Unreachable) {
		u.Destination(target.DestinationAt, of.Declared.Destination)
	})...)
	p.WarnOfMistakes(diags, app, of.Declared.Name, e.AboutKnown(problems), "more alerts")
}
