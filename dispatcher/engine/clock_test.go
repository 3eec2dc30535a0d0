package engine

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestClockIsNeverAheadOfTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClock(nil)
		ahead := 3 * time.Hour // the database's clock against ours
		for _, delay := range []time.Duration{80 * time.Millisecond, time.Millisecond, time.Second} {
			database := time.Now().Add(ahead)
			time.Sleep(delay) // the response's way back
			c.add(sample{local: time.Now(), database: database, roundTrip: delay})
			if behind := time.Now().Add(ahead).Sub(c.now()); behind < 0 || behind > delay {
				t.Errorf("after a response that took %s the clock is %s behind, want between 0 and that", delay, behind)
			}
		}
		time.Sleep(time.Minute)
		if behind := time.Now().Add(ahead).Sub(c.now()); behind != time.Millisecond {
			t.Errorf("clock is %s behind, want 1ms: that of the best sample", behind)
		}
	})
}

func TestClockFollowsADatabaseSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClock(nil)
		for range 6 {
			time.Sleep(5 * time.Second)
			c.add(sample{local: time.Now(), database: time.Now(), roundTrip: time.Millisecond})
		}
		back := 80 * time.Millisecond
		c.add(sample{local: time.Now(), database: time.Now().Add(-back), roundTrip: time.Millisecond})
		if ahead := c.now().Sub(time.Now().Add(-back)); ahead > 0 {
			t.Errorf("clock is %s ahead of the database's, which was set back: fires would be early", ahead)
		}
	})
}

func TestClockOffsetComesFromTheQuickestRecentSample(t *testing.T) {
	t.Parallel()
	c := newClock(nil)
	now := time.Now()
	for i, tt := range []struct{ offset, roundTrip, want time.Duration }{
		{5 * time.Second, time.Millisecond, 5 * time.Second},
		{9 * time.Second, 20 * time.Millisecond, 5 * time.Second}, // a slow response says little
		{-40 * time.Second, 5 * time.Millisecond, 5 * time.Second},
		{-40 * time.Second, 5 * time.Millisecond, 5 * time.Second},
		{-40 * time.Second, 5 * time.Millisecond, -40 * time.Second}, // the wall clock was set
	} {
		at := now.Add(time.Duration(i) * time.Second)
		c.add(sample{local: at, database: at, roundTrip: tt.roundTrip, offset: tt.offset})
		if got := c.offset(); got != tt.want {
			t.Errorf("after %d samples the offset is %s, want %s", i+1, got, tt.want)
		}
	}
}

func TestNodeWithAClockFarOffIsNotReady(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if err := r.Ready(); err != nil {
		t.Fatalf("Ready = %v", err)
	}
	for range offsetSamples {
		r.clock.add(sample{local: time.Now(), database: time.Now(), offset: -31 * time.Second})
	}
	if err := r.Ready(); err == nil || !strings.Contains(err.Error(), "31s off") {
		t.Errorf("Ready = %v, want the clock to be the reason", err)
	}
}
