package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

var (
	_ resource.ResourceWithConfigure      = (*alertResource)(nil)
	_ resource.ResourceWithImportState    = (*alertResource)(nil)
	_ resource.ResourceWithModifyPlan     = (*alertResource)(nil)
	_ resource.ResourceWithValidateConfig = (*alertResource)(nil)
)

// alertResource is carillon_alert. Its model is in alert_model.go and alert_webhook.go, Schema in alert_schema.go, and
// ValidateConfig and ModifyPlan in alert_plan.go.
type alertResource struct{ conn *connection }

func newAlertResource() resource.Resource { return &alertResource{} }

func (r *alertResource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_alert"
}

func (r *alertResource) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.conn = configured(req.ProviderData)
}

func (r *alertResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var plan, config alertModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...) // write-only values are in no plan
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	alert, problems := plannedAlert(ctx, plan, config, nil)
	if reportProblems(&resp.Diagnostics, problems); resp.Diagnostics.HasError() {
		return
	}
	alert, err := r.conn.PutAlert(ctx, alert, client.Condition{Absent: true})
	if err != nil {
		r.conn.reportCreate(&resp.Diagnostics, "alert", importID(plan.App, plan.Name), err)
		return
	}
	r.conn.warnOfMistakes(&resp.Diagnostics, alert.App, alert.Name, alert.Warnings, "more alerts")
	setState(ctx, &resp.State, &resp.Diagnostics, flattenAlert(ctx, &resp.Diagnostics, alert, plan))
}

func (r *alertResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state alertModel
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	alert, err := r.conn.Alert(ctx, state.App.ValueString(), state.Name.ValueString())
	if isNotFound(err) { // it was deleted outside of Terraform, so the plan creates it again
		resp.State.RemoveResource(ctx)
		return
	}
	if err != nil {
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("read alert %q", importID(state.App, state.Name)), err)
		return
	}
	setState(ctx, &resp.State, &resp.Diagnostics, flattenAlert(ctx, &resp.Diagnostics, alert, state))
}

func (r *alertResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan, config, state alertModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	alert, problems := plannedAlert(ctx, plan, config, &state)
	if reportProblems(&resp.Diagnostics, problems); resp.Diagnostics.HasError() {
		return
	}
	id, revision := importID(state.App, state.Name), state.Revision.ValueInt64()
	alert, err := r.conn.PutAlert(ctx, alert, client.Condition{Revision: revision})
	if isConflict(err) { // read the alert again, so that the error can name both revisions
		current, readErr := r.conn.Alert(ctx, state.App.ValueString(), state.Name.ValueString())
		r.conn.reportConflict(&resp.Diagnostics, "alert", id, revision, current.Revision, err, readErr)
		return
	}
	if err != nil {
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("update alert %q", id), err)
		return
	}
	r.conn.warnOfMistakes(&resp.Diagnostics, alert.App, alert.Name, alert.Warnings, "more alerts")
	setState(ctx, &resp.State, &resp.Diagnostics, flattenAlert(ctx, &resp.Diagnostics, alert, plan))
}

func (r *alertResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var state alertModel
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	id, revision := importID(state.App, state.Name), state.Revision.ValueInt64()
	app, name := state.App.ValueString(), state.Name.ValueString()
	err := r.conn.DeleteAlert(ctx, app, name, client.Condition{Revision: revision})
	switch {
	case err == nil || isNotFound(err): // if it is already deleted, nothing is left to do
	case isConflict(err):
		current, readErr := r.conn.Alert(ctx, app, name)
		r.conn.reportConflict(&resp.Diagnostics, "alert", id, revision, current.Revision, err, readErr)
	default:
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("delete alert %q", id), err)
	}
}

func (r *alertResource) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	importNested(ctx, "alert", "billing/on-call", req, resp)
}

// plannedAlert returns the alert to write with the secrets that must be sent, and the problems that could not be found at
// plan because their values were unknown. state is nil for a new alert.
func plannedAlert(ctx context.Context, plan, config alertModel, state *alertModel) (alert.Alert, input.Problems) {
	var e expander
	alert := expandAlert(ctx, &e, plan)
	alert = alert.WithSecrets(alertSecretsToWrite(ctx, &e, alert, config, state))
	return alert, e.problemsWith(alert.Validate())
}
