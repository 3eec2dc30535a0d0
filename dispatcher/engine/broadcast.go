package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/cache"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// broadcasts are runs that are spread over the endpoints of a group. The node that holds such a run only spreads it;
// any node adopts its shards. The node that records the last shard ends the run. If it dies before that, the handler of
// another node does.
type broadcasts struct {
	known *cache.Cache[int64, *knownBroadcast] // by trigger
	done  *pile[run.Key]                       // parents of shards that have ended
}

// knownBroadcast are the endpoints of the shards of a run, which never change.
type knownBroadcast struct {
	parent    run.Key
	endpoints []string
}

// size is an estimate of the memory that a broadcast takes.
func (k *knownBroadcast) size() int { return 200 + 80*len(k.endpoints) }

// mostBroadcastBytes bounds the remembered endpoints of broadcasts, by an estimate of their memory.
const mostBroadcastBytes = 4 << 20

// recorded notes the parents of the shards that ended with these records.
func (b *broadcasts) recorded(records []dispatcher.Record) {
	for _, r := range records {
		if r.Shard > 0 && r.Next == nil {
			b.done.add(r.Parent())
		}
	}
}

// spread spreads a run of a job with the strategy broadcast over the endpoints of its group. The run itself sends no
// request. It is a step of an attempt.
func (e *Engine) spread(ctx context.Context, a *attempt) result {
	if a.run.Shard > 0 || a.call.Strategy() != target.Broadcast {
		return proceed
	}
	group := *a.call.Group
	if len(group.DNS) > 0 && e.opts.Members != nil {
		var egress target.EgressBounds
		if a.call.Bounds != nil {
			egress = a.call.Bounds.Egress
		}
		members, _ := e.opts.Members(ctx, group.EndpointGroup, egress)
		group = group.With(members)
	}
	endpoints := group.BroadcastEndpoints()
	if len(endpoints) == 0 {
		a.clock = e.clock.Best()
		a.outcome = notAttempted(run.Failed, run.ClassNoEndpoint,
			fmt.Errorf("group %s has no endpoint that takes part in a broadcast; it has %d, all draining", a.call.Group.Name,
				len(group.Live)), time.Now())
		a.outcome.NotSent = true
		return e.conclude(ctx, a)
	}
	e.metrics.began(a.run, &a.call, -e.clock.Until(a.run.Due), time.Now())
	loop.UntilDone(ctx, e.log.Logger, "broadcast run", 1, func() error {
		_, err := e.store.Broadcast(ctx, a.run.HeldRun, endpoints, time.Time{})
		return err
	})
	// Spread, or taken by another node: this node is done with the run, and the slot stays with the run.
	return refused
}

// addShard adds to the call of a shard its part of the broadcast. It asks the database until it responds.
func (e *Engine) addShard(ctx context.Context, r run.HeldRun, call *target.Call) error {
	parent := r.Parent()
	known, ok := e.broadcasts.known.Get(parent.TriggerID)
	if !ok || known.parent != parent {
		known = &knownBroadcast{parent: parent}
		missing := false
		read := loop.UntilDone(ctx, e.log.Logger, "read broadcast", 1, func() (err error) {
			known.endpoints, err = e.store.BroadcastEndpoints(ctx, r.Key)
			if missing = errors.Is(err, dispatcher.ErrNotFound); missing {
				return nil // another try would fail in the same way
			}
			return err
		})
		switch {
		case missing:
			return fmt.Errorf("run %s, which this is a part of, is not in the database any more", parent)
		case !read:
			return errCutOff
		}
		e.broadcasts.known.Put(parent.TriggerID, known)
	}
	shard := run.Shard{Index: r.Shard - 1, Total: len(known.endpoints)}
	if shard.Index < len(known.endpoints) {
		shard.Endpoint = known.endpoints[shard.Index]
	}
	call.Shard = &shard
	return nil
}

// endBroadcasts ends the broadcasts with a shard that has just ended and no other left.
func (e *Engine) endBroadcasts(ctx context.Context) {
	parents, seen := []run.Key(nil), map[run.Key]bool{}
	for _, parent := range e.broadcasts.done.take() {
		if !seen[parent] {
			seen[parent] = true
			parents = append(parents, parent)
		}
	}
	if len(parents) == 0 {
		return
	}
	loop.UntilDone(ctx, e.log.Logger, "end broadcasts", len(parents), func() error {
		_, err := e.store.EndBroadcasts(ctx, parents, time.Time{})
		return err
	})
	if slices.ContainsFunc(parents, func(key run.Key) bool { return key.Kind == run.KindBackfill }) {
		e.wakeBackfill.Notify()
	}
}
