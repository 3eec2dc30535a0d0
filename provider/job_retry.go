package provider

import (
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

var retryRows = rowsOf(fresh[run.Retry],
	wholeRow("max_attempts", func(r *run.Retry) *int { return &r.MaxAttempts }, standard, "How many attempts may fail, including the "+
		"first, `1` to `100`. With `1` a failed run is not retried. Attempts that were lost with their node do not count.",
		advice(input.CodeAttemptsRange, "give how many attempts may fail, from 1 to 100"), decides("delays"), // there must be fewer
		shownAs("How many attempts may fail, including the first.")),
	durationRow("base", func(r *run.Retry) *input.Duration { return &r.Base }, standard, "Upper bound of the wait before the second "+
		"attempt, from `100ms` to `24h`. The bound doubles for each further attempt, up to `cap`. Each wait is random between zero and "+
		"its bound.", decides("cap"), // which must not be less
		shownAs("Upper bound of the wait before the second attempt. It doubles for each further one.")),
	durationRow("cap", func(r *run.Retry) *input.Duration { return &r.Cap }, standard, "The longest wait, from `100ms` to `24h`. It also "+
		"limits the wait that a target asks for with `Retry-After`.", decides("cap"), shownAs("The longest wait.")),
	durationRow("max_age", func(r *run.Retry) *input.Duration { return &r.MaxAge }, standard, "How long after its first attempt began or "+
		"was deferred a run may be attempted, from `1s` to `24h`.", shownAs("How long after its first attempt a run may be attempted.")),
	boolRow("stop_at_next_fire", func(r *run.Retry) *bool { return &r.StopAtNextFire }, standard, "Whether the run ends instead of making "+
		"an attempt at or after the next fire of its trigger.",
		shownAs("Whether the run ends instead of making an attempt at or after the next fire.")),
	durationsRow("delays", func(r *run.Retry) *[]input.Duration { return &r.Delays }, optional, "Fixed waits that replace `base` and its "+
		"doubling, from `0s` to `24h` each, such as `[\"1s\", \"1m\"]`; fewer than `max_attempts`. The last one repeats. Default: none.",
		decides("cap"), shownAs("Fixed waits that replace `base` and its doubling; null if there are none.")),
)
