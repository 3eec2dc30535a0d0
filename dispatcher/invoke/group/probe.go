package group

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/routing"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// answerAge is how long an answer of an endpoint counts, so that many fires at once send one probe.
const answerAge = time.Second

// question is the content of a probe: is the endpoint idle for a job or, without one, for all; or is it alive?
type question struct{ endpoint, job string }

// answer is the response of an endpoint to a probe.
type answer struct {
	done chan struct{} // closed when the rest is set
	at   time.Time
	void bool // the attempt that asked ended before the response
	*refusal
}

// choose decides whether an endpoint gets the request. Some strategies ask it first. refused is the reason if it does
// not. Call release, unless it is nil, at the end of the request.
func (a *groupAttempt) choose(ctx context.Context, endpoint *target.Endpoint) (refused *refusal, release func()) {
	a.retried(endpoint.ID, time.Now())
	q := question{endpoint: endpoint.ID}
	switch a.strategy.Asks() {
	case routing.AskNothing:
		return nil, nil
	case routing.AskAlive:
		return a.ask(ctx, q, endpoint, false), nil
	case routing.AskIdleForJob:
		q.job = a.call.Job
	}
	if refused = a.ask(ctx, q, endpoint, true); refused != nil {
		return refused, nil
	}
	return nil, func() { a.release(q) }
}

// release ends the reservation of ask.
func (s *state) release(q question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reserved[q]--; s.reserved[q] == 0 {
		delete(s.reserved, q)
	}
}

// ask asks an endpoint, or takes the answer of another attempt. With reserve, a yes is for one attempt only, and counts
// its request as in flight. An endpoint with such a request is busy without being asked.
func (a *groupAttempt) ask(ctx context.Context, q question, endpoint *target.Endpoint, reserve bool) *refusal {
	for {
		a.mu.Lock()
		if reserve && a.reserved[q] > 0 {
			a.mu.Unlock()
			return &refusal{endpoint: endpoint.ID, why: "has a request of this node in flight", busy: true}
		}
		known := a.answers[q]
		if known == nil || !known.at.IsZero() && time.Since(known.at) > answerAge {
			known = &answer{done: make(chan struct{})}
			a.answers[q] = known
			a.mu.Unlock()
			return a.lead(ctx, q, endpoint, known, reserve)
		}
		a.mu.Unlock()
		select {
		case <-known.done:
		case <-ctx.Done():
			return &refusal{endpoint: endpoint.ID, why: "no response to the probe in time"}
		}
		if !known.void && (!reserve || known.refusal != nil) {
			return known.refusal
		}
	}
}

// lead asks an endpoint on behalf of all attempts that wait for the answer.
func (a *groupAttempt) lead(
	ctx context.Context, q question, endpoint *target.Endpoint, to *answer, reserve bool,
) (refused *refusal) {
	asked := false
	defer func() { // even if it panics: others wait
		a.mu.Lock()
		defer a.mu.Unlock()
		to.refusal, to.at, to.void = refused, time.Now(), !asked || ctx.Err() != nil
		switch {
		case asked && refused == nil && reserve:
			a.reserved[q]++
			fallthrough
		case to.void:
			delete(a.answers, q)
		}
		close(to.done)
	}()
	refused, responded := a.probe(ctx, q, endpoint)
	asked = true
	if responded {
		a.succeeded(endpoint.ID)
	} else if ctx.Err() == nil {
		a.failed(endpoint, refused.why, a.started, time.Now())
	}
	return refused
}

// probe asks an endpoint by a request. responded is true if any response came.
func (a *groupAttempt) probe(ctx context.Context, q question, endpoint *target.Endpoint) (refused *refusal, responded bool) {
	if a.call.Group.Kind == target.GroupXXLJob {
		return a.probeExecutor(ctx, q, endpoint)
	}
	settings := a.call.Group.Probe
	timeout := cmp.Or(settings.Timeout, target.DefaultProbeTimeout)
	path := cmp.Or(settings.IdlePath, target.DefaultIdlePath)
	idle := a.strategy.Asks() != routing.AskAlive
	switch {
	case !idle:
		path = cmp.Or(settings.AlivePath, target.DefaultAlivePath)
	case q.job != "":
		path += "?job=" + url.QueryEscape(a.call.App+"/"+a.call.Job)
	}
	bounded, cancel := context.WithTimeout(ctx, timeout.Std())
	defer cancel()
	r, err := a.probeRequest(bounded, a.destination(endpoint, path))
	if err != nil {
		return &refusal{endpoint: endpoint.ID, why: err.Error()}, false
	}
	got, err := r.Send(bounded, &attempt.Stopwatch{Start: a.started})
	switch {
	case err != nil:
		outcome := attempt.Classify(ctx, bounded, err, timeout)
		why := r.Redaction().Clean(outcome.Error)
		return &refusal{endpoint: endpoint.ID, why: why, addresses: attempt.AddressesOf(outcome)}, false
	case got.Status < 200 || got.Status > 299:
		a.hooks.Refused(r, got.Status)
		return &refusal{endpoint: endpoint.ID, why: fmt.Sprintf("responded to the probe with status %d", got.Status), busy: idle}, true
	}
	return nil, true
}

// probeRequest returns the request of a probe. It is authenticated like other requests to endpoints, and not signed.
func (a *groupAttempt) probeRequest(ctx context.Context, to web.Destination) (web.Request, error) {
	now := time.Now()
	r := a.hooks.Request(a.call, http.MethodGet, to)
	r.Repeatable = true
	r.Header["Carillon-App"], r.Header["Carillon-Endpoint"] = []string{a.call.App}, []string{to.Endpoint}
	if err := a.hooks.Connect(ctx, &r, a.content.TLS, to.Scope, now); err != nil || a.content.Auth == nil {
		return r, err
	}
	return r, a.hooks.Authorize(ctx, &r, a.content.Auth, now)
}

// occupy takes the slot of the endpoint that the strategy has chosen, for a job that may have one run at a time at each
// endpoint. It returns another endpoint if the run has waited for that one. refused is why there is no slot if the next
// candidate may be tried. over means that nothing may be sent.
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

// candidate returns an endpoint that may still be tried, by its id, or nil.
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

// tried reports whether an endpoint refused the request of this attempt.
func (a *groupAttempt) tried(id string) bool {
	return slices.ContainsFunc(a.refusals, func(r refusal) bool { return r.endpoint == id })
}
