package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/view"
	"github.com/carillon-dev/carillon/provider/binding"
)

// dataSource implements a data source of Terraform's framework.
type dataSource struct {
	name       string // determines its type
	text       string
	attributes func() map[string]schema.Attribute
	read       reading
	// validate checks the known values of a configuration; nil if the schema is enough.
	validate func(*diag.Diagnostics, binding.Values)
	conn     *connection
}

// reading returns the API's values for the configuration of a data source. Its result is ignored after an error.
type reading func(context.Context, *connection, *diag.Diagnostics, binding.Values) binding.Values

var (
	_ datasource.DataSourceWithConfigure      = (*dataSource)(nil)
	_ datasource.DataSourceWithValidateConfig = (*dataSource)(nil)
)

func (d *dataSource) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + d.name
}

func (d *dataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{MarkdownDescription: d.text, Attributes: d.attributes()}
}

func (d *dataSource) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	d.conn = configured(req.ProviderData)
}

func (d *dataSource) ValidateConfig(
	ctx context.Context, req datasource.ValidateConfigRequest, resp *datasource.ValidateConfigResponse,
) {
	var config binding.Values
	if d.validate != nil && got(&resp.Diagnostics, read(ctx, req.Config, &config)) {
		d.validate(&resp.Diagnostics, config)
	}
}

func (d *dataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var config binding.Values
	if !got(&resp.Diagnostics, read(ctx, req.Config, &config)) || !d.conn.ready(&resp.Diagnostics) {
		return
	}
	setState(ctx, &resp.State, &resp.Diagnostics, d.read(ctx, d.conn, &resp.Diagnostics, config))
}

// setState stores attributes, unless flattening them has failed.
func setState(ctx context.Context, state *tfsdk.State, diags *diag.Diagnostics, v binding.Values) {
	if !diags.HasError() {
		diags.Append(state.Set(ctx, objectOf(v))...)
	}
}

// readNamed returns the reading of a named definition of an app. more may add attributes.
func readNamed[T any](
	kind string, rows *binding.Rows, get func(*client.Client, context.Context, string, string) (T, error),
	more func(context.Context, *connection, *diag.Diagnostics, T, binding.Values),
) reading {
	return func(ctx context.Context, c *connection, diags *diag.Diagnostics, config binding.Values) binding.Values {
		app, name := config.Text("app"), config.Text("name")
		if !validNames(diags, config, "app", "name") {
			return config
		}
		one, err := get(c.Client, ctx, app.ValueString(), name.ValueString())
		if err != nil {
			c.report(diags, fmt.Sprintf("read %s %q", kind, importID(app, name)), err)
			return config
		}
		shown := rows.Shown(diags, &one)
		if more != nil {
			more(ctx, c, diags, one, shown)
		}
		return shown
	}
}

// validNames reports whether attributes are valid names, and adds an error for each that is not.
func validNames(diags *diag.Diagnostics, config binding.Values, attributes ...string) bool {
	var problems input.Problems
	for _, attribute := range attributes {
		input.CheckName(&problems, "/"+attribute, config.Text(attribute).ValueString())
	}
	reportProblems(diags, problems)
	return len(problems) == 0
}

// nodesSource is carillon_nodes: all nodes of the fleet.
var nodesSource = dataSource{
	name: "nodes", attributes: nodesRows.DataAttributes, read: readNodes,
	text: "The dispatcher nodes, including dead ones until Carillon purges them. Needs a token that is bound to no app.",
}

var nodesRows = binding.Of(binding.Fresh[client.List[dispatcher.Node]],
	binding.Blocks("nodes", binding.Nested(func(l *client.List[dispatcher.Node]) *[]dispatcher.Node { return &l.Items }, nodeRows),
		binding.InData, "The nodes.", binding.AlwaysThere),
)

