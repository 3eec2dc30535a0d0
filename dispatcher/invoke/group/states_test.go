package group

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/routing"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// groupOf returns a group of declared endpoints.
func groupOf(ids ...string) *target.GroupVersion {
	group := &target.GroupVersion{}
	for _, id := range ids {
		group.Live = append(group.Live, target.Endpoint{ID: id, StaticEndpoint: target.StaticEndpoint{URL: "http://" + id}})
	}
	return group
}

// firstOf returns the endpoint that the strategy tries first at now.
func firstOf(t *testing.T, s *state, group *target.GroupVersion, now time.Time) string {
	t.Helper()
	router, err := s.routing.NewRouter(routing.First)
	if err != nil {
		t.Fatal(err)
	}
	members, _ := s.members(group, now)
	route := router.Route(members, "")
	defer route.Done()
	n, ok := route.Next()
	if !ok {
		return ""
	}
	return group.Live[n].ID
}

func TestSuspectIsTriedLastForLongerEachTime(t *testing.T) {
	t.Parallel()
	group, s, now := groupOf("a", "b"), newState(), time.Unix(1_800_000_000, 0)
	a := &group.Live[0]
	if got := firstOf(t, s, group, now); got != "a" {
		t.Fatalf("%s is first, want a", got)
	}
	for _, pause := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		pause *= time.Second
		s.retried("a", now)
		s.failed(a, "refused", now, now)
		s.failed(a, "refused", now.Add(-time.Millisecond), now) // began before and failed together with the first
		for n, want := range []string{"b", "b", "a"} {
			at := []time.Duration{0, pause - 1, pause}[n]
			if got := firstOf(t, s, group, now.Add(at)); got != want {
				t.Errorf("%s after a failure of pause %s, %s is first, want %s", at, pause, got, want)
			}
		}
		now = now.Add(pause)
	}
	s.retried("a", now) // one request tries a again, so others do not
	if got := firstOf(t, s, group, now); got != "b" {
		t.Errorf("while a is tried, %s is first, want b", got)
	}
	s.succeeded("a")
	if got := firstOf(t, s, group, now); got != "a" {
		t.Errorf("after a success, %s is first, want a", got)
	}
	s.failed(a, "refused", now, now)
	moved := groupOf("a", "b")
	moved.Live[0].URL = "http://elsewhere"
	if got := firstOf(t, s, moved, now); got != "a" {
		t.Errorf("at another address, %s is first, want a", got)
	}
	if firstOf(t, s, groupOf("b", "c"), now); len(s.suspects) != 0 {
		t.Errorf("suspects = %v after the endpoint is gone", s.suspects)
	}
}

func TestStatesOfGroupsAreBounded(t *testing.T) {
	t.Parallel()
	states, now := newStates(), time.Unix(1_800_000_000, 0)
	const endpoints = 499
	for n := range 3 * mostRouted / (endpoints + 1) {
		now = now.Add(time.Second)
		key := routerKey{"app", fmt.Sprint("group", n%500), fmt.Sprint("job", n), routing.RoundRobin}
		if _, _, err := states.of(key, endpoints, now); err != nil {
			t.Fatal(err)
		}
		used := routerKey{"app", "group0", "job0", routing.RoundRobin}
		before := states.routers[used]
		if _, _, err := states.of(used, endpoints, now); err != nil || states.routers[used] != before {
			t.Fatalf("a router that is used was forgotten at %d, %v", n, err)
		}
	}
	if len(states.routers) > mostRouted/(endpoints+1)+1 || states.routed != len(states.routers)*(endpoints+1) || len(states.groups) > 501 {
		t.Errorf("%d routers of %d groups, counted as %d", len(states.routers), len(states.groups), states.routed)
	}
	if _, _, err := states.of(routerKey{strategy: "odd"}, 1, now); err == nil {
		t.Error("a strategy that nobody knows has a router")
	}
}
