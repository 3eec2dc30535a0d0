// Package group makes the attempts with endpoint groups: it knows their members and their states, chooses an endpoint,
// and sends the request to it like package web.
package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/dns"
	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/invoke/secret"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/routing"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Groups calls endpoints of groups. An attempt tries the endpoints in the order of the strategy until one may have
// received the request; after that, it tries no other.
type Groups struct {
	hooks   *web.Webhooks
	secrets *secret.Reader
	known   *states
	names   *names
	checks  *checks
}

// New returns Groups that call endpoints like webhooks. servers resolve their members from DNS, and resolver, as in
// requests, the targets of services.
func New(hooks *web.Webhooks, secrets *secret.Reader, resolver *net.Resolver, servers []netip.AddrPort) *Groups {
	return &Groups{
		hooks: hooks, secrets: secrets, known: newStates(), names: newNames(dns.New(servers), resolver),
		checks: &checks{of: map[string]int{}, end: map[*groupAttempt]context.CancelFunc{}},
	}
}

// Close ends the work that is not part of an attempt. The connections are those of webhooks.
func (g *Groups) Close() {
	g.checks.close()
	g.names.close()
}

type groupAttempt struct {
	*state
	hooks    *web.Webhooks
	call     target.Call
	content  web.Content
	path     string
	strategy target.Strategy
	router   *routing.Router
	scopes   *scopes
	key      string // of the strategy consistent_hash; for a shard, its endpoint
	started  time.Time
	refusals []refusal
	// unresolved explains why names of the group have no endpoints, if the group has no endpoint that may be tried.
	unresolved  string
	nameServers []string // that unresolved leaves out
}

// refusal is the reason why an endpoint did not get the request.
type refusal struct {
	endpoint, why string
	busy          bool     // it responded that it is busy
	addresses     []string // that why leaves out
}

// Invoke makes one attempt with an endpoint of a group.
func (g *Groups) Invoke(ctx context.Context, call target.Call, started time.Time) run.Outcome {
	a, err := g.prepare(call, started)
	if err != nil {
		return attempt.NotSent(ctx, err)
	}
	bounded, cancel := context.WithTimeout(ctx, a.content.Timeout.Std())
	defer cancel()
	// Without its OAuth 2 token, no endpoint of the group could be asked or called, and none is to blame.
	if auth := a.content.Auth; auth != nil && auth.OAuth2 != nil {
		r := a.hooks.Request(a.call, "", web.Destination{})
		if err := a.hooks.Authorize(bounded, &r, auth, a.started); err != nil {
			return attempt.NotSent(ctx, err)
		}
	}
	a.call.Group = g.withNames(bounded, a.state, call, started, true)
	members, counts := a.members(a.call.Group, started)
	outcome, done := a.through(ctx, bounded, members, counts.candidates)
	if !done && a.busy() == 0 && len(a.refusals) < counts.candidates && bounded.Err() == nil {
		// This attempt is the first to see that no primary endpoint is up.
		outcome, done = a.through(ctx, bounded, a.backups(a.call.Group, started), counts.candidates)
	}
	if !done {
		if counts.candidates == 0 {
			a.unresolved, a.nameServers = g.unresolved(ctx, call, started)
		}
		outcome = a.none(ctx, bounded, counts)
	}
	return outcome
}

// prepare fills in the templates of a call, and finds the router of its job.
func (g *Groups) prepare(call target.Call, started time.Time) (*groupAttempt, error) {
	if call.Group == nil {
		return nil, &attempt.Failure{Class: run.ClassNoEndpoint, Err: fmt.Errorf("group %s does not exist", call.Target.Group.Name)}
	}
	a := &groupAttempt{hooks: g.hooks, call: call, started: started}
	a.strategy = call.Strategy()
	if call.Shard != nil {
		a.strategy, a.key = routing.Broadcast, call.Shard.Endpoint // even if the job has changed meanwhile
	}
	var err error
	a.content.Webhook, a.path, a.content.Headers, a.content.Body, err = call.GroupRequest()
	if err == nil && a.strategy == routing.ConsistentHash {
		a.key, err = call.HashKey()
	}
	if err == nil {
		a.state, a.router, err = g.known.of(routerKey{call.App, call.Group.Name, call.Job, a.strategy}, routed(call.Group), started)
	}
	if err == nil {
		a.scopes = a.scopesOf(call.Group, call.Bounds.Egress)
	}
	return a, err
}

// routed estimates how many endpoints a group has.
func routed(group *target.GroupVersion) int {
	const ofName = 20
	return len(group.Live) + ofName*len(group.DNS)
}

// through tries members one after the other, until one may have received the request or the attempt is over (done).
func (a *groupAttempt) through(
	ctx, bounded context.Context, members *routing.Members, candidates int,
) (outcome run.Outcome, done bool) {
	route := a.router.Route(members, a.key)
	defer route.Done()
	for bounded.Err() == nil {
		n, some := route.Next()
		if !some {
			break
		}
		if outcome, done = a.reach(ctx, bounded, &a.call.Group.Live[n], candidates); done {
			return outcome, true
		}
	}
	return outcome, false
}

