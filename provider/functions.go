package provider

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Functions depend only on their arguments: Terraform calls them at plan and again at apply, and both results
// must be the same. For results that depend on the current time, use the data source carillon_schedule.

// pureFunction implements a function of Terraform's framework.
type pureFunction struct {
	name string
	is   function.Definition
	run  func(context.Context, function.RunRequest, *function.RunResponse)
}

func (f pureFunction) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = f.name
}

func (f pureFunction) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = f.is
}

// Run computes the result.
func (f pureFunction) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	f.run(ctx, req, resp)
}

// The text parameters of functions.
var (
	expressionParameter = function.StringParameter{Name: "expression",
		MarkdownDescription: "The expression, as `trigger` of `carillon_job` takes it."}
	timezoneParameter = function.StringParameter{Name: "timezone",
		MarkdownDescription: "IANA time zone of the expression's wall clock, such as `Europe/Berlin` or `UTC`."}
)

// parse parses a schedule that is declared at a time. It refuses an empty zone, which would mean UTC.
func parse(expression, timezone string, dialect schedule.Dialect, from time.Time) (*schedule.Schedule, *function.FuncError) {
	if timezone == "" {
		return nil, function.NewArgumentFuncError(1, `timezone is empty; write a zone such as "Europe/Berlin", or "UTC"`)
	}
	s, err := schedule.Parse(schedule.Spec{Expression: expression, Timezone: timezone, Dialect: dialect, Anchor: from})
	if err != nil {
		return nil, function.NewFuncError(err.Error())
	}
	return s, nil
}

// maxFires is the largest number of fires that next_fires returns.
const maxFires = 100

var nextFires = pureFunction{name: "next_fires", run: runNextFires, is: function.Definition{
	Summary: "When a schedule fires",
	MarkdownDescription: "Returns the fire times of a schedule after an instant, in the zone of the schedule. Intervals count from the " +
		"instant, as if the trigger were declared then. No calendar is considered; the data source `carillon_schedule` does that.",
	Parameters: []function.Parameter{
		expressionParameter, timezoneParameter,
		function.StringParameter{Name: "from", MarkdownDescription: "The instant, exclusive, in RFC 3339 with a time zone. With " +
			"`plantimestamp()` it is the time of the plan."},
		function.Int64Parameter{Name: "count", MarkdownDescription: fmt.Sprintf("How many fire times to return, 1 to %d. "+
			"There are fewer if the schedule ends.", maxFires)},
	},
	Return: function.ListReturn{ElementType: types.StringType},
}}

func runNextFires(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	var expression, timezone, from string
	var count int64
	if resp.Error = req.Arguments.Get(ctx, &expression, &timezone, &from, &count); resp.Error != nil {
		return
	}
	start, err := input.ParseInstant(from)
	if err != nil {
		resp.Error = function.NewArgumentFuncError(2, "from: "+err.Error())
		return
	}
	if count < 1 || count > maxFires {
		resp.Error = function.NewArgumentFuncError(3, fmt.Sprintf("count %d is not between 1 and %d", count, maxFires))
		return
	}
	s, problem := parse(expression, timezone, "", start)
	if problem != nil {
		resp.Error = problem
		return
	}
	found, err := s.BetweenWithin(schedule.NewBudget(ctx, maxFires*schedule.StepsPerSearch), start, endOfTime, int(count))
	if err != nil {
		resp.Error = function.NewFuncError(err.Error())
		return
	}
	fires := []string{}
	for _, at := range found {
		fires = append(fires, s.In(at).Format(time.RFC3339Nano))
	}
	resp.Error = resp.Result.Set(ctx, fires)
}

// endOfTime is later than the last fire of any schedule.
var endOfTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

var describe = pureFunction{name: "describe", run: runDescribe, is: function.Definition{
	Summary: "A schedule in words",
	MarkdownDescription: "Returns what an expression means, in plain English, such as `at 02:30 on Monday to Friday; Europe/Berlin`. " +
		"An expression that is not valid is an error, so this also checks expressions, as in the condition of a variable.",
	Parameters: []function.Parameter{expressionParameter, timezoneParameter},
	Return:     function.StringReturn{},
}}

func runDescribe(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	var expression, timezone string
	if resp.Error = req.Arguments.Get(ctx, &expression, &timezone); resp.Error != nil {
		return
	}
	s, problem := parse(expression, timezone, "", time.Time{})
	if problem != nil {
		resp.Error = problem
		return
	}
	// The description must not depend on the time, so it omits the zone's offset and an interval's implicit start.
	what, _, _ := strings.Cut(s.Describe(time.Unix(0, 0)), "; "+timezone)
	what, _, _ = strings.Cut(what, ", counted from ")
	resp.Error = resp.Result.Set(ctx, what+"; "+timezone)
}

// eventBridgeAttributes are the attributes of from_eventbridge's result.
var eventBridgeAttributes = map[string]attr.Type{
	"expression": types.StringType, "dialect": types.StringType, "timezone": types.StringType,
}

var fromEventBridge = pureFunction{name: "from_eventbridge", run: runFromEventBridge, is: function.Definition{
	Summary: "The trigger for a schedule of Amazon EventBridge",
	MarkdownDescription: "Returns `expression`, `dialect` and `timezone` of a trigger that fires as a schedule of Amazon " +
		"EventBridge Scheduler, or a rule of Amazon EventBridge, does. An expression that EventBridge would refuse is an error.",
	Parameters: []function.Parameter{
		function.StringParameter{Name: "expression", MarkdownDescription: "`cron(...)`, `rate(...)` or `at(...)`, such as " +
			"the `schedule_expression` of `aws_scheduler_schedule`."},
		function.StringParameter{Name: "timezone", AllowNullValue: true, MarkdownDescription: "Its `schedule_expression_timezone`. " +
			"With null or an empty text it is `UTC`, as for EventBridge; rules always have `UTC`."},
	},
	Return: function.ObjectReturn{AttributeTypes: eventBridgeAttributes},
}}

func runFromEventBridge(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	var expression string
	var zone types.String
	if resp.Error = req.Arguments.Get(ctx, &expression, &zone); resp.Error != nil {
		return
	}
	timezone := zone.ValueString()
	if timezone == "" {
		timezone = utc
	}
	if _, problem := parse(expression, timezone, schedule.DialectAWS, time.Time{}); problem != nil {
		resp.Error = problem
		return
	}
	resp.Error = resp.Result.Set(ctx, types.ObjectValueMust(eventBridgeAttributes, map[string]attr.Value{
		"expression": types.StringValue(expression), "dialect": types.StringValue(string(schedule.DialectAWS)),
		"timezone": types.StringValue(timezone),
	}))
}
