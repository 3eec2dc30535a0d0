package group

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/dns"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// mostTargets is how many targets of one answer are resolved at once, so that no answer takes all slots of questions.
const mostTargets = 4

// resolve returns the addresses of the targets of services, of as many as a group may have. A target that cannot be resolved
// now keeps those that it had before.
func (n *names) resolve(ctx context.Context, services []dns.Record, before map[string][]netip.Addr) map[string][]netip.Addr {
	targets := map[string][]netip.Addr{}
	for _, service := range services {
		if len(targets) < target.MaxEndpoints {
			targets[service.Host] = before[service.Host]
		}
	}
	hosts := make(chan string, len(targets))
	for host := range targets {
		hosts <- host
	}
	close(hosts)
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range mostTargets {
		workers.Go(func() {
			for host := range hosts {
				found, err := n.lookup(ctx, host)
				if err != nil {
					continue
				}
				slices.SortFunc(found, netip.Addr.Compare)
				mu.Lock()
				targets[host] = found
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return targets
}

// lookup resolves a target as a request to it does.
func (n *names) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	select {
	case n.slots <- struct{}{}:
		defer func() { <-n.slots }()
		return n.resolver.LookupNetIP(ctx, "ip", host)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// noteTargets takes the addresses of the targets of an answer that was noted at now. If a target has none, the name is asked
// for again soon. n.mu is held.
func (n *names) noteTargets(known *knownName, targets map[string][]netip.Addr, now time.Time) {
	if !maps.EqualFunc(known.targets, targets, slices.Equal) {
		n.versions++
		known.targets, known.version = targets, n.versions
	}
	for _, addresses := range targets {
		if soon := now.Add(longestRetry); len(addresses) == 0 && soon.Before(known.askAt) {
			known.askAt = soon
		}
	}
}
