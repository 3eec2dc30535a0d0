package invoke

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/routing"
)

// groups calls endpoints of groups. An attempt tries the endpoints in the order of the strategy until one may have
// received the request; after that, it tries no other.
type groups struct {
	hooks *webhooks
	known *groupStates
}

func newGroups(hooks *webhooks) *groups { return &groups{hooks: hooks, known: newGroupStates()} }

// close does nothing: the connections are those of webhooks.
func (*groups) close() {}

// groupAttempt is an attempt with a group.
type groupAttempt struct {
	*groupState
	hooks    *webhooks
	call     dispatcher.Call
	content  content
	path     string
	strategy dispatcher.Strategy
	router   *routing.Router
	key      string // of the strategy consistent_hash
	started  time.Time
	refusals []refusal
}

// refusal is why an endpoint did not get the request.
type refusal struct {
	endpoint, why string
	busy          bool // it responded that it is busy
}

func (g *groups) call(ctx context.Context, call dispatcher.Call, started time.Time) dispatcher.Outcome {
	a, err := g.prepare(call, started)
	if err != nil {
		outcome := notAttempted(err)
		outcome.NotSent = true
		return outcome
	}
	bounded, cancel := context.WithTimeout(ctx, a.content.Timeout.Std())
	defer cancel()
	candidates := candidates(call.Group)
	outcome, done := a.through(ctx, bounded, a.members(call.Group, started), candidates)
	if !done && a.busy() == 0 && len(a.refusals) < candidates && bounded.Err() == nil {
		// No primary endpoint is up, as this attempt is the first to see.
		outcome, done = a.through(ctx, bounded, a.backups(call.Group, started), candidates)
	}
	if !done {
		outcome = a.none(ctx, bounded, candidates)
	}
	return outcome
}

// prepare fills in the templates of a call, and finds the router of its job.
func (g *groups) prepare(call dispatcher.Call, started time.Time) (*groupAttempt, error) {
	if call.Group == nil {
		return nil, &classedError{dispatcher.ClassNoEndpoint, fmt.Errorf("group %s does not exist", call.Target.Group.Name)}
	}
	a := &groupAttempt{hooks: g.hooks, call: call, started: started}
	a.strategy = cmp.Or(call.Target.Group.Strategy, call.Group.Strategy, dispatcher.RoundRobin)
	var err error
	a.content.Webhook, a.path, a.content.headers, a.content.body, err = call.GroupRequest()
	if err == nil && a.strategy == routing.ConsistentHash {
		a.key, err = call.HashKey()
	}
	if err == nil {
		a.groupState, a.router, err = g.known.of(routerKey{call.App, call.Group.Name, call.Job, a.strategy}, len(call.Group.Live), started)
	}
	return a, err
}

// candidates returns how many endpoints of a group may be tried.
func candidates(group *dispatcher.GroupVersion) (n int) {
	for i := range group.Live {
		if !group.Live[i].Draining {
			n++
		}
	}
	return n
}

// through tries members one after the other, until one may have received the request or the attempt is over: done.
func (a *groupAttempt) through(
	ctx, bounded context.Context, members *routing.Members, candidates int,
) (outcome dispatcher.Outcome, done bool) {
	route := a.router.Route(members, a.key)
	defer route.Done()
	for bounded.Err() == nil {
		n, some := route.Next()
		if !some {
			break
		}
		endpoint := &a.call.Group.Live[n]
		refused, release := a.choose(bounded, endpoint)
		if refused != nil {
			a.refusals = append(a.refusals, *refused)
			continue
		}
		outcome, done = a.try(ctx, bounded, endpoint, candidates-len(a.refusals))
		if release != nil {
			release()
		}
		if done {
			return outcome, true
		}
	}
	return outcome, false
}

