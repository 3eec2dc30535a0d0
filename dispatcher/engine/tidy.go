package engine

import (
	"context"
	"math/rand/v2"
	"time"
)

// tidyPause leaves the database to others between two calls of a long clean-up.
const tidyPause = time.Second

// tidyLoop cleans history up, at once and then about every Tidy: nodes that started together do
// not do it together for ever. While there is more to remove, it goes on after a short pause.
func (e *Engine) tidyLoop(ctx context.Context) {
	for ctx.Err() == nil {
		more, err := e.tidyOnce(ctx)
		if ctx.Err() == nil {
			e.logIf(ctx, "tidy history", err)
		}
		pause := tidyPause
		if !more {
			pause = e.opts.Tidy - e.opts.Tidy/10 + rand.N(e.opts.Tidy/5)
		}
		sleep(ctx, pause)
	}
}

// tidyOnce makes one round, and tells whether there is more to remove. What another node is
// at, or what is locked, is left to a later one.
func (e *Engine) tidyOnce(ctx context.Context) (more bool, err error) {
	removed, err := e.store.Tidy(ctx, time.Time{})
	e.metrics.tidied(removed)
	if removed.Partitions+removed.Runs+removed.Misfires > 0 {
		e.log.InfoContext(ctx, "history removed", "node", e.fleet.id().String(),
			"partitions", removed.Partitions, "runs", removed.Runs, "misfires", removed.Misfires)
	}
	return removed.More && err == nil, err
}