// reach tries the endpoint that the strategy has chosen, but first the one for which the run has waited.
func (a *groupAttempt) reach(
	ctx, bounded context.Context, chosen *target.Endpoint, candidates int,
) (outcome run.Outcome, done bool) {
	for bounded.Err() == nil && !a.tried(chosen.ID) {
		endpoint, refused, over := a.occupy(chosen)
		if over {
			// The run waits, or is over. This is not recorded.
			outcome = attempt.Ended(run.Cancelled, run.ClassCancelled, "the run has no slot of an endpoint")
			outcome.NotSent = true
			return outcome, true
		}
		var release func()
		if refused == nil {
			refused, release = a.choose(bounded, endpoint)
		}
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

// try sends the request to an endpoint. left is how many endpoints may be tried, including this one. done is false if
// the endpoint certainly received nothing, so that the next may be tried.
func (a *groupAttempt) try(
	ctx, bounded context.Context, endpoint *target.Endpoint, left int,
) (outcome run.Outcome, done bool) {
	r, err := a.hooks.BuildFor(bounded, a.destination(endpoint, a.path), a.content, a.call, a.started)
	executors := a.call.Target.Group.XXLJob != nil
	if err == nil && executors {
		err = a.asExecutor(bounded, &r)
	}
	if err != nil {
		outcome = attempt.NotSent(ctx, err)
		// The app may be allowed to call another endpoint. Any other error would be the same for each of them.
		var token *web.TokenError
		if errors.As(err, &token) || outcome.Class != run.ClassEgressDenied && outcome.Class != run.ClassBounds {
			return outcome, true
		}
		return outcome, a.refusedBy(endpoint, outcome)
	}
	watch := &attempt.Stopwatch{Start: a.started}
	limited := bounded
	if left > 1 {
		var cancel context.CancelCauseFunc
		limited, cancel = context.WithCancelCause(bounded)
		defer cancel(nil)
		limitConnect(limited, watch, cancel)
	}
	outcome = a.hooks.Attempt(ctx, limited, a.content.Webhook, r, watch)
	switch {
	case watch.Sent():
		a.succeeded(endpoint.ID)
		a.judged(a.call.Group, endpoint, outcome, a.started, time.Now())
		if executors && errors.Is(context.Cause(ctx), context.Canceled) {
			a.stopCancelled(ctx, endpoint)
		}
		return outcome, true
	case ctx.Err() != nil, outcome.State == run.Cancelled:
		return outcome, true
	case bounded.Err() == nil && limited.Err() != nil:
		outcome.Error = context.Cause(limited).Error()
	}
	return outcome, a.refusedBy(endpoint, outcome)
}

// refusedBy notes that an endpoint could not be connected. It returns false: the attempt is not done.
func (a *groupAttempt) refusedBy(endpoint *target.Endpoint, outcome run.Outcome) (done bool) {
	a.failed(endpoint, outcome.Error, a.started, time.Now())
	a.refusals = append(a.refusals, refusal{endpoint: endpoint.ID, why: outcome.Error, addresses: attempt.AddressesOf(outcome)})
	return false
}

// limitConnect cancels a request that makes a connection and has none after half of the remaining time, so that an
// endpoint whose packets are lost leaves enough time for the next. A request over a kept connection needs no timer.
func limitConnect(bounded context.Context, watch *attempt.Stopwatch, cancel context.CancelCauseFunc) {
	watch.OnDial(func() {
		deadline, _ := bounded.Deadline()
		limit := min(attempt.ConnectTimeout, time.Until(deadline)/2).Round(time.Millisecond)
		timer := time.AfterFunc(limit, func() {
			if !watch.HasConnection() {
				cancel(fmt.Errorf("no connection within %s", limit))
			}
		})
		context.AfterFunc(bounded, func() { timer.Stop() })
	})
}

func (a *groupAttempt) destination(endpoint *target.Endpoint, path string) web.Destination {
	group := a.call.Group
	return web.Destination{
		URL: group.URL(endpoint.StaticEndpoint, path), Endpoint: endpoint.ID, Host: cmp.Or(group.ServerName, endpoint.ServerName),
		Scope: a.scopes.of(endpoint),
	}
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

// hidden returns the addresses that the error of an attempt leaves out if no endpoint got its request.
func (a *groupAttempt) hidden() []string {
	all := slices.Clone(a.nameServers)
	for _, r := range a.refusals[:min(len(a.refusals), mostSaid)] {
		all = append(all, r.addresses...)
	}
	return all
}

// mostSaid is how many endpoints an outcome lists with the reason why they did not get the request.
const mostSaid = 5

// none returns the outcome of an attempt if no endpoint got its request.
func (a *groupAttempt) none(ctx, bounded context.Context, counts stateCounts) run.Outcome {
	group, asked := a.call.Group, len(a.refusals)
	outcome := attempt.Failed(run.ClassNoEndpoint,
		fmt.Sprintf("no endpoint of group %s is up; of %d, %d were tried", group.Name, counts.candidates, asked))
	switch busy := a.busy(); {
	case ctx.Err() != nil:
		outcome = attempt.Ended(run.Cancelled, run.ClassCancelled, "the attempt was cancelled")
		outcome.NotSent = true
		return outcome
	case counts.candidates == 0:
		outcome.Error = fmt.Sprintf("group %s has no endpoint that is up; it has %d, of which %d are draining",
			group.Name, len(group.Live), len(group.Live)-counts.down)
		if counts.down > 0 {
			outcome.Error += fmt.Sprintf(" and %d are down by their health checks", counts.down)
		}
		outcome.Error += a.unresolved
	case busy > 0:
		outcome = attempt.Failed(run.ClassEndpointsBusy,
			fmt.Sprintf("no endpoint of group %s is idle; of %d, %d were asked and %d are busy", group.Name, counts.candidates, asked, busy))
	}
	if bounded.Err() != nil {
		outcome.Error += fmt.Sprintf(" within the timeout of %s", a.content.Timeout)
	}
	for i, r := range a.refusals[:min(asked, mostSaid)] {
		outcome.Error += map[bool]string{true: ": ", false: "; "}[i == 0] + r.endpoint + ": " + r.why
	}
	outcome = attempt.FailedAt(outcome.Class, outcome.Error, a.hidden()) // cuts a text that is too long
	outcome.NotSent = true
	return outcome
}
