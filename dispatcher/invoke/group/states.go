package group

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/routing"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// mostRouted bounds the memory of routers, in endpoints of jobs: a router may have a counter for each.
const mostRouted = 500_000

// states are this node's view of groups, and the routers of their jobs. When there are too many, those that were unused
// for longest are removed.
type states struct {
	mu      sync.Mutex
	groups  map[groupKey]*state
	routers map[routerKey]*usedRouter
	routed  int // the sum of their endpoints
}

type groupKey struct{ app, group string }

type routerKey struct {
	app, group, job string
	strategy        target.Strategy
}

type usedRouter struct {
	*routing.Router
	of        *state
	endpoints int // when it was made, and one
	used      time.Time
}

func newStates() *states {
	return &states{groups: map[groupKey]*state{}, routers: map[routerKey]*usedRouter{}}
}

// of returns the state of a group that has some endpoints, and the router of one of its jobs. It returns an error for
// an unknown strategy.
func (s *states) of(key routerKey, endpoints int, now time.Time) (*state, *routing.Router, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, ok := s.routers[key]; ok {
		found.used = now
		return found.of, found.Router, nil
	}
	if s.routed >= mostRouted {
		s.forget()
	}
	of := s.made(groupKey{key.app, key.group})
	router, err := of.routing.NewRouter(key.strategy)
	if err != nil {
		return nil, nil, err
	}
	s.routers[key] = &usedRouter{router, of, endpoints + 1, now}
	s.routed += endpoints + 1
	return of, router, nil
}

// made returns the state of a group, and makes it if needed. s.mu is held.
func (s *states) made(key groupKey) *state {
	of, ok := s.groups[key]
	if !ok {
		of = newState()
		s.groups[key] = of
	}
	return of
}

// state returns the state of a group; nil: no job of this node has used it lately.
func (s *states) state(key groupKey) *state {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups[key]
}

// forget removes the half of the routers that was unused for longest, and groups without routers. s.mu is held.
func (s *states) forget() {
	uses := make([]time.Time, 0, len(s.routers))
	for _, router := range s.routers {
		uses = append(uses, router.used)
	}
	slices.SortFunc(uses, time.Time.Compare)
	half := uses[len(uses)/2]
	kept := map[*state]bool{}
	for key, router := range s.routers {
		if router.used.After(half) {
			kept[router.of] = true
			continue
		}
		delete(s.routers, key)
		s.routed -= router.endpoints
	}
	maps.DeleteFunc(s.groups, func(_ groupKey, of *state) bool { return !kept[of] })
}

// state is this node's view of the endpoints of a group. It is safe for concurrent use.
type state struct {
	routing *routing.Group

	mu       sync.Mutex
	latest   *target.GroupVersion // of the latest attempt, which began at used
	used     time.Time
	version  *target.GroupVersion // the version of current; nil: current is out of date
	current  *routing.Members
	counts   stateCounts          // of current
	until    time.Time            // when current must be made again, because an endpoint is no longer suspect or down; zero: never
	suspects map[string]*suspect  // by the id of the endpoint
	failures map[string]int       // of endpoints, in a row; see judged
	health   map[string]*health   // by the id of the endpoint
	merged   merged               // the latest result of withNames
	answers  map[question]*answer // of endpoints
	reserved map[question]int     // requests in flight to endpoints that reported to be idle
	scopes   *scopes
}

// stateCounts is how many endpoints may be tried, and how many are down.
type stateCounts struct{ candidates, down int }

func newState() *state {
	return &state{
		routing: routing.NewGroup(rand.Uint64()), suspects: map[string]*suspect{}, answers: map[question]*answer{},
		reserved: map[question]int{}, failures: map[string]int{}, health: map[string]*health{},
	}
}

// members returns the endpoints of a group as routers see them now, and their counts by state.
func (s *state) members(group *target.GroupVersion, now time.Time) (*routing.Members, stateCounts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest, s.used = group, now
	if s.version == group && (s.until.IsZero() || now.Before(s.until)) {
		return s.current, s.counts
	}
	if s.version != group {
		s.forgetGone(group)
	}
	s.version, s.until, s.counts = group, time.Time{}, stateCounts{}
	endpoints := s.endpoints(group, now)
	for i := range endpoints {
		var until time.Time
		switch endpoints[i].State {
		case routing.Suspect:
			s.counts.candidates++
			until = s.suspects[endpoints[i].ID].until
		case routing.Down:
			s.counts.down++
			until = s.health[endpoints[i].ID].until
		case routing.Up:
			s.counts.candidates++
			continue
		default:
			continue
		}
		if s.until.IsZero() || until.Before(s.until) {
			s.until = until
		}
	}
	s.current = s.routing.NewMembers(endpoints)
	return s.current, s.counts
}

// backups returns the backups of a group, for an attempt that found no other endpoint up.
func (s *state) backups(group *target.GroupVersion, now time.Time) *routing.Members {
	s.mu.Lock()
	defer s.mu.Unlock()
	endpoints := s.endpoints(group, now)
	for i := range endpoints {
		if !endpoints[i].Backup {
			endpoints[i].State = routing.Down
		}
	}
	return s.routing.NewMembers(endpoints)
}

// endpoints returns those of a group, in the order of group.Live. s.mu is held.
func (s *state) endpoints(group *target.GroupVersion, now time.Time) []routing.Endpoint {
	endpoints := make([]routing.Endpoint, len(group.Live))
	for i := range group.Live {
		e := &group.Live[i]
		endpoints[i] = routing.Endpoint{ID: e.ID, Weight: e.Weight, Backup: e.Backup, State: s.stateOf(&group.EndpointGroup, e, now)}
	}
	return endpoints
}

