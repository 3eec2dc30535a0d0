package engine

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
)

// A loop that fails repeatedly makes progress: its statements have deadlines. One that hangs does not.
func TestLoopIsStalledOnlyIfItHangs(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		step    func(ctx context.Context) error
		stalled bool
	}{
		"succeeds": {func(context.Context) error { return nil }, false},
		"fails at its deadline": {func(context.Context) error {
			time.Sleep(10 * time.Second)
			return context.DeadlineExceeded
		}, false},
		"reads page after page": {func(ctx context.Context) error {
			for range 100 {
				loop.Turned(ctx)
				time.Sleep(9 * time.Second)
			}
			return nil
		}, false},
		"waits for an event that may never come": {func(ctx context.Context) error {
			loop.Rests(ctx)
			<-ctx.Done()
			return nil
		}, false},
		"hangs": {func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := New(unwilling{}, nil, Options{Logger: slog.New(slog.DiscardHandler)})
				ctx, end := context.WithCancel(t.Context())
				over := make(chan struct{})
				go func() {
					defer close(over)
					e.every(ctx, "some", pace{interval: 5 * time.Second}, func(ctx context.Context, _ time.Time) error { return tt.step(ctx) })
				}()
				for range 600 {
					time.Sleep(time.Second)
					if err := e.Stalled(time.Now()); err != nil && !tt.stalled {
						t.Fatal(err)
					}
				}
				if err := e.Stalled(time.Now()); tt.stalled && (err == nil || !strings.Contains(err.Error(), "the some loop")) {
					t.Errorf("error %v, want one that names the loop", err)
				}
				end()
				<-over
				if err := e.Stalled(time.Now().Add(time.Hour)); err != nil {
					t.Errorf("after its end: %v, want no error", err)
				}
			})
		})
	}
}

// A stuck loop is noticed after its interval and the patience, not before.
func TestStalledLoopIsNoticedAfterItsIntervalAndThePatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := New(unwilling{}, nil, Options{Logger: slog.New(slog.DiscardHandler), DeadAfter: time.Minute})
		_, end := e.progress.Watch(t.Context(), "poll", 5*time.Second)
		defer end()
		time.Sleep(65 * time.Second)
		if err := e.Stalled(time.Now()); err != nil {
			t.Errorf("after 65 s: %v, want no error", err)
		}
		time.Sleep(time.Second)
		if err := e.Stalled(time.Now()); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("after 66 s: %v, want an error", err)
		}
	})
}
