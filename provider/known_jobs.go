package provider

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/provider/binding"
)

// knownJobs are the jobs that follow others, and what follows them.
type knownJobs struct {
	mu sync.Mutex
	// planned has the followers of each job that an apply of this plan leaves, by app/name.
	planned map[string][]string
	// stored has the followers of jobs that the plan does not have, or not yet, as they were read; nil: there is no such job.
	stored map[string]*[]string
}

// plan remembers a planned job with the names of the jobs that follow it.
func (k *knownJobs) plan(app, name string, followers []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.planned == nil {
		k.planned = map[string][]string{}
	}
	k.planned[app+"/"+name] = followers
}

// followersOf returns the names of the jobs that follow a job, as it is planned, or else as it is stored. known is false if
// it cannot be read now.
func (c *connection) followersOf(ctx context.Context, app, name string) (followers []string, exists, planned, known bool) {
	k := &c.jobs
	k.mu.Lock()
	defer k.mu.Unlock() // jobs that name the same one wait instead of reading it, too
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
	job, err := c.Job(ctx, app, name)
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

// checkFollows refuses a job that names one that neither exists nor is created by the same plan, and jobs that would follow
// one another in a circle. What cannot be known now, the API judges at apply.
func (r *jobResource) checkFollows(ctx context.Context, diags *diag.Diagnostics, e *binding.Expander, job dispatcher.Job) {
	if r.conn == nil || len(r.conn.unknown) > 0 || job.App == "" || job.Name == "" || diags.HasError() {
		return
	}
	followers := job.Followers()
	r.conn.jobs.plan(job.App, job.Name, followers)
	if len(followers) == 0 {
		return
	}
	var problems input.Problems
	for event, follow := range job.EachFollow() {
		for i, name := range follow.Jobs {
			at := input.Pointer(string(event), "jobs", strconv.Itoa(i))
			if e.IsUnknown(at) || name == "" {
				continue
			}
			if _, exists, _, known := r.conn.followersOf(ctx, job.App, name); known && !exists {
				addUnknownName(&problems, at, input.CodeFollowUnknown, "job", job.App, name, r.conn.someJobs(ctx, job.App))
			}
		}
	}
	reportProblems(diags, e.AboutKnown(problems))
	if len(problems) == 0 {
		r.conn.checkCycle(ctx, diags, job)
	}
}

// someJobs returns names that may have been meant instead of one that does not exist.
func (c *connection) someJobs(ctx context.Context, app string) []string {
	list, err := c.Jobs(ctx, app, input.Page{Limit: 1000})
	if err != nil {
		return nil
	}
	var names []string
	for _, job := range list.Items {
		names = append(names, job.Name)
	}
	return names
}

// checkCycle reports jobs that follow one another back to a planned job. It is an error if the plan has all of them. If not,
// a change that is planned later may break the circle.
func (c *connection) checkCycle(ctx context.Context, diags *diag.Diagnostics, job dispatcher.Job) {
	graph, stored := map[string][]string{}, map[string]bool{}
	for next := job.Followers(); len(next) > 0 && len(graph) < dispatcher.MostFollowing; next = next[1:] {
		name := next[0]
		if _, seen := graph[name]; seen || name == job.Name {
			continue
		}
		followers, _, planned, _ := c.followersOf(ctx, job.App, name)
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
		reportProblems(diags, []input.Problem{{Path: at, Code: input.CodeFollowCycle,
			Message: fmt.Sprintf("jobs of app %s would follow one another in a circle, and run for ever: %s; leave one of them out",
				input.Echo(job.App), way)}})
		return
	}
	c.warn(diags, warning{
		kind: input.CodeFollowCycle, title: input.RowOf(input.CodeFollowCycle).Title, thing: job.App + "/" + job.Name,
		at: paths().Of(at), inFull: warningsInFull, detail: binding.WithCode("Jobs follow one another in a circle: "+way+
			". The apply is refused, unless it changes one of them first", input.CodeFollowCycle),
	}, "more jobs")
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
