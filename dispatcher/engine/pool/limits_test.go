package pool

import (
	"testing"
)

func TestLimitsKeepOneAppAndOneHostFromTakingAll(t *testing.T) {
	t.Parallel()
	l := newLimits(10, 6, 4, false)
	fill := func(in QueueKey) (n int) {
		for l.admit(in) {
			n++
		}
		return n
	}
	for _, tt := range []struct {
		in   QueueKey
		want int
		why  string
	}{
		{QueueKey{App: "a", Host: "x"}, 4, "the host's"},
		{QueueKey{App: "a", Host: "y"}, 2, "the rest of the app's"},
		{QueueKey{App: "b", Host: "y"}, 2, "the rest of the host's"},
		{QueueKey{App: "b", Host: "z"}, 2, "the rest of all"},
		{QueueKey{App: "c", Host: "z"}, 0, "none"},
	} {
		if got := fill(tt.in); got != tt.want {
			t.Errorf("%+v got %d places, want %d, %s", tt.in, got, tt.want, tt.why)
		}
	}
	if !l.release(QueueKey{App: "a", Host: "x"}) || !l.admit(QueueKey{App: "a", Host: "x"}) {
		t.Error("a released place could not be taken again")
	}
}

// Under load, waiting fires leave in batches, not one by one.
func TestLimitsInBatchesOpenWhenAnEighthIsFree(t *testing.T) {
	t.Parallel()
	l, in := newLimits(80, 80, 80, true), QueueKey{App: "a", Host: "x"}
	for l.admit(in) {
	}
	opened := 0
	for n := 1; n <= 80; n++ {
		if l.release(in) {
			if opened == 0 && n != 10 {
				t.Errorf("opened when %d of 80 places were free, want 10", n)
			}
			opened++
		}
	}
	if opened == 0 || l.total.n != 0 {
		t.Errorf("opened %d times with %d places taken, want it open and empty", opened, l.total.n)
	}
}

func TestSharesDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	s := shares{newLimits(2, 2, 2, false), newLimits(1, 1, 1, false)}
	slow, fast := QueueKey{App: "a", Host: "x", Slow: true}, QueueKey{App: "a", Host: "x"}
	if !s.admit(slow) || s.admit(slow) || !s.admit(fast) || !s.admit(fast) || s.admit(fast) || s.total() != 3 {
		t.Errorf("places taken: %d, want 1 slow and 2 fast", s.total())
	}
}

// Catching up takes at most a quarter of the places. Fires on time may take all.
func TestCatchUpLeavesPlacesForFiresOnTime(t *testing.T) {
	t.Parallel()
	l := newLimits(8, 8, 8, false)
	late, onTime := QueueKey{App: "a", Host: "x", Late: true}, QueueKey{App: "a", Host: "x"}
	for l.admit(late) {
	}
	if l.late.n != 2 {
		t.Errorf("catching up got %d places, want 2 of 8", l.late.n)
	}
	for range 6 {
		if !l.admit(onTime) {
			t.Fatalf("a fire on time found no place among 8 of which %d are taken", l.total.n)
		}
	}
	if !l.release(late) || l.late.n != 1 || l.total.n != 7 {
		t.Errorf("after a place was given back %d are taken, %d of them late; want 7 and 1", l.total.n, l.late.n)
	}
}

func TestHostKeepsToItsOwnLimit(t *testing.T) {
	t.Parallel()
	l, in := newLimits(10, 10, 5, false), QueueKey{App: "a", Host: "f", AtOnce: 2}
	taken := 0
	for l.admit(in) {
		taken++
	}
	if taken != 2 || !l.admit(QueueKey{App: "a", Host: "other"}) {
		t.Errorf("%d places were taken, want 2, and others to find theirs", taken)
	}
	if !l.release(in) || !l.admit(in) || l.admit(in) {
		t.Error("a released place is not exactly one place")
	}
	claimed := newLimits(10, 10, 5, true)
	for n := range 3 {
		if !claimed.admit(in) {
			t.Errorf("fire %d, which waits for its turn, was not claimed", n)
		}
	}
}
