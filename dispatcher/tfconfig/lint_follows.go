package tfconfig

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// follower is a job that a block of another one names.
type follower struct {
	name    string
	pointer string // in the job that names it
}

// followersOf returns the jobs that follow a job, as far as their names are known, in the order of the file.
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

// declaredJobs are the jobs of a module by app and name, and the apps of which it has all jobs.
type declaredJobs struct {
	jobs map[string]map[string]*Resource
	all  map[string]bool
}

// jobsOf returns the jobs of a module. Another module, or a name that is not known, may have those of an app that is not in all.
func (l *linter) jobsOf(m *Module) declaredJobs {
	d := declaredJobs{map[string]map[string]*Resource{}, map[string]bool{}}
	unnamed := map[string]bool{} // apps with jobs whose names are not known
	anyApp := false
	for _, r := range m.Resources {
		if r.Type != JobType {
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
			if d.jobs[app] == nil {
				d.jobs[app] = map[string]*Resource{}
			}
			d.jobs[app][name] = r
		}
	}
	for app := range l.apps {
		d.all[app] = !anyApp && !unnamed[app]
	}
	return d
}

// unknown returns the problem of a name that no job of an app has, if the module has all jobs of that app.
func (d declaredJobs) unknown(pointer, code, app, name string) error {
	if !d.all[app] || d.jobs[app][name] != nil {
		return nil
	}
	return input.Problems{{Path: pointer, Code: code, Message: "no file declares job " + input.Echo(name) + " of app " + app +
		"; declare it, or check the name" + input.DidYouMean(name, slices.Sorted(maps.Keys(d.jobs[app])))}}
}

// follows checks the names of jobs that follow others, once all jobs are known.
func (l *linter) follows(m *Module) {
	declared := l.jobsOf(m)
	for _, app := range slices.Sorted(maps.Keys(declared.jobs)) {
		jobs := declared.jobs[app]
		l.circles(app, jobs)
		for _, name := range slices.Sorted(maps.Keys(jobs)) {
			for _, one := range followersOf(jobs[name]) {
				l.report(jobs[name], true, declared.unknown(one.pointer, input.CodeFollowUnknown, app, one.name))
			}
		}
	}
}

// watches checks the names of jobs that alerts select, once all jobs are known.
func (l *linter) watches(m *Module) {
	declared := l.jobsOf(m)
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

// circles reports jobs of an app that would follow one another in a circle: one of each circle, until there is none.
func (l *linter) circles(app string, jobs map[string]*Resource) {
	graph := map[string][]string{}
	for name, r := range jobs {
		for _, one := range followersOf(r) {
			if one.name != name { // Validate says so
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
