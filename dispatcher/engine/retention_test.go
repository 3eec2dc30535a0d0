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
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// purged is a store that notes the time of each call of Purge, and returns responses in turn.
type purged struct {
	Store
	calls     chan time.Time
	responses []dispatcher.Purged
}

func (s *purged) Purge(context.Context, run.NodeID, time.Time) (dispatcher.Purged, error) {
	s.calls <- time.Now()
	if len(s.responses) == 0 {
		return dispatcher.Purged{}, errors.New("no connection")
	}
	response := s.responses[0]
	if s.responses = s.responses[1:]; len(s.responses) == 0 {
		return response, errors.New("one step failed")
	}
	return response, nil
}

func TestPurgeRepeatsSoonOnlyWhileThereIsMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &purged{calls: make(chan time.Time), responses: []dispatcher.Purged{
			{Partitions: 2, Runs: 500, More: true}, {Runs: 1, Misfires: 3, Jobs: 2, AuditEntries: 7}, {Busy: true},
			{More: true},
		}}
		e := New(s, nil, Options{Logger: slog.New(slog.DiscardHandler)})
		ctx, end := context.WithCancel(t.Context())
		defer end()
		start := time.Now()
		go e.purgeLoop(ctx)
		for i, want := range []struct{ least, most time.Duration }{
			{0, 0},                               // at the start
			{purgePause, purgePause},             // the round left more
			{9 * time.Minute, 11 * time.Minute},  // it did not
			{54 * time.Second, 66 * time.Second}, // another node was purging
			{54 * time.Second, 66 * time.Second}, // a step of it failed, and more was left
			{9 * time.Minute, 11 * time.Minute},  // it failed
		} {
			at := <-s.calls
			if after := at.Sub(start); after < want.least || after > want.most {
				t.Errorf("call %d came after %s, want %s to %s", i, after, want.least, want.most)
			}
			start = at
		}
		for kind, want := range map[string]float64{"partition": 2, "run": 501, "misfire": 3, "job": 2, "audit": 7} {
			if got := testutil.ToFloat64(e.metrics.removed.WithLabelValues(kind)); got != want {
				t.Errorf("removed %s = %v, want %v", kind, got, want)
			}
		}
	})
}

// slowPurge takes two seconds and has more to do, each time.
type slowPurge struct {
	Store
	calls chan time.Time
}

func (s *slowPurge) Purge(context.Context, run.NodeID, time.Time) (dispatcher.Purged, error) {
	s.calls <- time.Now()
	time.Sleep(2 * time.Second)
	return dispatcher.Purged{More: true}, nil
}

func TestLongPurgeLeavesTheDatabaseToOthersMostOfTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowPurge{calls: make(chan time.Time, 10)}
		e := New(s, nil, Options{Logger: slog.New(slog.DiscardHandler)})
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			e.purgeLoop(ctx)
		}()
		first := <-s.calls
		if after := (<-s.calls).Sub(first); after != 10*time.Second {
			t.Errorf("the second call began %s after the first, which took 2s; want 10s", after)
		}
		end()
		<-done
	})
}
