package provider

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// newMisfiresDataSource returns carillon_misfires: the fires of an app that were missed.
func newMisfiresDataSource() datasource.DataSource {
	return &dataSource{name: "misfires", schema: misfiresDataSchema, read: readMisfires}
}

func misfiresDataSchema() schema.Schema {
	attributes := queryAttributes("misfires", "misfires")
	maps.Copy(attributes, misfiresRows.dataAttributes())
	return schema.Schema{
		MarkdownDescription: "The missed fires of an app, with the latest first: how many, when, and what was decided about them.",
		Attributes:          attributes,
	}
}

var misfiresRows = rowsOf(fresh[client.List[dispatcher.Misfire]],
	blocksRow("misfires", func(l *client.List[dispatcher.Misfire]) *[]dispatcher.Misfire { return &l.Items }, misfireRows, inData,
		"The misfires, with the latest first.", alwaysThere),
)

var misfireRows = rowsOf(fresh[dispatcher.Misfire],
	textRow("job", func(m *dispatcher.Misfire) *string { return &m.Job }, inData, "Name of the job."),
	textRow("trigger", func(m *dispatcher.Misfire) *string { return &m.Trigger }, inData, "Name of the trigger."),
	instantRow("from", func(m *dispatcher.Misfire) **time.Time { return new(&m.From) }, inData, "The first missed fire."),
	instantRow("to", func(m *dispatcher.Misfire) **time.Time { return new(&m.To) }, inData, "The last missed fire."),
	wholeRow("count", func(m *dispatcher.Misfire) *int { return &m.Count }, inData, "How many fires were missed."),
	textRow("decision", func(m *dispatcher.Misfire) *dispatcher.Decision { return &m.Decision }, inData, "`fire_once` (one run stands for all "+
		"of them) or `skip` (none of them runs)."),
	textRow("reason", func(m *dispatcher.Misfire) *string { return &m.Reason }, inData, "Why it was decided so."),
	textRow("run", func(m *dispatcher.Misfire) *string { return &m.Run }, inData, "Id of the run that stands for them; null if there is none.",
		emptyIsNull),
	instantRow("decided_at", func(m *dispatcher.Misfire) **time.Time { return new(&m.DecidedAt) }, inData, "When it was decided."),
)

func readMisfires(ctx context.Context, c *connection, diags *diag.Diagnostics, m values) values {
	var e expander
	query := expandQuery(&e, m)
	input.CheckName(&e.problems, "/app", query.App)
	if reportProblems(diags, e.problems); diags.HasError() {
		return m
	}
	list, err := c.Misfires(ctx, query)
	if err != nil {
		c.report(diags, fmt.Sprintf("list the misfires of app %q", query.App), err)
		return m
	}
	maps.Copy(m, misfiresRows.shown(diags, &list))
	return m
}
