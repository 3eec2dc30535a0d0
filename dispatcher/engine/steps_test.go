package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
)

// An object with a failed step waits for its time, and the others make their steps.
func TestFailingStepDelaysNoOther(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	broken := errors.New("it cannot be read")
	var made []int64
	next, err := stepAll(t.Context(), []dispatcher.OpenSteps{{ID: 1}, {ID: 2}, {ID: 3, TryAt: now}, {ID: 4, TryAt: now.Add(time.Minute)}}, now,
		func(_ context.Context, id int64, now time.Time) (time.Time, error) {
			if made = append(made, id); id == 1 {
				return now.Add(4 * time.Second), broken
			}
			return time.Time{}, nil
		})
	if diff := cmp.Diff([]int64{1, 2, 3}, made); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if !errors.Is(err, broken) || !next.Equal(now.Add(4*time.Second)) {
		t.Errorf("goes on at %s, %v, want in 4 s, and the error", next, err)
	}
}
