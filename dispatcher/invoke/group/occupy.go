package group

import (
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/routing"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// occupy takes the slot of the endpoint that the strategy has chosen, for a job of which one run at a time may be under
// way at each endpoint. The endpoint that it returns is another one if the run has waited for that. It says why there is
// no slot if the next candidate may be tried. over tells that nothing may be sent.
func (a *groupAttempt) occupy(chosen *target.Endpoint) (endpoint *target.Endpoint, refused *refusal, over bool) {
	if a.call.Occupy == nil {
		return chosen, nil, false
	}
	asks := a.strategy.Asks()
	ifFree := asks == routing.AskIdle || asks == routing.AskIdleForJob
	for range 2 { // the second time it leaves an endpoint that cannot get the request
		grant := a.call.Occupy(chosen.ID, ifFree)
		switch {
		case grant.Busy != "":
			return nil, &refusal{endpoint: chosen.ID, why: grant.Busy, busy: true}, false
		case grant.Endpoint == "":
			return nil, nil, true
		case grant.Endpoint == chosen.ID:
			return chosen, nil, false
		}
		if other := a.candidate(grant.Endpoint); other != nil {
			return other, nil, false
		}
	}
	return nil, &refusal{endpoint: chosen.ID, why: "its slot cannot be taken", busy: true}, false
}

// notOccupied is the outcome of an attempt that gets no endpoint, because its run waits or is over. Nobody records it.
func notOccupied() run.Outcome {
	outcome := attempt.Ended(run.Cancelled, run.ClassCancelled, "the run has no slot of an endpoint")
	outcome.NotSent = true
	return outcome
}

// candidate returns an endpoint that may still be tried, by its id; nil: it may not.
func (a *groupAttempt) candidate(id string) *target.Endpoint {
	at := slices.IndexFunc(a.call.Group.Live, func(e target.Endpoint) bool { return e.ID == id })
	if at < 0 || a.tried(id) {
		return nil
	}
	endpoint := &a.call.Group.Live[at]
	a.mu.Lock()
	defer a.mu.Unlock()
	if state := a.stateOf(&a.call.Group.EndpointGroup, endpoint, time.Now()); state == routing.Draining || state == routing.Down {
		return nil
	}
	return endpoint
}

// tried tells whether an endpoint refused the request of this attempt.
func (a *groupAttempt) tried(id string) bool {
	return slices.ContainsFunc(a.refusals, func(r refusal) bool { return r.endpoint == id })
}
