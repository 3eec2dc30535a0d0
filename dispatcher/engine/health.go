package engine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

const (
	// healthInterval is how often the node looks for health checks that are due.
	healthInterval = time.Second
	// groupInUse is how long after a fire a node checks the endpoints of its group.
	groupInUse = 5 * time.Minute
)

// endpointWatcher is an Invoker that checks the health of endpoints.
type endpointWatcher interface {
	CheckHealth(ctx context.Context, calls []target.Call, now time.Time)
	CountEndpoints(since, now time.Time) []target.GroupCount
}

// usedGroups are the groups with health checks that fires of this node went to lately.
type usedGroups struct {
	mu sync.Mutex
	of map[int64]*usedGroup // by id
}

type usedGroup struct {
	call target.Call // App, Group and Bounds
	at   time.Time   // of the latest fire
}

func (u *usedGroups) note(call *target.Call, now time.Time) {
	if call.Group.HealthCheck == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	used := u.of[run.GroupID(call.App, call.Group.Name)]
	if used == nil {
		used = &usedGroup{}
		u.of[run.GroupID(call.App, call.Group.Name)] = used
	}
	used.call, used.at = target.Call{App: call.App, Group: call.Group, Bounds: call.Bounds}, now
}

// dropIf removes the groups of the apps that match: their bounds may have changed. The next fire notes them again.
func (u *usedGroups) dropIf(match func(app string) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.of, func(_ int64, used *usedGroup) bool { return match(used.call.App) })
}

// calls returns the groups in use, and removes the others.
func (u *usedGroups) calls(now time.Time) []target.Call {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make([]target.Call, 0, len(u.of))
	for id, used := range u.of {
		if now.Sub(used.at) > groupInUse {
			delete(u.of, id)
			continue
		}
		all = append(all, used.call)
	}
	return all
}

// healthLoop checks the endpoints of groups in use.
func (e *Engine) healthLoop(ctx context.Context) {
	watcher, can := e.invoker.(endpointWatcher)
	if !can {
		return
	}
	e.every(ctx, "health", pace{interval: healthInterval}, func(ctx context.Context, now time.Time) error {
		watcher.CheckHealth(ctx, e.groupsInUse(ctx, time.Now(), now), time.Now())
		return nil
	})
}

// groupsInUse returns the groups to check in their current version. While the database does not respond, it returns the
// last known one; other loops log that. now is the database's.
func (e *Engine) groupsInUse(ctx context.Context, local, now time.Time) []target.Call {
	calls := e.used.calls(local)
	reachable := true
	for n := range calls {
		if !reachable {
			break
		}
		version, err := e.plan.Groups.Get(ctx, calls[n].App, calls[n].Group.Name, now)
		switch {
		case err == nil:
			calls[n].Group = version
		case errors.Is(err, dispatcher.ErrNotFound):
			calls[n].Group = nil
		default:
			reachable = false
		}
	}
	return calls
}

// mostGroupSeries is how many groups have metrics of their own; the others are counted together.
const mostGroupSeries = 100

// endpointCounts exports how many endpoints of each group in use are in each state.
type endpointCounts struct {
	watcher endpointWatcher
	counts  *prometheus.Desc
}

func newEndpointCounts(watcher endpointWatcher) *endpointCounts {
	return &endpointCounts{watcher, prometheus.NewDesc("carillon_group_endpoints",
		"Endpoints of groups to which this node sent requests in the last 5 minutes, by state as this node sees it. Of more than "+
			"100 groups, the others are counted together, without names.", []string{"app", "group", "state"}, nil)}
}

// Describe sends the description of the metric.
func (c *endpointCounts) Describe(to chan<- *prometheus.Desc) { to <- c.counts }

// Collect sends the metric for each group and state.
func (c *endpointCounts) Collect(to chan<- prometheus.Metric) {
	now := time.Now()
	all := c.watcher.CountEndpoints(now.Add(-groupInUse), now)
	slices.SortFunc(all, func(a, b target.GroupCount) int {
		return cmp.Or(cmp.Compare(a.App, b.App), cmp.Compare(a.Group, b.Group))
	})
	others := target.GroupCount{States: map[target.EndpointState]int{}}
	if len(all) > mostGroupSeries {
		for _, one := range all[mostGroupSeries:] {
			for state, n := range one.States {
				others.States[state] += n
			}
		}
		all = all[:mostGroupSeries]
	}
	for _, one := range append(all, others) {
		for _, state := range target.EndpointStates {
			to <- prometheus.MustNewConstMetric(c.counts, prometheus.GaugeValue, float64(one.States[state]), one.App, one.Group, string(state))
		}
	}
}
