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
	"github.com/carillon-dev/carillon/provider/binding"
)

// newMisfiresDataSource returns carillon_misfires: the fires of an app that were missed.
func newMisfiresDataSource() datasource.DataSource {
	return &dataSource{name: "misfires", schema: misfiresDataSchema, read: readMisfires}
}

func misfiresDataSchema() schema.Schema {
	attributes := queryAttributes("misfires", "misfires")
	maps.Copy(attributes, misfiresRows.DataAttributes())
	return schema.Schema{
		MarkdownDescription: "The missed fires of an app, with the latest first: how many, when, and what was decided about them.",
		Attributes:          attributes,
	}
}

var misfiresRows = binding.Of(binding.Fresh[client.List[dispatcher.Misfire]],
	binding.Blocks("misfires", binding.Nested(func(l *client.List[dispatcher.Misfire]) *[]dispatcher.Misfire { return &l.Items },
		misfireRows), binding.InData, "The misfires, with the latest first.", binding.AlwaysThere),
)

var misfireRows = binding.Of(binding.Fresh[dispatcher.Misfire],
	binding.Text("job", func(m *dispatcher.Misfire) *string { return &m.Job }, binding.InData, "Name of the job."),
	binding.Text("trigger", func(m *dispatcher.Misfire) *string { return &m.Trigger }, binding.InData, "Name of the trigger."),
	binding.Instant("from", func(m *dispatcher.Misfire) **time.Time { return new(&m.From) }, binding.InData, "The first missed fire."),
	binding.Instant("to", func(m *dispatcher.Misfire) **time.Time { return new(&m.To) }, binding.InData, "The last missed fire."),
	binding.Whole("count", func(m *dispatcher.Misfire) *int { return &m.Count }, binding.InData, "How many fires were missed."),
	binding.Text("decision", func(m *dispatcher.Misfire) *dispatcher.Decision { return &m.Decision }, binding.InData,
		"`fire_once` (one run stands for all of them) or `skip` (none of them runs)."),
	binding.Text("reason", func(m *dispatcher.Misfire) *string { return &m.Reason }, binding.InData, "Why it was decided so."),
	binding.Text("run", func(m *dispatcher.Misfire) *string { return &m.Run }, binding.InData, "Id of the run that stands for them; "+
		"null if there is none.", binding.EmptyIsNull),
	binding.Instant("decided_at", func(m *dispatcher.Misfire) **time.Time { return new(&m.DecidedAt) }, binding.InData,
		"When it was decided."),
)

func readMisfires(ctx context.Context, c *connection, diags *diag.Diagnostics, m binding.Values) binding.Values {
	var e binding.Expander
	query := expandQuery(&e, m)
	input.CheckName(&e.Problems, "/app", query.App)
	if reportProblems(diags, e.Problems); diags.HasError() {
		return m
	}
	list, err := c.Misfires(ctx, query)
	if err != nil {
		c.report(diags, fmt.Sprintf("list the misfires of app %q", query.App), err)
		return m
	}
	maps.Copy(m, misfiresRows.Shown(diags, &list))
	return m
}
