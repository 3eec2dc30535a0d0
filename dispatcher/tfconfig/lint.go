package tfconfig

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Lint returns everything wrong with a module, in the order of its files: problems of its syntax, and things that the
// API would refuse or warn of at now.
func (m *Module) Lint(now time.Time) []Problem {
	found := slices.Clone(m.Problems)
	byProvider := map[string]*Module{} // each may be of a server of its own
	for _, r := range m.Resources {
		if byProvider[r.provider] == nil {
			byProvider[r.provider] = &Module{}
		}
		byProvider[r.provider].Resources = append(byProvider[r.provider].Resources, r)
	}
	for _, provider := range slices.Sorted(maps.Keys(byProvider)) {
		found = append(found, byProvider[provider].lint(now)...)
	}
	found = unique(found)
	slices.SortStableFunc(found, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, a.Column-b.Column)
	})
	return found
}

// lint returns what the API would refuse or warn of in the resources of one provider.
func (m *Module) lint(now time.Time) []Problem {
	l := linter{now: now,
		apps: map[string]access.App{}, calendars: map[string][]dispatcher.Calendar{}, named: map[string]*Resource{}}
	for _, kind := range []struct {
		is   string
		lint func(*Resource) error
	}{ // jobs need the others of their app
		{AppType, l.app}, {CalendarType, l.calendar}, {GroupType, l.group}, {JobType, l.job}, {AlertType, l.alert},
	} {
		for _, r := range m.Resources {
			if r.Type != kind.is {
				continue
			}
			l.duplicate(r)
			if err := kind.lint(r); err != nil {
				l.found.add(r.Address, problemAt(r.at, CodeType, "%v", err))
			}
		}
		switch kind.is {
		case CalendarType:
			l.bases(m)
		case JobType:
			l.follows(m)
			l.watches(m)
		}
	}
	return l.found.Problems
}

// linter has the declarations so far.
type linter struct {
	found     Module
	now       time.Time
	apps      map[string]access.App
	calendars map[string][]dispatcher.Calendar // by app, those that are fully known
	named     map[string]*Resource
	// unnamedGroups is true if the names of some groups are unknown.
	unnamedGroups bool
}

// duplicate reports a name that two resources have.
func (l *linter) duplicate(r *Resource) {
	app, known := r.app()
	name, is := r.name()
	if !known || !is {
		return
	}
	key := r.Type + "/" + app + "/" + name
	if other := l.named[key]; other != nil {
		if other.uncertain() || r.uncertain() { // as one of two by a condition
			return
		}
		l.found.add(r.Address, problemAt(r.root.part("name").at, CodeTwice, "%s declares %s, too", other.Address,
			input.Echo(strings.TrimPrefix(key, r.Type+"/"))))
		return
	}
	l.named[key] = r
}

// report adds the problems that depend only on known values.
func (l *linter) report(r *Resource, warning bool, err error) {
	var problems input.Problems
	problems.AddError("", err)
	for _, p := range problems {
		if r.decidedElsewhere(p.Path) {
			continue
		}
		way := r.root.follow(p.Path)
		found := problemAt(way[len(way)-1].at, p.Code, "%s", p.Message)
		found.Warning = warning
		l.found.add(r.Address, found)
	}
}

func (l *linter) app(r *Resource) error {
	app, err := appOf(r)
	if err != nil {
		return err
	}
	l.report(r, false, app.Validate())
	if _, known := r.name(); known {
		l.apps[app.Name] = app
	}
	return nil
}

func (l *linter) calendar(r *Resource) error {
	calendar, err := calendarOf(r)
	if err != nil {
		return err
	}
	wrong := calendar.Validate()
	l.report(r, false, wrong)
	if r.root.allKnown() && wrong == nil {
		l.calendars[calendar.App] = append(l.calendars[calendar.App], calendar)
	}
	return nil
}

// bases checks calendars together with their bases.
func (l *linter) bases(m *Module) {
	for _, r := range m.Resources {
		if r.Type != CalendarType || !r.root.allKnown() {
			continue
		}
		app, _ := r.app()
		name, _ := r.name()
		l.report(r, false, l.calendarsOf(app, nil).Check(name))
	}
}

// calendarsOf returns the calendars of an app. Named calendars that are not declared here exclude nothing.
func (l *linter) calendarsOf(app string, triggers map[string]dispatcher.Trigger) dispatcher.Calendars {
	all := slices.Clone(l.calendars[app])
	declared := map[string]bool{}
	for _, c := range all {
		declared[c.Name] = true
	}
	stub := func(name string) {
		if name != "" && !declared[name] {
			declared[name] = true
			all = append(all, dispatcher.Calendar{App: app, Name: name})
		}
	}
	for _, c := range l.calendars[app] {
		for _, base := range c.Bases {
			stub(base)
		}
	}
	for _, t := range triggers {
		stub(t.Calendar)
	}
	return dispatcher.CompileCalendars(all)
}

