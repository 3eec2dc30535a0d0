package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/dns/dnstest"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// pods are servers at all addresses of this machine, on one port.
type pods struct {
	port int

	mu   sync.Mutex
	ill  map[string]bool // by address; an ill server fails its health checks
	runs map[string]int  // number of runs by address
}

func startPods(t *testing.T) *pods {
	t.Helper()
	listener := must[net.Listener](t)(net.Listen("tcp", ":0"))
	p := &pods{port: listener.Addr().(*net.TCPAddr).Port, ill: map[string]bool{}, runs: map[string]int{}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr).AddrPort().Addr().Unmap().String()
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case r.Method != http.MethodGet:
			p.runs[at]++
		case p.ill[at]:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return p
}

// working returns the addresses that got a run since the last call.
func (p *pods) working() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for address, n := range p.runs {
		if n > 0 {
			all = append(all, address)
		}
	}
	clear(p.runs)
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (p *pods) set(address string, ill bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ill[address] = ill
}

// stateOf returns the state of the endpoint at an address, as a node sees it.
func (n *process) stateOf(address string, port int) target.EndpointState {
	id := strings.ReplaceAll(address, ".", "-") + "-" + strconv.Itoa(port)
	for _, e := range must[target.GroupStatus](n.t)(n.GroupStatus(n.t.Context(), "fleet", "workers")).Endpoints {
		if e.ID == id {
			return e.State
		}
	}
	return ""
}

// A name stands for workers that come, go and fail, and its name server stops responding. Two nodes
// send every fire to a healthy worker, and none is lost.
func TestFleetFromDNSLosesNoFire(t *testing.T) {
	need.Step(t, "fleets")
	t.Parallel()
	names, workers, database := dnstest.Start(t), startPods(t), pgtest.New(t)
	names.A("pods.test", 1, "127.0.0.7", "127.0.0.8", "127.0.0.9")
	admin := newToken(t, database)
	args := append(quick(), "--name-servers", names.Address.String())
	nodes := []*process{startNodeWith(t, database, admin, nil, args...), startNodeWith(t, database, admin, nil, args...)}
	must[access.App](t)(nodes[0].PutApp(t.Context(), access.App{Name: "fleet", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	group := target.EndpointGroup{App: "fleet", Name: "workers"}
	group.SetDefaults()
	group.DNS = map[string]target.DNSMembers{"pods": {Hostname: "pods.test", Port: workers.port}}
	group.HealthCheck = &target.HealthCheck{Interval: input.Duration(time.Second), Timeout: input.Duration(time.Minute)}
	must[target.EndpointGroup](t)(nodes[0].PutGroup(t.Context(), group, client.Condition{}))
	job := webhookJob("fleet", "sum", "", map[string]string{"a": "rate(1s)", "b": "rate(1s)", "c": "rate(1s)", "d": "rate(1s)"})
	job.Target = target.Target{Group: &target.GroupTarget{Name: "workers"}}
	job.Target.Group.SetDefaults()
	job.Retry.SetDefaults()
	job.Retry.MaxAttempts = run.MostAttempts
	must[dispatcher.Job](t)(nodes[0].PutJob(t.Context(), job, client.Condition{}))

	everywhere := func(what, want string) {
		t.Helper()
		seen := ""
		until(t, what, func() bool {
			seen += " " + workers.working()
			return !slices.ContainsFunc(strings.Fields(want), func(address string) bool { return !strings.Contains(seen+" ", " "+address+" ") })
		})
	}
	everywhere("all addresses to work", "127.0.0.7 127.0.0.8 127.0.0.9")
	list := must[client.List[target.Endpoint]](t)(nodes[0].Endpoints(t.Context(), "fleet", "workers", input.Page{})).Items
	if len(list) != 3 || list[0].Source != target.EndpointDNS || list[0].ServerName != "pods.test:"+strconv.Itoa(workers.port) {
		t.Errorf("endpoints = %+v", list)
	}

	workers.set("127.0.0.8", true)
	until(t, "both nodes to know that an address is ill", func() bool {
		return nodes[0].stateOf("127.0.0.8", workers.port) == target.EndpointDown &&
			nodes[1].stateOf("127.0.0.8", workers.port) == target.EndpointDown
	})
	down := time.Now()
	workers.working()
	everywhere("the other addresses to work", "127.0.0.7 127.0.0.9")
	well := time.Now()
	workers.set("127.0.0.8", false)
	everywhere("the address to work again", "127.0.0.8")

	names.A("pods.test", 1, "127.0.0.7", "127.0.0.10")
	everywhere("the new address to work", "127.0.0.10")
	until(t, "both nodes to leave out what is gone", func() bool {
		return nodes[0].stateOf("127.0.0.9", workers.port) == "" && nodes[1].stateOf("127.0.0.9", workers.port) == ""
	})
	names.Set("pods.test", dnsmessage.TypeA, dnstest.Reply{Silent: true})
	until(t, "a node to notice that the name server is silent", func() bool {
		status := must[target.GroupStatus](t)(nodes[0].GroupStatus(t.Context(), "fleet", "workers")).DNS["pods"]
		return status.Error != "" && status.Members == 2
	})
	workers.working()
	everywhere("the last known addresses to work", "127.0.0.7 127.0.0.10")

	nodes[0].terminate()
	for _, one := range nodes[1].allRuns("fleet") {
		if one.State == run.Failed || one.State == run.TimedOut {
			t.Errorf("run %s failed: %s %s", one.ID, one.Class, one.Error)
		}
		if one.StartedAt == nil || one.StartedAt.Before(down) {
			continue
		}
		for _, attempt := range must[run.Run](t)(nodes[1].Run(t.Context(), one.ID)).Attempts {
			if r := attempt.Response; r != nil && strings.HasPrefix(r.Endpoint, "127-0-0-8-") &&
				attempt.StartedAt.After(down) && attempt.StartedAt.Before(well) {
				t.Errorf("attempt %d of run %s went to %s while it was down", attempt.Attempt, one.ID, r.Endpoint)
			}
		}
	}
}
