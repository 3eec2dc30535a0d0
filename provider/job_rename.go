package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/provider/binding"
	"github.com/carillon-dev/carillon/provider/plan"
)

// rename gives the job of a state and its triggers the names that the configuration says, and returns the state after it.
func (r *jobResource) rename(ctx context.Context, diags *diag.Diagnostics, config, state binding.Values) (after binding.Values,
	renamed bool) {
	stored := r.expand(ctx, &binding.Expander{}, state)
	renames, problems := plan.RenamingOf(config, state, stored)
	if reportProblems(diags, problems); len(problems) > 0 || !renames.Any() {
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
		refused.Problems = renames.InFiles(refused.Problems)
	}
	if err != nil {
		r.conn.report(diags, fmt.Sprintf("rename job %q", id.importID), err)
		return state, false
	}
	state = state.With("trigger", renames.Renamed(ctx, state.Map("trigger")))
	return r.conn.shownJob(ctx, diags, job, state), true
}