func (l *linter) group(r *Resource) error {
	group, err := groupOf(r)
	if err != nil {
		return err
	}
	_, app := r.app()
	_, name := r.name()
	l.unnamedGroups = l.unnamedGroups || !app || !name
	l.report(r, false, group.Validate())
	if bounds := l.boundsOf(group.App); bounds != nil {
		l.report(r, false, bounds.CheckGroup(group))
	}
	return nil
}

func (l *linter) alert(r *Resource) error {
	alert, err := alertOf(r)
	if err != nil {
		return err
	}
	l.report(r, false, alert.Validate())
	if bounds := l.boundsOf(alert.App); bounds != nil {
		var problems input.Problems
		problems.AddError("/destination", bounds.CheckDestination(alert.App, alert.Destination))
		l.report(r, false, problems.Err())
	}
	return nil
}

// boundsOf returns the bounds of an app; nil if they are not declared here, or not fully known.
func (l *linter) boundsOf(name string) *target.Bounds {
	app, declared := l.apps[name]
	if !declared || app.Bounds == nil || !l.named[AppType+"/"+name+"/"+name].root.part("bounds").allKnown() {
		return nil
	}
	return new(app.Bounds.WithDefaults(name))
}

func (l *linter) job(r *Resource) error {
	name, known := r.app()
	app, declared := l.apps[name]
	job, err := jobOf(r, app.Defaults)
	if err != nil {
		return err
	}
	job.UpdatedAt = l.now
	calendars := l.calendarsOf(job.App, job.Triggers)
	l.report(r, false, job.Validate())
	l.report(r, false, job.CheckCost(calendars, l.now))
	l.report(r, false, renamedFromOf(r).Check(job.Triggers))
	// An app of another module, or an unknown app or default, may have a default_timezone.
	if elsewhere := !declared || l.named[AppType+"/"+name+"/"+name].root.part("defaults").part("timezone").isUnknown(); known {
		l.report(r, elsewhere, job.CheckTimezones())
	}
	if bounds := l.boundsOf(job.App); bounds != nil {
		l.report(r, false, job.CheckBounds(bounds))
	}
	group, given := r.root.part("target").part("group").part("name").text()
	if declared && given && group != "" && !l.unnamedGroups && l.named[GroupType+"/"+job.App+"/"+group] == nil {
		// Another module may have it.
		l.report(r, true, input.Problems{{Path: "/target/group/name", Code: input.CodeGroupUnknown, Message: "no file declares group " +
			input.Echo(group) + " of app " + job.App + "; declare it, or check the name"}})
	}
	for name := range job.Triggers {
		if !r.root.part("triggers").part(name).allKnown() {
			delete(job.Triggers, name) // its warnings are about the whole trigger
		}
	}
	l.report(r, true, input.Problems(job.Warn(calendars)).Err())
	return nil
}

// needs are the neighboring values that decide whether a value is right.
var needs = map[string][]string{
	"expression":      {"dialect", "start_at", "end_at", "repeat_count", "gap", "overlap", "calendar", "on_excluded"},
	"timezone":        {"expression", "dialect"},
	"gap":             {"expression", "dialect"},
	"overlap":         {"expression", "dialect"},
	"drift_hour":      {"expression", "dialect"},
	"start_at":        {"expression", "dialect", "end_at"},
	"end_at":          {"expression", "dialect", "start_at"},
	"repeat_count":    {"expression", "dialect"},
	"calendar":        {"expression", "dialect"},
	"on_excluded":     {"expression", "dialect", "calendar"},
	"jitter":          {"expression", "dialect"},
	"misfire_after":   {"catch_up_window"},
	"catch_up_window": {"misfire_after"},
	"cap":             {"base", "delays"},
	"delays":          {"max_attempts"},
	"max_concurrency": {"concurrency_policy"},
	"queue_limit":     {"concurrency_policy"},
	"carry_state":     {"concurrency_policy", "max_concurrency", "target"},
	"payload":         {"target"},
	"auth":            {"url", "method", "kind"},
	"signing":         {"kind"},
	"app_name":        {"kind"},
	"access_token":    {"kind"},
	"body":            {"method", "format", "headers"},
	"failure":         {"missed", "late_after", "overrun_after", "no_success_for", "objective", "blocked"},
	"routing_key":     {"format"},
	"secret_url":      {"url"},
	"severity":        {"format"},
	"url":             {"secret_url"},
	"client_secret":   {"client_auth"},
	"private_key":     {"client_auth", "algorithm"},
	"headers":         {"auth", "cloud_events"},
	"cloud_events":    {"method", "format"},
	"region":          {"function"},
	"assume_role":     {"function", "region"},
	"client_context":  {"invocation"},
	"callback":        {"invocation"},
	"expire_after":    {"heartbeat"},
	"hash_key":        {"strategy"},
}