// try sends the request to an endpoint. left is how many endpoints may be tried, this one included. done is false if the
// endpoint certainly received nothing, so that the next may be tried.
func (a *groupAttempt) try(
	ctx, bounded context.Context, endpoint *dispatcher.Endpoint, left int,
) (outcome dispatcher.Outcome, done bool) {
	r, err := a.hooks.buildFor(bounded, a.destination(endpoint, a.path), a.content, a.call, a.started)
	if err != nil {
		outcome = notAttempted(err)
		outcome.NotSent = true
		// Another endpoint may be one that the app may call. All else that may be wrong is so for each of them.
		if outcome.Class != dispatcher.ClassEgressDenied && outcome.Class != dispatcher.ClassBounds {
			return outcome, true
		}
		return outcome, a.refusedBy(endpoint, outcome.Error)
	}
	watch := &stopwatch{start: a.started}
	limited, cancel := context.WithCancelCause(bounded)
	defer cancel(nil)
	if left > 1 {
		defer limitConnect(bounded, watch, cancel)()
	}
	outcome = a.hooks.attempt(ctx, limited, a.content.Webhook, r, watch)
	switch {
	case watch.sent():
		a.succeeded(endpoint.ID)
		return outcome, true
	case ctx.Err() != nil:
		return outcome, true
	case bounded.Err() == nil && limited.Err() != nil:
		return outcome, a.refusedBy(endpoint, context.Cause(limited).Error())
	}
	return outcome, a.refusedBy(endpoint, outcome.Error)
}

// refusedBy notes that an endpoint could not be connected, and returns that the attempt is not done.
func (a *groupAttempt) refusedBy(endpoint *dispatcher.Endpoint, why string) (done bool) {
	a.failed(endpoint, a.started, time.Now())
	a.refusals = append(a.refusals, refusal{endpoint: endpoint.ID, why: why})
	return false
}

// limitConnect cancels a request that has no connection after half of the time that is left, so that an endpoint whose
// packets are lost leaves enough of it to the next.
func limitConnect(bounded context.Context, watch *stopwatch, cancel context.CancelCauseFunc) (stop func() bool) {
	deadline, _ := bounded.Deadline()
	limit := min(connectTimeout, time.Until(deadline)/2).Round(time.Millisecond)
	return time.AfterFunc(limit, func() {
		if !watch.hasConnection() {
			cancel(fmt.Errorf("no connection within %s", limit))
		}
	}).Stop
}

// destination returns where requests to a path of an endpoint go.
func (a *groupAttempt) destination(endpoint *dispatcher.Endpoint, path string) destination {
	group := a.call.Group
	to := destination{
		url: group.URL(endpoint.StaticEndpoint, path), endpoint: endpoint.ID, host: group.ServerName,
		scope: scopeOf(a.call.App, a.call.Bounds.Egress),
	}
	if endpoint.Source == dispatcher.EndpointRegistered {
		if to.scope.registered = group.Registration; group.Registration == nil {
			to.scope.registered = &dispatcher.Registration{} // allows nothing
		}
	}
	to.scope.serverName = group.ServerName
	if host, _, err := net.SplitHostPort(group.ServerName); err == nil {
		to.scope.serverName = host
	}
	return to
}

// busy returns how many endpoints responded that they are busy.
func (a *groupAttempt) busy() (n int) {
	for _, r := range a.refusals {
		if r.busy {
			n++
		}
	}
	return n
}

// mostSaid is of how many endpoints an outcome says why they did not get the request.
const mostSaid = 5

// none returns the outcome of an attempt that no endpoint got. candidates is how many might have.
func (a *groupAttempt) none(ctx, bounded context.Context, candidates int) dispatcher.Outcome {
	group, asked := a.call.Group, len(a.refusals)
	outcome := failed(dispatcher.ClassNoEndpoint,
		fmt.Sprintf("no endpoint of group %s is up; of %d, %d were tried", group.Name, candidates, asked))
	switch busy := a.busy(); {
	case ctx.Err() != nil:
		outcome = ended(dispatcher.RunCancelled, dispatcher.ClassCancelled, "the attempt was cancelled")
		outcome.NotSent = true
		return outcome
	case candidates == 0:
		outcome.Error = fmt.Sprintf("group %s has no endpoint that is up; it has %d, of which %d are draining",
			group.Name, len(group.Live), len(group.Live))
	case busy > 0:
		outcome = failed(dispatcher.ClassEndpointsBusy,
			fmt.Sprintf("no endpoint of group %s is idle; of %d, %d were asked and %d are busy", group.Name, candidates, asked, busy))
	}
	if bounded.Err() != nil {
		outcome.Error += fmt.Sprintf(" within the timeout of %s", a.content.Timeout)
	}
	for i, r := range a.refusals[:min(asked, mostSaid)] {
		outcome.Error += map[bool]string{true: ": ", false: "; "}[i == 0] + r.endpoint + ": " + r.why
	}
	outcome = failed(outcome.Class, outcome.Error) // cuts what is too long
	outcome.NotSent = true
	return outcome
}
