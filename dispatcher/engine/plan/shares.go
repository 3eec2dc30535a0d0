package plan

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// A fleet divides its triggers by their ids, which are hashes and so spread evenly. The nodes that may fire a trigger
// stand in order of their ids; the ids of triggers are cut into as many equal ranges, and each node is the first to
// fire the range of its place. The node that follows is the second, and so on around. A database can select by a range,
// so no node reads the triggers of others.
//
// Triggers of one class have the same nodes. In most fleets each node may fire everything, and there is one class.
// Nodes that serve only some apps, or that differ in their labels, make a few more.

// class is the key of the nodes that may fire a trigger, and of their order.
type class struct {
	app    int64  // 0: an app that no node names
	labels string // required by its job
	long   bool   // its attempts may outlast a drain
}

// order is the nodes that may fire the triggers of a class: first those that don't yield.
type order struct{ first, then []run.NodeID }

// roster is the live nodes as one heartbeat found them, in order of their ids.
type roster struct {
	drain    time.Duration // an attempt with a longer timeout is long
	live     []dispatcher.Node
	yielding map[run.NodeID]bool
	named    map[int64]string // apps that some node names, because it does not serve all

	mu     sync.Mutex
	orders map[class]order
}

func newRoster(live []dispatcher.Node, drain time.Duration) *roster {
	r := &roster{drain: drain, live: slices.Clone(live), named: map[int64]string{}, orders: map[class]order{}}
	slices.SortFunc(r.live, func(a, b dispatcher.Node) int { return cmp.Compare(a.ID, b.ID) })
	r.yielding = yielding(r.live)
	for _, node := range r.live {
		for _, app := range node.Apps {
			r.named[run.AppID(app)] = app
		}
	}
	return r
}

// same reports whether two rosters divide the triggers in the same way.
func (r *roster) same(other *roster) bool {
	return slices.EqualFunc(r.live, other.live, func(a, b dispatcher.Node) bool {
		return a.ID == b.ID && slices.Equal(a.Apps, b.Apps) && maps.Equal(a.Labels, b.Labels)
	}) && maps.Equal(r.yielding, other.yielding)
}

func (r *roster) classOf(trigger dispatcher.DueTrigger) class {
	c := class{long: trigger.Timeout > r.drain && len(r.yielding) > 0}
	if _, named := r.named[trigger.AppID]; named {
		c.app = trigger.AppID
	}
	if len(trigger.NodeLabels) > 0 {
		c.labels = trigger.NodeLabels.String()
	}
	return c
}

// of returns the order of a class. There are few, so each is worked out once.
func (r *roster) of(c class) order {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.orders[c]; ok {
		return known
	}
	if len(r.orders) >= mostOrders {
		clear(r.orders)
	}
	var o order
	required := input.ParseLabels(c.labels)
	for i := range r.live {
		node := &r.live[i]
		switch {
		case !node.Serves(c.app, required):
		case c.long && r.yielding[node.ID]:
			o.then = append(o.then, node.ID)
		default:
			o.first = append(o.first, node.ID)
		}
	}
	r.orders[c] = o
	return o
}

// mostOrders bounds the classes whose order a roster remembers.
const mostOrders = 10_000

// find returns where a node stands among the live ones.
func (r *roster) find(node run.NodeID) (int, bool) {
	return slices.BinarySearchFunc(r.live, node, func(n dispatcher.Node, id run.NodeID) int {
		return cmp.Compare(n.ID, id)
	})
}

// distance returns how many steps it is from one place to another, around n places.
func distance(from, to, n int) int { return (to - from + n) % n }

// partOf returns the index of an id's part, of n equal parts.
func partOf(id int64, n int) int {
	high, low := bits.Mul64(uint64(id), uint64(n)) // of 128 bits; ids have 63
	return int(high<<1 | low>>63)
}

// startOf returns the least id in part i of n. It is 0 for n, which is past the last part.
func startOf(i, n int) int64 {
	if i == n {
		return 0
	}
	quotient, rest := bits.Div64(uint64(i)>>1, uint64(i)<<63, uint64(n))
	if rest > 0 {
		quotient++
	}
	return int64(quotient)
}

// idRange is the ids from from to below to; to 0: to the last.
type idRange struct{ from, to int64 }

// Share is a part of all triggers, as a query selects it: those of a range, of some apps and of jobs that require some
// sets of labels.
type Share struct {
	apps   []string // empty: all
	labels []string // empty: any
	idRange
}

// everything is the share that has all triggers of some apps.
func everything(apps []string) []Share { return []Share{{apps: apps}} }

// rangesOf returns the ranges in which a node has one of some ranks in an order.
func rangesOf(o order, node run.NodeID, least, most int) []idRange {
	nodes, before := o.first, 0
	i, ok := slices.BinarySearch(nodes, node)
	if !ok {
		nodes, before = o.then, len(o.first)
		if i, ok = slices.BinarySearch(nodes, node); !ok {
			return nil
		}
	}
	n := len(nodes)
	var ranges []idRange
	for rank := max(least-before, 0); rank <= min(most-before, n-1); rank++ {
		part := distance(rank, i, n)
		ranges = append(ranges, idRange{startOf(part, n), startOf(part+1, n)})
	}
	return ranges
}

