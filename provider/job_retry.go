package provider

import (
	"context"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

type retryModel struct {
	MaxAttempts    types.Number   `tfsdk:"max_attempts"`
	Base           durationString `tfsdk:"base"`
	Cap            durationString `tfsdk:"cap"`
	Delays         types.List     `tfsdk:"delays"`
	MaxAge         durationString `tfsdk:"max_age"`
	StopAtNextFire types.Bool     `tfsdk:"stop_at_next_fire"`
}

var retryRows = rowsOf(fresh[run.Retry],
	wholeRow("max_attempts", func(r *run.Retry) *int { return &r.MaxAttempts }, standard, "How many attempts may fail, including the "+
		"first, `1` to `100`. With `1` a failed run is not retried. Attempts that were lost with their node do not count.",
		advice(input.CodeAttemptsRange, "give how many attempts may fail, from 1 to 100"), decides("delays"), // there must be fewer
		shownAs("How many attempts may fail, including the first.")),
	durationRow("base", func(r *run.Retry) *input.Duration { return &r.Base }, standard, "Upper bound of the wait before the second "+
		"attempt, from `100ms` to `24h`. The bound doubles for each further attempt, up to `cap`. Each wait is random between zero and "+
		"its bound.", decides("cap"), // which must not be less
		shownAs("Upper bound of the wait before the second attempt. It doubles for each further one.")),
	durationRow("cap", func(r *run.Retry) *input.Duration { return &r.Cap }, standard, "The longest wait, from `100ms` to `24h`. It also "+
		"limits the wait that a target asks for with `Retry-After`.", decides("cap"), shownAs("The longest wait.")),
	durationRow("max_age", func(r *run.Retry) *input.Duration { return &r.MaxAge }, standard, "How long after its first attempt began or "+
		"was deferred a run may be attempted, from `1s` to `24h`.", shownAs("How long after its first attempt a run may be attempted.")),
	boolRow("stop_at_next_fire", func(r *run.Retry) *bool { return &r.StopAtNextFire }, standard, "Whether the run ends instead of making "+
		"an attempt at or after the next fire of its trigger.",
		shownAs("Whether the run ends instead of making an attempt at or after the next fire.")),
	durationsRow("delays", func(r *run.Retry) *[]input.Duration { return &r.Delays }, optional, "Fixed waits that replace `base` and its "+
		"doubling, from `0s` to `24h` each, such as `[\"1s\", \"1m\"]`; fewer than `max_attempts`. The last one repeats. Default: none.",
		decides("cap"), shownAs("Fixed waits that replace `base` and its doubling; null if there are none.")),
)

func retryAttribute() schema.SingleNestedAttribute {
	var defaults run.Retry
	defaults.SetDefaults()
	return optionalObject("Whether and when a failed run is attempted again, under the same event id. Failures that another "+
		"attempt cannot change are not retried: redirects, responses of status 4xx except 408, 425 and 429, and forbidden addresses. "+
		"Nor are requests of `at_most_once` jobs that may have been sent. A response of status 410 puts the trigger into state "+
		"`error` until it is resumed. Default: the default of each argument.", map[string]schema.Attribute{
		"max_attempts": numberWithDefault(defaults.MaxAttempts, "How many attempts may fail, including the first, `1` to `100`. "+
			"With `1` a failed run is not retried. Attempts that were lost with their node do not count."),
		"base": durationWithDefault(defaults.Base, "Upper bound of the wait before the second attempt, from `100ms` to `24h`. The "+
			"bound doubles for each further attempt, up to `cap`. Each wait is random between zero and its bound."),
		"cap": durationWithDefault(defaults.Cap, "The longest wait, from `100ms` to `24h`. It also limits the wait that a target "+
			"asks for with `Retry-After`."),
		"delays": schema.ListAttribute{
			Optional: true, ElementType: types.StringType,
			MarkdownDescription: "Fixed waits that replace `base` and its doubling, from `0s` to `24h` each, such as " +
				"`[\"1s\", \"1m\"]`; fewer than `max_attempts`. The last one repeats. Default: none.",
			PlanModifiers: []planmodifier.List{keepEquivalentDelays{}},
		},
		"max_age": durationWithDefault(defaults.MaxAge, "How long after its first attempt began or was deferred a run may be "+
			"attempted, from `1s` to `24h`."),
		"stop_at_next_fire": boolWithDefault(false, "Whether the run ends instead of making an attempt at or after the next fire "+
			"of its trigger."),
	})
}

var retryType = sync.OnceValue(func() types.ObjectType { return retryAttribute().GetType().(types.ObjectType) })

func expandRetry(ctx context.Context, e *expander, pointer string, object types.Object) run.Retry {
	var r run.Retry
	r.SetDefaults()
	var m retryModel
	if !e.object(ctx, pointer, object, &m) {
		return r
	}
	r.MaxAttempts = e.whole(pointer+"/max_attempts", m.MaxAttempts, r.MaxAttempts, input.CodeAttemptsRange,
		"give how many attempts may fail, from 1 to 100")
	r.Base = e.duration(pointer+"/base", m.Base, r.Base)
	r.Cap = e.duration(pointer+"/cap", m.Cap, r.Cap)
	r.MaxAge = e.duration(pointer+"/max_age", m.MaxAge, r.MaxAge)
	r.StopAtNextFire = e.bool(pointer+"/stop_at_next_fire", m.StopAtNextFire, r.StopAtNextFire)
	for i, element := range e.list(pointer+"/delays", m.Delays) {
		at := pointer + "/delays/" + strconv.Itoa(i)
		text, _ := element.(types.String)
		e.rejectNull(at, text)
		r.Delays = append(r.Delays, e.duration(at, durationString{text}, 0))
	}
	if m.Cap.IsUnknown() || m.Base.IsUnknown() || m.Delays.IsUnknown() { // cap must not be less than base
		e.incomplete = append(e.incomplete, pointer+"/cap")
	}
	if m.MaxAttempts.IsUnknown() { // there must be fewer delays
		e.incomplete = append(e.incomplete, pointer+"/delays")
	}
	return r
}

// flattenRetry returns the model of a policy, null if prior has none and the policy is leftOut, which a job without one
// gets: a plan cannot add a block that the configuration leaves out. Delays that are equivalent to those of prior stay as the
// user wrote them.
func flattenRetry(
	ctx context.Context, diags *diag.Diagnostics, r run.Retry, prior types.Object, leftOut run.Retry,
) types.Object {
	of := retryType()
	if prior.IsNull() && reflect.DeepEqual(r, leftOut) {
		return nullObject(of)
	}
	var before retryModel
	(&expander{}).object(ctx, "", prior, &before)
	delays := before.Delays
	written := expandRetry(ctx, &expander{}, "", prior).Delays
	if prior.IsNull() || prior.IsUnknown() || delays.IsUnknown() || !slices.Equal(written, r.Delays) {
		delays = types.ListNull(types.StringType)
		if len(r.Delays) > 0 {
			delays = flattenList(ctx, diags, types.StringType, durationTexts(r.Delays))
		}
	}
	return flattenObject(ctx, diags, of, retryModel{
		MaxAttempts:    flattenNumber(r.MaxAttempts),
		Base:           flattenDuration(r.Base),
		Cap:            flattenDuration(r.Cap),
		Delays:         delays,
		MaxAge:         flattenDuration(r.MaxAge),
		StopAtNextFire: types.BoolValue(r.StopAtNextFire),
	})
}

// durationTexts returns durations as texts; nil for none.
func durationTexts(all []input.Duration) (texts []string) {
	for _, d := range all {
		texts = append(texts, formatDuration(d))
	}
	return texts
}

// keepEquivalentDelays is keepEquivalent for a list of durations.
type keepEquivalentDelays struct{ keepEquivalentText }

func (keepEquivalentDelays) PlanModifyList(
	ctx context.Context, req planmodifier.ListRequest, resp *planmodifier.ListResponse,
) {
	before, after := req.StateValue.Elements(), req.PlanValue.Elements()
	if req.PlanValue.IsNull() != req.StateValue.IsNull() || req.PlanValue.IsUnknown() || len(before) != len(after) {
		return
	}
	for i := range after {
		old, _ := before[i].(types.String)
		planned, _ := after[i].(types.String)
		if planned.IsUnknown() || !(durations{}).equivalent(ctx, old.ValueString(), planned.ValueString()) {
			return
		}
	}
	resp.PlanValue = req.StateValue
}
