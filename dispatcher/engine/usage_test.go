package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestUseIsTheMeanOfTheLastMinute(t *testing.T) {
	t.Parallel()
	var u usage
	if got := u.mean(); got != 0 {
		t.Errorf("without a sample, the use is %v, want 0", got)
	}
	for range 60 {
		u.add(1)
	}
	for range 15 {
		u.add(0)
	}
	if got := u.mean(); got != 0.75 {
		t.Errorf("15 s after a busy minute, the use is %v, want 0.75", got)
	}
}

func TestLargestLatenessExpiresAfterAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l load
		l.began(3 * time.Second)
		l.began(2 * time.Second)
		time.Sleep(30 * time.Second)
		l.began(time.Second)
		time.Sleep(30 * time.Second)
		if got := l.latest(); got != 3*time.Second {
			t.Errorf("after a minute it is %s, want 3s", got)
		}
		time.Sleep(time.Second)
		if got := l.latest(); got != time.Second {
			t.Errorf("a second later it is %s, want 1s", got)
		}
	})
}
