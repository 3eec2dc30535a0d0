package provider

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/provider/binding"
)

// shownJob returns the model of a job that was read. It omits values that the configuration leaves
// out and the app provides: a plan cannot add blocks and elements of maps.
func (c *connection) shownJob(ctx context.Context, diags *diag.Diagnostics, job dispatcher.Job, prior binding.Values) binding.Values {
	return c.flattenJob(diags, job, prior, c.DefaultsShown(ctx, job.App))
}

// flattenJob returns the model of a job without values that prior leaves out and the app or the
// provider block provides. Default labels that prior does not set are only in labels_all.
func (c *connection) flattenJob(diags *diag.Diagnostics, job dispatcher.Job, prior binding.Values,
	given *dispatcher.JobDefaults) binding.Values {
	if given == nil {
		given = &dispatcher.JobDefaults{}
	}
	if all, has := job.Target.Headers(); has && len(given.Headers) > 0 {
		var before target.Target
		targetRows.Expand(&binding.Expander{}, "", binding.In(prior["target"]), &before)
		own, _ := before.Headers()
		shown := map[string]string{}
		for name, value := range all {
			if _, written := own[name]; written || !gives(given.Headers, name, value) {
				shown[name] = value
			}
		}
		job.Target = job.Target.WithHeaders(shown)
	}
	m := jobRows.Flatten(diags, &job, prior)
	leftOut := binding.Fresh[run.Retry]()
	if given.Retry != nil {
		leftOut = given.Retry
	}
	if m["retry"] = retryRows.Null(); !prior["retry"].IsNull() || !reflect.DeepEqual(job.Retry, *leftOut) {
		m["retry"] = retryRows.ObjectOf(retryRows.Flatten(diags, &job.Retry, binding.In(prior["retry"])))
	}
	labels, written := map[string]string{}, prior.Map("labels").Elements()
	var e binding.Expander
	had := e.StringMap("", prior.Map("labels_all")) // with the default labels at the last apply, which may be others by now
	for name, value := range job.Labels {
		_, here := written[name]
		if here || c.labels[name] != value && had[name] != value {
			labels[name] = value
		}
	}
	m["labels"] = binding.TextMap(diags, labels, prior.Map("labels"))
	m["labels_all"] = binding.TextMap(diags, job.Labels, types.MapNull(types.StringType))
	return m
}

// gives reports whether a header is among the defaults. Names are compared without regard to case.
func gives(headers map[string]string, name, value string) bool {
	for header, given := range headers {
		if strings.EqualFold(header, name) && given == value {
			return true
		}
	}
	return false
}

// filled returns a configuration with the omitted values that the plan must show: the app's
// defaults, or unknown if they are decided at apply.
func (r *jobResource) filled(ctx context.Context, config binding.Values) binding.Values {
	var d *dispatcher.JobDefaults
	known := false
	if app := config.Text("app"); !app.IsUnknown() {
		d, known = r.conn.DefaultsOf(ctx, app.ValueString())
	}
	if d == nil {
		d = &dispatcher.JobDefaults{}
	}
	fill := func(v binding.Values, name, value string) {
		switch {
		case !v[name].IsNull():
		case known:
			v[name] = types.StringValue(value)
		default:
			v[name] = types.StringUnknown()
		}
	}
	config = maps.Clone(config)
	fill(config, "concurrency_policy", string(cmp.Or(d.ConcurrencyPolicy, run.ConcurrencyAllow)))
	if config["trigger"].IsNull() || config["trigger"].IsUnknown() {
		return config
	}
	triggers := config.Map("trigger").Elements()
	for name, element := range triggers {
		m := binding.In(element)
		if len(m) == 0 {
			continue
		}
		fill(m, "misfire_policy", string(cmp.Or(d.MisfirePolicy, dispatcher.FireOnce)))
		expression, dialect := m.Text("expression"), m.Text("dialect")
		asks := dispatcher.Schedule{
			Expression: expression.ValueString(), Timezone: m.Text("timezone").ValueString(), Dialect: schedule.Dialect(dialect.ValueString()),
		}
		switch {
		case !m["timezone"].IsNull():
		case expression.IsUnknown() || dialect.IsUnknown():
			m["timezone"] = types.StringUnknown()
		case asks.NeedsTimezone() && (d.Timezone != "" || !known):
			fill(m, "timezone", d.Timezone)
		}
		triggers[name] = triggerRows.ObjectOf(m)
	}
	config["trigger"] = types.MapValueMust(triggerRows.Type, triggers)
	return config
}

// leaveToApp clears values that a job's configuration omits and the plan does not know, so that the API sets them.
func leaveToApp(job *dispatcher.Job, plan, config binding.Values) {
	if config["retry"].IsNull() {
		job.Retry = run.Retry{}
	}
	for name, element := range plan.Map("trigger").Elements() {
		if t, there := job.Triggers[name]; there && binding.In(element).Text("timezone").IsUnknown() {
			t.Timezone = ""
			job.Triggers[name] = t
		}
	}
}

// defaultLabels returns the default_labels of the provider block, and whether they are known only at apply.
func defaultLabels(value types.Map, diags *diag.Diagnostics) (labels map[string]string, unknown bool) {
	var e binding.Expander
	labels = e.StringMap("/default_labels", value)
	if len(e.Unknown) > 0 {
		return nil, true
	}
	problems := e.Problems
	problems.AddError("/default_labels", input.Labels(labels).Validate())
	for _, p := range problems {
		diags.AddAttributeError(path.Root("default_labels"), "Invalid default_labels of the Carillon provider", p.Message)
	}
	return labels, false
}

// withDefaultLabels returns the labels of a job with the provider's labels that it does not override.
func (c *connection) withDefaultLabels(own map[string]string) input.Labels {
	if len(c.labels) == 0 {
		return own
	}
	all := maps.Clone(c.labels)
	maps.Copy(all, own)
	return all
}

// plannedLabels returns labels_all for a plan.
func (c *connection) plannedLabels(ctx context.Context, diags *diag.Diagnostics, own types.Map) types.Map {
	var e binding.Expander
	labels := e.StringMap("/labels", own)
	if c.labelsUnknown || len(e.Unknown) > 0 {
		return types.MapUnknown(types.StringType)
	}
	all := c.withDefaultLabels(labels)
	var problems input.Problems
	problems.AddError("/labels", all.Validate())
	reportProblems(diags, problems)
	return binding.TextMap(diags, all, types.MapNull(types.StringType))
}
