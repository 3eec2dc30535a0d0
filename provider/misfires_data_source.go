package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// newMisfiresDataSource returns carillon_misfires: the fires of an app that were missed.
func newMisfiresDataSource() datasource.DataSource {
	return &dataSource[misfiresModel]{name: "misfires", schema: misfiresDataSchema, read: readMisfires}
}

type misfiresModel struct {
	queryModel
	Misfires []misfireModel `tfsdk:"misfires"`
}

type misfireModel struct {
	Job       types.String      `tfsdk:"job"`
	Trigger   types.String      `tfsdk:"trigger"`
	From      timetypes.RFC3339 `tfsdk:"from"`
	To        timetypes.RFC3339 `tfsdk:"to"`
	Count     types.Int64       `tfsdk:"count"`
	Decision  types.String      `tfsdk:"decision"`
	Reason    types.String      `tfsdk:"reason"`
	Run       types.String      `tfsdk:"run"`
	DecidedAt timetypes.RFC3339 `tfsdk:"decided_at"`
}

func misfiresDataSchema() schema.Schema {
	attributes := queryAttributes("misfires", "misfires")
	attributes["misfires"] = schema.ListNestedAttribute{
		Computed: true, MarkdownDescription: "The misfires, with the latest first.",
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"job":        computedString("Name of the job."),
			"trigger":    computedString("Name of the trigger."),
			"from":       computedTime("The first missed fire."),
			"to":         computedTime("The last missed fire."),
			"count":      computedInt("How many fires were missed."),
			"decision":   computedString("`fire_once` (one run stands for all of them) or `skip` (none of them runs)."),
			"reason":     computedString("Why it was decided so."),
			"run":        computedString("Id of the run that stands for them; null if there is none."),
			"decided_at": computedTime("When it was decided."),
		}},
	}
	return schema.Schema{
		MarkdownDescription: "The missed fires of an app, with the latest first: how many, when, and what was decided about them.",
		Attributes:          attributes,
	}
}

func readMisfires(ctx context.Context, c *connection, diags *diag.Diagnostics, m misfiresModel) misfiresModel {
	var e expander
	query := expandQuery(&e, m.queryModel)
	input.CheckName(&e.problems, "/app", query.App)
	if reportProblems(diags, e.problems); diags.HasError() {
		return m
	}
	list, err := c.Misfires(ctx, query)
	if err != nil {
		c.report(diags, fmt.Sprintf("list the misfires of app %q", query.App), err)
		return m
	}
	m.Misfires = []misfireModel{}
	for _, misfire := range list.Items {
		m.Misfires = append(m.Misfires, misfireModel{
			Job: types.StringValue(misfire.Job), Trigger: types.StringValue(misfire.Trigger),
			From: timetypes.NewRFC3339TimeValue(misfire.From), To: timetypes.NewRFC3339TimeValue(misfire.To),
			Count: types.Int64Value(int64(misfire.Count)), Decision: types.StringValue(string(misfire.Decision)),
			Reason: types.StringValue(misfire.Reason), Run: flattenOptional(misfire.Run),
			DecidedAt: timetypes.NewRFC3339TimeValue(misfire.DecidedAt),
		})
	}
	return m
}
