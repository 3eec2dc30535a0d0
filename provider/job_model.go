package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// jobModel is a carillon_job in configuration, plan and state. Its objects and maps are
// Terraform values and not structs, because any of them may be unknown in a plan.
type jobModel struct {
	ID                types.String   `tfsdk:"id"`
	App               types.String   `tfsdk:"app"`
	Name              types.String   `tfsdk:"name"`
	Description       types.String   `tfsdk:"description"`
	Enabled           types.Bool     `tfsdk:"enabled"`
	Priority          types.Number   `tfsdk:"priority"`
	Delivery          types.String   `tfsdk:"delivery"`
	ConcurrencyPolicy types.String   `tfsdk:"concurrency_policy"`
	MaxConcurrency    types.Number   `tfsdk:"max_concurrency"`
	QueueLimit        types.Number   `tfsdk:"queue_limit"`
	CarryState        types.Bool     `tfsdk:"carry_state"`
	Objective         types.Object   `tfsdk:"objective"`
	Retry             types.Object   `tfsdk:"retry"`
	DeleteAfter       durationString `tfsdk:"delete_after_completion"`
	NodeLabels        types.Map      `tfsdk:"node_labels"`
	Labels            types.Map      `tfsdk:"labels"`
	LabelsAll         types.Map      `tfsdk:"labels_all"`
	Acknowledge       types.List     `tfsdk:"acknowledge"`
	Target            types.Object   `tfsdk:"target"`
	Payload           jsonString     `tfsdk:"payload"`
	OnSuccess         types.Object   `tfsdk:"on_success"`
	OnFailure         types.Object   `tfsdk:"on_failure"`
	OnMisfire         types.Object   `tfsdk:"on_misfire"`
	Triggers          types.Map      `tfsdk:"trigger"`
	State             types.String   `tfsdk:"state"`
	Revision          types.Int64    `tfsdk:"revision"`
	NextFireTimes     types.Map      `tfsdk:"next_fire_times"`
}

func (m jobModel) identity() identity {
	return definitionModel{App: m.App, Name: m.Name, Revision: m.Revision}.identity()
}

// expandJob returns the job that a model describes.
func expandJob(ctx context.Context, e *expander, m jobModel) dispatcher.Job {
	var job dispatcher.Job
	job.SetDefaults()
	job.App = e.string("/app", m.App)
	job.Name = e.string("/name", m.Name)
	job.Description = e.string("/description", m.Description)
	job.Enabled = e.bool("/enabled", m.Enabled, job.Enabled)
	job.Priority = e.whole("/priority", m.Priority, 0, input.CodeCountRange, "give a priority from 0 to 9")
	expandOptional(e, "/delivery", m.Delivery, &job.Delivery)
	job.Retry = expandRetry(ctx, e, "/retry", m.Retry)
	expandConcurrency(e, m, &job)
	expandDeleteAfter(e, m, &job)
	job.NodeLabels = e.stringMap("/node_labels", m.NodeLabels)
	job.Labels = e.stringMap("/labels", m.Labels)
	job.Acknowledge = e.stringList("/acknowledge", m.Acknowledge)
	job.Target = expandTarget(ctx, e, "/target", targetKinds, m.Target)
	job.Payload = []byte(e.string("/payload", m.Payload))
	if !m.Payload.IsNull() && !m.Payload.IsUnknown() && len(job.Payload) == 0 {
		e.problems.Add("/payload", input.CodeJSONSyntax, "payload is empty, which is not JSON; leave it out")
	}
	job.OnSuccess = expandFollow(ctx, e, "/on_success", m.OnSuccess)
	job.OnFailure = expandFollow(ctx, e, "/on_failure", m.OnFailure)
	job.OnMisfire = expandFollow(ctx, e, "/on_misfire", m.OnMisfire)
	job.CarryState = expandCarryState(e, m)
	job.Objective = expandObjective(ctx, e, m.Objective)
	job.Triggers = expandTriggers(ctx, e, m)
	return job
}

// flattenJob returns the model of a job from the API, except its retry and labels: flattenFilled and showLabels add them.
// prior is the plan or state that it replaces; flatten.go says why that matters.
func flattenJob(ctx context.Context, diags *diag.Diagnostics, job dispatcher.Job, prior jobModel) jobModel {
	m := jobModel{
		ID:                types.StringValue(job.App + "/" + job.Name),
		App:               types.StringValue(job.App),
		Name:              types.StringValue(job.Name),
		Description:       types.StringValue(job.Description),
		Enabled:           types.BoolValue(job.Enabled),
		Priority:          flattenNumber(job.Priority),
		Delivery:          types.StringValue(string(job.Delivery)),
		ConcurrencyPolicy: types.StringValue(string(job.ConcurrencyPolicy)),
		MaxConcurrency:    flattenNumber(job.MaxConcurrency),
		QueueLimit:        flattenNumber(job.QueueLimit),
		CarryState:        flattenOptionalBool(job.CarryState, prior.CarryState),
		Objective:         flattenObjective(ctx, diags, job.Objective),
		DeleteAfter:       flattenDeleteAfter(job.DeleteAfterCompletion),
		NodeLabels:        flattenStringMap(ctx, diags, job.NodeLabels, prior.NodeLabels),
		Acknowledge:       flattenStrings(ctx, diags, job.Acknowledge, prior.Acknowledge),
		Target:            flattenTarget(ctx, diags, targetType(), targetKinds, job.Target, prior.Target),
		Payload:           flattenJSON(job.Payload),
		OnSuccess:         flattenFollow(ctx, diags, job.OnSuccess, prior.OnSuccess),
		OnFailure:         flattenFollow(ctx, diags, job.OnFailure, prior.OnFailure),
		OnMisfire:         flattenFollow(ctx, diags, job.OnMisfire, prior.OnMisfire),
		State:             types.StringValue(string(job.State)),
		Revision:          types.Int64Value(job.Revision),
	}
	renamed, _ := renamedFrom(prior)
	triggers, next := map[string]triggerModel{}, map[string]timetypes.RFC3339{}
	for name, t := range job.Triggers {
		triggers[name] = flattenTrigger(t, renamed[name])
		if t.NextFireTime != nil {
			next[name] = timetypes.NewRFC3339TimeValue(t.NextFireTime.UTC())
		}
	}
	m.Triggers = flattenMap(ctx, diags, triggerType(), triggers)
	m.NextFireTimes = flattenMap(ctx, diags, timetypes.RFC3339Type{}, next)
	return m
}
