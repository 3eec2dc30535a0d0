package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

// definitionResource is what all resources have in common. D is what a resource declares, which is
// an app, a calendar or a job, and M is its model.
type definitionResource[M, D any] struct {
	conn *connection
	kind string // the name of the resource without its prefix
	// id returns the import id of a model, and planned the revision that a plan was made from.
	id      func(M) string
	planned func(M) int64
	// current returns the revision of a definition from the API.
	current func(D) int64
	get     func(context.Context, *client.Client, M) (D, error)
	put     func(*client.Client, context.Context, D, client.Condition) (D, error)
	remove  func(context.Context, *client.Client, M, client.Condition) error
	// expand returns what to write, and the problems that could not be found at plan because their
	// values were unknown. state is nil for a new definition.
	expand  func(ctx context.Context, plan, config M, state *M) (D, dispatcher.Problems)
	flatten func(ctx context.Context, diags *diag.Diagnostics, definition D, prior M) M
	// written and missing add warnings after a write, and when Read finds nothing; nil: none.
	written func(*diag.Diagnostics, D)
	missing func(*diag.Diagnostics, M)
}

func (r *definitionResource[M, D]) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + r.kind
}

func (r *definitionResource[M, D]) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.conn = configured(req.ProviderData)
}

func (r *definitionResource[M, D]) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	plan, definition, ok := r.prepare(ctx, &resp.Diagnostics, req.Plan, req.Config, nil)
	if !ok {
		return
	}
	definition, err := r.put(r.conn.Client, ctx, definition, client.Condition{Absent: true})
	if err != nil {
		r.conn.reportCreate(&resp.Diagnostics, r.kind, r.id(plan), err)
		return
	}
	r.store(ctx, &resp.State, &resp.Diagnostics, definition, plan)
}

func (r *definitionResource[M, D]) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state M
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	definition, err := r.get(ctx, r.conn.Client, state)
	switch {
	case isNotFound(err): // it was deleted outside of Terraform, so the plan creates it again
		if r.missing != nil {
			r.missing(&resp.Diagnostics, state)
		}
		resp.State.RemoveResource(ctx)
	case err != nil:
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("read %s %q", r.kind, r.id(state)), err)
	default:
		setState(ctx, &resp.State, &resp.Diagnostics, r.flatten(ctx, &resp.Diagnostics, definition, state))
	}
}

func (r *definitionResource[M, D]) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var state M
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	plan, definition, ok := r.prepare(ctx, &resp.Diagnostics, req.Plan, req.Config, &state)
	if !ok {
		return
	}
	definition, err := r.put(r.conn.Client, ctx, definition, client.Condition{Revision: r.planned(state)})
	if err != nil {
		r.reportChange(ctx, &resp.Diagnostics, "update", state, err)
		return
	}
	r.store(ctx, &resp.State, &resp.Diagnostics, definition, plan)
}

func (r *definitionResource[M, D]) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var state M
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	err := r.remove(ctx, r.conn.Client, state, client.Condition{Revision: r.planned(state)})
	if err != nil && !isNotFound(err) { // if it is already deleted, nothing is left to do
		r.reportChange(ctx, &resp.Diagnostics, "delete", state, err)
	}
}

// prepare returns a plan and what to write for it; ok is false if there is a problem. It reports an
// invalid definition before any request is made.
func (r *definitionResource[M, D]) prepare(
	ctx context.Context, diags *diag.Diagnostics, planned tfsdk.Plan, configured tfsdk.Config, state *M,
) (plan M, definition D, ok bool) {
	var config M
	diags.Append(planned.Get(ctx, &plan)...)
	diags.Append(configured.Get(ctx, &config)...) // write-only values are in no plan
	if diags.HasError() || !r.conn.ready(diags) {
		return plan, definition, false
	}
	definition, problems := r.expand(ctx, plan, config, state)
	reportProblems(diags, problems)
	return plan, definition, !diags.HasError()
}

// store puts a definition that was written into the state.
func (r *definitionResource[M, D]) store(
	ctx context.Context, state *tfsdk.State, diags *diag.Diagnostics, definition D, plan M,
) {
	setState(ctx, state, diags, r.flatten(ctx, diags, definition, plan))
	if r.written != nil {
		r.written(diags, definition)
	}
}

// reportChange adds the error of an update or delete. After a conflict it reads the definition again,
// so that the error can name both revisions.
func (r *definitionResource[M, D]) reportChange(ctx context.Context, diags *diag.Diagnostics, doing string, state M, err error) {
	if !isConflict(err) {
		r.conn.report(diags, fmt.Sprintf("%s %s %q", doing, r.kind, r.id(state)), err)
		return
	}
	now, err := r.get(ctx, r.conn.Client, state)
	r.conn.reportConflict(diags, r.kind, r.id(state), r.planned(state), r.current(now), err)
}
