package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// labelSets are the sets of labels that jobs require and this node has. They decide about the shares of nodes
// that differ in their labels; other nodes don't ask for them.
type labelSets struct {
	mu     sync.Mutex
	all    []input.Labels
	readAt time.Time // by the database's clock; zero: a job may require a new one
}

// get returns the sets that the node knows of. The fires of a job with another one are found by the far sweep.
func (l *labelSets) get() []input.Labels {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

// changed notes that a job changed, perhaps in its labels.
func (l *labelSets) changed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readAt = time.Time{}
}

// due reports whether the sets are to be read, and notes that they are.
func (l *labelSets) due(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !passed(l.readAt, now, lookBackInterval) {
		return false
	}
	l.readAt = now
	return true
}

// set notes the sets, and reports whether they are others than before.
func (l *labelSets) set(all []input.Labels) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed = !slices.EqualFunc(all, l.all, maps.Equal[input.Labels, input.Labels])
	l.all = all
	return changed
}

// readLabelSets reads the sets of labels that jobs require if they decide about the node's share.
func (e *Engine) readLabelSets(ctx context.Context, now time.Time) error {
	if !e.fleet.differInLabels() || !e.labelSets.due(now) {
		return nil
	}
	sets, err := e.store.LabelSets(ctx)
	if err != nil {
		e.labelSets.changed()
		return err
	}
	mine := slices.DeleteFunc(sets, func(set input.Labels) bool { return !e.opts.Labels.Have(set) })
	slices.SortFunc(mine, func(a, b input.Labels) int { return cmp.Compare(a.String(), b.String()) })
	if e.labelSets.set(mine) {
		e.floors.window.reset()
		e.floors.near.reset()
	}
	return nil
}
