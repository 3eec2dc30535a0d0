package engine

import (
	"context"
	"log/slog"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func newEndpointPermits(store Store, batch int, log *slog.Logger) *permits[target.EndpointRequest, target.EndpointGrant] {
	key := func(asks target.EndpointRequest) pool.AttemptKey { return pool.KeyOf(asks.HeldRun) }
	grant := func(ctx context.Context, asks []target.EndpointRequest) (map[pool.AttemptKey]target.EndpointGrant, error) {
		grants, err := store.AcquireEndpoints(ctx, asks)
		granted := make(map[pool.AttemptKey]target.EndpointGrant, len(grants))
		for _, grant := range grants {
			granted[pool.KeyOf(grant.HeldRun)] = grant
		}
		return granted, err
	}
	return newPermits("acquire slots of endpoints", key, grant, batch, log)
}

// occupies tells whether an attempt needs the slot of its endpoint.
func occupies(a *attempt) bool {
	group := a.call.Target.Group
	return group != nil && group.EndpointConcurrency != "" && group.EndpointConcurrency != run.ConcurrencyAllow
}

// occupy takes the slot of an endpoint, which the strategy has chosen, before anything is sent to it. It ends the attempt
// if the run has to wait or was skipped. A run that failed before is not skipped: it takes an endpoint that is free, and
// if there is none, its attempt fails and is repeated.
func (e *Engine) occupy(ctx context.Context, a *attempt, endpoint string, ifFree bool) target.EndpointGrant {
	ifFree = ifFree || a.run.Attempt > 1 && a.call.Target.Group.EndpointConcurrency == run.ConcurrencyForbid
	grant := e.slots.endpoints.request(ctx, target.EndpointRequest{HeldRun: a.run.HeldRun, Endpoint: endpoint, IfFree: ifFree})
	switch {
	case grant.Busy != "":
		return grant
	case grant.Endpoint == "":
		a.over, a.hasSlot = true, a.hasSlot || ctx.Err() != nil // the run may have got one
		if a.run.Detail.delayed {
			wake(e.wakeAdopt) // if the run was skipped, no record schedules the trigger's next fire
		}
		if a.run.Shard > 0 {
			e.broadcasts.done.add(a.run.Parent()) // if it was the last one, no record ends the parent
		}
		e.metrics.slots.WithLabelValues(claimLost).Inc()
		return grant
	}
	e.metrics.slots.WithLabelValues(claimWon).Inc()
	e.slots.took(a.run.HeldRun)
	a.hasSlot = true
	if a.call.Delivery == dispatcher.AtMostOnce && !e.begins.request(ctx, a.run.HeldRun) || !e.mayAct(ctx, a.run) {
		a.over = true
		return target.EndpointGrant{}
	}
	return grant
}
