package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// listened is a store without triggers that sends notifications.
type listened struct {
	reads
	heard chan dispatcher.Notification
}

func (s *listened) Listen(ctx context.Context, notify func(dispatcher.Notification)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case one := <-s.heard:
			notify(one)
		}
	}
}

// Otherwise a deployment of a thousand jobs makes each node read its window a thousand times.
func TestNotificationsCauseOneLookASecond(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		notification func(i int) dispatcher.Notification
		byID         bool
	}{
		"jobs": {func(i int) dispatcher.Notification { return dispatcher.Notification{JobID: int64(1 + i)} }, true},
		"apps": {func(i int) dispatcher.Notification { return dispatcher.Notification{App: fmt.Sprint("app-", i)} }, false},
		"all":  {func(int) dispatcher.Notification { return dispatcher.Notification{} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &listened{heard: make(chan dispatcher.Notification)}
				e := New(s, nil, Options{Logger: slog.New(slog.DiscardHandler)})
				e.fleet.Joined(1, dispatcher.NodeActive, time.Now())
				ctx, end := context.WithCancel(t.Context())
				var loops sync.WaitGroup
				for _, loop := range []func(context.Context){e.listenLoop, e.changeLoop, e.pollLoop} {
					loops.Go(func() { loop(ctx) })
				}
				synctest.Wait()
				if first := s.take(); len(first) != 1 {
					t.Fatalf("at the start it looked %d times, want once", len(first))
				}
				s.heard <- tt.notification(0)
				time.Sleep(100 * time.Millisecond) // a poll follows the one before after a shortest pause
				if first := s.take(); len(first) != 1 {
					t.Errorf("after the first notification it looked %d times, want once, at once", len(first))
				}
				for i := range 1000 {
					s.heard <- tt.notification(i)
					time.Sleep(4 * time.Millisecond)
				}
				time.Sleep(time.Second)
				looks := s.take()
				byID := len(slices.DeleteFunc(slices.Clone(looks), func(q dispatcher.DueQuery) bool { return len(q.JobIDs) == 0 }))
				if len(looks) < 4 || len(looks) > 6 || tt.byID && byID < len(looks)-1 || !tt.byID && byID != 0 {
					t.Errorf("in 5 s of notifications it looked %d times, %d of them by id; want five times and a regular poll", len(looks), byID)
				}
				end()
				loops.Wait()
			})
		})
	}
}
