package dispatcher

import (
	"cmp"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// EndpointPolicy returns what happens to a run of the job that the strategy sends to an endpoint at which another run of
// the job is under way. With ConcurrencyAllow, as for all targets but groups, endpoints have no slots.
func (j Job) EndpointPolicy() run.ConcurrencyPolicy {
	if j.Target.Group == nil {
		return run.ConcurrencyAllow
	}
	return cmp.Or(j.Target.Group.EndpointConcurrency, run.ConcurrencyAllow)
}

// ContendForEndpoint is Contend for the slot of one endpoint, by a policy. waiting is how many runs of the job wait for
// other endpoints: they count to the job's QueueLimit.
func (j Job) ContendForEndpoint(policy run.ConcurrencyPolicy, all []Contender, waiting int) []SlotDecision {
	return Job{JobSpec: JobSpec{JobPolicies: JobPolicies{ConcurrencyPolicy: policy, QueueLimit: j.QueueLimit}}}.contend(all, waiting)
}
