package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// newJobDataSource returns carillon_job: a job as it is now.
func newJobDataSource() datasource.DataSource {
	return &dataSource[jobDataModel]{name: "job", schema: jobDataSchema, read: readJob}
}

type jobDataModel struct {
	App         types.String                `tfsdk:"app"`
	Name        types.String                `tfsdk:"name"`
	Description types.String                `tfsdk:"description"`
	Enabled     types.Bool                  `tfsdk:"enabled"`
	Priority    types.Int64                 `tfsdk:"priority"`
	Labels      map[string]string           `tfsdk:"labels"`
	State       types.String                `tfsdk:"state"`
	Revision    types.Int64                 `tfsdk:"revision"`
	Objective   *objectiveDataModel         `tfsdk:"objective"`
	Triggers    map[string]triggerDataModel `tfsdk:"triggers"`
	policiesDataModel
}

type triggerDataModel struct {
	Expression    types.String      `tfsdk:"expression"`
	Dialect       types.String      `tfsdk:"dialect"`
	Timezone      types.String      `tfsdk:"timezone"`
	StartAt       timetypes.RFC3339 `tfsdk:"start_at"`
	EndAt         timetypes.RFC3339 `tfsdk:"end_at"`
	RepeatCount   types.Int64       `tfsdk:"repeat_count"`
	Gap           types.String      `tfsdk:"gap"`
	Overlap       types.String      `tfsdk:"overlap"`
	DriftHour     types.Bool        `tfsdk:"drift_hour"`
	Calendar      types.String      `tfsdk:"calendar"`
	OnExcluded    types.String      `tfsdk:"on_excluded"`
	Jitter        types.String      `tfsdk:"jitter"`
	MisfireAfter  types.String      `tfsdk:"misfire_after"`
	MisfirePolicy types.String      `tfsdk:"misfire_policy"`
	CatchUpWindow types.String      `tfsdk:"catch_up_window"`
	Enabled       types.Bool        `tfsdk:"enabled"`
	State         types.String      `tfsdk:"state"`
	Error         types.String      `tfsdk:"error"`
	Previous      timetypes.RFC3339 `tfsdk:"prev_fire_time"`
	Next          timetypes.RFC3339 `tfsdk:"next_fire_time"`
}

func jobDataSchema() schema.Schema {
	attributes := map[string]schema.Attribute{
		"app":         schema.StringAttribute{Required: true, MarkdownDescription: "Name of the app."},
		"name":        schema.StringAttribute{Required: true, MarkdownDescription: "Name of the job."},
		"description": computedString("Free text."),
		"enabled":     computedBool("Whether the triggers of the job fire."),
		"priority":    computedInt("Which fires of the app go first when they wait for a node: those with the higher priority."),
		"labels": schema.MapAttribute{
			Computed: true, ElementType: types.StringType, MarkdownDescription: "Labels of the job; null if it has none.",
		},
		"state":     computedString("Summary of the triggers: `ERROR`, `EXECUTING`, `PAUSED`, `COMPLETE` or `INIT`."),
		"revision":  computedInt("Number of the current version of the job."),
		"objective": objectiveDataAttribute(),
		"triggers": schema.MapNestedAttribute{
			Computed: true, MarkdownDescription: "The triggers by name.",
			NestedObject: schema.NestedAttributeObject{Attributes: triggerDataAttributes()},
		},
	}
	maps.Copy(attributes, policiesDataAttributes())
	return schema.Schema{
		MarkdownDescription: "A job as it is now, with the latest and the next fire of each trigger. Unlike `next_fire_times` of the " +
			"resource, each plan reads these again.",
		Attributes: attributes,
	}
}

func computedBool(description string) schema.Attribute {
	return schema.BoolAttribute{Computed: true, MarkdownDescription: description}
}

func readJob(ctx context.Context, c *connection, diags *diag.Diagnostics, m jobDataModel) jobDataModel {
	if !validNames(diags, m.App, m.Name) {
		return m
	}
	job, err := c.Job(ctx, m.App.ValueString(), m.Name.ValueString())
	if err != nil {
		c.report(diags, fmt.Sprintf("read job %q", importID(m.App, m.Name)), err)
		return m
	}
	m = flattenJobData(job)
	if job.Objective != nil {
		status, err := c.Objective(ctx, job.App, job.Name)
		if err != nil && !errors.Is(err, dispatcher.ErrNotFound) { // it was taken away a moment ago
			c.report(diags, fmt.Sprintf("read the objective of job %q", job.App+"/"+job.Name), err)
			return m
		}
		if err == nil {
			m.Objective = flattenObjectiveStatus(status)
		}
	}
	return m
}

// validNames reports whether app and name can be names. If not, it adds errors that say why.
func validNames(diags *diag.Diagnostics, app, name types.String) bool {
	var problems input.Problems
	input.CheckName(&problems, "/app", app.ValueString())
	input.CheckName(&problems, "/name", name.ValueString())
	reportProblems(diags, problems)
	return len(problems) == 0
}

func flattenJobData(job dispatcher.Job) jobDataModel {
	m := jobDataModel{
		App: types.StringValue(job.App), Name: types.StringValue(job.Name), Description: types.StringValue(job.Description),
		Enabled: types.BoolValue(job.Enabled), Priority: types.Int64Value(int64(job.Priority)), Labels: job.Labels,
		State: types.StringValue(string(job.State)), Revision: types.Int64Value(job.Revision),
		Triggers: map[string]triggerDataModel{}, policiesDataModel: flattenPolicies(job),
	}
	for name, t := range job.Triggers {
		m.Triggers[name] = flattenTriggerData(t)
	}
	return m
}

func flattenTriggerData(t dispatcher.Trigger) triggerDataModel {
	declared := flattenTrigger(t, "")
	return triggerDataModel{
		Expression: declared.Expression, Dialect: declared.Dialect, Timezone: declared.Timezone,
		StartAt: timetypes.NewRFC3339TimePointerValue(t.StartAt), EndAt: timetypes.NewRFC3339TimePointerValue(t.EndAt),
		RepeatCount: types.Int64Value(int64(t.RepeatCount)), Gap: declared.Gap, Overlap: declared.Overlap, DriftHour: declared.DriftHour,
		Calendar: declared.Calendar, OnExcluded: declared.OnExcluded, Jitter: declared.Jitter.StringValue,
		MisfireAfter: declared.MisfireAfter.StringValue, MisfirePolicy: declared.MisfirePolicy,
		CatchUpWindow: declared.CatchUpWindow.StringValue, Enabled: declared.Enabled,
		State: types.StringValue(string(t.State)), Error: flattenOptional(t.Error),
		Previous: timetypes.NewRFC3339TimePointerValue(t.PrevFireTime), Next: timetypes.NewRFC3339TimePointerValue(t.NextFireTime),
	}
}
