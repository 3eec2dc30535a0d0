package group

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/dns"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Bounds for DNS names in groups, as in docs/routing.md.
const (
	leastTTL      = time.Second      // of an answer, so that not every fire asks again
	longestTTL    = 5 * time.Minute  // of an answer, so that a mistake in a zone ends
	graceOfAnswer = 5 * time.Second  // use of an expired answer while the name is resolved again
	keepOnFailure = 10 * time.Minute // after the TTL, if no server responds
	keepOnMissing = time.Minute      // after the TTL, if the name does not exist any more
	longestRetry  = 30 * time.Second // between two queries that fail
	lookupTimeout = 5 * time.Second  // for a query, with all servers
	mostLookups   = 32               // queries at once
	mostNames     = 10_000           // in memory
)

// names resolves the DNS names of groups. Each node resolves a name when it uses it and its answer has expired; many
// fires at once send one query.
type names struct {
	client   *dns.Client
	resolver *net.Resolver // of the targets of services, as it is for requests
	slots    chan struct{} // one for each query under way

	mu       sync.Mutex
	known    map[nameKey]*knownName
	versions uint64 // how often a list changed
	closed   bool
	asking   sync.WaitGroup
}

type nameKey struct {
	name string
	of   target.DNSType
}

// knownName is the answer for a name. Its records and since are never changed, only replaced.
type knownName struct {
	records    []dns.Record // of the latest answer with any, while it is kept
	since      map[dns.Record]time.Time
	version    uint64    // of records
	resolvedAt time.Time // of the latest answer with records; zero: none had any
	validUntil time.Time // its TTL
	askAt      time.Time // when the name is resolved again
	failures   int       // since then
	err        string    // of the latest query; empty: it had an answer
	used       time.Time
	// targets are the addresses of the targets of services, sorted; an unknown target has none.
	targets map[string][]netip.Addr

	asked  chan struct{}      // closed at the end of the query under way; nil: none is
	cancel context.CancelFunc // ends it
}

func newNames(client *dns.Client, resolver *net.Resolver) *names {
	return &names{client: client, resolver: resolver, slots: make(chan struct{}, mostLookups), known: map[nameKey]*knownName{}}
}

// close ends the queries under way.
func (n *names) close() {
	n.mu.Lock()
	n.closed = true
	for _, known := range n.known {
		if known.asked != nil {
			known.cancel()
		}
	}
	n.mu.Unlock()
	n.asking.Wait()
}

// get returns the answer for a name. With wait, it waits for one if it has none that may be used.
func (n *names) get(ctx context.Context, key nameKey, now time.Time, wait bool) knownName {
	n.mu.Lock()
	known := n.known[key]
	if known == nil {
		if len(n.known) >= mostNames {
			n.forget()
		}
		known = &knownName{}
		n.known[key] = known
	}
	known.used = now
	if now.Before(known.askAt) || n.closed {
		defer n.mu.Unlock()
		return *known
	}
	if known.asked == nil {
		n.begin(ctx, key, known)
	}
	usable := len(known.records) > 0 && (known.err != "" || now.Before(known.validUntil.Add(graceOfAnswer)))
	found := *known
	n.mu.Unlock()
	if usable || !wait {
		return found
	}
	select {
	case <-found.asked:
	case <-ctx.Done():
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return *known
}

// begin resolves a name. The query goes on if the fire that caused it ends. n.mu is held.
func (n *names) begin(ctx context.Context, key nameKey, known *knownName) {
	known.asked = make(chan struct{})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
	known.cancel = cancel
	before := known.targets
	n.asking.Go(func() {
		defer cancel()
		var answer dns.Answer
		err := errors.New("too many questions are under way")
		select {
		case n.slots <- struct{}{}:
			answer, err = n.client.Lookup(ctx, key.name, dns.Type(key.of))
			<-n.slots
		case <-ctx.Done():
		}
		var targets map[string][]netip.Addr
		if err == nil && key.of == target.DNSTypeSRV {
			targets = n.resolve(ctx, answer.Records, before)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		now := time.Now()
		n.note(known, answer, err, now)
		if targets != nil {
			n.noteTargets(known, targets, now)
		}
		close(known.asked)
		known.asked, known.cancel = nil, nil
	})
}

// note takes the result of a query. n.mu is held.
func (n *names) note(known *knownName, answer dns.Answer, err error, now time.Time) {
	var negative *dns.NegativeError
	switch {
	case err == nil:
		known.resolvedAt, known.failures, known.err = now, 0, ""
		known.askAt = now.Add(min(max(answer.TTL, leastTTL), longestTTL))
		known.validUntil = known.askAt
		n.replace(known, answer.Records, now)
		return
	case errors.As(err, &negative):
		known.askAt = now.Add(min(max(answer.TTL, 5*leastTTL), longestRetry))
		if !now.Before(known.validUntil.Add(keepOnMissing)) {
			n.replace(known, nil, now)
		}
	default:
		known.askAt = now.Add(min(leastTTL<<min(known.failures, 10), longestRetry))
		if !now.Before(known.validUntil.Add(keepOnFailure)) {
			n.replace(known, nil, now)
		}
	}
	known.err = err.Error()
	known.failures++
}

// replace sets the records of a name, which count as the same in any order. n.mu is held.
func (n *names) replace(known *knownName, records []dns.Record, now time.Time) {
	since := make(map[dns.Record]time.Time, len(records))
	for _, record := range records {
		since[record] = now
		if before, there := known.since[record]; there {
			since[record] = before
		}
	}
	if maps.EqualFunc(since, known.since, time.Time.Equal) {
		return
	}
	n.versions++
	known.records, known.since, known.version = records, since, n.versions
}

// forget removes the name that was unused for longest. n.mu is held.
func (n *names) forget() {
	var oldest nameKey
	for key, known := range n.known {
		if o := n.known[oldest]; known.asked == nil && (o == nil || known.used.Before(o.used)) {
			oldest = key
		}
	}
	delete(n.known, oldest)
}

// of returns the answers for the DNS names of a group, by their names in the group.
func (n *names) of(ctx context.Context, group *target.EndpointGroup, now time.Time, wait bool) map[string]knownName {
	all := make(map[string]knownName, len(group.DNS))
	for label, d := range group.DNS {
		all[label] = n.get(ctx, nameKey{d.Hostname, d.Resolved().Type}, now, wait)
	}
	return all
}

// mostTargets is how many targets of one answer are resolved at once, so that no answer takes all slots of queries.
const mostTargets = 4

// resolve returns the addresses of the targets of services, of as many as a group may have. A target that cannot be
// resolved now keeps the addresses that it had before.
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

// lookup resolves a target in the same way as a request to it.
func (n *names) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	select {
	case n.slots <- struct{}{}:
		defer func() { <-n.slots }()
		return n.resolver.LookupNetIP(ctx, "ip", host)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// noteTargets takes the addresses of the targets of an answer that was noted at now. If a target has none, the name is
// resolved again soon. n.mu is held.
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
