package plan

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/provider/binding"
)

// Renaming is a planned rename of a job and its triggers. The job has the name from in the state.
type Renaming struct {
	dispatcher.JobRename
	from string
}

// Any reports whether the plan renames anything.
func (r Renaming) Any() bool { return r.Name != "" || len(r.Triggers) > 0 }

// to returns the new name of a trigger.
func (r Renaming) to(name string) string { return cmp.Or(r.Triggers[name], name) }

// Of returns a job under its new names. Values derived from the old names stay as they are.
func (r Renaming) Of(job dispatcher.Job) dispatcher.Job {
	if renamed, err := r.Apply(job, job.UpdatedAt); err == nil {
		return renamed
	}
	return job // no rename, or a problem explains why not
}

// Keys returns a map of the state with the new names of triggers as keys.
func (r Renaming) Keys(ctx context.Context, m types.Map) types.Map {
	if len(r.Triggers) == 0 {
		return m
	}
	renamed := m.Elements()
	maps.DeleteFunc(renamed, func(name string, _ attr.Value) bool { return r.to(name) != name })
	for name, value := range m.Elements() {
		renamed[r.to(name)] = value
	}
	return types.MapValueMust(m.ElementType(ctx), renamed)
}

// RenamedFrom returns the former trigger names in a model; known is false if others may become known at apply.
func RenamedFrom(m binding.Values) (from dispatcher.RenamedFrom, known bool) {
	from, known = dispatcher.RenamedFrom{}, !m["trigger"].IsUnknown()
	for name, element := range m.Map("trigger").Elements() {
		object, _ := element.(types.Object)
		former, _ := object.Attributes()["renamed_from"].(types.String)
		if !former.IsNull() {
			from[name] = former.ValueString()
		}
		known = known && !object.IsUnknown() && !former.IsUnknown() && !binding.IsUnknownName(name)
	}
	return from, known
}

// RenamingOf returns the configured rename of the job in the state.
func RenamingOf(config, state binding.Values, stored dispatcher.Job) (Renaming, input.Problems) {
	r := Renaming{from: stored.Name}
	if name := config.Text("name"); !name.IsUnknown() && name.ValueString() != stored.Name {
		r.Name = name.ValueString()
	}
	var problems input.Problems
	if from, known := RenamedFrom(config); known && len(from) > 0 {
		done, _ := RenamedFrom(state)
		names, err := from.Pending(done, stored)
		problems.AddError("", err)
		r.Triggers = names
	}
	if r.Any() && len(problems) == 0 {
		_, err := r.Apply(stored, stored.UpdatedAt)
		problems.AddError("", err)
		problems = r.InFiles(problems)
	}
	return r, problems
}

// Rename returns the planned rename, and warns of it. It refuses a name that another job has.
func (p *Plan) Rename(ctx context.Context, diags *diag.Diagnostics, config, state binding.Values, stored dispatcher.Job) Renaming {
	if !config["app"].Equal(state["app"]) {
		return Renaming{from: stored.Name} // the job is replaced by a new one
	}
	renames, problems := RenamingOf(config, state, stored)
	p.paths.Report(diags, problems)
	if !p.reads() || diags.HasError() || !renames.Any() {
		return renames
	}
	if renames.Name != "" {
		if taken := p.nameTaken(ctx, stored, renames.Name); taken != "" {
			diags.AddAttributeError(path.Root("name"), input.RowOf(input.CodeNameTaken).Title, binding.WithCode(taken, input.CodeNameTaken))
			return renames
		}
	}
	p.warnOfRename(diags, stored.App, renames)
	return renames
}

// nameTaken explains why a job cannot get a name now; empty: it can, or that is not known before the apply. The runs of
// a job are found by its name as long as its history is kept, also when it is deleted.
func (p *Plan) nameTaken(ctx context.Context, job dispatcher.Job, name string) string {
	if _, err := p.Job(ctx, job.App, name); err == nil {
		return fmt.Sprintf("Job %s/%s exists, so %s/%s cannot get its name. Choose another name. Or delete or rename that job first, by an "+
			"apply of its own: Terraform does not order the two.", job.App, name, job.App, job.Name)
	}
	if _, err := p.Runs(ctx, dispatcher.RunQuery{App: job.App, Job: name, Page: input.Page{Limit: 1}}); err == nil {
		return fmt.Sprintf("Job %s/%s was deleted, and its history is kept under this name for the longest retention of all apps, so %s/%s "+
			"cannot get its name. Choose another name.", job.App, name, job.App, job.Name)
	}
	return ""
}

