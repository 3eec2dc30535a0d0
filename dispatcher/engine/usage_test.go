package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
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

func TestLargestLatenessIsForgottenAfterAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l load
		l.began(3*time.Second, true)
		l.began(9*time.Second, false) // a retry is late on purpose
		l.began(2*time.Second, true)
		time.Sleep(30 * time.Second)
		l.began(time.Second, true)
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

// lateLocks takes locks a little after the round began that asks for them, as databases do, each time sooner.
type lateLocks struct {
	Store
	began time.Time
	after time.Duration
}

func (l *lateLocks) Lock(ctx context.Context, r dispatcher.LockRequest) ([]dispatcher.Lock, error) {
	l.after -= time.Millisecond
	r.Now = l.began.Add(l.after)
	return l.Store.Lock(ctx, r)
}

func TestOnlyNodeCountsInEachMinute(t *testing.T) {
	t.Parallel()
	locks := &lateLocks{after: time.Second}
	r := newRig(t, func(s Store) Store { locks.Store = s; return locks })
	for range 3 {
		locks.began = r.now
		if err := errors.Join(r.takeCensus(t.Context(), r.now), r.countUpcoming(t.Context(), r.now)); err != nil {
			t.Fatal(err)
		}
		if census, upcoming := r.census.at, r.upcoming.at; !census.Equal(r.now) || !upcoming.Equal(r.now) {
			t.Errorf("at %s the latest counts are of %s and %s", r.now, census, upcoming)
		}
		r.now = r.now.Add(countInterval)
	}
}

func TestUpcomingFiresAreCountedByOneNodeInAMinute(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, name := range []string{"a", "b"} {
		r.declare(name, "rate(10m)", nil)
	}
	r.declare("tomorrow", "rate(24h)", nil)
	r.invoke = accepting(time.Hour, 1)
	r.request("long", nil)
	if err := r.countUpcoming(t.Context(), r.now); err != nil {
		t.Fatal(err)
	}
	other := New(r.store, r, Options{Name: "other"})
	other.fleet.joined(99, dispatcher.NodeActive, time.Now())
	if err := other.countUpcoming(t.Context(), r.now); err != nil {
		t.Fatal(err)
	}
	if mine, theirs := r.upcoming.read(r.now, 0), other.upcoming.read(r.now, 0); mine != 2 || theirs != 0 {
		t.Errorf("the nodes say %d and %d, want 2 and 0", mine, theirs)
	}
	if mine, theirs := r.upcoming.readAwaited(r.now, 0), other.upcoming.readAwaited(r.now, 0); mine != 1 || theirs != 0 {
		t.Errorf("the nodes say that %d and %d runs wait for a callback, want 1 and 0", mine, theirs)
	}
	const handler = 15 * time.Second
	if got := r.upcoming.read(r.now.Add(90*time.Second), handler); got != 2 {
		t.Errorf("while nobody has counted again, the node says %d, want 2", got)
	}
	if got := r.upcoming.read(r.now.Add(91*time.Second), handler); got != 0 {
		t.Errorf("when another node must have counted, the node says %d, want 0", got)
	}
	elsewhere := New(r.store, r, Options{Name: "elsewhere", Apps: []string{"none"}})
	elsewhere.fleet.joined(98, dispatcher.NodeActive, time.Now())
	elsewhere.upcoming.count = 7
	if err := elsewhere.countUpcoming(t.Context(), r.now); err != nil {
		t.Fatal(err)
	}
	if got := elsewhere.upcoming.read(r.now, 0); got != 0 || elsewhere.upcoming.at.IsZero() {
		t.Errorf("a node of other apps says %d, want its own count of 0", got)
	}
}
