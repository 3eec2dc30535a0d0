package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/view"
	"github.com/carillon-dev/carillon/provider/binding"
)

// scheduleSource is carillon_schedule: when a schedule would fire if it were declared now.
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
