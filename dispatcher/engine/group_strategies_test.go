package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/routing"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/freeport"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// The fires to each group of the test: the number of triggers, and of fires for each.
const (
	strategyTriggers = 100
	strategyRepeats  = 10
	strategyFires    = strategyTriggers * strategyRepeats
	strategyNodes    = 3
)

// arrivals are the requests to real endpoints, by group. A fire is identified by its trigger and its scheduled time.
type arrivals struct {
	mu    sync.Mutex
	at    map[string]map[string]string // group, fire: endpoint
	again map[string]int               // group: requests for a fire that had arrived
	came  loop.Signal
	// held keeps the requests to the group of that name in flight until heldFires have arrived.
	held    string
	release chan struct{}
}

const heldFires = 40

// serve responds as an endpoint, and to a probe with the result of busy for its URL without the host.
func (a *arrivals) serve(t *testing.T, id string, busy func(url string) bool) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodGet {
			if busy(r.URL.RequestURI()) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return
		}
		group, fire := strings.Split(r.URL.Path, "/")[1], r.Header.Get("Carillon-Trigger")+" "+r.Header.Get("Carillon-Scheduled-At")
		a.arrive(group, fire, id)
		a.came.Notify()
		if group == a.held {
			select {
			case <-a.release:
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// arrive notes that a fire to a group has arrived at an endpoint, and releases the held requests with the last of their
// fires.
func (a *arrivals) arrive(group, fire, id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at[group] == nil {
		a.at[group] = map[string]string{}
	}
	if _, there := a.at[group][fire]; there {
		a.again[group]++
		return
	}
	if a.at[group][fire] = id; group == a.held && len(a.at[group]) == heldFires {
		close(a.release)
	}
}

// await waits until a number of fires of a group have arrived.
func (a *arrivals) await(t *testing.T, group string, fires int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		a.mu.Lock()
		got := len(a.at[group])
		a.mu.Unlock()
		if got >= fires {
			return
		}
		select {
		case <-a.came:
		case <-ctx.Done():
			t.Fatalf("%d fires arrived at group %s, want %d", got, group, fires)
		}
	}
}

// counts returns how many fires of a group each endpoint has.
func (a *arrivals) counts(group string) map[string]int {
	counts := map[string]int{}
	for _, endpoint := range a.at[group] {
		counts[endpoint]++
	}
	return counts
}

// judgement reports whether the counts by endpoint are right.
type judgement func(counts map[string]int) bool

// onlyAt wants all fires at one endpoint.
func onlyAt(id string) judgement {
	return func(counts map[string]int) bool { return len(counts) == 1 && counts[id] > 0 }
}

// within wants endpoints e0 to e4 to differ by most fires at most.
func within(most int) judgement {
	return func(counts map[string]int) bool {
		of := slices.Collect(maps.Values(counts))
		return len(of) == 5 && slices.Max(of)-slices.Min(of) <= most
	}
}

// byWeight wants e0 to have weight 6 of 10 and the others 1, with deviations up to above and below.
func byWeight(above, below func(share float64) float64) judgement {
	return func(counts map[string]int) bool {
		for n := range 5 {
			share := map[bool]float64{true: 0.6, false: 0.1}[n == 0] * strategyFires
			off := float64(counts[fmt.Sprint("e", n)]) - share
			if off > above(share) || -off > below(share) {
				return false
			}
		}
		return len(counts) == 5
	}
}

// byChance is the deviation that docs/routing.md states for random choices.
func byChance(share float64) float64 { return 5 * math.Sqrt(share*(1-share/strategyFires)) }

// exactly is the deviation that docs/routing.md states for a number of nodes.
func exactly(perNode float64) func(float64) float64 {
	return func(float64) float64 { return strategyNodes * perNode }
}

// strategyCase is a group with a strategy, its jobs, and the distribution of fires that docs/routing.md states.
type strategyCase struct {
	strategy target.Strategy
	fair     judgement
	change   func(*target.EndpointGroup)
	jobs     int // that share the triggers; 0: one
	job      func(*dispatcher.Job)
}

func strategyCases(refusing string) map[string]strategyCase {
	heavy := func(g *target.EndpointGroup) {
		e := g.Endpoints["e0"]
		e.Weight = 6
		g.Endpoints["e0"] = e
	}
	oneAtATime := func(j *dispatcher.Job) {
		j.ConcurrencyPolicy, j.QueueLimit = run.ConcurrencyQueue, strategyFires
	}
	const jobs = 20
	return map[string]strategyCase{
		"first":        {strategy: routing.First, fair: onlyAt("e0")},
		"last":         {strategy: routing.Last, fair: onlyAt("e4")},
		"random":       {strategy: routing.Random, fair: byWeight(byChance, byChance), change: heavy},
		"round-robin":  {strategy: routing.RoundRobin, fair: within(strategyNodes)},
		"weighted":     {strategy: routing.Weighted, fair: byWeight(exactly(1), exactly(1+1./2+1./3+1./4+1./5)), change: heavy},
		"least-used":   {strategy: routing.LeastFrequentlyUsed, fair: within(strategyNodes)},
		"least-recent": {strategy: routing.LeastRecentlyUsed, fair: within(strategyNodes)},
		"held":         {strategy: routing.LeastConnections, fair: within(strategyNodes)},
		"least-conns":  {strategy: routing.LeastConnections, fair: func(counts map[string]int) bool { return len(counts) == 5 }},
		// e0 refuses connections, and e1 is not alive.
		"failover": {strategy: routing.Failover, fair: onlyAt("e2"), change: func(g *target.EndpointGroup) {
			g.Endpoints["e0"] = target.StaticEndpoint{URL: refusing}
		}},
		// e0 runs all jobs, and e1 another one. A job runs once at a time, but other jobs run meanwhile: a fire to e2
		// makes that busy for global_busyover.
		"busyover": {strategy: routing.BusyOver, fair: onlyAt("e1"), jobs: jobs, job: oneAtATime},
		"global-busyover": {strategy: routing.GlobalBusyOver, jobs: jobs, job: oneAtATime, fair: func(counts map[string]int) bool {
			return counts["e0"]+counts["e1"] == 0 && counts["e2"] > counts["e3"] && counts["e3"] >= counts["e4"]
		}},
		"hash": {strategy: routing.ConsistentHash, fair: func(counts map[string]int) bool {
			for _, n := range counts {
				if off := float64(n) - strategyFires/5; math.Abs(off) > byChance(strategyFires/5) {
					return false
				}
			}
			return len(counts) == 5
		}},
		"hash-of-four": {strategy: routing.ConsistentHash, fair: func(counts map[string]int) bool { return len(counts) == 4 },
			change: func(g *target.EndpointGroup) { delete(g.Endpoints, "e4") }},
	}
}

// declareStrategy stores the group and the jobs of a case.
func declareStrategy(t *testing.T, s *store.Store, name string, c strategyCase, urls map[string]string,
	start time.Time) {
	t.Helper()
	group := target.EndpointGroup{App: "app", Name: name, EndpointGroupSpec: target.EndpointGroupSpec{Path: "/" + name, Strategy: c.strategy}}
	group.SetDefaults()
	group.Strategy, group.Endpoints = c.strategy, map[string]target.StaticEndpoint{}
	group.Probe.Timeout = input.Duration(time.Minute) // a slow machine makes no endpoint busy
	for id, url := range urls {
		group.Endpoints[id] = target.StaticEndpoint{URL: url}
	}
	if c.change != nil {
		c.change(&group)
	}
	if _, _, err := s.PutGroup(t.Context(), group, input.Change{Actor: "test"}); err != nil {
		t.Fatal(err)
	}
	fires, repeats, jobs := strategyTriggers, strategyRepeats, max(c.jobs, 1)
	if name == "held" {
		fires, repeats = heldFires, 1
	}
	for j := range jobs {
		job := dispatcher.Job{App: "app", Name: fmt.Sprint(name, "-", j), JobSpec: dispatcher.JobSpec{Triggers: map[string]dispatcher.Trigger{}}}
		job.SetDefaults()
		job.Retry.MaxAttempts, job.Retry.Delays = 100, []input.Duration{input.Duration(200 * time.Millisecond)}
		job.Target.Group = &target.GroupTarget{Name: name, Path: "/run"}
		job.Target.Group.SetDefaults()
		job.Target.Group.Timeout = input.Duration(10 * time.Minute) // nor does it send a held request again
		if c.strategy == routing.ConsistentHash {
			job.Target.Group.HashKey = "{{.Trigger}} {{.ScheduledAt}}"
		}
		for n := range fires / jobs {
			trigger := dispatcher.Trigger{}
			trigger.SetDefaults()
			trigger.Expression, trigger.RepeatCount, trigger.StartAt = "rate(1s)", repeats, &start
			trigger.MisfireAfter = input.Duration(10 * time.Minute) // a slow machine misses nothing
			job.Triggers[fmt.Sprintf("t%d-%02d", j, n)] = trigger
		}
		if c.job != nil {
			c.job(&job)
		}
		_, _, err := s.PutJob(t.Context(), job, input.Change{Actor: "test"})
		for errors.Is(err, context.DeadlineExceeded) && t.Context().Err() == nil { // on a slow machine, as a client does
			_, _, err = s.PutJob(t.Context(), job, input.Change{Actor: "test"})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Three nodes send 1,000 fires of each strategy to five endpoints. docs/routing.md states where they go.
func TestStrategiesDistributeTheFiresOfThreeNodes(t *testing.T) {
	need.Step(t, "fleets")
	t.Parallel()
	s, stop := startFleet(t, pgtest.New(t), strategyNodes)
	a := &arrivals{
		at: map[string]map[string]string{}, again: map[string]int{}, came: loop.NewSignal(), held: "held", release: make(chan struct{}),
	}
	urls := map[string]string{}
	for n := range 5 {
		id := fmt.Sprint("e", n)
		urls[id] = a.serve(t, id, func(url string) bool {
			switch {
			case strings.HasPrefix(url, "/failover/"):
				return n == 1
			case strings.HasPrefix(url, "/busyover/"):
				if !strings.HasPrefix(url, "/busyover/idle?job=app%2Fbusyover-") {
					t.Errorf("%s was asked %s", id, url)
				}
				return n == 0
			}
			return n < 2
		})
	}
	refusing, err := freeport.Address(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cases := strategyCases("http://" + refusing)
	var start time.Time
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		if name != "hash-of-four" { // it fires with hash, whose keys it is compared with
			start = time.Now().Add(20 * time.Second).Truncate(time.Second)
		}
		declareStrategy(t, s, name, cases[name], urls, start)
	}
	for name := range cases {
		a.await(t, name, map[bool]int{true: heldFires, false: strategyFires}[name == "held"])
	}
	stop()
	for name, c := range cases {
		if counts := a.counts(name); !c.fair(counts) || a.again[name] > 0 {
			t.Errorf("%s: counts = %v, %d of them again; docs/routing.md states less", name, counts, a.again[name])
		}
	}
	// Equal keys go to the same endpoint from all nodes and jobs, and without e4 only those of e4 move.
	moved := map[string]int{}
	for fire, at := range a.at["hash"] {
		switch now := a.at["hash-of-four"][fire]; {
		case at == "e4":
			moved[now]++
		case now != at:
			t.Errorf("the key %s went to %s of five endpoints, and to %s of four", fire, at, now)
		}
	}
	if len(moved) != 4 {
		t.Errorf("the keys of e4 went to %v, want all four others", moved)
	}
}