// merged joins ranges that overlap or touch, in order.
func merged(ranges []idRange) []idRange {
	slices.SortFunc(ranges, func(a, b idRange) int { return cmp.Compare(a.from, b.from) })
	var all []idRange
	for _, next := range ranges {
		last := len(all) - 1
		switch {
		case last < 0 || all[last].to != 0 && all[last].to < next.from:
			all = append(all, next)
		case all[last].to != 0 && (next.to == 0 || next.to > all[last].to):
			all[last].to = next.to
		}
	}
	return all
}

// withShare adds a share, and joins it with one of the same apps and labels that it touches.
func withShare(all []Share, one Share) []Share {
	for i := range all {
		if slices.Equal(all[i].apps, one.apps) && slices.Equal(all[i].labels, one.labels) {
			if joined := merged([]idRange{all[i].idRange, one.idRange}); len(joined) == 1 {
				one.idRange = joined[0]
				return withShare(slices.Delete(all, i, i+1), one)
			}
		}
	}
	return append(all, one)
}

// appGroup is apps that the same nodes serve.
type appGroup struct {
	id    int64 // of one of them, as a class has it
	names []string
}

// appGroups returns the apps that node serves, grouped by the other nodes that serve them. Apps that no node names have
// one group without names, which also selects the others.
func (r *roster) appGroups(node *dispatcher.Node) []appGroup {
	byServers := map[string]*appGroup{}
	for id, name := range r.named {
		if node.Serves(id, nil) {
			servers := r.servers(class{app: id})
			if byServers[servers] == nil {
				byServers[servers] = &appGroup{id: id}
			}
			byServers[servers].names = append(byServers[servers].names, name)
		}
	}
	if len(node.Apps) == 0 {
		servers := r.servers(class{})
		byServers[servers] = &appGroup{}
	}
	groups := make([]appGroup, 0, len(byServers))
	for _, servers := range slices.Sorted(maps.Keys(byServers)) {
		group := byServers[servers]
		slices.Sort(group.names)
		groups = append(groups, *group)
	}
	return groups
}

// labelGroup is sets of labels that the same nodes have.
type labelGroup struct {
	example string
	sets    []string // empty: any
}

// labelGroups returns the sets of labels that jobs require and node has, including the empty one, grouped by the other
// nodes that have them. If all nodes that serve the app have all of them, it is one group that selects any labels.
func (r *roster) labelGroups(node *dispatcher.Node, app int64, required []input.Labels) []labelGroup {
	byServers := map[string][]string{r.servers(class{app: app}): {""}}
	for _, labels := range required {
		if node.Labels.Have(labels) {
			text := labels.String()
			servers := r.servers(class{app: app, labels: text})
			byServers[servers] = append(byServers[servers], text)
		}
	}
	if len(byServers) == 1 {
		return []labelGroup{{}}
	}
	groups := make([]labelGroup, 0, len(byServers))
	for _, servers := range slices.Sorted(maps.Keys(byServers)) {
		sets := byServers[servers]
		groups = append(groups, labelGroup{example: sets[0], sets: sets})
	}
	return groups
}

// servers returns the ids of the nodes that may fire the triggers of a class, as a key.
func (r *roster) servers(c class) string {
	o := r.of(c)
	var text strings.Builder
	for _, node := range slices.Concat(o.first, o.then) {
		text.WriteString(node.String())
	}
	return text.String()
}

// Turn reports whether it is this node's turn at a task that one of any most adjacent nodes must do in each interval.
// reach is for how many nodes before it the node does it: the nodes with a turn reach around, each at least to the next
// of them, so a node that is gone is never its own keeper. The nodes agree by the database's clock and their order. If
// they are not alike, each has its turn every time, for least nodes.
func (f *Fleet) Turn(now time.Time, interval time.Duration, least, most int) (mine bool, reach int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	i, ok := f.roster.find(f.node)
	if !ok || !f.roster.alike() {
		return true, least
	}
	return f.roster.turn(i, now.UnixNano()/int64(interval), most)
}

// TurnToPurge reports whether it is this node's turn to purge the history, which any node may do. In each interval it
// is the turn of two nodes, in case one is gone.
func (f *Fleet) TurnToPurge(now time.Time, interval time.Duration) bool {
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
func (f *Fleet) alike() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.roster.alike()
}

// turn is Fleet.Turn for the node at place i in a round. The places with a turn are spread as evenly as possible, there
// are at least two of them, and all move on by one with each round.
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

// yielding returns the live nodes that leave long attempts to newer nodes. A node yields while it has a spell of them,
// if at least half of the live nodes started after the spell began: a deployment starts as many new nodes as there are
// old ones. A single node that is added to a fleet does not get all the long attempts. A preference for nodes without
// long attempts is not enough: the new ones soon have some, too, and then all would be equal.
//
// The newest node never yields, so one node always takes a fire. A node whose spell is over takes its share again, so
// nodes that are not replaced become equal. If nodes disagree about which of them yield, because one of them has older
// news, a fire waits for a grace at most, or the first of them claims it.
func yielding(live []dispatcher.Node) map[run.NodeID]bool {
	var yields map[run.NodeID]bool
	for i := range live {
		if live[i].LongSince == nil {
			continue
		}
		newer := 0
		for j := range live {
			if live[j].StartedAt.After(*live[i].LongSince) {
				newer++
			}
		}
		if newer > 0 && 2*newer >= len(live) {
			if yields == nil {
				yields = map[run.NodeID]bool{}
			}
			yields[live[i].ID] = true
		}
	}
	return yields
}
