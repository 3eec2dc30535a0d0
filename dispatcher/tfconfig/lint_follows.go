package tfconfig

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
)

// follower is a job that a block of another one names.
type follower struct {
	name    string
	pointer string // in the job that names it
}

// followersOf returns the jobs that follow a job, as far as their names are known, in the order of the file.
func followersOf(r *Resource) []follower {
	var all []follower
	for _, event := range dispatcher.FollowEvents {
		jobs := r.root.part(string(event)).part("jobs")
		if jobs == nil {
			continue
		}
		for i, one := range jobs.list {
			if name, known := one.text(); known && name != "" {
				all = append(all, follower{name, dispatcher.Pointer(string(event), "jobs", strconv.Itoa(i))})
			}
		}
	}
	return all
}

// follows checks the names of jobs that follow others, once all jobs are known.
func (l *linter) follows(m *Module) {
	declared := map[string]map[string]*Resource{} // jobs by app and name
	unnamed := map[string]bool{}                  // apps with jobs whose names are not known
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
			if declared[app] == nil {
				declared[app] = map[string]*Resource{}
			}
			declared[app][name] = r
		}
	}
	for _, app := range slices.Sorted(maps.Keys(declared)) {
		l.circles(app, declared[app])
		if _, here := l.apps[app]; !here || anyApp || unnamed[app] {
			continue // another module, or a name that is not known, may have them
		}
		for _, name := range slices.Sorted(maps.Keys(declared[app])) {
			r := declared[app][name]
			for _, one := range followersOf(r) {
				if declared[app][one.name] == nil {
					l.report(r, true, dispatcher.Problems{{Path: one.pointer, Code: dispatcher.CodeFollowUnknown, Message: "no file declares job " +
						dispatcher.Echo(one.name) + " of app " + app + "; declare it, or check the name" +
						dispatcher.DidYouMean(one.name, slices.Sorted(maps.Keys(declared[app])))}})
				}
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
				l.report(jobs[from], false, dispatcher.Problems{{Path: one.pointer, Code: dispatcher.CodeFollowCycle,
					Message: "jobs of app " + app + " would follow one another in a circle, and run for ever: " + strings.Join(cycle, " -> ") +
						"; leave one of them out"}})
				break
			}
		}
		graph[from] = slices.DeleteFunc(graph[from], func(name string) bool { return name == to })
	}
}
