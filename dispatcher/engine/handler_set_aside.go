package engine

import (
	"context"
	"time"
)

// retrySetAside lets runs be found again that were set aside long enough ago, and learns which other rows to leave out. There are
// mostly none, so each node asks, without a lock.
func (e *Engine) retrySetAside(ctx context.Context, now time.Time) error {
	retried, err := e.store.RetrySetAside(ctx, handlerPage, now)
	if retried > 0 {
		wake(e.wakeAdopt)
		wake(e.retries.wake)
	}
	return err
}