var nodeRows = binding.Of(binding.Fresh[dispatcher.Node],
	binding.Shown("id", func(n *dispatcher.Node) string { return n.ID.String() }, binding.InData, "Id of the node: 16 hexadecimal "+
		"digits, random and new at each start."),
	binding.Text("name", func(n *dispatcher.Node) *string { return &n.Name }, binding.InData, "Name of the node, by default that of "+
		"its host. It is a label, so two nodes may share it."),
	binding.Text("version", func(n *dispatcher.Node) *string { return &n.Version }, binding.InData, "Version of Carillon that the "+
		"node runs."),
	binding.Text("state", func(n *dispatcher.Node) *dispatcher.NodeState { return &n.State }, binding.InData,
		"`active`, `paused`, `draining` or `dead`."),
	binding.Instant("started_at", func(n *dispatcher.Node) **time.Time { return new(&n.StartedAt) }, binding.InData,
		"When the node started, by the database's clock."),
	binding.Instant("heartbeat_at", func(n *dispatcher.Node) **time.Time { return new(&n.HeartbeatAt) }, binding.InData,
		"When the latest heartbeat arrived, by the database's clock."),
	binding.Whole("in_flight", func(n *dispatcher.Node) *int { return &n.InFlight }, binding.InData, "How many runs the node was "+
		"working on at its latest heartbeat."),
	binding.Whole("fires", func(n *dispatcher.Node) *int { return &n.Fires }, binding.InData, "How many fires the node claimed in "+
		"the minute before its latest heartbeat."),
	binding.Map("labels", func(n *dispatcher.Node) *input.Labels { return &n.Labels }, binding.InData, "The labels that jobs may "+
		"require with `node_labels`.", binding.ThereInData),
	binding.Value("share", types.Float64Type, func(n *dispatcher.Node) attr.Value { return types.Float64Value(n.Share) },
		binding.InData, "Share of the fleet's fires that the node claimed in that minute, from 0 to 1."),
	binding.Duration("lag", func(n *dispatcher.Node) *input.Duration { return &n.Lag }, binding.InData, "The largest lateness "+
		"between its last two heartbeats, of fires that did not wait as their job asked: a duration."),
	binding.Shown("clock_offset", func(n *dispatcher.Node) string { return n.ClockOffset.String() }, binding.InData,
		"How far the node's clock is ahead of the database's: a duration, negative if behind. It does not affect when jobs fire."),
)

func readNodes(ctx context.Context, c *connection, diags *diag.Diagnostics, m binding.Values) binding.Values {
	list, err := c.Nodes(ctx)
	if err != nil {
		c.report(diags, "list the nodes", err)
		return m
	}
	return nodesRows.Shown(diags, &list)
}

// scheduleSource is carillon_schedule: the fires of a schedule that is declared now.
var scheduleSource = dataSource{
	name: "schedule", attributes: scheduleAttributes, read: readSchedule,
	text: "When a schedule would fire if it were declared now, with the exclusions of a calendar. A node works it out, " +
		"so the result moves with time; the function `next_fires` does not.",
}

