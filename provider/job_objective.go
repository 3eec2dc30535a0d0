package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// objectiveModel is how many fires of a job are to begin in time.
type objectiveModel struct {
	Within durationString `tfsdk:"within"`
	Of     types.String   `tfsdk:"of"`
}

func objectiveAttribute() schema.SingleNestedAttribute {
	return optionalObject("How many of the fires of the job are to begin in time over 28 days. `carillon objective show` and the data "+
		"source `carillon_job` tell how it does. Default: none.", map[string]schema.Attribute{
		"within": requiredDuration("How long after its scheduled time a fire is in time, such as `1s`; from `1ms` to `24h`, and longer " +
			"than the `jitter` of each trigger."),
		"of": requiredString("The share of fires that are to be in time, such as `99.9%`; from `50%` to `99.999%`."),
	})
}

func requiredDuration(description string) schema.StringAttribute {
	a := optionalEquivalent[durations](description)
	a.Optional, a.Required = false, true
	return a
}

func expandObjective(ctx context.Context, e *expander, object types.Object) *dispatcher.Objective {
	var m objectiveModel
	if !e.object(ctx, "/objective", object, &m) {
		return nil
	}
	return &dispatcher.Objective{Within: e.duration("/objective/within", m.Within, 0), Of: e.required("/objective/of", m.Of)}
}

func flattenObjective(ctx context.Context, diags *diag.Diagnostics, o *dispatcher.Objective) types.Object {
	of := objectiveAttribute().GetType().(types.ObjectType)
	if o == nil {
		return nullObject(of)
	}
	return flattenObject(ctx, diags, of, objectiveModel{Within: flattenDuration(o.Within), Of: types.StringValue(o.Of)})
}

func carryStateAttribute() schema.BoolAttribute {
	return schema.BoolAttribute{
		Optional: true,
		MarkdownDescription: fmt.Sprintf("Whether each run gets a small JSON state from the run before it and may return one for the next, "+
			"of at most %d KiB. It needs `concurrency_policy` `forbid` or `queue` with one run at once. The state itself is not part of "+
			"the configuration: `carillon job state` shows, sets and clears it. Default: `false`.", run.MaxCarriedState>>10),
	}
}

// expandCarryState judges carry_state only if it is known how many runs there may be: the app may give the policy.
func expandCarryState(e *expander, m jobModel) bool {
	if m.ConcurrencyPolicy.IsNull() || m.ConcurrencyPolicy.IsUnknown() || m.MaxConcurrency.IsUnknown() || !e.allKnown("/target") {
		e.incomplete = append(e.incomplete, "/carry_state")
	}
	return e.bool("/carry_state", m.CarryState, false)
}
