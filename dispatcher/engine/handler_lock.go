package engine

import (
	"context"
	"errors"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

// errLockExpired is the cause of a step's end when the time of its lock has passed.
var errLockExpired = errors.New("the time of the lock has passed")

// withLocks takes those of the named locks that are free, and calls do with their names. When the
// time of the locks has passed, as after a freeze, do is stopped before its next statement, and the
// next round goes on with what is left.
func (e *Engine) withLocks(ctx context.Context, names []string, do func(ctx context.Context, won []string) error) error {
	sent := time.Now()
	locks, err := e.store.Lock(ctx, dispatcher.LockRequest{
		Node: e.fleet.id(), Names: names, AtMost: e.opts.DeadAfter, AtLeast: e.opts.Handler * 8 / 10,
	})
	if err != nil || len(locks) == 0 {
		return err
	}
	failpoint.Hit(failpoint.LockTaken)
	won := make([]string, len(locks))
	for i, lock := range locks {
		won[i] = lock.Name
	}
	within, end := context.WithCancelCause(ctx)
	defer end(nil)
	timer := time.AfterFunc(time.Until(e.fleet.leaseFrom(sent)), func() { end(errLockExpired) })
	defer timer.Stop()
	err = do(within, won)
	failpoint.Hit(failpoint.BeforeUnlock)
	if errors.Is(context.Cause(within), errLockExpired) {
		e.log.InfoContext(ctx, "lock expired; the next round goes on", "node", e.fleet.id().String(), "locks", len(locks))
		return nil // another node may have them by now
	}
	return errors.Join(err, e.store.Unlock(context.WithoutCancel(ctx), locks))
}

// withLock is withLocks for one lock.
func (e *Engine) withLock(ctx context.Context, name string, do func(context.Context) error) error {
	return e.withLocks(ctx, []string{name}, func(ctx context.Context, _ []string) error { return do(ctx) })
}
