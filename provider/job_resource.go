package provider

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/provider/binding"
	"github.com/carillon-dev/carillon/provider/plan"
)

// jobResource is carillon_job. What it validates and plans is in job_plan.go.
type jobResource struct {
	definition[dispatcher.Job]
	now func() time.Time // decides whether an instant is in the past
}

func jobs(c *connection) *jobResource {
	if c == nil {
		c = unconfigured()
	}
	return &jobResource{now: clock, definition: definition[dispatcher.Job]{
		heading: heading{"job", jobRows, importNested("job", "billing/nightly-report"),
			"A job: a target to call, a payload to send, and named triggers that say when. " +
				"Import it by `app/job`.\n\n" +
				"Expressions, time zones, durations, URLs and headers are checked at plan by the rules of the API. " +
				"An apply is refused if someone else changed the job after the plan was made."},
		conn: c, check: dispatcher.Job.Validate,
		api: requests[dispatcher.Job]{
			(*client.Client).PutJob, (*client.Client).Job, (*client.Client).DeleteJob,
			func(j dispatcher.Job) int64 { return j.Revision },
		},
		secrets: secretsOf[dispatcher.Job]{dispatcher.Job.CheckKept, webhookKnown},
		bounds:  func(bounds *target.Bounds, j dispatcher.Job) error { return j.CheckBounds(bounds) },
		inUse: input.Problem{Code: input.CodeJobInUse, Message: "Terraform destroys a job before it updates the jobs that name it. Take " +
			"its name out of these jobs in one apply and remove the job in the next one, or set create_before_destroy in the lifecycle " +
			"block of the job."},
	}}
}

// clock is the time of a plan, which is made now; tests set another.
func clock() time.Time { return time.Now() } //nolint:forbidigo // see above

// read returns a job as the API has it. It is not found if it was deleted outside of Terraform.
func (r *jobResource) read(ctx context.Context, diags *diag.Diagnostics, state binding.Values) (model binding.Values, found bool) {
	if !r.conn.ready(diags) {
		return nil, false
	}
	id := identityOf(state)
	job, err := r.conn.Job(ctx, id.app, id.name)
	if client.IsNotFound(err) { // so the plan creates it again
		warnOfDeletion(diags, state)
		return nil, false
	}
	if err != nil {
		r.conn.report(diags, fmt.Sprintf("read job %q", id.importID), err)
		return nil, false
	}
	r.conn.WarnOfStops(ctx, diags, job)
	model = r.conn.shownJob(ctx, diags, job, state)
	plan.KeepMoving(model, state, job, r.now())
	return model, !diags.HasError()
}

// written creates or updates a job as it was planned, and returns what the API made of it, unless that failed. After a
// rename that is done it returns the job in any case: the state has the names that the API has.
func (r *jobResource) written(ctx context.Context, diags *diag.Diagnostics, change change) (model binding.Values, done bool) {
	if !r.conn.ready(diags) {
		return nil, false
	}
	if !change.isNew && !change.plan.Revision().IsUnknown() { // only renamed_from differs, which the API does not store
		return change.plan, true
	}
	var state *binding.Values
	if !change.isNew {
		state = &change.state
	}
	// An invalid job is reported before any request is made.
	job, problems := r.toWrite(change.plan, change.config, state)
	if reportProblems(diags, problems); diags.HasError() {
		return nil, false
	}
	leaveToApp(&job, change.plan, change.config)
	job.Labels = r.conn.withDefaultLabels(job.Labels)
	condition, renamed := client.Condition{Absent: true}, false
	if !change.isNew {
		if change.state, renamed = r.rename(ctx, diags, change.config, change.state); diags.HasError() {
			return change.state, renamed
		}
		condition = client.Condition{Revision: change.state.Revision().ValueInt64()}
	}
	job, err := r.conn.PutJob(ctx, job, condition)
	if err != nil {
		r.reportWrite(ctx, diags, change, err)
		return change.state, renamed
	}
	given := &dispatcher.JobDefaults{Retry: &job.Retry} // what the plan leaves out, the app has given
	given.Headers, _ = job.Target.Headers()
	model = r.conn.flattenJob(diags, job, change.plan, given)
	if times := change.plan["next_fire_times"]; !times.IsUnknown() {
		model["next_fire_times"] = times // the schedules did not change; KeepMoving says why they stay
	}
	done = !diags.HasError()
	r.conn.WarnOfMistakes(diags, job.App, job.Name, job.Warnings, "more jobs") // the API also knows what calendars exclude
	return model, done
}

// warnOfDeletion says why a missing job was probably deleted, and what Terraform will plan.
func warnOfDeletion(diags *diag.Diagnostics, m binding.Values) {
	if m.Text("delete_after_completion").IsNull() {
		return
	}
	diags.AddWarning("The job no longer exists",
		fmt.Sprintf("Carillon probably deleted job %q after its last fire, because it has delete_after_completion = %q. Terraform "+
			"will plan to create it again, and its triggers would start over. If the job is done, remove the resource.",
			identityOf(m).importID, m.Text("delete_after_completion").ValueString()))
}

// rename gives the job of a state and its triggers the names that the configuration says, and returns the state after it.
func (r *jobResource) rename(ctx context.Context, diags *diag.Diagnostics, config, state binding.Values) (after binding.Values,
	renamed bool) {
	stored := r.expand(&binding.Expander{}, state)
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
