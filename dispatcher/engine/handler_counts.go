package engine

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

const (
	// countInterval is how often one of the nodes counts what there is, and what is to come.
	countInterval = time.Minute
	// countLock is for how long it keeps the others from it. It is shorter than the interval: the lock is taken a little
	// after the round began, and would else still be held in the node's next round of an interval later.
	countLock = countInterval * 8 / 10
)

// turns are a node's turns at a count that one of the nodes makes.
type turns struct {
	tried time.Time // when the node last tried to take the lock
}

// take tells whether it is this node's turn. A node tries once in an interval, so if the one that counts goes, there may
// be no count for that long.
func (t *turns) take(ctx context.Context, e *Engine, lock string, now time.Time) (bool, error) {
	if since := now.Sub(t.tried); since >= 0 && since < countInterval {
		return false, nil
	}
	t.tried = now
	locks, err := e.store.Lock(ctx, dispatcher.LockRequest{Node: e.fleet.id(), Names: []string{lock}, AtMost: countLock, AtLeast: countLock})
	return len(locks) > 0, err
}
