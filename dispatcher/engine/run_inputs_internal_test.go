package engine

import (
	"testing"
	"time"
)

// While the receiver of an alert is down, what waits for its turn looks less and less often.
func TestRunsThatAreHeldLookLessOften(t *testing.T) {
	t.Parallel()
	looks := 0
	for waited := time.Duration(0); waited < time.Hour; waited += heldPause(waited) {
		looks++
	}
	if looks > 100 || heldPause(0) != time.Second || heldPause(24*time.Hour) != time.Minute {
		t.Errorf("%d looks in an hour, the first after %s and the last after %s; want at most 100, 1s and 1m",
			looks, heldPause(0), heldPause(24*time.Hour))
	}
}
