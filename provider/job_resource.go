package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

var (
	_ resource.ResourceWithConfigure      = (*jobResource)(nil)
	_ resource.ResourceWithImportState    = (*jobResource)(nil)
	_ resource.ResourceWithModifyPlan     = (*jobResource)(nil)
	_ resource.ResourceWithValidateConfig = (*jobResource)(nil)
)

// jobResource is carillon_job: its calls are here, its schema, model and plan in the
// job_*.go files beside.
type jobResource struct {
	conn *connection
	now  func() time.Time // judges whether an instant is past
}

func newJobResource() resource.Resource {
	return &jobResource{now: time.Now} //nolint:forbidigo // a plan is made at the present; tests set another
}

func (r *jobResource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_job"
}

func (r *jobResource) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.conn = configured(req.ProviderData)
}

func (r *jobResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var plan jobModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	job, err := r.put(ctx, plan, client.Condition{Absent: true})
	switch id := importID(plan); {
	case errors.Is(err, dispatcher.ErrPrecondition):
		reportExisting(&resp.Diagnostics, "job", id)
	case absent(err):
		resp.Diagnostics.AddAttributeError(path.Root("app"), "The app does not exist (not_found)",
			fmt.Sprintf("Could not create job %q: there is no app %s. Declare it as a carillon_app and refer to its name, "+
				"so that Terraform creates it first.", id, plan.App))
	case err != nil:
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("create job %q", id), err)
	default:
		store(ctx, &resp.State, &resp.Diagnostics, job, plan)
		reportWarnings(&resp.Diagnostics, job.Warnings)
	}
}

func (r *jobResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state jobModel
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	job, err := r.conn.Job(ctx, state.App.ValueString(), state.Name.ValueString())
	switch {
	case absent(err):
		resp.State.RemoveResource(ctx)
	case err != nil:
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("read job %q", importID(state)), err)
	default:
		store(ctx, &resp.State, &resp.Diagnostics, job, state)
	}
}

func (r *jobResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan, state jobModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	job, err := r.put(ctx, plan, client.Condition{Revision: state.Revision.ValueInt64()})
	switch {
	case errors.Is(err, dispatcher.ErrPrecondition) || absent(err):
		r.stale(ctx, &resp.Diagnostics, state)
	case err != nil:
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("update job %q", importID(plan)), err)
	default:
		store(ctx, &resp.State, &resp.Diagnostics, job, plan)
		reportWarnings(&resp.Diagnostics, job.Warnings)
	}
}

func (r *jobResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var state jobModel
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || !r.conn.ready(&resp.Diagnostics) {
		return
	}
	err := r.conn.DeleteJob(ctx, state.App.ValueString(), state.Name.ValueString(), client.Condition{Revision: state.Revision.ValueInt64()})
	switch {
	case err == nil || absent(err):
	case errors.Is(err, dispatcher.ErrPrecondition):
		r.stale(ctx, &resp.Diagnostics, state)
	default:
		r.conn.report(&resp.Diagnostics, fmt.Sprintf("delete job %q", importID(state)), err)
	}
}

func (r *jobResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	app, name, _ := strings.Cut(req.ID, "/")
	var faults dispatcher.Faults
	dispatcher.CheckName(&faults, "", app)
	dispatcher.CheckName(&faults, "", name)
	if len(faults) > 0 {
		resp.Diagnostics.AddError("Invalid import id (import_id)",
			fmt.Sprintf("The id %s does not have the form app/job, such as billing/nightly-report. Each part is %s.",
				dispatcher.Echo(req.ID), strings.ReplaceAll(nameRule, "`", "")))
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("app"), app)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), name)...)
}

// put writes the job of a plan. What was unknown at plan is judged here for the first time:
// by us as well as by the API, because the wire has no form for a text that is no duration.
func (r *jobResource) put(ctx context.Context, plan jobModel, cond client.Condition) (dispatcher.Job, error) {
	var read reader
	job := readJob(ctx, &read, plan)
	if faults := read.judge(job.Validate()); len(faults) > 0 {
		return dispatcher.Job{}, &client.Error{Status: http.StatusUnprocessableEntity, Faults: faults}
	}
	return r.conn.PutJob(ctx, job, cond)
}

// store sets the state to a job that the API answered.
func store(ctx context.Context, state *tfsdk.State, diags *diag.Diagnostics, job dispatcher.Job, prior jobModel) {
	m, found := newJobModel(ctx, job, prior)
	diags.Append(found...)
	if !diags.HasError() {
		diags.Append(state.Set(ctx, m)...)
	}
}

func (r *jobResource) stale(ctx context.Context, diags *diag.Diagnostics, state jobModel) {
	r.conn.reportStale(diags, "job", importID(state), state.Revision.ValueInt64(), func() (int64, error) {
		job, err := r.conn.Job(ctx, state.App.ValueString(), state.Name.ValueString())
		return job.Revision, err
	})
}

func importID(m jobModel) string { return m.App.ValueString() + "/" + m.Name.ValueString() }
