package provider

import (
	"cmp"
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// plannedDefaults are the defaults of an app in a plan, which may not be known before apply.
type plannedDefaults struct {
	defaults *dispatcher.JobDefaults
	known    bool
}

// jobDefaultsOf returns what the jobs of an app get where they leave it out: by this plan, or for an app that is not in
// it by the API. known is false if that is decided at apply.
func (c *connection) jobDefaultsOf(ctx context.Context, app string) (d *dispatcher.JobDefaults, known bool) {
	if c == nil || app == "" {
		return nil, false
	}
	if planned, there := c.defaults.get(app); there {
		return planned.defaults, planned.known
	}
	stored := c.appOf(ctx, app)
	if stored == nil {
		return nil, false
	}
	return stored.Defaults, true
}

// shownJob returns the model of a job that was read. It shows nothing of what the configuration leaves out and the app
// gives: a plan cannot add blocks and elements of maps.
func (c *connection) shownJob(ctx context.Context, diags *diag.Diagnostics, job dispatcher.Job, prior jobModel) jobModel {
	given, known := c.jobDefaultsOf(ctx, job.App)
	if app := c.appOf(ctx, job.App); !known && app != nil {
		given = app.Defaults
	}
	m := flattenFilled(ctx, diags, job, prior, given)
	c.showLabels(ctx, diags, job.Labels, prior.Labels, &m)
	return m
}

// writtenJob returns the model of a job that was written. What the plan leaves out, the app has given.
func (c *connection) writtenJob(ctx context.Context, diags *diag.Diagnostics, job dispatcher.Job, plan jobModel) jobModel {
	given := &dispatcher.JobDefaults{Retry: &job.Retry}
	given.Headers, _ = job.Target.Headers()
	m := flattenFilled(ctx, diags, job, plan, given)
	c.showLabels(ctx, diags, job.Labels, plan.Labels, &m)
	return m
}

// flattenFilled returns the model of a job without what prior leaves out and an app has given.
func flattenFilled(
	ctx context.Context, diags *diag.Diagnostics, job dispatcher.Job, prior jobModel, given *dispatcher.JobDefaults,
) jobModel {
	if given == nil {
		given = &dispatcher.JobDefaults{}
	}
	if all, has := job.Target.Headers(); has && len(given.Headers) > 0 {
		own, _ := expandTarget(ctx, &expander{}, "/target", targetKinds, prior.Target).Headers()
		shown := map[string]string{}
		for name, value := range all {
			if _, written := own[name]; written || !gives(given.Headers, name, value) {
				shown[name] = value
			}
		}
		job.Target = job.Target.WithHeaders(shown)
	}
	m := flattenJob(ctx, diags, job, prior)
	var leftOut run.Retry
	leftOut.SetDefaults()
	if given.Retry != nil {
		leftOut = *given.Retry
	}
	m.Retry = flattenRetry(ctx, diags, job.Retry, prior.Retry, leftOut)
	return m
}

// gives reports whether a header is among the defaults. Names are equal without regard to case.
func gives(headers map[string]string, name, value string) bool {
	for header, given := range headers {
		if strings.EqualFold(header, name) && given == value {
			return true
		}
	}
	return false
}

// filled returns a configuration with what it leaves out and the plan must show: as the app gives it, and unknown where
// that is decided at apply.
func (r *jobResource) filled(ctx context.Context, diags *diag.Diagnostics, config jobModel) jobModel {
	var d *dispatcher.JobDefaults
	known := false
	if !config.App.IsUnknown() {
		d, known = r.conn.jobDefaultsOf(ctx, config.App.ValueString())
	}
	if d == nil {
		d = &dispatcher.JobDefaults{}
	}
	fill := func(v *types.String, value string) {
		switch {
		case !v.IsNull():
		case known:
			*v = types.StringValue(value)
		default:
			*v = types.StringUnknown()
		}
	}
	fill(&config.ConcurrencyPolicy, string(cmp.Or(d.ConcurrencyPolicy, run.ConcurrencyAllow)))
	if config.Triggers.IsNull() || config.Triggers.IsUnknown() {
		return config
	}
	triggers := config.Triggers.Elements()
	for name, element := range triggers {
		var m triggerModel
		object, _ := element.(types.Object)
		if !(&expander{}).object(ctx, "", object, &m) {
			continue
		}
		fill(&m.MisfirePolicy, string(cmp.Or(d.MisfirePolicy, dispatcher.FireOnce)))
		asks := dispatcher.Schedule{Expression: m.Expression.ValueString(), Timezone: m.Timezone.ValueString()}
		expandOptional(&expander{}, "", m.Dialect, &asks.Dialect)
		switch {
		case !m.Timezone.IsNull():
		case m.Expression.IsUnknown() || m.Dialect.IsUnknown():
			m.Timezone = types.StringUnknown()
		case asks.NeedsTimezone() && (d.Timezone != "" || !known):
			fill(&m.Timezone, d.Timezone)
		}
		triggers[name] = flattenObject(ctx, diags, triggerType(), m)
	}
	config.Triggers = flattenMap(ctx, diags, triggerType(), triggers)
	return config
}

// leaveToApp empties in a job what its configuration leaves out and the plan does not know, so that the API fills it in.
func leaveToApp(ctx context.Context, job *dispatcher.Job, plan, config jobModel) {
	if config.Retry.IsNull() {
		job.Retry = run.Retry{}
	}
	for name, element := range plan.Triggers.Elements() {
		var m triggerModel
		object, _ := element.(types.Object)
		if t, there := job.Triggers[name]; there && (&expander{}).object(ctx, "", object, &m) && m.Timezone.IsUnknown() {
			t.Timezone = ""
			job.Triggers[name] = t
		}
	}
}