func scheduleAttributes() map[string]schema.Attribute {
	optional := func(description string) schema.Attribute {
		return schema.StringAttribute{Optional: true, MarkdownDescription: description}
	}
	return map[string]schema.Attribute{
		"expression": schema.StringAttribute{
			Required: true, MarkdownDescription: "The expression, as `trigger` of `carillon_job` takes it.",
		},
		"dialect":  optional("How to read `expression`. Default: detected from the expression."),
		"timezone": optional("IANA time zone of the expression's wall clock. Default: `UTC`."),
		"gap":      optional("What happens to local times that daylight saving skips: `skip` or `next`. Default: that of the dialect."),
		"overlap": optional("What happens to local times that daylight saving repeats: `last`, `first` or `both`. " +
			"Default: that of the expression."),
		"app": optional("App of the calendar. Default: none."),
		"calendar": schema.StringAttribute{
			Optional:            true,
			Validators:          []validator.String{stringvalidator.AlsoRequires(path.MatchRoot("app"))},
			MarkdownDescription: "Name of the calendar whose exclusions apply; needs `app`. Default: none.",
		},
		"on_excluded": optional("What happens to a fire that the calendar excludes; see `trigger` of `carillon_job`. Default: `skip`."),
		"identity":    optional("What `H` hashes: `app/job/trigger`, as for the trigger of that name. Default: none, so `H` is refused."),
		"from": schema.StringAttribute{
			Optional:            true,
			MarkdownDescription: "Instant after which the fires are, exclusive, in RFC 3339 with a time zone. Default: now.",
		},
		"fires": schema.NumberAttribute{
			Optional: true, MarkdownDescription: fmt.Sprintf("How many fires are wanted, 1 to %d. Default: `%d`.",
				view.MaxPreview, view.DefaultPreview),
		},
		"description": schema.StringAttribute{
			Computed: true, MarkdownDescription: "What the expression means, in words, with the zone's offset at `from`.",
		},
		"fire_times": schema.ListAttribute{
			Computed: true, ElementType: timetypes.RFC3339Type{},
			MarkdownDescription: "The fires, in RFC 3339 and UTC; fewer than `fires` if the schedule ends.",
		},
		"local_times": schema.ListAttribute{
			Computed: true, ElementType: types.StringType,
			MarkdownDescription: "The same in the zone of the schedule, such as `Mon 2030-05-06 02:30:00 +02:00`.",
		},
	}
}

func readSchedule(ctx context.Context, c *connection, diags *diag.Diagnostics, m binding.Values) binding.Values {
	var e binding.Expander
	asked := expandPreview(&e, m)
	if reportProblems(diags, e.ProblemsWith(asked.Validate())); diags.HasError() {
		return m
	}
	preview, err := c.Preview(ctx, asked)
	if err != nil {
		c.report(diags, fmt.Sprintf("preview schedule %s", input.Echo(asked.Expression)), err)
		return m
	}
	s, err := preview.Parse(asked.Identity, preview.From, nil)
	if err != nil {
		c.report(diags, fmt.Sprintf("preview schedule %s", input.Echo(asked.Expression)), err)
		return m
	}
	fires, local := []attr.Value{}, []attr.Value{}
	for _, at := range preview.FireTimes {
		fires = append(fires, timetypes.NewRFC3339TimeValue(at.UTC()))
		local = append(local, types.StringValue(s.In(at).Format("Mon 2006-01-02 15:04:05 -07:00")))
	}
	m["description"] = types.StringValue(s.Describe(preview.From))
	m["fire_times"] = types.ListValueMust(timetypes.RFC3339Type{}, fires)
	m["local_times"] = types.ListValueMust(types.StringType, local)
	return m
}

func expandPreview(e *binding.Expander, m binding.Values) view.PreviewRequest {
	asked := view.PreviewRequest{
		App: e.String("/app", m.Text("app")), Identity: e.String("/identity", m.Text("identity")), From: e.Instant("/from", m.Text("from")),
		Schedule: dispatcher.Schedule{
			Expression: e.String("/expression", m.Text("expression")), Timezone: e.String("/timezone", m.Text("timezone")),
			Calendar: e.String("/calendar", m.Text("calendar")),
		},
	}
	binding.SetText(e, "/dialect", m.Text("dialect"), &asked.Dialect)
	binding.SetText(e, "/gap", m.Text("gap"), &asked.Gap)
	binding.SetText(e, "/overlap", m.Text("overlap"), &asked.Overlap)
	binding.SetText(e, "/on_excluded", m.Text("on_excluded"), &asked.OnExcluded)
	rule := fmt.Sprintf("give a number from 1 to %d", view.MaxPreview)
	asked.Count = e.Whole("/fires", m.Number("fires"), view.DefaultPreview, input.CodeCountRange, rule)
	if asked.Count < 1 || asked.Count > view.MaxPreview {
		e.Problems.Add("/fires", input.CodeCountRange, "fires %d is out of range; %s", asked.Count, rule)
		asked.Count = view.DefaultPreview
	}
	return asked
}
