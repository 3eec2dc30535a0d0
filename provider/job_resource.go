package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
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
	var plan, config jobModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...) // write-only values are in no plan
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	// An invalid job is reported before any request is made.
	job, problems := r.plannedJob(ctx, plan, config, nil)
	if reportProblems(&resp.Diagnostics, problems); resp.Diagnostics.HasError() {
		return
	}
	job, err := r.conn.PutJob(ctx, job, client.Condition{Absent: true})
	if err != nil {
		r.conn.reportCreate(&resp.Diagnostics, "job", importID(plan.App, plan.Name), err)
		return
	}
	model := r.conn.writtenJob(ctx, &resp.Diagnostics, job, plan)
	if !plan.NextFireTimes.IsUnknown() {
		model.NextFireTimes = plan.NextFireTimes // the schedules did not change; keepMoving says why they stay
	}
	setState(ctx, &resp.State, &resp.Diagnostics, model)
	r.conn.warnOfMistakes(&resp.Diagnostics, job.App, job.Name, job.Warnings) // the API also knows what calendars exclude
}

func (r *jobResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state jobModel
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	job, err := r.conn.Job(ctx, state.App.ValueString(), state.Name.ValueString())
	if isNotFound(err) { // it was deleted outside of Terraform, so the plan creates it again
		warnOfDeletion(&resp.Diagnostics, state)
		resp.State.RemoveResource(ctx)
		return
	}
	if err != nil {
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("read job %q", importID(state.App, state.Name)), err)
		return
	}
	r.conn.warnOfPauses(&resp.Diagnostics, job)
	r.conn.warnOfApp(&resp.Diagnostics, r.conn.appOf(ctx, job.App))
	model := r.conn.shownJob(ctx, &resp.Diagnostics, job, state)
	keepMoving(&model, state, job, r.now())
	setState(ctx, &resp.State, &resp.Diagnostics, model)
}

func (r *jobResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan, config, state jobModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	if !plan.Revision.IsUnknown() { // only renamed_from differs, which the API does not store
		setState(ctx, &resp.State, &resp.Diagnostics, plan)
		return
	}
	job, problems := r.plannedJob(ctx, plan, config, &state)
	if reportProblems(&resp.Diagnostics, problems); resp.Diagnostics.HasError() {
		return
	}
	state = r.rename(ctx, config, state, resp)
	if resp.Diagnostics.HasError() {
		return
	}
	id, revision := importID(state.App, state.Name), state.Revision.ValueInt64()
	job, err := r.conn.PutJob(ctx, job, client.Condition{Revision: revision})
	if isConflict(err) { // read the job again, so that the error can name both revisions
		current, readErr := r.conn.Job(ctx, state.App.ValueString(), state.Name.ValueString())
		r.conn.reportConflict(&resp.Diagnostics, "job", id, revision, current.Revision, err, readErr)
		return
	}
	if err != nil {
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("update job %q", id), err)
		return
	}
	model := r.conn.writtenJob(ctx, &resp.Diagnostics, job, plan)
	if !plan.NextFireTimes.IsUnknown() {
		model.NextFireTimes = plan.NextFireTimes // the schedules did not change; keepMoving says why they stay
	}
	setState(ctx, &resp.State, &resp.Diagnostics, model)
	r.conn.warnOfMistakes(&resp.Diagnostics, job.App, job.Name, job.Warnings) // the API also knows what calendars exclude
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
func (r *jobResource) plannedJob(ctx context.Context, plan, config jobModel, state *jobModel) (dispatcher.Job, dispatcher.Problems) {
	var e expander
	job := expandJob(ctx, &e, plan)
	job.Target = job.Target.WithSecrets(secretsToWrite(ctx, &e, job, config, state))
	problems := e.problemsWith(job.Validate())
	leaveToApp(ctx, &job, plan, config)
	job.Labels = r.conn.withDefaultLabels(job.Labels)
	return job, problems
}
