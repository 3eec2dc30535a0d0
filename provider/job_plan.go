package provider

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

// ValidateConfig checks all known values by the rules of the domain. ModifyPlan warns, because
// Terraform validates each resource several times, and before it knows the values of for_each.
func (r *jobResource) ValidateConfig(
	ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse,
) {
	var config jobModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	var e expander
	// The defaults of the app are known at plan.
	job := expandJob(ctx, &e, (&jobResource{}).filled(ctx, &resp.Diagnostics, config))
	var problems dispatcher.Problems
	dispatcher.CheckName(&problems, "/app", job.App)          // Validate leaves it out: the API has it in the URL
	problems.AddError("", withOmittedSecrets(job).Validate()) // ModifyPlan knows whether there is a stored value
	if text, err := json.Marshal(job.ForWire()); err == nil {
		const most = 10
		problems.AddError("", dispatcher.CheckJSONText(text, most))
	}
	reportProblems(&resp.Diagnostics, e.problemsWith(problems.Err()))
}

// warnings returns what the API would warn of if the job were declared now. With calendars nil, it does
// not know which fires they exclude.
func (r *jobResource) warnings(job dispatcher.Job, calendars dispatcher.Calendars) dispatcher.Problems {
	job.UpdatedAt = r.now().UTC()
	triggers := map[string]dispatcher.Trigger{}
	for name, t := range job.Triggers {
		t.AnchorAt = job.UpdatedAt
		triggers[name] = t
	}
	job.Triggers = triggers
	return job.Warn(calendars)
}

// ModifyPlan puts the values that the API will resolve into the plan, refuses instants in the
// past, and marks the computed attributes as unknown only if something else changes.
func (r *jobResource) ModifyPlan(
	ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse,
) {
	if req.Plan.Raw.IsNull() {
		return // a destroy
	}
	var config, plan, state jobModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	var old *dispatcher.Job
	if !req.State.Raw.IsNull() {
		resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
		job := expandJob(ctx, &expander{}, state)
		old = &job
	}
	reportProblems(&resp.Diagnostics, missingSecretProblems(ctx, config, state))
	config = r.filled(ctx, &resp.Diagnostics, config)
	r.checkTimezones(ctx, &resp.Diagnostics, config)
	r.checkBounds(ctx, &resp.Diagnostics, config)
	r.checkCalendars(ctx, &resp.Diagnostics, config)
	r.checkGroup(ctx, &resp.Diagnostics, config)
	r.resolveTriggers(ctx, &resp.Diagnostics, old, config, &plan)
	if resp.Diagnostics.HasError() {
		return
	}
	plan.ConcurrencyPolicy = config.ConcurrencyPolicy
	plan.LabelsAll = r.conn.plannedLabels(ctx, &resp.Diagnostics, plan.Labels)
	r.warnOfConfig(ctx, &resp.Diagnostics, config)
	var kept bool
	if old != nil {
		replaced := importID(plan.App, plan.Name) != importID(state.App, state.Name)
		if !replaced {
			reportProblems(&resp.Diagnostics, keptSecretProblems(ctx, plan, config, state))
		}
		plan.State, plan.Revision, plan.NextFireTimes = state.State, state.Revision, state.NextFireTimes
		resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
		if !replaced {
			kept = r.keepsFires(ctx, &resp.Diagnostics, *old, plan)
		}
		if resp.Plan.Raw.Equal(req.State.Raw) {
			return // no change, or only another way to write the same
		}
	}
	plan.State, plan.Revision = types.StringUnknown(), types.Int64Unknown()
	if !kept {
		// The next fires of a new schedule may pass before it is applied, and Terraform does not accept
		// another value then. The warning about fires shows them.
		plan.NextFireTimes = types.MapUnknown(timetypes.RFC3339Type{})
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
}

// checkBounds refuses a job that is outside the bounds of its app, as far as both are known.
func (r *jobResource) checkBounds(ctx context.Context, diags *diag.Diagnostics, config jobModel) {
	var e expander
	job := expandJob(ctx, &e, config)
	bounds := r.conn.boundsOf(ctx, job.App)
	if e.isUnknown("/app") || bounds == nil || diags.HasError() {
		return
	}
	reportProblems(diags, (&expander{unknown: e.unknown, incomplete: e.incomplete}).problemsWith(bounds.CheckJob(job)))
}

// checkTimezones refuses triggers that follow the wall clock of no place, once the app's default is known.
func (r *jobResource) checkTimezones(ctx context.Context, diags *diag.Diagnostics, config jobModel) {
	var e expander
	job := expandJob(ctx, &e, config)
	if e.isUnknown("/app") {
		return
	}
	var problems dispatcher.Problems
	problems.AddError("", job.CheckTimezones())
	for i := range problems {
		problems[i].Message += "; or give the app a default_timezone"
	}
	reportProblems(diags, e.aboutKnown(problems))
}

// resolveTriggers plans what the API will resolve for each trigger that is completely known.
// Attributes that the configuration leaves out are resolved again, so the plan also undoes a
// change that was made to them outside of Terraform. old is the job in the state, nil for a
// new one.
func (r *jobResource) resolveTriggers(
	ctx context.Context, diags *diag.Diagnostics, old *dispatcher.Job, config jobModel, plan *jobModel,
) {
	var e expander
	job := expandJob(ctx, &e, config)
	job.Enabled = job.Enabled && e.allKnown("/enabled") // a disabled job may have instants in the past
	triggers, configured := plan.Triggers.Elements(), config.Triggers.Elements()
	for name := range job.Triggers {
		object, _ := triggers[name].(types.Object)
		written, _ := configured[name].(types.Object)
		var m, filled triggerModel
		if !(&expander{}).object(ctx, "", object, &m) || !(&expander{}).object(ctx, "", written, &filled) {
			continue
		}
		m.MisfirePolicy = filled.MisfirePolicy
		if !filled.Timezone.IsNull() {
			m.Timezone = filled.Timezone
		}
		if !e.allKnown(dispatcher.Pointer("triggers", name)) {
			triggers[name] = flattenObject(ctx, diags, triggerType(), m)
			continue
		}
		t, err := r.resolve(old, job, name)
		var problems dispatcher.Problems
		problems.AddError("", err)
		reportProblems(diags, problems)
		m.Dialect, m.Timezone = flattenOptional(t.Dialect), flattenOptional(t.Timezone)
		m.Gap, m.Overlap = flattenOptional(t.Gap), flattenOptional(t.Overlap)
		triggers[name] = flattenObject(ctx, diags, triggerType(), m)
	}
	if !plan.Triggers.IsUnknown() && !diags.HasError() {
		plan.Triggers = flattenMap(ctx, diags, triggerType(), triggers)
	}
}

// resolve returns a trigger as the API will store it. It applies a job that has this trigger
// alone, because the rest may be unknown. Unknown names of app and job are replaced too: only
// the hash of H depends on them, and an expression with H then counts as unknown.
func (r *jobResource) resolve(old *dispatcher.Job, job dispatcher.Job, name string) (dispatcher.Trigger, error) {
	alone := dispatcher.Job{
		App: cmp.Or(job.App, "app"), Name: cmp.Or(job.Name, "job"), Enabled: job.Enabled,
		Target: dispatcher.Target{Webhook: &dispatcher.Webhook{
			URL: "https://example.com/", Method: dispatcher.Methods[0], Timeout: dispatcher.DefaultTimeout,
		}},
		Triggers: map[string]dispatcher.Trigger{name: job.Triggers[name]},
	}
	applied, _, err := dispatcher.Apply(old, alone, dispatcher.Prior{}, nil, r.now())
	return applied.Triggers[name], err
}
