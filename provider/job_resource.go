package provider

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

var (
	_ resource.ResourceWithConfigure      = (*jobResource)(nil)
	_ resource.ResourceWithImportState    = (*jobResource)(nil)
	_ resource.ResourceWithModifyPlan     = (*jobResource)(nil)
	_ resource.ResourceWithValidateConfig = (*jobResource)(nil)
)

// jobResource is carillon_job; its schema, model and plan are in the job_*.go files beside.
type jobResource struct {
	definition[jobModel, dispatcher.Job]
	now func() time.Time // judges whether an instant is past
}

func newJobResource() resource.Resource {
	r := &jobResource{now: time.Now} //nolint:forbidigo // a plan is made at the present; tests set another
	r.kind = "job"
	r.api = calls[jobModel, dispatcher.Job]{
		put: putJob,
		read: func(ctx context.Context, conn *connection, m jobModel) (dispatcher.Job, error) {
			return conn.Job(ctx, m.App.ValueString(), m.Name.ValueString())
		},
		remove: func(ctx context.Context, conn *connection, m jobModel, cond client.Condition) error {
			return conn.DeleteJob(ctx, m.App.ValueString(), m.Name.ValueString(), cond)
		},
		model:    newJobModel,
		id:       func(m jobModel) string { return importID(m.App, m.Name) },
		revision: func(m jobModel) types.Int64 { return m.Revision },
		current:  func(job dispatcher.Job) int64 { return job.Revision },
		warnings: func(job dispatcher.Job) []dispatcher.Problem { return job.Warnings },
		gone:     warnOfDeleted,
	}
	return r
}

func (r *jobResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	importNested(ctx, r.kind, "billing/nightly-report", req, resp)
}

// putJob writes the job of a plan. What was unknown at plan is judged here for the first time:
// by us as well as by the API, because the wire has no form for a text that is no duration.
func putJob(ctx context.Context, conn *connection, w write[jobModel], cond client.Condition) (dispatcher.Job, error) {
	var read reader
	job := readJob(ctx, &read, w.plan)
	job.Target = job.Target.WithSecrets(writtenSecrets(ctx, &read, job, w))
	if problems := read.judge(job.Validate()); len(problems) > 0 {
		return dispatcher.Job{}, &client.Error{Status: http.StatusUnprocessableEntity, Problems: problems}
	}
	return conn.PutJob(ctx, job, cond)
}

// checkKept returns the faults of secrets that keep their value though the URL that they are sent to
// has changed, at the attribute to change.
func checkKept(ctx context.Context, w write[jobModel]) dispatcher.Problems {
	var read reader
	job, old := readJob(ctx, &read, w.plan), readJob(ctx, &reader{}, *w.state)
	stored := old.Target.Secrets()
	for path, secret := range stored {
		if secret.Reference == "" {
			stored[path] = dispatcher.Secret{Stored: true}
		}
	}
	var problems dispatcher.Problems
	kept := job.Target.WithSecrets(writtenSecrets(ctx, &read, job, w))
	if read.settled("/target/webhook/url") {
		problems.AddError("/target", kept.CheckKept(old.Target.WithSecrets(stored)))
	}
	for i, f := range problems {
		problems[i].Path = strings.TrimSuffix(f.Path, "/stored") + "/value_version"
	}
	return problems
}

// writtenSecrets returns the secrets of a planned job by their pointers in its target: of those
// that are no references, the value if its version is another than before, else that it stays.
func writtenSecrets(ctx context.Context, read *reader, job dispatcher.Job, w write[jobModel]) map[string]dispatcher.Secret {
	var old dispatcher.Target
	var before reader
	if w.state != nil {
		old = readJob(ctx, &before, *w.state).Target
	}
	stored, configured := old.Secrets(), readJob(ctx, &reader{}, w.config).Target.Secrets()
	secrets := job.Target.Secrets()
	for path, secret := range secrets {
		if secret.Reference != "" {
			continue
		}
		prior, had := stored[path]
		if at := "/target" + path; had && prior.Reference == "" && before.versions[at].Equal(read.versions[at]) {
			secrets[path] = dispatcher.Secret{Stored: true}
		} else {
			secrets[path] = configured[path]
		}
	}
	return secrets
}
