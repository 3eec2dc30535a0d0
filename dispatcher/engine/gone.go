package engine

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// goneTargets are the attempts whose target responded with 410 (Gone): it wants no more calls. Their triggers are disabled
// after the outcome is stored, because only then is it sure that the run was still this node's. The store leaves a
// trigger alone that was changed since the run was claimed: the response was about what was there before.
type goneTargets struct{ attempts *pile[dispatcher.Record] }

// recorded notes the attempts among records whose target is gone.
func (g goneTargets) recorded(records []dispatcher.Record) {
	for _, r := range records {
		if r.Outcome.HTTPStatus == http.StatusGone && r.Outcome.State != run.Succeeded {
			g.attempts.add(r)
		}
	}
}

// goneLoop disables the triggers of targets that are gone until ctx ends.
func (e *Engine) goneLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.gone.attempts.wake:
			e.disableGone(ctx)
		}
	}
}

// disableGone disables the triggers of targets that are gone, each until the database has responded.
func (e *Engine) disableGone(ctx context.Context) {
	type definition struct{ trigger, revision int64 }
	done := map[definition]bool{} // a target may have responded to many runs at once
	for _, r := range e.gone.attempts.take() {
		if is := (definition{r.TriggerID, r.Revision}); !done[is] {
			reason := fmt.Sprintf("the target responded 410 (Gone) to run %s; resume the trigger when the target accepts calls again", r.Key)
			untilDone(ctx, e.log, "disable trigger", 1, func() (err error) {
				done[is], err = e.store.Disable(ctx, r, reason, time.Time{})
				return err
			})
		}
	}
}
