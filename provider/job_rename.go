package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/provider/binding"
)

// rename gives the job of a state and its triggers the names that the configuration says, and returns the state after it.
func (r *jobResource) rename(ctx context.Context, diags *diag.Diagnostics, config, state binding.Values) (after binding.Values,
	renamed bool) {
	stored := r.expand(ctx, &binding.Expander{}, state)
	renames, problems := renamingOf(config, state, stored)
	if reportProblems(diags, problems); len(problems) > 0 || !renames.any() {
		return state, false
	}
	id := identityOf(state)
	job, err := r.conn.RenameJob(ctx, id.app, id.name, renames.JobRename, client.Condition{Revision: id.revision})
	if isConflict(err) {
		r.reportConflict(ctx, diags, id, err)
		return state, false
	}
	var refused *client.Error
	if errors.As(err, &refused) {
		refused.Problems = renames.inFiles(refused.Problems)
	}
	if err != nil {
		r.conn.report(diags, fmt.Sprintf("rename job %q", id.importID), err)
		return state, false
	}
	state = state.With("trigger", renames.triggers(ctx, diags, state.Map("trigger")))
	return r.conn.shownJob(ctx, diags, job, state), true
}

// inFiles returns the problems of a rename with the paths that the configuration has for what they point to.
func (r renaming) inFiles(problems input.Problems) input.Problems {
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

// triggers returns those of a state under the names that they have now, each with the name that it had.
func (r renaming) triggers(ctx context.Context, diags *diag.Diagnostics, m types.Map) types.Map {
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
	return flattenMap(diags, m.ElementType(ctx), renamed)
}
