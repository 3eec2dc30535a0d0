package provider

import (
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/provider/binding"
)

var retryRows = binding.Of(binding.Fresh[run.Retry],
	binding.Whole("max_attempts", func(r *run.Retry) *int { return &r.MaxAttempts }, binding.Default,
		"How many attempts may fail, including the "+
			"first, `1` to `100`. With `1` a failed run is not retried. Attempts that were lost with their node do not count.",
		binding.Advice(input.CodeAttemptsRange, "give how many attempts may fail, from 1 to 100"),
		binding.Decides("delays"), // there must be fewer
		binding.Data("How many attempts may fail, including the first.")),
	binding.Duration("base", func(r *run.Retry) *input.Duration { return &r.Base }, binding.Default,
		"Upper bound of the wait before the second "+
			"attempt, from `100ms` to `24h`. The bound doubles for each further attempt, up to `cap`. Each wait is random between zero and "+
			"its bound.", binding.Decides("cap"), // which must not be less
		binding.Data("Upper bound of the wait before the second attempt. It doubles for each further one.")),
	binding.Duration("cap", func(r *run.Retry) *input.Duration { return &r.Cap }, binding.Default, "The longest wait, from `100ms` "+
		"to `24h`. It also limits the wait that a target asks for with `Retry-After`.", binding.Decides("cap"), binding.Data(
		"The longest wait.")),
	binding.Duration("max_age", func(r *run.Retry) *input.Duration { return &r.MaxAge }, binding.Default, "How long after its first "+
		"attempt began or was deferred a run may be attempted, from `1s` to `24h`.", binding.Data("How long after its first attempt "+
		"a run may be attempted.")),
	binding.Bool("stop_at_next_fire", func(r *run.Retry) *bool { return &r.StopAtNextFire }, binding.Default, "Whether the run ends "+
		"instead of making an attempt at or after the next fire of its trigger.", binding.Data("Whether the run ends instead of "+
		"making an attempt at or after the next fire.")),
	binding.Durations("delays", func(r *run.Retry) *[]input.Duration { return &r.Delays }, binding.Optional,
		"Fixed waits that replace `base` and its doubling, from `0s` to `24h` each, such as `[\"1s\", \"1m\"]`; fewer than "+
			"`max_attempts`. The last one repeats. Default: none.", binding.Decides("cap"), binding.Data("Fixed waits that replace "+
			"`base` and its doubling; null if there are none.")),
)
