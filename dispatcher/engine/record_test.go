package engine

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// unwilling is a store that records nothing.
type unwilling struct{ Store }

func (unwilling) Record(context.Context, []dispatcher.Record) error {
	return errors.New("no connection")
}

// A bubble ends only after all of its goroutines.
func TestShutdownGivesUpOutcomesRefusedByTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(unwilling{}, func([]dispatcher.Record) {}, func() bool { return false }, 1, slog.New(slog.DiscardHandler))
		ctx, end := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			r.run(ctx)
		}()
		for range 3 {
			r.put(ctx, dispatcher.Record{})
		}
		if r.drain(10 * time.Second) {
			t.Error("the outcomes count as stored")
		}
		end()
		<-over
	})
}
