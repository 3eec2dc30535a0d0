//go:build chaos

package failpoint

import (
	"syscall"
	"testing"
	"time"
)

func TestChaosIsParsedIntoActions(t *testing.T) {
	t.Parallel()
	actions, err := parse("K7:kill,nth=3;K12:stop,within=5ms;K1:hang")
	if err != nil {
		t.Fatal(err)
	}
	if a := actions[BeforeSend]; a == nil || a.signal != syscall.SIGKILL || a.nth != 3 || a.within != 2*time.Millisecond {
		t.Errorf("K7 = %+v, want to kill at visit 3", a)
	}
	if a := actions[InHeartbeat]; a == nil || a.signal != syscall.SIGSTOP || a.nth != 1 || a.within != 5*time.Millisecond {
		t.Errorf("K12 = %+v, want to stop at visit 1", a)
	}
	if a := actions[BeforePoll]; a == nil || a.signal != 0 || a.nth != 1 {
		t.Errorf("K1 = %+v, want to hang at visit 1", a)
	}
	for _, wrong := range []string{"K7", "K7:die", "K7:kill,nth=x", "K7:kill,when=1"} {
		if _, err := parse(wrong); err == nil {
			t.Errorf("CHAOS=%s was accepted", wrong)
		}
	}
}
