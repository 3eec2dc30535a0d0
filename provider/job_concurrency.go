package provider

import (
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

func concurrencyPolicyAttribute() schema.Attribute {
	return resolvedString("What happens to a run when the job already has as many runs in " +
		"progress as it may: `allow` (no limit; with `max_concurrency`, the same as `queue`), `forbid` (the run is skipped, which is " +
		"not a failure), `queue` (the run waits) or `replace` (the oldest run is cancelled, and the new one begins when that has " +
		"stopped). It applies to manual runs too. Default: the `default_concurrency_policy` of the app, or `allow`.")
}

func maxConcurrencyAttribute() schema.Attribute {
	return numberWithDefault(0, fmt.Sprintf("How many runs of the job may be in progress at once, over all nodes, at most `%d`. "+
		"`0` means no limit with `allow`, and one run with the other policies.", dispatcher.MaxMaxConcurrency))
}

func queueLimitAttribute() schema.Attribute {
	return numberWithDefault(dispatcher.DefaultQueueLimit, fmt.Sprintf("How many runs may wait, `1` to `%d`. Further runs are "+
		"skipped.", dispatcher.MaxQueueLimit))
}

// expandConcurrency sets the fields of a job that limit its runs.
func expandConcurrency(e *expander, m jobModel, job *dispatcher.Job) {
	expandOptional(e, "/concurrency_policy", m.ConcurrencyPolicy, &job.ConcurrencyPolicy)
	job.MaxConcurrency = e.whole("/max_concurrency", m.MaxConcurrency, 0, input.CodeCountRange,
		"give how many runs there may be at once, or 0 for the default of the policy")
	job.QueueLimit = e.whole("/queue_limit", m.QueueLimit, job.QueueLimit, input.CodeCountRange,
		"give how many runs may wait")
	// The API takes zero for "left out", so a zero that somebody wrote is reported here.
	if job.QueueLimit == 0 && !m.QueueLimit.IsUnknown() {
		e.problems.Add("/queue_limit", input.CodeCountRange,
			"queue_limit 0 is not in 1 to %d; if no run should wait, set concurrency_policy to forbid", dispatcher.MaxQueueLimit)
	}
}
