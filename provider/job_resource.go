package provider

import (
	"context"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

var (
	_ resource.ResourceWithImportState    = (*jobResource)(nil)
	_ resource.ResourceWithModifyPlan     = (*jobResource)(nil)
	_ resource.ResourceWithValidateConfig = (*jobResource)(nil)
)

// jobResource is carillon_job. Its model is in job_model.go, Schema in job_schema.go, and
// ValidateConfig and ModifyPlan in job_plan.go.
type jobResource struct {
	definitionResource[jobModel, dispatcher.Job]
	now func() time.Time // decides whether an instant is in the past
}

func newJobResource() resource.Resource {
	return &jobResource{definitionResource: definitionResource[jobModel, dispatcher.Job]{
		kind:    "job",
		id:      func(m jobModel) string { return importID(m.App, m.Name) },
		planned: func(m jobModel) int64 { return m.Revision.ValueInt64() },
		current: func(job dispatcher.Job) int64 { return job.Revision },
		get: func(ctx context.Context, c *client.Client, m jobModel) (dispatcher.Job, error) {
			return c.Job(ctx, m.App.ValueString(), m.Name.ValueString())
		},
		put: (*client.Client).PutJob,
		remove: func(ctx context.Context, c *client.Client, m jobModel, cond client.Condition) error {
			return c.DeleteJob(ctx, m.App.ValueString(), m.Name.ValueString(), cond)
		},
		expand:  plannedJob,
		flatten: flattenJob,
		// The API also knows the exclusions of calendars.
		written: func(diags *diag.Diagnostics, job dispatcher.Job) { reportWarnings(diags, job.Warnings) },
		missing: warnOfDeletion,
	}, now: time.Now} //nolint:forbidigo // a plan is made now; tests set another time
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
func plannedJob(ctx context.Context, plan, config jobModel, state *jobModel) (dispatcher.Job, dispatcher.Problems) {
	var e expander
	job := expandJob(ctx, &e, plan)
	job.Target = job.Target.WithSecrets(secretsToWrite(ctx, &e, job, config, state))
	return job, e.problemsWith(job.Validate())
}
