package dispatcher

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Broadcasts are the runs that are spread over the endpoints of a group, each as a shard. A shard that is not over is a row
// of its own among the live runs, which any node adopts. Its parent waits as run.WaitingShards, and keeps its slot.
type Broadcasts interface {
	// Broadcast spreads a run that a node holds: it queues a shard for each endpoint, or, if the run was spread before, the
	// shards that a retry brought back. It reports whether the node still held the run. A second call, after a lost
	// response, changes nothing.
	Broadcast(ctx context.Context, run run.HeldRun, endpoints []string, now time.Time) (held bool, err error)
	// BroadcastEndpoints returns the ids of the endpoints for which the shards of a run were made, by index. The key is that of
	// the parent or of one of its shards. ErrNotFound: the run was not spread.
	BroadcastEndpoints(ctx context.Context, key run.Key) ([]string, error)
	// EndBroadcasts ends those of some runs, or of all if there are none, of which all shards have ended, and returns how
	// many. They succeed if all their shards did. Of all, it also cancels shards whose parent has ended in another way.
	EndBroadcasts(ctx context.Context, parents []run.Key, now time.Time) (int, error)
}
