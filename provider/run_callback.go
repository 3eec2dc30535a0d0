package provider

import (
	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// runCallbackModel is what is known of a run whose target says later how its attempt ended.
type runCallbackModel struct {
	Endpoint    types.String      `tfsdk:"endpoint"`
	Deadline    timetypes.RFC3339 `tfsdk:"deadline"`
	HeartbeatAt timetypes.RFC3339 `tfsdk:"heartbeat_at"`
	Progress    types.String      `tfsdk:"progress"`
	Percent     types.Int64       `tfsdk:"percent"`
}

func runCallbackAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Computed: true, MarkdownDescription: "What is known of a run in state `waiting_callback`; null in all other states.",
		Attributes: map[string]schema.Attribute{
			"endpoint": computedString("Id of the endpoint of a group that accepted the attempt; null for targets without a " +
				"group. Lists of runs do not have it."),
			"deadline":     computedTime("When the attempt times out without a callback. A heartbeat moves it."),
			"heartbeat_at": computedTime("When the latest heartbeat came; null before the first one."),
			"progress":     computedString("The text of the latest heartbeat that had one; null if none did."),
			"percent":      computedInt("The progress from 0 to 100 that the latest heartbeat with a number reported; null if none did."),
		},
	}
}

func flattenCallbackState(c *run.CallbackState) *runCallbackModel {
	if c == nil {
		return nil
	}
	return &runCallbackModel{
		Endpoint:    flattenOptional(c.Endpoint),
		Deadline:    timetypes.NewRFC3339TimeValue(c.Deadline),
		HeartbeatAt: timetypes.NewRFC3339TimePointerValue(c.HeartbeatAt),
		Progress:    flattenOptional(c.Progress),
		Percent:     flattenPercent(c.Percent),
	}
}

// flattenPercent keeps a progress of 0 apart from none.
func flattenPercent(percent *int) types.Int64 {
	if percent == nil {
		return types.Int64Null()
	}
	return types.Int64Value(int64(*percent))
}
