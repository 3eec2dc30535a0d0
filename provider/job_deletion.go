package provider

import (
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

func deleteAfterAttribute() schema.Attribute {
	return optionalEquivalent[durations]("Time from the job's completion until Carillon deletes it, `1m` to `87600h`. A " +
		"job is complete when its `state` is `COMPLETE`: no trigger has another fire, and no run is in progress. A job with a " +
		"disabled trigger is not complete. The deletion may be up to ten minutes late, and the history stays for the `retention` " +
		"of the app. **Terraform plans to create a deleted job again**, with a warning. Its triggers would then start over, and " +
		"instants in the past are refused. So use it for jobs that are declared for a while, and remove their resource once they " +
		"are done. Default: the job is never deleted.")
}

func expandDeleteAfter(e *expander, m jobModel, job *dispatcher.Job) {
	job.DeleteAfterCompletion = e.duration("/delete_after_completion", m.DeleteAfter, 0)
	// The API takes zero for "left out", so a zero that somebody wrote is reported here.
	if given, err := input.ParseDuration(m.DeleteAfter.ValueString()); err == nil && given == 0 {
		e.problems.Add("/delete_after_completion", input.CodeDurationMin,
			"duration 0s is less than the minimum of %s; leave it out to keep the job", dispatcher.MinDeleteAfter)
	}
}

func flattenDeleteAfter(d input.Duration) durationString {
	if d == 0 {
		return durationString{types.StringNull()}
	}
	return flattenDuration(d)
}

// warnOfDeletion says why a missing job was probably deleted, and what Terraform will plan.
func warnOfDeletion(diags *diag.Diagnostics, m jobModel) {
	if m.DeleteAfter.IsNull() {
		return
	}
	diags.AddWarning("The job no longer exists",
		fmt.Sprintf("Carillon probably deleted job %q after its last fire, because it has delete_after_completion = %q. Terraform "+
			"will plan to create it again, and its triggers would start over. If the job is done, remove the resource.",
			importID(m.App, m.Name), m.DeleteAfter.ValueString()))
}
