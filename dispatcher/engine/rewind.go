package engine

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// rewindPage is how many triggers a step of skipping reads.
const rewindPage = 1000

// tendRewind reminds of a rewind that nobody has decided about, and carries out what was chosen.
// That is done by paused nodes, too, for while it lasts all of them are.
func (e *Engine) tendRewind(ctx context.Context, _ time.Time) error {
	rewind, err := e.store.Rewind(ctx)
	if err != nil {
		return err
	}
	e.metrics.rewound(rewind != nil)
	switch {
	case rewind == nil:
		return nil
	case rewind.Choice != dispatcher.RewindSkip:
		e.log.ErrorContext(ctx, "the database was rewound; nodes are paused until an operator chooses: carillon rewind skip or replay",
			"node", e.fleet.id().String(), "at", rewind.At, "reason", rewind.Reason)
		return nil
	}
	return e.locked(ctx, []string{dispatcher.LockRewind}, func(ctx context.Context, _ []string) error {
		triggers, runs := 0, 0
		for after, more := int64(0), true; more; {
			done, err := e.store.SkipRewound(ctx, after, rewindPage, time.Time{})
			if err != nil {
				return err
			}
			triggers, runs, after, more = triggers+done.Triggers, runs+done.Runs, done.Last, done.More
		}
		e.metrics.rewound(false)
		e.log.InfoContext(ctx, "what a rewind had brought back was skipped", "node", e.fleet.id().String(), "triggers", triggers, "runs", runs)
		return nil
	})
}
