package invoke

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/routing"
)

// mostRouted bounds what is remembered of routers, in endpoints of jobs: a router may have a counter for each.
const mostRouted = 500_000

// groupStates are what this node knows of groups, and the routers of their jobs. Of those that were unused for longest,
// it is forgotten when there are too many.
type groupStates struct {
	mu      sync.Mutex
	groups  map[groupKey]*groupState
	routers map[routerKey]*usedRouter
	routed  int // the sum of their endpoints
}

type groupKey struct{ app, group string }

type routerKey struct {
	app, group, job string
	strategy        dispatcher.Strategy
}

type usedRouter struct {
	*routing.Router
	of        *groupState
	endpoints int // when it was made, and one
	used      time.Time
}

func newGroupStates() *groupStates {
	return &groupStates{groups: map[groupKey]*groupState{}, routers: map[routerKey]*usedRouter{}}
}

// of returns the state of a group that has some endpoints, and the router of one of its jobs. The error tells that the
// strategy is unknown.
func (s *groupStates) of(key routerKey, endpoints int, now time.Time) (*groupState, *routing.Router, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, ok := s.routers[key]; ok {
		found.used = now
		return found.of, found.Router, nil
	}
	if s.routed >= mostRouted {
		s.forget()
	}
	of, ok := s.groups[groupKey{key.app, key.group}]
	if !ok {
		of = newGroupState()
		s.groups[groupKey{key.app, key.group}] = of
	}
	router, err := of.routing.NewRouter(key.strategy)
	if err != nil {
		return nil, nil, err
	}
	s.routers[key] = &usedRouter{router, of, endpoints + 1, now}
	s.routed += endpoints + 1
	return of, router, nil
}

// forget forgets the half of the routers that was unused for longest, and groups without routers. s.mu is held.
func (s *groupStates) forget() {
	uses := make([]time.Time, 0, len(s.routers))
	for _, router := range s.routers {
		uses = append(uses, router.used)
	}
	slices.SortFunc(uses, time.Time.Compare)
	half := uses[len(uses)/2]
	kept := map[*groupState]bool{}
	for key, router := range s.routers {
		if router.used.After(half) {
			kept[router.of] = true
			continue
		}
		delete(s.routers, key)
		s.routed -= router.endpoints
	}
	for key, of := range s.groups {
		if !kept[of] {
			delete(s.groups, key)
		}
	}
}

// groupState is what a node knows of the endpoints of a group. It is safe for concurrent use.
type groupState struct {
	routing *routing.Group

	mu       sync.Mutex
	version  *dispatcher.GroupVersion // that current is made of; nil: of none
	current  *routing.Members
	until    time.Time            // when current is to be made again, because an endpoint is no longer suspect; zero: never
	suspects map[string]*suspect  // by the id of the endpoint
	answers  map[question]*answer // of endpoints
	reserved map[question]int     // requests in flight to endpoints that said that they are idle
}

func newGroupState() *groupState {
	return &groupState{
		routing: routing.NewGroup(rand.Uint64()), suspects: map[string]*suspect{}, answers: map[question]*answer{},
		reserved: map[question]int{},
	}
}

// members returns the endpoints of a group as routers see them now.
func (s *groupState) members(group *dispatcher.GroupVersion, now time.Time) *routing.Members {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version == group && (s.until.IsZero() || now.Before(s.until)) {
		return s.current
	}
	if s.version != group {
		s.forgetGone(group)
	}
	s.version, s.until = group, time.Time{}
	endpoints := s.endpoints(group, now)
	for i := range endpoints {
		if endpoints[i].State == routing.Suspect {
			if until := s.suspects[endpoints[i].ID].until; s.until.IsZero() || until.Before(s.until) {
				s.until = until
			}
		}
	}
	s.current = s.routing.NewMembers(endpoints)
	return s.current
}

// backups returns the backups of a group, for an attempt that found no other endpoint up.
func (s *groupState) backups(group *dispatcher.GroupVersion, now time.Time) *routing.Members {
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
func (s *groupState) endpoints(group *dispatcher.GroupVersion, now time.Time) []routing.Endpoint {
	endpoints := make([]routing.Endpoint, len(group.Live))
	for i := range group.Live {
		e := &group.Live[i]
		state := routing.Up
		if known := s.suspects[e.ID]; known != nil && known.url == e.URL && now.Before(known.until) {
			state = routing.Suspect
		}
		if e.Draining {
			state = routing.Draining
		}
		endpoints[i] = routing.Endpoint{ID: e.ID, Weight: e.Weight, Backup: e.Backup, State: state}
	}
	return endpoints
}

// forgetGone forgets what is known of endpoints that a group does not have. s.mu is held.
func (s *groupState) forgetGone(group *dispatcher.GroupVersion) {
	if len(s.suspects)+len(s.answers) == 0 {
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
	for q := range s.answers {
		if !there[q.endpoint] {
			delete(s.answers, q)
		}
	}
}
