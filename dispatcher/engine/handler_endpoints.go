package engine

import (
	"context"
	"time"
)

// expirePages is how many pages of endpoints a round removes at most.
const expirePages = 10

// expireEndpoints removes the endpoints of groups that stopped registering. Nodes route by when an endpoint expires, so
// none gets a fire meanwhile.
func (e *Engine) expireEndpoints(ctx context.Context) error {
	expired := 0
	for range expirePages {
		turned(ctx)
		page, err := e.store.ExpireEndpoints(ctx, handlerPage, time.Time{})
		if err != nil {
			return err
		}
		if expired += page; page < handlerPage {
			break
		}
	}
	if expired > 0 {
		e.log.InfoContext(ctx, "endpoints expired", "node", e.fleet.id().String(), "count", expired)
	}
	return nil
}
