package group

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

var (
	served  = run.Outcome{State: run.Succeeded}
	refused = run.Outcome{State: run.Failed, Class: run.ClassHTTP4xx}
	broken  = run.Outcome{State: run.Failed, Class: run.ClassHTTP5xx}
)

func TestEndpointIsEjectedAfterFailuresInARow(t *testing.T) {
	t.Parallel()
	group, s, now := groupOf("a", "b"), newState(), time.Unix(1_800_000_000, 0)
	group.EjectAfter = 3
	a := &group.Live[0]
	first := func(at time.Time, want string) {
		t.Helper()
		if got := firstOf(t, s, group, at); got != want {
			t.Errorf("%s is first, want %s", got, want)
		}
	}
	for _, outcome := range []run.Outcome{broken, broken, refused, broken, served, broken, broken} {
		s.judged(group, a, outcome, now, now)
	}
	first(now, "a") // never three in a row
	for _, class := range []run.Class{run.ClassCancelled, run.ClassReset} {
		s.judged(group, a, run.Outcome{State: run.Failed, Class: class}, now, now)
	}
	for _, pause := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		pause *= time.Second
		s.judged(group, a, broken, now.Add(-time.Millisecond), now) // began earlier and failed together with the others
		first(now.Add(pause-1), "b")
		first(now.Add(pause), "a")
		now = now.Add(pause)
		s.retried("a", now) // one request tries a again
		first(now, "b")
		s.succeeded("a") // a connection is not enough
		first(now, "b")
		s.judged(group, a, broken, now, now)
	}
	s.judged(group, a, refused, now, now) // a response, although not the expected one
	first(now, "a")
	if got := s.status(&group.EndpointGroup, a, now); got.State != target.EndpointUp || got.Reason != "" {
		t.Errorf("status = %+v", got)
	}
}

func TestAtMostHalfOfAGroupIsEjected(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int{1: 0, 2: 1, 3: 1, 5: 2} {
		ids := []string{"a", "b", "c", "d", "e"}[:size]
		group, s, now := groupOf(ids...), newState(), time.Unix(1_800_000_000, 0)
		group.EjectAfter = 1
		ejected := 0
		for n := range group.Live {
			s.judged(group, &group.Live[n], broken, now, now)
		}
		for n := range group.Live {
			if status := s.status(&group.EndpointGroup, &group.Live[n], now); status.State == target.EndpointSuspect {
				ejected++
			}
		}
		if ejected != want {
			t.Errorf("of %d endpoints, %d are ejected, want %d", size, ejected, want)
		}
	}
	group, s, now := groupOf("a", "b"), newState(), time.Unix(1_800_000_000, 0)
	for range 100 {
		s.judged(group, &group.Live[0], broken, now, now)
	}
	if got := firstOf(t, s, group, now); got != "a" || len(s.suspects) != 0 {
		t.Errorf("%s is first of a group that ejects none, want a", got)
	}
}

func TestThresholdsOfHealthChecks(t *testing.T) {
	t.Parallel()
	settings := target.HealthCheck{HealthyThreshold: 2, UnhealthyThreshold: 3}.Resolved()
	for checks, want := range map[string]bool{ // - failed, + healthy: is it up?
		"": true, "--": true, "---": false, "+--": true, "--+--": true, "-----": false, "---+": false, "---++": true, "---+-+": false,
		"---++--": true, "---++---": false,
	} {
		group, s, now := groupOf("a"), newState(), time.Unix(1_800_000_000, 0)
		group.HealthCheck = &settings
		h := &health{url: group.Live[0].URL}
		s.health["a"] = h
		for _, check := range checks {
			s.checked(h, settings, map[bool]string{true: "status 500"}[check == '-'], now)
		}
		if up := firstOf(t, s, group, now) == "a"; up != want {
			t.Errorf("after %q, up = %v, want %v", checks, up, want)
		}
		if _, counts := s.members(group, now); (counts.candidates == 1) != want || (counts.down == 0) != want {
			t.Errorf("after %q, counts = %+v", checks, counts)
		}
		if firstOf(t, s, group, now.Add(34*time.Second)) != "a" {
			t.Errorf("after %q and no more checks, the endpoint is not up again", checks)
		}
	}
}

// localGroups returns groups whose endpoints are on this machine and need no secrets.
func localGroups(t *testing.T) *Groups {
	t.Helper()
	hooks := web.New(web.Options{Egress: web.Egress{Loopback: true}}, nil, nil)
	g := New(hooks, nil, nil, nil)
	t.Cleanup(func() { g.Close(); hooks.Close() })
	return g
}

