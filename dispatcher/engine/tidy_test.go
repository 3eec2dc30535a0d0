package engine

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/carillon-dev/carillon/dispatcher"
)

// tidied is a store that says at each call of Tidy when that was, and answers in turn.
type tidied struct {
	dispatcher.Store
	calls   chan time.Time
	answers []dispatcher.Tidied
}

func (s *tidied) Tidy(context.Context, dispatcher.NodeID, time.Time) (dispatcher.Tidied, error) {
	s.calls <- time.Now()
	if len(s.answers) == 0 {
		return dispatcher.Tidied{More: true}, errors.New("no connection")
	}
	answer := s.answers[0]
	s.answers = s.answers[1:]
	return answer, nil
}

func TestCleanUpGoesOnAtOnceOnlyWhileThereIsMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &tidied{calls: make(chan time.Time), answers: []dispatcher.Tidied{{Partitions: 2, Runs: 500, More: true}, {Runs: 1, Misfires: 3, Jobs: 2, Audits: 7}, {Busy: true}}}
		e := New(s, nil, Options{Logger: slog.New(slog.DiscardHandler)})
		ctx, end := context.WithCancel(t.Context())
		defer end()
		start := time.Now()
		go e.tidyLoop(ctx)
		for i, want := range []struct{ least, most time.Duration }{
			{0, 0},                               // at the start
			{tidyPause, tidyPause},               // there was more
			{9 * time.Minute, 11 * time.Minute},  // there was not
			{54 * time.Second, 66 * time.Second}, // another was at it
			{9 * time.Minute, 11 * time.Minute},  // it failed
		} {
			at := <-s.calls
			if after := at.Sub(start); after < want.least || after > want.most {
				t.Errorf("call %d came after %s, want %s to %s", i, after, want.least, want.most)
			}
			start = at
		}
		for kind, want := range map[string]float64{removedPartition: 2, removedRun: 501, removedMisfire: 3, removedJob: 2, removedAudit: 7} {
			if got := testutil.ToFloat64(e.metrics.removed.WithLabelValues(kind)); got != want {
				t.Errorf("removed %s = %v, want %v", kind, got, want)
			}
		}
	})
}
