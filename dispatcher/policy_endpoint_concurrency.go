package dispatcher

import "cmp"

// EndpointPolicy returns what happens to a run of the job that the strategy sends to an endpoint at which another run of
// the job is under way. With ConcurrencyAllow, as for all targets but groups, endpoints have no slots.
func (j Job) EndpointPolicy() ConcurrencyPolicy {
	if j.Target.Group == nil {
		return ConcurrencyAllow
	}
	return cmp.Or(j.Target.Group.EndpointConcurrency, ConcurrencyAllow)
}

// EndpointRequest is a run that is about to go to an endpoint and wants its slot.
type EndpointRequest struct {
	HeldRun
	Endpoint string
	// IfFree asks for the slot only if no other run has it or waits for it. Otherwise, nothing changes.
	IfFree bool
}

// EndpointGrant is the response to an EndpointRequest.
type EndpointGrant struct {
	HeldRun
	// Endpoint is the one whose slot the run has now; empty: none. It is not the one that was asked for if the run has
	// waited for another, or had it in an attempt whose node died.
	Endpoint string
	// Busy says, of a request IfFree, why there is no slot.
	Busy string
}

// Occupy takes the slot of an endpoint for an attempt, and waits for the decision of the database. ifFree is as that of
// an EndpointRequest. A grant without Endpoint and Busy means that the attempt is over: nothing may be sent.
type Occupy func(endpoint string, ifFree bool) EndpointGrant

// ContendForEndpoint is Contend for the slot of one endpoint, by a policy. waiting is how many runs of the job wait for
// other endpoints: they count to the job's QueueLimit.
func (j Job) ContendForEndpoint(policy ConcurrencyPolicy, all []Contender, waiting int) []SlotDecision {
	return Job{ConcurrencyPolicy: policy, QueueLimit: j.QueueLimit}.contend(all, waiting)
}
