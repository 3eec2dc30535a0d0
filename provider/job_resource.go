package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

var (
	_ resource.ResourceWithConfigure      = (*jobResource)(nil)
	_ resource.ResourceWithImportState    = (*jobResource)(nil)
	_ resource.ResourceWithModifyPlan     = (*jobResource)(nil)
	_ resource.ResourceWithValidateConfig = (*jobResource)(nil)
)

// jobResource is carillon_job. Its model is in job_model.go, Schema in job_schema.go, and
// ValidateConfig and ModifyPlan in job_plan.go.
type jobResource struct {
	conn *connection
	now  func() time.Time // decides whether an instant is in the past
}

func newJobResource() resource.Resource {
	return &jobResource{now: clock}
}

// clock is the time of a plan, which is made now; tests set another.
func clock() time.Time { return time.Now() } //nolint:forbidigo // see above

func (r *jobResource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_job"
}

func (r *jobResource) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.conn = configured(req.ProviderData)
}

func (r *jobResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	change := jobChange{isNew: true}
	resp.Diagnostics.Append(req.Plan.Get(ctx, &change.plan)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &change.config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if model, done := r.written(ctx, &resp.Diagnostics, change); done {
		resp.Diagnostics.Append(resp.State.Set(ctx, model)...)
	}
}

func (r *jobResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state jobModel
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	model, found := r.read(ctx, &resp.Diagnostics, state)
	if !found && !resp.Diagnostics.HasError() {
		resp.State.RemoveResource(ctx)
		return
	}
	setState(ctx, &resp.State, &resp.Diagnostics, model)
}

// read returns a job as the API has it. It is not found if it was deleted outside of Terraform.
func (r *jobResource) read(ctx context.Context, diags *diag.Diagnostics, state jobModel) (model jobModel, found bool) {
	if !r.conn.ready(diags) {
		return jobModel{}, false
	}
	job, err := r.conn.Job(ctx, state.App.ValueString(), state.Name.ValueString())
	if isNotFound(err) { // so the plan creates it again
		warnOfDeletion(diags, state)
		return jobModel{}, false
	}
	if err != nil {
		r.conn.report(diags, fmt.Sprintf("read job %q", importID(state.App, state.Name)), err)
		return jobModel{}, false
	}
	r.conn.warnOfPauses(diags, job)
	r.conn.warnOfApp(diags, r.conn.appOf(ctx, job.App))
	model = r.conn.shownJob(ctx, diags, job, state)
	keepMoving(&model, state, job, r.now())
	return model, !diags.HasError()
}

func (r *jobResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var change jobChange
	resp.Diagnostics.Append(req.Plan.Get(ctx, &change.plan)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &change.config)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &change.state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if model, done := r.written(ctx, &resp.Diagnostics, change); done {
		resp.Diagnostics.Append(resp.State.Set(ctx, model)...)
	}
}

// written creates or updates a job as it was planned, and returns what the API made of it, unless that failed. After a
// rename that is done it returns the job in any case: the state has the names that the API has.
func (r *jobResource) written(ctx context.Context, diags *diag.Diagnostics, change jobChange) (model jobModel, done bool) {
	if !r.conn.ready(diags) {
		return jobModel{}, false
	}
	if !change.isNew && !change.plan.Revision.IsUnknown() { // only renamed_from differs, which the API does not store
		return change.plan, true
	}
	var state *jobModel
	if !change.isNew {
		state = &change.state
	}
	// An invalid job is reported before any request is made.
	job, problems := r.plannedJob(ctx, change.plan, change.config, state)
	if reportProblems(diags, problems); diags.HasError() {
		return jobModel{}, false
	}
	condition, renamed := client.Condition{Absent: true}, false
	if !change.isNew {
		if change.state, renamed = r.rename(ctx, diags, change.config, change.state); diags.HasError() {
			return change.state, renamed
		}
		condition = client.Condition{Revision: change.state.Revision.ValueInt64()}
	}
	job, err := r.conn.PutJob(ctx, job, condition)
	if err != nil {
		r.reportWrite(ctx, diags, change, err)
		return change.state, renamed
	}
	model = r.conn.writtenJob(ctx, diags, job, change.plan)
	if !change.plan.NextFireTimes.IsUnknown() {
		model.NextFireTimes = change.plan.NextFireTimes // the schedules did not change; keepMoving says why they stay
	}
	done = !diags.HasError()
	r.conn.warnOfMistakes(diags, job.App, job.Name, job.Warnings, "more jobs") // the API also knows what calendars exclude
	return model, done
}

// reportWrite says why a job was neither created nor updated.
func (r *jobResource) reportWrite(ctx context.Context, diags *diag.Diagnostics, change jobChange, err error) {
	if change.isNew {
		r.conn.reportCreate(diags, "job", importID(change.plan.App, change.plan.Name), err)
		return
	}
	id, revision := importID(change.state.App, change.state.Name), change.state.Revision.ValueInt64()
	if isConflict(err) { // read the job again, so that the error can name both revisions
		current, readErr := r.conn.Job(ctx, change.state.App.ValueString(), change.state.Name.ValueString())
		r.conn.reportConflict(diags, "job", id, revision, current.Revision, err, readErr)
		return
	}
	r.conn.report(diags, fmt.Sprintf("update job %q", id), err)
}

func (r *jobResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var state jobModel
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	id, revision := importID(state.App, state.Name), state.Revision.ValueInt64()
	app, name := state.App.ValueString(), state.Name.ValueString()
	err := r.conn.DeleteJob(ctx, app, name, client.Condition{Revision: revision})
	switch {
	case err == nil || isNotFound(err): // if it is already deleted, nothing is left to do
	case isConflict(err):
		current, readErr := r.conn.Job(ctx, app, name)
		r.conn.reportConflict(&resp.Diagnostics, "job", id, revision, current.Revision, err, readErr)
	case isInUse(err):
		resp.Diagnostics.AddError(input.RowOf(input.CodeJobInUse).Title, fmt.Sprintf("Could not delete job %q: %v.\n\nTerraform destroys a "+
			"job before it updates the jobs that name it. Take its name out of these jobs in one apply and remove the job in the next "+
			"one, or set create_before_destroy in the lifecycle block of the job.", id, err))
	default:
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("delete job %q", id), err)
	}
}

func (r *jobResource) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	importNested(ctx, "job", "billing/nightly-report", req, resp)
}

// plannedJob returns the job to write with the secrets that must be sent, and the problems that
// could not be found at plan because their values were unknown. The API would find most of them
// too, but it has no form for a duration or an instant that cannot be parsed. state is nil for
// a new job.
func (r *jobResource) plannedJob(ctx context.Context, plan, config jobModel, state *jobModel) (dispatcher.Job, input.Problems) {
	var e expander
	job := expandJob(ctx, &e, plan)
	job = job.WithSecrets(secretsToWrite(ctx, &e, job, config, state))
	problems := e.problemsWith(job.Validate())
	leaveToApp(ctx, &job, plan, config)
	job.Labels = r.conn.withDefaultLabels(job.Labels)
	return job, problems
}
