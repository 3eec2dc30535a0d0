package provider

import (
	"context"
	"slices"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// plannedNames are the things of one kind that an apply of this plan leaves. Terraform plans them before what refers to
// them.
type plannedNames struct {
	mu    sync.Mutex
	names map[string]bool // app/name
}

func (p *plannedNames) add(app, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names == nil {
		p.names = map[string]bool{}
	}
	p.names[app+"/"+name] = true
}

func (p *plannedNames) has(app, name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.names[app+"/"+name]
}

// knownGroups are the endpoint groups that jobs refer to.
type knownGroups struct {
	planned plannedNames
	mu      sync.Mutex
	stored  map[string][]string // names by app, read once; nil: they cannot be read
}

// groupsOf returns the names of the groups that an app has; nil if they cannot be read.
func (c *connection) groupsOf(ctx context.Context, app string) []string {
	k := &c.groups
	k.mu.Lock()
	defer k.mu.Unlock() // jobs of the app wait instead of reading them, too
	if all, there := k.stored[app]; there {
		return all
	}
	if k.stored == nil {
		k.stored = map[string][]string{}
	}
	k.stored[app] = nil
	all := []string{}
	for page := (input.Page{}); ; {
		list, err := c.Groups(ctx, app, page)
		if err != nil && !isNotFound(err) { // an app that does not exist yet has none
			return nil
		}
		for _, group := range list.Items {
			all = append(all, group.Name)
		}
		if page.Cursor = list.Next; page.Cursor == "" {
			k.stored[app] = all
			return all
		}
	}
}

// checkGroup refuses a job whose target is a group that neither exists nor is created by the same plan. What cannot be known
// now, the API judges at apply.
func (r *jobResource) checkGroup(ctx context.Context, diags *diag.Diagnostics, e *expander, job dispatcher.Job) {
	group := job.Target.Group
	if group == nil || r.conn == nil || len(r.conn.unknown) > 0 || job.App == "" || group.Name == "" ||
		r.conn.groups.planned.has(job.App, group.Name) {
		return
	}
	if names := r.conn.groupsOf(ctx, job.App); names != nil && !slices.Contains(names, group.Name) {
		var problems input.Problems
		addUnknownName(&problems, "/target/group/name", input.CodeGroupUnknown, groupKind, job.App, group.Name, names)
		reportProblems(diags, e.aboutKnown(problems))
	}
}
