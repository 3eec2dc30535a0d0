package provider

import (
	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

// objectiveDataModel is how a job does by its objective.
type objectiveDataModel struct {
	Within     types.String       `tfsdk:"within"`
	Of         types.String       `tfsdk:"of"`
	From       timetypes.RFC3339  `tfsdk:"from"`
	To         timetypes.RFC3339  `tfsdk:"to"`
	Good       types.Int64        `tfsdk:"good"`
	Late       types.Int64        `tfsdk:"late"`
	Missed     types.Int64        `tfsdk:"missed"`
	Pending    types.Int64        `tfsdk:"pending"`
	Attained   types.Float64      `tfsdk:"attained"`
	BudgetLeft types.Float64      `tfsdk:"budget_left"`
	BurnRates  map[string]float64 `tfsdk:"burn_rates"`
}

func objectiveDataAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Computed: true, MarkdownDescription: "How the job does by its objective; null if it has none.",
		Attributes: map[string]schema.Attribute{
			"within":   computedString("How long after its scheduled time a fire is in time."),
			"of":       computedString("The share of fires that are to be in time."),
			"from":     computedTime("Fires that were scheduled from then on are counted."),
			"to":       computedTime("Fires that were scheduled before are counted. It follows the clock by five to ten minutes."),
			"good":     computedInt("How many fires began in time."),
			"late":     computedInt("How many fires began later, or ended without an attempt."),
			"missed":   computedInt("How many fires were missed."),
			"pending":  computedInt("How many fires are not counted yet, because their first attempt is not over."),
			"attained": computedFloat("The share of fires that were in time, in percent; null if there were none."),
			"budget_left": computedFloat("The share of the error budget that is left, in percent. Below 0, more fires were late or missed " +
				"than the objective allows."),
			"burn_rates": schema.MapAttribute{
				Computed: true, ElementType: types.Float64Type,
				MarkdownDescription: "How fast the error budget goes, over the last `5m`, `30m`, `1h`, `6h` and `3d`. `1` uses it up in 28 days.",
			},
		},
	}
}

func computedFloat(description string) schema.Attribute {
	return schema.Float64Attribute{Computed: true, MarkdownDescription: description}
}

func flattenObjectiveStatus(s dispatcher.ObjectiveStatus) *objectiveDataModel {
	return &objectiveDataModel{
		Within: types.StringValue(s.Within.String()), Of: types.StringValue(s.Of),
		From: timetypes.NewRFC3339TimeValue(s.From), To: timetypes.NewRFC3339TimeValue(s.To),
		Good: types.Int64Value(s.Good), Late: types.Int64Value(s.Late), Missed: types.Int64Value(s.Missed),
		Pending: types.Int64Value(s.Pending), Attained: types.Float64PointerValue(s.Attained),
		BudgetLeft: types.Float64Value(s.BudgetLeft), BurnRates: s.BurnRates,
	}
}