// stateOf returns the state of an endpoint of a group. s.mu is held.
func (s *state) stateOf(group *target.EndpointGroup, e *target.Endpoint, now time.Time) routing.State {
	if e.Draining {
		return routing.Draining
	}
	if h := s.health[e.ID]; group.HealthCheck != nil && h != nil && h.down && h.url == e.URL && now.Before(h.until) {
		return routing.Down
	}
	if known := s.suspects[e.ID]; known != nil && known.url == e.URL && now.Before(known.until) {
		return routing.Suspect
	}
	return routing.Up
}

// status returns the state of an endpoint and the reason for it. s.mu is held.
func (s *state) status(group *target.EndpointGroup, e *target.Endpoint, now time.Time) target.EndpointStatus {
	status := target.EndpointStatus{ID: e.ID, State: target.EndpointState(s.stateOf(group, e, now))}
	switch status.State {
	case target.EndpointDown:
		status.Reason = s.health[e.ID].why
	case target.EndpointSuspect:
		known := s.suspects[e.ID]
		status.Reason, status.Until = known.why, new(known.until.UTC())
	}
	return status
}

// forgetGone removes the data about endpoints that a group does not have any more. s.mu is held.
func (s *state) forgetGone(group *target.GroupVersion) {
	if len(s.suspects)+len(s.answers)+len(s.failures)+len(s.health) == 0 {
		return
	}
	there := make(map[string]bool, len(group.Live))
	for i := range group.Live {
		there[group.Live[i].ID] = true
	}
	for id := range s.suspects {
		if !there[id] {
			delete(s.suspects, id)
		}
	}
	for id := range s.failures {
		if !there[id] {
			delete(s.failures, id)
		}
	}
	for id := range s.health {
		if !there[id] {
			delete(s.health, id)
		}
	}
	for q := range s.answers {
		if !there[q.endpoint] {
			delete(s.answers, q)
		}
	}
}

// suspect is an endpoint that could not be connected, or that was ejected because of failures. Until a time, it is
// tried after all others; then the next request to it decides.
type suspect struct {
	url      string // of the endpoint then; at another one it is not suspect
	why      string
	ejected  bool
	pause    time.Duration
	until    time.Time
	failedAt time.Time
}

// Bounds of the pause of a suspect, which doubles with each failure.
const (
	firstSuspicion = time.Second
	mostSuspicion  = 30 * time.Second
	firstEjection  = 10 * time.Second
	mostEjection   = 5 * time.Minute
)

// failed notes that an endpoint could not be connected by an attempt that began at began. Attempts that fail together
// count once.
func (s *state) failed(endpoint *target.Endpoint, why string, began, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.suspects[endpoint.ID]
	switch {
	case known == nil || known.url != endpoint.URL:
		known = &suspect{url: endpoint.URL}
		s.suspects[endpoint.ID] = known
	case began.Before(known.failedAt):
		return
	}
	known.pause = max(known.pause, min(max(2*known.pause, firstSuspicion), mostSuspicion)) // an ejection may be longer
	known.why, known.failedAt, known.until = why, now, now.Add(known.pause)
	s.version = nil
}

// retried notes that a request is about to go to an endpoint. If the endpoint was suspect, other requests wait for the
// result of this one.
func (s *state) retried(endpoint string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.suspects[endpoint]; known != nil && !now.Before(known.until) {
		known.until = now.Add(known.pause)
		s.version = nil
	}
}

// succeeded notes that an endpoint could be connected. For an ejected one that is not enough; see judged.
func (s *state) succeeded(endpoint string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.suspects[endpoint]; known != nil && !known.ejected {
		delete(s.suspects, endpoint)
		s.version = nil
	}
}

// judged notes the outcome of a request that an endpoint of a group got, by an attempt that began at began. After some
// failures in a row, the endpoint is ejected, unless half of the group is ejected already. One success ends the
// ejection; another failure makes the pause longer.
func (s *state) judged(
	group *target.GroupVersion, endpoint *target.Endpoint, outcome run.Outcome, began, now time.Time,
) {
	if group.EjectAfter == 0 || outcome.Class == run.ClassCancelled {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.suspects[endpoint.ID]
	ejected := known != nil && known.ejected && known.url == endpoint.URL
	switch outcome.Class {
	case run.ClassHTTP5xx, run.ClassReset, run.ClassTimeout, run.ClassProtocol:
	default: // it may refuse a job, but is not in trouble
		delete(s.failures, endpoint.ID)
		if known != nil && known.ejected {
			delete(s.suspects, endpoint.ID)
			s.version = nil
		}
		return
	}
	if ejected && began.Before(known.failedAt) {
		return // it failed together with those that led to the ejection
	}
	if s.failures[endpoint.ID]++; !ejected && (s.failures[endpoint.ID] < group.EjectAfter || s.halfEjected(group, now)) {
		return
	}
	if !ejected {
		known = &suspect{url: endpoint.URL, ejected: true}
		s.suspects[endpoint.ID] = known
	}
	known.pause = min(max(2*known.pause, firstEjection), mostEjection)
	known.why = fmt.Sprintf("ejected after %d failures in a row, the latest of class %s", s.failures[endpoint.ID], outcome.Class)
	known.failedAt, known.until = now, now.Add(known.pause)
	s.version = nil
}

// halfEjected reports whether one endpoint more would make more than half of a group ejected. s.mu is held.
func (s *state) halfEjected(group *target.GroupVersion, now time.Time) bool {
	ejected := 1
	for _, known := range s.suspects {
		if known.ejected && now.Before(known.until) {
			ejected++
		}
	}
	return 2*ejected > len(group.Live)
}
