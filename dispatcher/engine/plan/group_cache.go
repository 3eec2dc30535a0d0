package plan

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

const (
	// mostGroupBytes bounds the endpoint groups that a node remembers, by an estimate of what they take.
	mostGroupBytes = 16 << 20
	// groupMaxAge is how old a group may become before a fire reads it again: a notification may be lost, and no
	// notification tells that endpoints have expired.
	groupMaxAge = 15 * time.Second
	// A group that changes all the time, because endpoints come and go, is read once every groupPause, and not for each
	// fire. One that changes now and then is read at once: groupBurst reads may come together. So a node knows of a change
	// well within a second.
	groupPause = 250 * time.Millisecond
	groupBurst = 4
)

// GroupReader reads a group as nodes route to it.
type GroupReader interface {
	GroupVersion(ctx context.Context, app, name string, now time.Time) (target.GroupVersion, error)
}

// groupCache remembers endpoint groups that jobs call. Only jobs whose target is a group use it.
type groupCache struct {
	store GroupReader

	mu     sync.Mutex
	groups Generations[*knownGroup] // by id
	// reads are those under way, by the id of the group: fires wait for the one that there is. One that began before a
	// change of the group is not among them any more.
	reads map[int64]*groupRead
}

type knownGroup struct {
	*target.GroupVersion
	readAt  time.Time // local
	changed bool      // since it was read
	pace    time.Time // when as many reads as there were are due, one every groupPause
}

// fresh reports whether a fire may use the group as it was read, or must for now.
func (k *knownGroup) fresh(now time.Time) bool {
	switch age := now.Sub(k.readAt); {
	case age >= groupMaxAge:
		return false
	case k.changed:
		return now.Before(k.pace.Add(-(groupBurst - 1) * groupPause))
	}
	return true
}

// groupRead is a read that any number of fires wait for.
type groupRead struct {
	app   string
	began time.Time
	pace  time.Time
	// changed tells that the group changed since it began, forgotten that it is not to be remembered.
	changed, forgotten bool
	done               chan struct{} // closed when the rest is set
	version            *target.GroupVersion
	err                error
	void               bool // the attempt that read was cut off
}

func newGroupCache(store GroupReader) *groupCache {
	return &groupCache{store: store, groups: NewGenerations(mostGroupBytes, (*knownGroup).size), reads: map[int64]*groupRead{}}
}

// size is an estimate of the memory that a group takes.
func (k *knownGroup) size() int {
	const fixed, perEndpoint = 4000, 1000
	return fixed + perEndpoint*(len(k.Endpoints)+len(k.Live))
}

// Get returns a group as it is, or was some seconds ago. now is the database's. ErrNotFound: there is none.
func (g *groupCache) Get(ctx context.Context, app, name string, now time.Time) (*target.GroupVersion, error) {
	id := run.GroupID(app, name)
	for {
		g.mu.Lock()
		known, ok := g.groups.Get(id)
		if ok && known.fresh(time.Now()) {
			g.mu.Unlock()
			return known.GroupVersion, nil
		}
		read, underWay := g.reads[id]
		if !underWay {
			read = g.begin(id, app, known)
		}
		g.mu.Unlock()
		if !underWay {
			g.read(ctx, id, read, name, now)
			return read.version, read.err
		}
		select {
		case <-read.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !read.void {
			return read.version, read.err
		}
	}
}

// begin notes that a group is read; known is nil if it is not remembered. g.mu is held.
func (g *groupCache) begin(id int64, app string, known *knownGroup) *groupRead {
	read := &groupRead{app: app, began: time.Now(), done: make(chan struct{})}
	read.pace = read.began.Add(groupPause)
	if known != nil {
		if known.pace.After(read.began) {
			read.pace = known.pace.Add(groupPause)
		}
		known.pace = read.pace
	}
	g.reads[id] = read
	return read
}

// read reads a group for all that wait for it, and remembers it unless it was forgotten meanwhile.
func (g *groupCache) read(ctx context.Context, id int64, read *groupRead, name string, now time.Time) {
	version, err := g.store.GroupVersion(ctx, read.app, name, now)
	if read.err = err; err == nil {
		read.version = &version
	}
	read.void = err != nil && ctx.Err() != nil
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reads[id] == read {
		delete(g.reads, id)
	}
	if known, ok := g.groups.Get(id); !read.forgotten && (!ok || !known.readAt.After(read.began)) {
		if g.groups.drop(id); err == nil {
			g.groups.Put(id, &knownGroup{GroupVersion: &version, readAt: read.began, changed: read.changed, pace: read.pace})
		}
	}
	close(read.done)
}

// Change notes that the definition or an endpoint of a group changed. Fires that come from now on wait for no read that
// began before.
func (g *groupCache) Change(app, name string) {
	id := run.GroupID(app, name)
	g.mu.Lock()
	defer g.mu.Unlock()
	if known, ok := g.groups.Get(id); ok {
		known.changed = true
	}
	if read, underWay := g.reads[id]; underWay {
		read.changed = true
		delete(g.reads, id)
	}
}

// dropIf forgets the groups of the apps that match.
func (g *groupCache) dropIf(match func(app string) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.groups.dropIf(func(k *knownGroup) bool { return match(k.App) })
	for id, read := range g.reads {
		if match(read.app) {
			read.forgotten = true
			delete(g.reads, id)
		}
	}
}

// DropApp forgets the groups of an app.
func (g *groupCache) DropApp(name string) { g.dropIf(func(app string) bool { return app == name }) }

// Clear forgets everything.
func (g *groupCache) Clear() { g.dropIf(func(string) bool { return true }) }
