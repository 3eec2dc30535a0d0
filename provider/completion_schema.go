package provider

import (
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

func deleteAfterAttribute() schema.Attribute {
	return schema.StringAttribute{
		Optional:   true,
		CustomType: textType[durations]{},
		MarkdownDescription: "How long after its `state` has become `COMPLETE` (no trigger has a further fire, and no run is under way) the " +
			"job is deleted by Carillon itself: `1m` to `87600h`, within the ten minutes of the clean-up. Its history stays for the `retention` of " +
			"the app. **What is deleted behind Terraform's back it plans to create again**, with a warning: triggers with a `repeat_count` would then " +
			"fire as often once more, and instants that are past are refused. So it is for jobs that come and go with what declares them; " +
			"remove their resource once they are over. A job of which a trigger is disabled is not over. Default: the job is never deleted.",
		PlanModifiers: []planmodifier.String{keepIfSame[durations]{}},
	}
}

// readDeleteAfter reads how long after its completion a job is deleted.
func readDeleteAfter(read *reader, m jobModel, job *dispatcher.Job) {
	job.DeleteAfterCompletion = read.duration("/delete_after_completion", m.DeleteAfter, 0)
	if given, err := dispatcher.ParseDuration(m.DeleteAfter.ValueString()); err == nil && given == 0 { // which the API takes for left out
		read.problems.Add("/delete_after_completion", dispatcher.CodeDurationMin, "duration 0s is less than the minimum of %s; leave it out to keep the job", dispatcher.MinDeleteAfter)
	}
}

// setDeleteAfter is the inverse of readDeleteAfter.
func (m *jobModel) setDeleteAfter(job dispatcher.Job) {
	m.DeleteAfter = text[durations]{types.StringNull()}
	if job.DeleteAfterCompletion != 0 {
		m.DeleteAfter = newText[durations](formatDuration(job.DeleteAfterCompletion))
	}
}

// warnOfDeleted tells why a job that is gone probably is, and what Terraform will make of it.
func warnOfDeleted(diags *diag.Diagnostics, m jobModel) {
	if m.DeleteAfter.IsNull() {
		return
	}
	diags.AddWarning("The job is no longer there",
		fmt.Sprintf("Job %q was probably deleted because its last fire is over: it has delete_after_completion = %q. Terraform will plan to create "+
			"it again, and then its triggers begin again. If it has done its work, remove the resource.", importID(m.App, m.Name), m.DeleteAfter.ValueString()))
}
