package provider

import (
	"context"
	"math/big"
	"slices"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/numberdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

// retryModel is a dispatcher.Retry.
type retryModel struct {
	MaxAttempts    types.Number    `tfsdk:"max_attempts"`
	Base           text[durations] `tfsdk:"base"`
	Cap            text[durations] `tfsdk:"cap"`
	Delays         types.List      `tfsdk:"delays"`
	MaxAge         text[durations] `tfsdk:"max_age"`
	StopAtNextFire types.Bool      `tfsdk:"stop_at_next_fire"`
}

func retryAttribute() schema.SingleNestedAttribute {
	var defaults dispatcher.Retry
	defaults.SetDefaults()
	duration := func(value dispatcher.Duration, description string) schema.StringAttribute {
		return schema.StringAttribute{
			Optional: true, Computed: true, Default: stringdefault.StaticString(formatDuration(value)), CustomType: textType[durations]{},
			MarkdownDescription: description + " Default: `" + formatDuration(value) + "`.",
			PlanModifiers:       []planmodifier.String{keepIfSame[durations]{}},
		}
	}
	a := schema.SingleNestedAttribute{
		Optional: true, Computed: true,
		MarkdownDescription: "Whether and when a failed run is attempted again, under the same event id. What another attempt cannot " +
			"change is not repeated: redirects, answers of status 4xx but 408, 425 and 429, and forbidden addresses; nor is what may have " +
			"been sent of `at_most_once` jobs. A response of status 410 puts the trigger into state `error` until it is resumed. Default: " +
			"each attribute's own. " + dropsUnknown,
		Attributes: map[string]schema.Attribute{
			"max_attempts": schema.NumberAttribute{
				Optional: true, Computed: true, Default: numberdefault.StaticBigFloat(big.NewFloat(float64(defaults.MaxAttempts))),
				MarkdownDescription: "How many attempts may fail, the first included, `1` to `100`; with `1` a failed run is not repeated. " +
					"Attempts that were lost with their node do not count. Default: `3`.",
			},
			"base": duration(defaults.Base, "Bounds the wait before the second attempt, and twice as much each further one, up to `cap`; each "+
				"wait is drawn evenly from nothing to its bound. From `100ms` to `24h`."),
			"cap": duration(defaults.Cap, "The longest wait, also of those that a target asks for by `Retry-After`. From `100ms` to `24h`."),
			"delays": schema.ListAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "The waits in place of `base` and its doubling, from `0s` to `24h` each, such as `[\"1s\", \"1m\"]`; fewer " +
					"than `max_attempts`. The last one repeats. Default: none.",
				PlanModifiers: []planmodifier.List{keepSameDelays{}},
			},
			"max_age": duration(defaults.MaxAge, "How long after its first attempt began, or was defers, a run may be attempted. From `1s` to `24h`."),
			"stop_at_next_fire": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				MarkdownDescription: "Whether the run ends instead of an attempt at or after the next fire of its trigger. Default: `false`.",
			},
		},
	}
	of := a.GetType().(types.ObjectType)
	a.Default = objectdefault.StaticValue(types.ObjectValueMust(of.AttrTypes, map[string]attr.Value{
		"max_attempts": types.NumberValue(big.NewFloat(float64(defaults.MaxAttempts))),
		"base":         newText[durations](formatDuration(defaults.Base)), "cap": newText[durations](formatDuration(defaults.Cap)),
		"delays": types.ListNull(types.StringType), "max_age": newText[durations](formatDuration(defaults.MaxAge)),
		"stop_at_next_fire": types.BoolValue(false),
	}))
	return a
}

func readRetry(ctx context.Context, read *reader, object types.Object) dispatcher.Retry {
	var r dispatcher.Retry
	r.SetDefaults()
	var m retryModel
	if !read.object(ctx, "/retry", object, &m) {
		return r
	}
	if !m.MaxAttempts.IsNull() {
		r.MaxAttempts = read.whole("/retry/max_attempts", m.MaxAttempts, dispatcher.CodeAttemptsRange, "give how many attempts may fail, from 1 to 100")
	}
	r.Base = read.duration("/retry/base", m.Base, r.Base)
	r.Cap = read.duration("/retry/cap", m.Cap, r.Cap)
	r.MaxAge = read.duration("/retry/max_age", m.MaxAge, r.MaxAge)
	r.StopAtNextFire = read.bool("/retry/stop_at_next_fire", m.StopAtNextFire, r.StopAtNextFire)
	for i, element := range read.list("/retry/delays", m.Delays) {
		at := dispatcher.Pointer("retry", "delays", strconv.Itoa(i))
		text, _ := element.(types.String)
		var delay dispatcher.Duration
		if read.element(at, text); !text.IsNull() && !read.unknown(at, text) {
			var err error
			delay, err = dispatcher.ParseDuration(text.ValueString())
			read.problems.AddError(at, err)
		}
		r.Delays = append(r.Delays, delay)
	}
	if m.Cap.IsUnknown() || m.Base.IsUnknown() || m.Delays.IsUnknown() {
		read.partial = append(read.partial, "/retry/cap")
	}
	if m.MaxAttempts.IsUnknown() {
		read.partial = append(read.partial, "/retry/delays")
	}
	return r
}

// newRetry returns the model of a policy. prior is what it replaces: delays that only differ from it
// in their writing stay as they were written.
func newRetry(ctx context.Context, diags *diag.Diagnostics, r dispatcher.Retry, prior types.Object) types.Object {
	var before retryModel
	(&reader{}).object(ctx, "", prior, &before)
	delays := before.Delays
	written := readRetry(ctx, &reader{}, prior).Delays
	if prior.IsNull() || prior.IsUnknown() || delays.IsUnknown() || !slices.Equal(written, r.Delays) {
		delays = types.ListNull(types.StringType)
		if len(r.Delays) > 0 {
			var texts []attr.Value
			for _, d := range r.Delays {
				texts = append(texts, types.StringValue(formatDuration(d)))
			}
			delays = types.ListValueMust(types.StringType, texts)
		}
	}
	return objectFrom(ctx, diags, retryAttribute().GetType().(types.ObjectType), retryModel{
		MaxAttempts: types.NumberValue(big.NewFloat(float64(r.MaxAttempts))),
		Base:        newText[durations](formatDuration(r.Base)), Cap: newText[durations](formatDuration(r.Cap)),
		Delays: delays, MaxAge: newText[durations](formatDuration(r.MaxAge)),
		StopAtNextFire: types.BoolValue(r.StopAtNextFire),
	})
}

// keepSameDelays is keepIfSame for a list of durations.
type keepSameDelays struct{}

func (keepSameDelays) Description(context.Context) string {
	return "Delays that only differ in their writing are no change."
}

func (m keepSameDelays) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

func (keepSameDelays) PlanModifyList(ctx context.Context, req planmodifier.ListRequest, resp *planmodifier.ListResponse) {
	before, after := req.StateValue.Elements(), req.PlanValue.Elements()
	if req.PlanValue.IsNull() != req.StateValue.IsNull() || req.PlanValue.IsUnknown() || len(before) != len(after) {
		return
	}
	for i := range after {
		old, _ := before[i].(types.String)
		planned, _ := after[i].(types.String)
		if planned.IsUnknown() || !(durations{}).same(ctx, old.ValueString(), planned.ValueString()) {
			return
		}
	}
	resp.PlanValue = req.StateValue
}
