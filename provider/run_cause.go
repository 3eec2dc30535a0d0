package provider

import (
	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// causeModel says why a run exists.
type causeModel struct {
	Run      types.String      `tfsdk:"run"`
	On       types.String      `tfsdk:"on"`
	Backfill types.String      `tfsdk:"backfill"`
	From     timetypes.RFC3339 `tfsdk:"from"`
	To       timetypes.RFC3339 `tfsdk:"to"`
	Alert    types.String      `tfsdk:"alert"`
}

func causeAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Computed: true, MarkdownDescription: "Why the run exists; null where its `kind` says all.",
		Attributes: map[string]schema.Attribute{
			"run":      computedString("Id of the run that this one follows; null if it follows none."),
			"on":       computedString("What happened to that run, such as `failure`; null if it follows none."),
			"backfill": computedString("Id of the backfill that the run is part of; null for other runs."),
			"from":     computedTime("First instant of the range of the backfill; null for other runs."),
			"to":       computedTime("Last instant of the range of the backfill; null for other runs."),
			"alert":    computedString("The alert of which the run delivers a notification; null for other runs."),
		},
	}
}

func flattenCause(c *run.Cause) *causeModel {
	if c == nil {
		return nil
	}
	m := &causeModel{Run: flattenOptional(c.Run), On: flattenOptional(c.On), Backfill: flattenOptional(c.Backfill),
		From: timetypes.NewRFC3339Null(), To: timetypes.NewRFC3339Null(), Alert: flattenOptional(c.Alert)}
	if c.Range != nil {
		m.From, m.To = timetypes.NewRFC3339TimeValue(c.Range.From), timetypes.NewRFC3339TimeValue(c.Range.To)
	}
	return m
}
