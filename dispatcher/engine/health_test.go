package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// putChecked stores the group workers with a health check and one endpoint.
func (r *rig) putChecked(url string) {
	r.t.Helper()
	group := target.EndpointGroup{App: "app", Name: "workers",
		EndpointGroupSpec: target.EndpointGroupSpec{Endpoints: map[string]target.StaticEndpoint{"one": {URL: url}},
			HealthCheck: &target.HealthCheck{}}}
	group.SetDefaults()
	if _, _, err := r.store.PutGroup(r.t.Context(), group, input.Change{Actor: "test", Now: r.now}); err != nil {
		r.t.Fatal(err)
	}
}

// inUse returns the URLs of the endpoints that the node would check.
func (r *rig) inUse(local time.Time) string {
	r.t.Helper()
	var urls []string
	for _, call := range r.groupsInUse(r.t.Context(), local, r.now) {
		if call.Group != nil {
			urls = append(urls, call.Group.Live[0].URL)
		}
	}
	return strings.Join(urls, " ")
}

// fire reads the group as a fire does.
func (r *rig) fireToGroup() {
	r.t.Helper()
	call := target.Call{App: "app", Target: target.Target{Group: &target.GroupTarget{Name: "workers"}}}
	if err := r.addGroup(r.t.Context(), &call); err != nil {
		r.t.Fatal(err)
	}
}

func TestGroupsInUseAreCheckedInTheirCurrentVersion(t *testing.T) {
	t.Parallel()
	r, reads := newGroupRig(t)
	r.fireToGroup()
	if got := r.inUse(time.Now()); got != "" {
		t.Errorf("without a health check, %s is checked", got)
	}
	r.putChecked("http://127.0.0.1:1")
	r.hear(dispatcher.Notification{App: "app", Group: "workers"})
	if got := r.inUse(time.Now()); got != "" {
		t.Errorf("before a fire, %s is checked", got)
	}
	r.fireToGroup()
	r.putChecked("http://127.0.0.1:2")
	r.hear(dispatcher.Notification{App: "app", Group: "workers"})
	if got := r.inUse(time.Now()); got != "http://127.0.0.1:2" {
		t.Errorf("after a change, %s is checked", got)
	}
	reads.after = func() error { return context.DeadlineExceeded }
	r.hear(dispatcher.Notification{App: "app", Group: "workers"})
	if got := r.inUse(time.Now()); got != "http://127.0.0.1:1" {
		t.Errorf("without a database, %s is checked, want what the fire went to", got)
	}
	reads.after = nil
	if got := r.inUse(time.Now().Add(groupInUse + time.Second)); got != "" {
		t.Errorf("after 5 minutes without a fire, %s is checked", got)
	}
	// Changed bounds of an app may forbid the checks. The next fire has the new ones.
	for _, n := range []dispatcher.Notification{{App: "app"}, {}} {
		r.fireToGroup()
		if got := r.inUse(time.Now()); got == "" {
			t.Error("nothing is checked after a fire")
		}
		r.hear(n)
		if got := r.inUse(time.Now()); got != "" {
			t.Errorf("after %+v, %s is checked", n, got)
		}
	}
	r.fireToGroup()
	if err := r.store.DeleteGroup(t.Context(), "app", "workers", input.Change{Actor: "test", Now: r.now}); err != nil {
		t.Fatal(err)
	}
	r.hear(dispatcher.Notification{App: "app", Group: "workers"})
	if got := r.inUse(time.Now()); got != "" {
		t.Errorf("after it was deleted, %s is checked", got)
	}
}

// watched is the number of endpoints that an invoker knows in each group.
type watched int

func (watched) CheckHealth(context.Context, []target.Call, time.Time) {}

func (w watched) CountEndpoints(time.Time, time.Time) (all []target.GroupCount) {
	for n := range int(w) {
		all = append(all, target.GroupCount{App: "app", Group: fmt.Sprintf("g%03d", int(w)-n), States: map[target.EndpointState]int{
			target.EndpointUp: 2, target.EndpointDown: 1,
		}})
	}
	return all
}

func TestSeriesOfGroupsAreBounded(t *testing.T) {
	t.Parallel()
	for groups, want := range map[int]string{
		0: `app="",group="",state="up"} 0`, 1: `app="app",group="g001",state="down"} 1`, 250: `app="",group="",state="up"} 300`,
	} {
		registry := prometheus.NewRegistry()
		registry.MustRegister(newEndpointCounts(watched(groups)))
		n, err := testutil.GatherAndCount(registry)
		if series := 4 * (1 + min(groups, 100)); err != nil || n != series {
			t.Errorf("%d groups have %d series, %v, want %d", groups, n, err, series)
		}
		text, err := testutil.CollectAndFormat(newEndpointCounts(watched(groups)), expfmt.TypeTextPlain, "carillon_group_endpoints")
		if err != nil || !strings.Contains(string(text), "carillon_group_endpoints{"+want) {
			t.Errorf("%d groups: %v, want %s in\n%.800s", groups, err, want, text)
		}
	}
}
