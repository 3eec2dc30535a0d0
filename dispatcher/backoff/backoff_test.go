package backoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/backoff"
)

var errRefused = errors.New("refused")

func TestPausesGrowUpToTheLongest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var called []time.Duration
		begun := time.Now()
		err := backoff.Pauses{First: 100 * time.Millisecond, Most: time.Second}.Repeat(t.Context(), func() error {
			if called = append(called, time.Since(begun)); len(called) == 7 {
				return nil
			}
			return errRefused
		}, nil)
		if err != nil || len(called) != 7 {
			t.Fatalf("called %d times, error %v, want success at the 7th", len(called), err)
		}
		for i, most := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
			most *= time.Millisecond
			if got := called[i+1] - called[i]; got <= most/2-1 || got > most {
				t.Errorf("pause %d took %s, want more than half of %s and no more than that", i+1, got, most)
			}
		}
	})
}

func TestFailureIsNotRepeatedIfRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		err := backoff.Pauses{First: time.Second, Most: time.Second}.Repeat(t.Context(), func() error {
			calls++
			return errRefused
		}, func(f backoff.Failure) bool { return f.Tries < 3 && errors.Is(f.Err, errRefused) })
		if !errors.Is(err, errRefused) || calls != 3 {
			t.Errorf("called %d times, error %v, want the refusal after 3", calls, err)
		}
	})
}

func TestEndOfContextEndsThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun, calls := time.Now(), 0
		fail := func() error {
			calls++
			return errRefused
		}
		err := backoff.Pauses{First: time.Hour, Most: time.Hour}.Repeat(ctx, fail, nil)
		if took := time.Since(begun); took != time.Second || !errors.Is(err, errRefused) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ended after %s with %v, want both errors after 1s", took, err)
		}
		if err := (backoff.Pauses{First: 1, Most: 1}).Repeat(ctx, fail, nil); !errors.Is(err, context.DeadlineExceeded) || calls != 1 {
			t.Errorf("after the end: called %d times in all, error %v, want no further call", calls, err)
		}
	})
}
