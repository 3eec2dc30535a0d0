package access

import (
	"maps"
	"regexp"
	"strconv"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// WithOrigins returns the job with the origins of the export.
func (e ExportedJob) WithOrigins() dispatcher.Job {
	job := e.Job
	job.Origin = dispatcher.OriginOf(e.Origin, job.Name)
	job.Triggers = maps.Clone(job.Triggers)
	for name, t := range job.Triggers {
		t.Origin = dispatcher.OriginOf(e.Triggers[name].Origin, name)
		job.Triggers[name] = t
	}
	return job
}

// originPattern is a name, or what stands for one that another job or trigger had already.
var originPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}(~[1-9][0-9]{0,5})?$`)

// checkOrigins adds what is wrong with the origins in e: each is one, and no two jobs, nor two triggers of a job, have the
// same, because they would have the same event ids.
func (e Export) checkOrigins(problems *input.Problems) {
	jobs := map[string]string{} // by origin
	for i, one := range e.Jobs {
		at, job := input.Pointer("jobs", strconv.Itoa(i)), one.WithOrigins()
		checkOrigin(problems, jobs, at, job.Name, job.CreatedAs())
		triggers := map[string]string{}
		for _, name := range input.SortedKeys(job.Triggers) {
			checkOrigin(problems, triggers, at+input.Pointer("triggers", name), name, job.TriggerOrigin(name))
		}
	}
}

// checkOrigin adds what is wrong with the origin of what is called name; owners are the names of those before it, by origin.
func checkOrigin(problems *input.Problems, owners map[string]string, at, name, origin string) {
	other, taken := owners[origin]
	switch {
	case !originPattern.MatchString(origin) && origin != name: // what is wrong with a name is said of the name
		problems.Add(at+"/origin", input.CodeNameFormat, "origin %s is neither a name nor a name with ~2, ~3 and so on after it; "+
			"take the file as carillon app export wrote it", input.Echo(origin))
	case taken && other != name:
		problems.Add(at+"/origin", input.CodeNameMismatch, "%s and %s have the same origin, %s; take the file as carillon app export wrote it",
			input.Echo(other), input.Echo(name), input.Echo(origin))
	}
	owners[origin] = name
}