// checker returns groups, and a call of one with health checks of some servers, each with its own status.
func checker(t *testing.T, app string, statuses ...*atomic.Int64) (*Groups, target.Call) {
	t.Helper()
	group := &target.GroupVersion{}
	group.App, group.Name, group.Path, group.HealthCheck = app, "workers", "/base", &target.HealthCheck{
		Path: "/health", Timeout: input.Duration(time.Hour),
	}
	for n, status := range statuses {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/base/health" || r.Header.Get("Carillon-Endpoint") != fmt.Sprint("e", n) {
				t.Errorf("check = %s %s of %s", r.Method, r.URL, r.Header.Get("Carillon-Endpoint"))
			}
			w.WriteHeader(int(status.Load()))
		}))
		t.Cleanup(server.Close)
		group.Live = append(group.Live, target.Endpoint{
			ID: fmt.Sprint("e", n), StaticEndpoint: target.StaticEndpoint{URL: server.URL},
		})
	}
	bounds := target.Bounds{}.WithDefaults(app)
	return localGroups(t), target.Call{App: app, Group: group, Bounds: &bounds}
}

func TestEndpointThatFailsItsChecksGetsNothing(t *testing.T) {
	t.Parallel()
	var well, ill atomic.Int64
	well.Store(http.StatusNoContent)
	ill.Store(http.StatusServiceUnavailable)
	g, call := checker(t, "demo", &well, &ill)
	now := time.Now().Add(time.Hour) // the results then hold, however long the machine takes
	round := func() {
		g.CheckHealth(t.Context(), []target.Call{call}, now)
		g.checks.running.Wait()
		now = now.Add(10 * time.Second)
	}
	states := func() string {
		status := g.GroupStatus(t.Context(), *call.Group, target.EgressBounds{})
		return fmt.Sprint(status.Endpoints[0].State, " ", status.Endpoints[1].State, " ", status.Endpoints[1].Reason)
	}
	for range 3 { // the first comes after a random part of the interval
		round()
	}
	if got := states(); got != "up up " {
		t.Errorf("after two checks, endpoints are %s", got)
	}
	round()
	if got := states(); got != "up down responded to the health check with status 503" {
		t.Errorf("after three checks, endpoints are %s", got)
	}
	call.Job = "ping"
	call.Target.Group = &target.GroupTarget{Name: "workers", Timeout: input.Duration(time.Hour)}
	call.Group.Live = call.Group.Live[1:]
	if o := g.Invoke(t.Context(), call, time.Now()); o.Class != run.ClassNoEndpoint || !o.NotSent ||
		o.Error != "group workers has no endpoint that is up; it has 1, of which 0 are draining and 1 are down by their health checks" {
		t.Errorf("outcome = %+v, want no endpoint", o)
	}
	ill.Store(http.StatusOK)
	round()
	round()
	if o := g.GroupStatus(t.Context(), *call.Group, target.EgressBounds{}); o.Endpoints[0].State != target.EndpointUp {
		t.Errorf("after two good checks, status = %+v", o)
	}
}

// Hanging checks take no more than their share of the node.
func TestChecksAtOnceAreBounded(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var arrived atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived.Add(1)
		<-release
	}))
	g := localGroups(t)
	t.Cleanup(func() { g.Close(); close(release); server.Close() })
	var calls []target.Call
	for _, app := range []string{"a", "b", "c", "d", "e", "f"} {
		group := &target.GroupVersion{}
		group.App, group.Name, group.HealthCheck = app, "workers", &target.HealthCheck{Timeout: input.Duration(time.Hour)}
		for n := range 30 {
			group.Live = append(group.Live, target.Endpoint{
				ID: fmt.Sprint("e", n), StaticEndpoint: target.StaticEndpoint{URL: server.URL},
			})
		}
		bounds := target.Bounds{}.WithDefaults(app)
		calls = append(calls, target.Call{App: app, Group: group, Bounds: &bounds})
	}
	now := time.Now()
	for n := range 3 {
		g.CheckHealth(t.Context(), calls, now.Add(time.Duration(n)*time.Minute))
	}
	c := g.checks
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all != mostChecks || c.of["a"] > mostChecksOfApp {
		t.Errorf("%d checks are under way, %v by app", c.all, c.of)
	}
}
