package provider

import (
	"math/big"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/numberdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

func concurrencyPolicyAttribute() schema.Attribute {
	return schema.StringAttribute{
		Optional: true, Computed: true, Default: stringdefault.StaticString(string(dispatcher.ConcurrencyAllow)),
		MarkdownDescription: "What becomes of a run that finds as many runs of the job as there may be at once: `allow` (no bound " +
			"without `max_concurrency`; with it, as `queue`), `forbid` (it is skipped, which is no failure), `queue` (it waits for its " +
			"turn) or `replace` (the oldest is cancelled, and it begins when that has stopped). Runs that are asked for by hand obey " +
			"it, too. Default: `allow`.",
	}
}

func maxConcurrencyAttribute() schema.Attribute {
	return schema.NumberAttribute{
		Optional: true, Computed: true, Default: numberdefault.StaticBigFloat(big.NewFloat(0)),
		MarkdownDescription: "How many runs of the job there may be at once, over all nodes, at most `" +
			strconv.Itoa(dispatcher.MaxMaxConcurrency) + "`; `0` is no bound with `allow`, and else one. Default: `0`.",
	}
}

func queueLimitAttribute() schema.Attribute {
	return schema.NumberAttribute{
		Optional: true, Computed: true, Default: numberdefault.StaticBigFloat(big.NewFloat(dispatcher.DefaultQueueLimit)),
		MarkdownDescription: "How many runs may wait for their turn, `1` to `" + strconv.Itoa(dispatcher.MaxQueueLimit) +
			"`; those beyond are skipped. Default: `" + strconv.Itoa(dispatcher.DefaultQueueLimit) + "`.",
	}
}

// readConcurrency reads how a job bounds its runs.
func readConcurrency(read *reader, m jobModel, job *dispatcher.Job) {
	if !m.ConcurrencyPolicy.IsNull() {
		readWord(read, "/concurrency_policy", m.ConcurrencyPolicy, &job.ConcurrencyPolicy)
	}
	job.MaxConcurrency = read.whole("/max_concurrency", m.MaxConcurrency, dispatcher.CodeCountRange, "give how many runs there may be at once, or 0 for what the policy says")
	if m.QueueLimit.IsNull() {
		return
	}
	job.QueueLimit = read.whole("/queue_limit", m.QueueLimit, dispatcher.CodeCountRange, "give how many runs may wait")
	if job.QueueLimit == 0 && !m.QueueLimit.IsUnknown() {
		read.problems.Add("/queue_limit", dispatcher.CodeCountRange, "queue_limit 0 is not in 1 to %d; where none is to wait, set concurrency_policy to forbid", dispatcher.MaxQueueLimit)
	}
}

// setConcurrency is the inverse of readConcurrency.
func (m *jobModel) setConcurrency(job dispatcher.Job) {
	m.ConcurrencyPolicy = types.StringValue(string(job.ConcurrencyPolicy))
	m.MaxConcurrency = types.NumberValue(big.NewFloat(float64(job.MaxConcurrency)))
	m.QueueLimit = types.NumberValue(big.NewFloat(float64(job.QueueLimit)))
}
