package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

const (
	// mostGroupBytes bounds the endpoint groups that a node remembers, by an estimate of what they take.
	mostGroupBytes = 16 << 20
	// groupMaxAge is how old a group may become before a fire reads it again: a notification may be lost, and no
	// notification tells that endpoints have expired.
	groupMaxAge = 15 * time.Second
)

// groupReader reads a group as nodes route to it.
type groupReader interface {
	GroupVersion(ctx context.Context, app, name string, now time.Time) (dispatcher.GroupVersion, error)
}

// groupCache remembers endpoint groups that jobs call. Only jobs whose target is a group use it.
type groupCache struct {
	store groupReader

	mu     sync.Mutex
	groups generations[*knownGroup] // by id
	// reads are those under way, by the id of the group: fires wait for the one that there is. One that began before a
	// change of the group is not among them any more.
	reads map[int64]*groupRead
}

type knownGroup struct {
	*dispatcher.GroupVersion
	readAt time.Time // local
}

// groupRead is a read that any number of fires wait for.
type groupRead struct {
	app     string
	done    chan struct{} // closed when the rest is set
	version *dispatcher.GroupVersion
	err     error
	void    bool // the attempt that read was cut off
}

func newGroupCache(store groupReader) *groupCache {
	return &groupCache{store: store, groups: newGenerations(mostGroupBytes, (*knownGroup).size), reads: map[int64]*groupRead{}}
}

// size is an estimate of the memory that a group takes.
func (k *knownGroup) size() int {
	const fixed, perEndpoint = 4000, 1000
	return fixed + perEndpoint*(len(k.Endpoints)+len(k.Live))
}

// get returns a group as it is, or was some seconds ago. now is the database's. ErrNotFound: there is none.
func (g *groupCache) get(ctx context.Context, app, name string, now time.Time) (*dispatcher.GroupVersion, error) {
	id := dispatcher.GroupID(app, name)
	for {
		g.mu.Lock()
		if known, ok := g.groups.get(id); ok && time.Since(known.readAt) < groupMaxAge {
			g.mu.Unlock()
			return known.GroupVersion, nil
		}
		read, underWay := g.reads[id]
		if !underWay {
			read = &groupRead{app: app, done: make(chan struct{})}
			g.reads[id] = read
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

// read reads a group for all that wait for it, and remembers it unless it changed meanwhile.
func (g *groupCache) read(ctx context.Context, id int64, read *groupRead, name string, now time.Time) {
	began := time.Now()
	version, err := g.store.GroupVersion(ctx, read.app, name, now)
	if read.err = err; err == nil {
		read.version = &version
	}
	read.void = err != nil && ctx.Err() != nil
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reads[id] == read {
		delete(g.reads, id)
		if g.groups.drop(id); err == nil {
			g.groups.put(id, &knownGroup{&version, began})
		}
	}
	close(read.done)
}

// drop forgets a group of which the definition or an endpoint changed.
func (g *groupCache) drop(app, name string) {
	id := dispatcher.GroupID(app, name)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.groups.drop(id)
	delete(g.reads, id)
}

// dropIf forgets the groups of the apps that match.
func (g *groupCache) dropIf(match func(app string) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.groups.dropIf(func(k *knownGroup) bool { return match(k.App) })
	for id, read := range g.reads {
		if match(read.app) {
			delete(g.reads, id)
		}
	}
}

// dropApp forgets the groups of an app.
func (g *groupCache) dropApp(name string) { g.dropIf(func(app string) bool { return app == name }) }

// clear forgets everything.
func (g *groupCache) clear() { g.dropIf(func(string) bool { return true }) }

// addGroup adds to a call the endpoint group that its target names. It asks the database until it answers.
func (e *Engine) addGroup(ctx context.Context, call *dispatcher.Call) error {
	name := call.Target.GroupName()
	missing := false
	read := untilDone(ctx, e.log, "read endpoint group", 1, func() (err error) {
		call.Group, err = e.groups.get(ctx, call.App, name, e.clock.now())
		if missing = errors.Is(err, dispatcher.ErrNotFound); missing {
			return nil // another try would not change it
		}
		return err
	})
	switch {
	case missing:
		return fmt.Errorf("%w: group %s of app %s", errNoGroup, name, call.App)
	case !read:
		return errCutOff
	}
	return nil
}

var (
	errNoGroup = errors.New("the endpoint group of the job was deleted before this attempt began")
	errCutOff  = errors.New("the attempt was cancelled")
)
