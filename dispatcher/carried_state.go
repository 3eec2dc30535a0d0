package dispatcher

import (
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// checkCarryState adds why the runs of j cannot carry a state.
func (j Job) checkCarryState(problems *input.Problems) {
	if !j.CarryState {
		return
	}
	const path = "/carry_state"
	if p := j.ConcurrencyPolicy; p != run.ConcurrencyForbid && p != run.ConcurrencyQueue || j.Slots() != 1 {
		problems.Add(path, input.CodeCarryState, "carry_state needs runs that never overlap, or one would overwrite the state of another; "+
			"set concurrency_policy to forbid or queue, and leave out max_concurrency or set it to 1")
	}
	switch {
	case j.Target.Group != nil && j.Target.Group.XXLJob != nil:
		problems.Add(path, input.CodeCarryState,
			"executors of XXL-JOB return no state; leave out carry_state, or call the workers with another target")
	case j.Target.Group != nil && j.Target.Group.Strategy == target.Broadcast:
		problems.Add(path, input.CodeCarryState, "the shards of a broadcast run at the same time and share no state; leave out carry_state, or "+
			"choose another strategy")
	case j.Target.Lambda != nil && j.Target.Lambda.Invocation == target.InvokeEvent && j.Target.Lambda.Callback == nil:
		problems.Add(path, input.CodeCarryState,
			"a function that is invoked as Event returns nothing; invoke it as RequestResponse, or set callback "+
				"so that it returns a state with complete")
	}
}
