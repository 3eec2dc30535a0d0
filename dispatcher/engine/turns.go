package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// turn reports whether it is this node's turn to do what must be done in each interval by one of any most nodes that
// stand next to each other. reach is how many nodes before it it does that for: the nodes whose turn it is reach
// around, each also for the next of them before it, so a node that is gone is never its own keeper. The nodes agree
// by the database's clock and their order. Where they are not alike, each has its turn every time, for least nodes.
func (f *fleet) turn(now time.Time, interval time.Duration, least, most int) (mine bool, reach int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	i, ok := f.roster.find(f.node)
	if !ok || !f.roster.alike() {
		return true, least
	}
	return f.roster.turn(i, now.UnixNano()/int64(interval), most)
}

// turnToPurge reports whether it is this node's turn to purge the history, which any node may do: in each interval it is
// that of two, in case one is gone.
func (f *fleet) turnToPurge(now time.Time, interval time.Duration) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	i, ok := f.roster.find(f.node)
	if !ok {
		return true
	}
	mine, _ := f.roster.turn(i, now.UnixNano()/int64(interval), len(f.roster.live))
	return mine
}

// alike reports whether all live nodes serve the same triggers, in one order.
func (f *fleet) alike() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.roster.alike()
}

// turn is fleet.turn for the node at place i in a round. The places whose turn it is lie as evenly as can be, two of
// them at least, and all move on by one with each round.
func (r *roster) turn(i int, round int64, most int) (mine bool, reach int) {
	n := len(r.live)
	takers := min(n, max(2, (n+most-1)/most))
	place := (i - int(round%int64(n)) + n) % n
	return (place*takers+n-1)/n*n/takers == place, (n + takers - 1) / takers
}

// alike reports whether all live nodes serve the same triggers, in one order.
func (r *roster) alike() bool {
	return len(r.yielding) == 0 && !slices.ContainsFunc(r.live, func(n dispatcher.Node) bool {
		return !slices.Equal(n.Apps, r.live[0].Apps) || !maps.Equal(n.Labels, r.live[0].Labels)
	})
}
