package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

var (
	_ resource.ResourceWithConfigure      = (*groupResource)(nil)
	_ resource.ResourceWithImportState    = (*groupResource)(nil)
	_ resource.ResourceWithModifyPlan     = (*groupResource)(nil)
	_ resource.ResourceWithValidateConfig = (*groupResource)(nil)
)

// groupResource is carillon_endpoint_group. Its model is in endpoint_group_model.go, Schema in endpoint_group_schema.go, and
// ValidateConfig and ModifyPlan in endpoint_group_plan.go.
type groupResource struct{ conn *connection }

func newGroupResource() resource.Resource { return &groupResource{} }

// groupKind is what messages call it.
const groupKind = "endpoint group"

func (r *groupResource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_endpoint_group"
}

func (r *groupResource) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.conn = configured(req.ProviderData)
}

func (r *groupResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var plan, config groupModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...) // write-only values are in no plan
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	group, problems := plannedGroup(ctx, plan, config, nil)
	if reportProblems(&resp.Diagnostics, problems); resp.Diagnostics.HasError() {
		return
	}
	group, err := r.conn.PutGroup(ctx, group, client.Condition{Absent: true})
	if err != nil {
		r.conn.reportCreate(&resp.Diagnostics, groupKind, importID(plan.App, plan.Name), err)
		return
	}
	setState(ctx, &resp.State, &resp.Diagnostics, flattenGroup(ctx, &resp.Diagnostics, group, plan))
}

func (r *groupResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state groupModel
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	group, err := r.conn.Group(ctx, state.App.ValueString(), state.Name.ValueString())
	if isNotFound(err) { // it was deleted outside of Terraform, so the plan creates it again
		resp.State.RemoveResource(ctx)
		return
	}
	if err != nil {
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("read %s %q", groupKind, importID(state.App, state.Name)), err)
		return
	}
	setState(ctx, &resp.State, &resp.Diagnostics, flattenGroup(ctx, &resp.Diagnostics, group, state))
}

func (r *groupResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan, config, state groupModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	group, problems := plannedGroup(ctx, plan, config, &state)
	if reportProblems(&resp.Diagnostics, problems); resp.Diagnostics.HasError() {
		return
	}
	id, revision := importID(state.App, state.Name), state.Revision.ValueInt64()
	group, err := r.conn.PutGroup(ctx, group, client.Condition{Revision: revision})
	if isConflict(err) { // read the group again, so that the error can name both revisions
		current, readErr := r.conn.Group(ctx, state.App.ValueString(), state.Name.ValueString())
		r.conn.reportConflict(&resp.Diagnostics, groupKind, id, revision, current.Revision, err, readErr)
		return
	}
	if err != nil {
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("update %s %q", groupKind, id), err)
		return
	}
	setState(ctx, &resp.State, &resp.Diagnostics, flattenGroup(ctx, &resp.Diagnostics, group, plan))
}

func (r *groupResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var state groupModel
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	id, revision := importID(state.App, state.Name), state.Revision.ValueInt64()
	app, name := state.App.ValueString(), state.Name.ValueString()
	err := r.conn.DeleteGroup(ctx, app, name, client.Condition{Revision: revision})
	switch {
	case err == nil || isNotFound(err): // if it is already deleted, nothing is left to do
	case isConflict(err):
		current, readErr := r.conn.Group(ctx, app, name)
		r.conn.reportConflict(&resp.Diagnostics, groupKind, id, revision, current.Revision, err, readErr)
	case isInUse(err):
		resp.Diagnostics.AddError(input.RowOf(input.CodeGroupInUse).Title, fmt.Sprintf("Could not delete %s %q: %v.\n\nTerraform destroys a "+
			"group before it updates the jobs that used it. Give these jobs another target in one apply and remove the group in the next "+
			"one, or set create_before_destroy in the lifecycle block of the group.", groupKind, id, err))
	default:
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("delete %s %q", groupKind, id), err)
	}
}

func (r *groupResource) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	importNested(ctx, "group", "billing/workers", req, resp)
}

// plannedGroup returns the group to write with the secrets that must be sent, and the problems that could not be found at
// plan because their values were unknown. state is nil for a new group.
func plannedGroup(ctx context.Context, plan, config groupModel, state *groupModel) (target.EndpointGroup, input.Problems) {
	var e expander
	group := expandGroup(ctx, &e, plan)
	group = group.WithSecrets(groupSecretsToWrite(ctx, &e, group, config, state))
	return group, e.problemsWith(group.Validate())
}
