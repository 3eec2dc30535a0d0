package provider

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/provider/binding"
)

// jobSource is carillon_job: a job as it is now.
var jobSource = dataSource{
	name: "job", attributes: jobRows.DataAttributes, read: readNamed("job", jobRows, (*client.Client).Job, addObjective),
	text: "A job as it is now, with the latest and the next fire of each trigger. Unlike `next_fire_times` of the " +
		"resource, each plan reads these again.",
}

func addObjective(ctx context.Context, c *connection, diags *diag.Diagnostics, job dispatcher.Job, shown binding.Values) {
	if job.Objective == nil {
		return
	}
	switch status, err := c.Objective(ctx, job.App, job.Name); {
	case err == nil:
		shown["objective"] = objectiveStatusRows.ShownObject(diags, &status)
	case !errors.Is(err, dispatcher.ErrNotFound): // otherwise it was taken away a moment ago
		c.report(diags, fmt.Sprintf("read the objective of job %q", job.App+"/"+job.Name), err)
	}
}

// objectiveStatusRows are how a job does by its objective.
var objectiveStatusRows = binding.Of(binding.Fresh[dispatcher.ObjectiveStatus],
	binding.Shown("within", func(s *dispatcher.ObjectiveStatus) string { return s.Within.String() }, binding.InData,
		"How long after its scheduled time a fire is in time."),
	binding.Text("of", func(s *dispatcher.ObjectiveStatus) *string { return &s.Of }, binding.InData, "The share of fires that are to "+
		"be in time."),
	binding.Instant("from", func(s *dispatcher.ObjectiveStatus) **time.Time { return new(&s.From) }, binding.InData,
		"Fires that were scheduled from then on are counted."),
	binding.Instant("to", func(s *dispatcher.ObjectiveStatus) **time.Time { return new(&s.To) }, binding.InData,
		"Fires that were scheduled before are counted. It follows the clock by five to ten minutes."),
	binding.Whole("good", func(s *dispatcher.ObjectiveStatus) *int64 { return &s.Good }, binding.InData, "How many fires began in time."),
	binding.Whole("late", func(s *dispatcher.ObjectiveStatus) *int64 { return &s.Late }, binding.InData, "How many fires began "+
		"later, or ended without an attempt."),
	binding.Whole("missed", func(s *dispatcher.ObjectiveStatus) *int64 { return &s.Missed }, binding.InData, "How many fires were missed."),
	binding.Whole("pending", func(s *dispatcher.ObjectiveStatus) *int64 { return &s.Pending }, binding.InData,
		"How many fires are not counted yet, because their first attempt is not over."),
	binding.Value("attained", types.Float64Type,
		func(s *dispatcher.ObjectiveStatus) attr.Value { return types.Float64PointerValue(s.Attained) }, binding.InData,
		"The share of fires that were in time, in percent; null if there were none."),
	binding.Value("budget_left", types.Float64Type,
		func(s *dispatcher.ObjectiveStatus) attr.Value { return types.Float64Value(s.BudgetLeft) }, binding.InData,
		"The share of the error budget that is left, in percent. Below 0, more fires were late or missed than the objective allows."),
	binding.Value("burn_rates", types.MapType{ElemType: types.Float64Type}, func(s *dispatcher.ObjectiveStatus) attr.Value {
		rates := map[string]attr.Value{}
		for span, rate := range s.BurnRates {
			rates[span] = types.Float64Value(rate)
		}
		return types.MapValueMust(types.Float64Type, rates)
	}, binding.InData, "How fast the error budget "+
		"goes, over the last `5m`, `30m`, `1h`, `6h` and `3d`. `1` uses it up in 28 days."),
)