// warnOfRename reports the planned rename, and the things that keep the old name.
func (p *Plan) warnOfRename(diags *diag.Diagnostics, app string, r Renaming) {
	var lines []string
	at := "/name"
	if r.Name != "" {
		lines = append(lines, fmt.Sprintf("Job %s/%s becomes %s/%s.", app, r.from, app, r.Name))
	}
	for i, old := range slices.Sorted(maps.Keys(r.Triggers)) {
		if len(lines) == 0 && i == 0 {
			at = input.Pointer("triggers", r.Triggers[old], "renamed_from")
		}
		lines = append(lines, fmt.Sprintf("Trigger %s becomes %s.", old, r.Triggers[old]))
	}
	p.warn(diags, warning{
		kind: "renamed", title: "Rename", thing: app + "/" + r.from, at: at, more: "more jobs",
		detail: strings.Join(lines, "\n") + "\n\nHistory, pauses and event ids stay, and the rename moves no fire. New requests carry the " +
			"new name. What else has the old one does not follow: dashboards, alerts, scripts, import blocks.",
	})
}

// WarnOfRenameOutside reports that the job of a state has another name now, and who gave it that name.
func (p *Plan) WarnOfRenameOutside(ctx context.Context, diags *diag.Diagnostics, app, from, to string) {
	renamed := ""
	query := access.AuditQuery{Apps: []string{app}, Action: string(dispatcher.CauseRename), Subject: "job " + to, Refused: new(false)}
	list, _ := p.Audit(ctx, query) // without an entry, the warning does not say who it was
	for _, entry := range list.Items {
		var before, after struct{ Name string }
		_, _ = json.Unmarshal(entry.Before, &before), json.Unmarshal(entry.After, &after)
		if after.Name == to && before.Name != to {
			renamed = fmt.Sprintf(" by %s at %s", input.Echo(entry.Actor), entry.At.UTC().Format(time.RFC3339))
			break
		}
	}
	p.warn(diags, warning{
		kind: "renamed outside", title: "Renamed outside of Terraform", thing: app + "/" + from, key: to, at: "/name", more: "more jobs",
		detail: fmt.Sprintf("Job %s/%s was renamed to %s/%s%s. It is the same job, so a plan with the name %s in the configuration renames "+
			"it back. To keep the new name, write name = %q.", app, from, app, to, renamed, from, to),
	})
}

// likelyRename suggests that a new trigger is a removed one under another name, or returns "" without such a pair.
func likelyRename(before, after dispatcher.Job) string {
	removed, added := without(before.Triggers, after.Triggers), without(after.Triggers, before.Triggers)
	if len(removed) == 0 || len(added) == 0 {
		return ""
	}
	old, name := removed[0], added[0]
	for _, one := range added {
		same := func(candidate string) bool { return before.Triggers[candidate].Same(after.Triggers[one].Schedule) }
		if i := slices.IndexFunc(removed, same); i >= 0 {
			old, name = removed[i], one
			break
		}
	}
	return fmt.Sprintf("A new trigger does not continue a removed one: it has no history and no pause, and other event ids and values "+
		"of H and jitter. If trigger %s is %s under another name, write renamed_from = %q into its block.", name, old, old)
}

// without returns the names of triggers that others lacks.
func without(triggers, others map[string]dispatcher.Trigger) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(triggers)), func(name string) bool {
		_, there := others[name]
		return there
	})
}

// SameButRenamedFrom reports whether two jobs are equal in all attributes that the API stores.
func SameButRenamedFrom(ctx context.Context, a, b binding.Values) bool {
	without := func(v binding.Values) binding.Values {
		triggers := v.Map("trigger")
		if triggers.IsNull() || triggers.IsUnknown() {
			return v
		}
		stored := triggers.Elements()
		for name, element := range stored {
			if object, is := element.(types.Object); is && !object.IsNull() && !object.IsUnknown() {
				attributes := object.Attributes()
				attributes["renamed_from"] = types.StringNull()
				stored[name] = types.ObjectValueMust(object.AttributeTypes(ctx), attributes)
			}
		}
		return v.With("trigger", types.MapValueMust(triggers.ElementType(ctx), stored))
	}
	return without(a).Equal(without(b))
}

// InFiles returns the problems of a rename with paths of the configuration.
func (r Renaming) InFiles(problems input.Problems) input.Problems {
	told := slices.Clone(problems)
	for i, p := range told {
		for old, name := range r.Triggers {
			if p.Path == input.Pointer("triggers", old) {
				told[i].Path = input.Pointer("triggers", name, "renamed_from")
			}
		}
	}
	return told
}

// Renamed returns the triggers of a state by their current names, each with its former name.
func (r Renaming) Renamed(ctx context.Context, m types.Map) types.Map {
	renamed := map[string]attr.Value{}
	for name, element := range m.Elements() {
		object, is := element.(types.Object)
		if r.to(name) != name && is {
			attributes := object.Attributes()
			attributes["renamed_from"] = types.StringValue(name)
			element = types.ObjectValueMust(object.AttributeTypes(ctx), attributes)
		}
		renamed[r.to(name)] = element
	}
	return types.MapValueMust(m.ElementType(ctx), renamed)
}