// decidedElsewhere reports whether a problem at a pointer is uncertain, because a value that it depends on is unknown.
func (r *Resource) decidedElsewhere(pointer string) bool {
	way := r.root.follow(pointer)
	tokens := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	complete := pointer == "" || len(way) == len(tokens)+1
	for i, n := range way {
		if n.unknown {
			return true
		}
		if i == len(tokens) || pointer == "" {
			continue
		}
		for _, sibling := range needs[tokens[i]] {
			if part := n.part(sibling); part.isUnknown() || sibling == "target" && !part.allKnown() {
				return true
			}
		}
	}
	return complete && !way[len(way)-1].allKnown()
}

// follower is a job that a block of another one names.
type follower struct {
	name    string
	pointer string // in the job that names it
}

// followersOf returns the known names of jobs that follow a job, in the order of the file.
func followersOf(r *Resource) []follower {
	var all []follower
	for _, event := range run.FollowEvents {
		jobs := r.root.part(string(event)).part("jobs")
		if jobs == nil {
			continue
		}
		for i, one := range jobs.list {
			if name, known := one.text(); known && name != "" {
				all = append(all, follower{name, input.Pointer(string(event), "jobs", strconv.Itoa(i))})
			}
		}
	}
	return all
}

// declared are the resources of a kind in a module by app and name, and the apps that it has all of them of.
type declared struct {
	kind  string // JobType or AlertType
	named map[string]map[string]*Resource
	all   map[string]bool
}

// declared returns the jobs or alerts of a module. An app that is not in all may have others, elsewhere or with unknown
// names.
func (l *linter) declared(m *Module, kind string) declared {
	d := declared{kind, map[string]map[string]*Resource{}, map[string]bool{}}
	unnamed := map[string]bool{} // apps with resources of unknown names
	anyApp := false
	for _, r := range m.Resources {
		if r.Type != kind {
			continue
		}
		app, known := r.app()
		name, named := r.name()
		switch {
		case !known:
			anyApp = true
		case !named:
			unnamed[app] = true
		default:
			if d.named[app] == nil {
				d.named[app] = map[string]*Resource{}
			}
			d.named[app][name] = r
		}
	}
	for app := range l.apps {
		d.all[app] = !anyApp && !unnamed[app]
	}
	return d
}

// unknown returns the problem of a name that an app lacks, if the module has all resources of the kind of that app.
func (d declared) unknown(pointer, code, app, name string) error {
	if !d.all[app] || d.named[app][name] != nil {
		return nil
	}
	return input.Problems{{Path: pointer, Code: code, Message: "no file declares " + strings.TrimPrefix(d.kind, "carillon_") + " " +
		input.Echo(name) + " of app " + app + "; declare it, or check the name" +
		input.DidYouMean(name, slices.Sorted(maps.Keys(d.named[app])))}}
}

// follows checks the names of jobs and alerts that follow jobs, once all of them are known.
func (l *linter) follows(m *Module) {
	declared, alerts := l.declared(m, JobType), l.declared(m, AlertType)
	for _, app := range slices.Sorted(maps.Keys(declared.named)) {
		jobs := declared.named[app]
		l.circles(app, jobs)
		for _, name := range slices.Sorted(maps.Keys(jobs)) {
			for _, one := range followersOf(jobs[name]) {
				l.report(jobs[name], true, declared.unknown(one.pointer, input.CodeFollowUnknown, app, one.name))
			}
			for _, event := range run.FollowEvents {
				if alert, known := jobs[name].root.part(string(event)).part("alert").text(); known && alert != "" {
					l.report(jobs[name], true, alerts.unknown(input.Pointer(string(event), "alert"), input.CodeFollowUnknown, app, alert))
				}
			}
		}
	}
}

// watches checks the names of jobs that alerts select, once all jobs are known.
func (l *linter) watches(m *Module) {
	declared := l.declared(m, JobType)
	for _, r := range m.Resources {
		app, known := r.app()
		jobs := r.root.part("jobs")
		if r.Type != AlertType || !known || jobs == nil {
			continue
		}
		for i, one := range jobs.list {
			if name, named := one.text(); named && name != "" {
				l.report(r, true, declared.unknown(input.Pointer("jobs", strconv.Itoa(i)), input.CodeAlertJobUnknown, app, name))
			}
		}
	}
}

// circles reports jobs of an app that would follow one another in a circle, one for each circle.
func (l *linter) circles(app string, jobs map[string]*Resource) {
	graph := map[string][]string{}
	for name, r := range jobs {
		for _, one := range followersOf(r) {
			if one.name != name { // Validate reports it
				graph[name] = append(graph[name], one.name)
			}
		}
	}
	for cycle := dispatcher.FindFollowCycle(graph); cycle != nil; cycle = dispatcher.FindFollowCycle(graph) {
		from, to := cycle[0], cycle[1]
		for _, one := range followersOf(jobs[from]) {
			if one.name == to {
				l.report(jobs[from], false, input.Problems{{Path: one.pointer, Code: input.CodeFollowCycle,
					Message: "jobs of app " + app + " would follow one another in a circle, and run for ever: " + strings.Join(cycle, " -> ") +
						"; leave one of them out"}})
				break
			}
		}
		graph[from] = slices.DeleteFunc(graph[from], func(name string) bool { return name == to })
	}
}
