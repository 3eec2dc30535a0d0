package provider

import (
	"cmp"
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

// ValidateConfig judges all that is known by the rules of the domain.
func (r *jobResource) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var config jobModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	var read reader
	job := readJob(ctx, &read, config)
	var problems dispatcher.Problems
	dispatcher.CheckName(&problems, "/app", job.App) // part of the job's address, so Validate leaves it out
	problems.AddError("", job.Validate())
	reportProblems(&resp.Diagnostics, read.judge(problems.Err()))
	reportWarnings(&resp.Diagnostics, read.known(r.warn(job)))
}

// warn returns what the API will warn of if the job is declared at the present.
func (r *jobResource) warn(job dispatcher.Job) dispatcher.Problems {
	job.UpdatedAt = r.now().UTC()
	triggers := map[string]dispatcher.Trigger{}
	for name, t := range job.Triggers {
		t.AnchorAt = job.UpdatedAt
		triggers[name] = t
	}
	job.Triggers = triggers
	return job.Warn(nil) // what its calendars exclude is not known here
}

// ModifyPlan states in the plan what the API will resolve, refuses instants that are past,
// and decides whether anything really changes.
func (r *jobResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		return // a destroy
	}
	var config, plan, state jobModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	var old *dispatcher.Job
	if !req.State.Raw.IsNull() {
		resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
		job := readJob(ctx, &reader{}, state)
		old = &job
	}
	r.resolve(ctx, &resp.Diagnostics, old, config, &plan)
	if resp.Diagnostics.HasError() {
		return
	}
	if old != nil {
		if importID(plan.App, plan.Name) == importID(state.App, state.Name) { // else another one takes its place
			reportProblems(&resp.Diagnostics, checkKept(ctx, write[jobModel]{plan, config, &state}))
		}
		plan.State, plan.Revision, plan.NextFireTimes = state.State, state.Revision, state.NextFireTimes
		resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
		if resp.Plan.Raw.Equal(req.State.Raw) {
			return // nothing but the way of writing it differs, if that
		}
	}
	plan.State, plan.Revision = types.StringUnknown(), types.Int64Unknown()
	plan.NextFireTimes = types.MapUnknown(timetypes.RFC3339Type{})
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
}

// resolve fills in what the configuration leaves to be resolved, for each trigger that is
// known in full. old is the job in state, nil for a new one.
func (r *jobResource) resolve(ctx context.Context, diags *diag.Diagnostics, old *dispatcher.Job, config jobModel, plan *jobModel) {
	var read reader
	job := readJob(ctx, &read, config)
	job.Enabled = job.Enabled && read.settled("/enabled") // if it comes to be disabled, it may be past
	triggers := plan.Triggers.Elements()
	for name := range job.Triggers {
		object, _ := triggers[name].(types.Object)
		var m triggerModel
		if !read.settled(dispatcher.Pointer("triggers", name)) || !(&reader{}).object(ctx, "", object, &m) {
			continue
		}
		t, err := r.revise(old, job, name)
		var problems dispatcher.Problems
		problems.AddError("", err)
		reportProblems(diags, problems)
		// Also what is left out and was changed outside goes back to what it resolves to.
		m.Dialect, m.Timezone = word(t.Dialect), word(t.Timezone)
		m.Gap, m.Overlap = word(t.Gap), word(t.Overlap)
		triggers[name] = objectFrom(ctx, diags, triggersType().ElemType.(types.ObjectType), m)
	}
	if !plan.Triggers.IsUnknown() && !diags.HasError() {
		plan.Triggers = mapFrom(ctx, diags, triggersType().ElemType, triggers)
	}
}

// revise returns a trigger as the API will store it. It asks the domain about this trigger
// alone: the rest of the job may not be known yet, the names of app and job included, of
// which only H would make something.
func (r *jobResource) revise(old *dispatcher.Job, job dispatcher.Job, name string) (dispatcher.Trigger, error) {
	alone := dispatcher.Job{
		App: cmp.Or(job.App, "app"), Name: cmp.Or(job.Name, "job"), Enabled: job.Enabled,
		Target:   dispatcher.Target{Webhook: &dispatcher.Webhook{URL: "https://example.com/", Method: dispatcher.Methods[0], Timeout: dispatcher.DefaultTimeout}},
		Triggers: map[string]dispatcher.Trigger{name: job.Triggers[name]},
	}
	revised, _, err := dispatcher.Apply(old, alone, 0, nil, r.now())
	return revised.Triggers[name], err
}
