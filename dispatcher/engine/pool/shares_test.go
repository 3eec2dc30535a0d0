package pool

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// whole is the size of a pool of 64 attempts and 256 runs, with the usual parts.
var whole = Options{Workers: 64, AppWorkers: 48, HostWorkers: 32, Queue: 192}

// fill takes places in a queue until none is left, and returns how many.
func (s *shares) fill(in QueueKey, purpose use) (n int) {
	for s.admit(in, purpose) == Admitted {
		n++
	}
	return n
}

func TestShareAloneTakesItsPartOfThePool(t *testing.T) {
	t.Parallel()
	each := func(change func(in *QueueKey, i int)) func(*shares, use) int {
		return func(s *shares, purpose use) (n int) {
			for i := range 100 {
				in := QueueKey{App: "a", Host: "x", Job: 1}
				change(&in, i)
				n += s.fill(in, purpose)
			}
			return n
		}
	}
	for name, tt := range map[string]struct {
		fill func(*shares, use) int
		want [uses]int
	}{
		"one job":           {each(func(*QueueKey, int) {}), [uses]int{96, 24}},
		"a host's jobs":     {each(func(in *QueueKey, i int) { in.Job = int64(i) }), [uses]int{128, 32}},
		"an app's hosts":    {each(func(in *QueueKey, i int) { in.Host, in.Job = fmt.Sprint(i), int64(i) }), [uses]int{192, 48}},
		"all apps":          {each(func(in *QueueKey, i int) { in.App = fmt.Sprint(i) }), [uses]int{256, 64}},
		"a job's own bound": {each(func(in *QueueKey, _ int) { in.AtOnce = 7 }), [uses]int{96, 7}},
		"catching up":       {each(func(in *QueueKey, i int) { in.App, in.Late = fmt.Sprint(i), true }), [uses]int{64, 16}},
	} {
		for purpose, want := range tt.want {
			if got := tt.fill(newShares(whole), use(purpose)); got != want {
				t.Errorf("%s got %d places of use %d, want %d", name, got, purpose, want)
			}
		}
	}
}

// However many apps hold all their places, the next finds some, and so do the next host and the next job of an app with
// only hanging ones.
func TestNewcomerFindsPlacesHoweverManyHang(t *testing.T) {
	t.Parallel()
	for name, hanging := range map[string]func(i int) QueueKey{
		"apps":  func(i int) QueueKey { return QueueKey{App: fmt.Sprint("hangs", i)} },
		"hosts": func(i int) QueueKey { return QueueKey{App: "a", Host: fmt.Sprint("hangs", i), Job: int64(i)} },
		"jobs":  func(i int) QueueKey { return QueueKey{App: "a", Host: "x", Job: int64(i)} },
	} {
		s := newShares(Options{Workers: 1024, AppWorkers: 768, HostWorkers: 512, Queue: 2048})
		// All of them want places all the time, so they share the pool.
		for range 2000 {
			for i := range 8 {
				s.admit(hanging(i), claimed)
			}
		}
		if n := s.fill(QueueKey{App: "a", Host: "x", Job: 99}, claimed); n < 32 {
			t.Errorf("next to 8 %s that hang, a newcomer gets %d places, want 32 at least", name, n)
		}
	}
}

// A share that was full opens to claims when an eighth of it is free, so that fires leave in batches.
func TestFullShareOpensToClaimsInBatches(t *testing.T) {
	t.Parallel()
	in := QueueKey{App: "a", Host: "x", Job: 1}
	s := newShares(whole)
	full := s.fill(in, claimed)
	for n := 1; ; n++ {
		opened := s.release(s.of(in), false, claimed)
		admission := s.admit(in, claimed)
		if opened != (admission == Admitted) || (admission == Admitted) != (n == full/8) {
			t.Fatalf("after %d of %d places were given back: opened %v, admission %d; want it to open at %d", n, full, opened, admission, full/8)
		}
		if opened {
			return
		}
	}
}

// Places that one app gives back open a share that refused another.
func TestPlacesThatOthersGiveBackAreAnnounced(t *testing.T) {
	t.Parallel()
	s, hangs, leaves := newShares(whole), QueueKey{App: "hangs"}, QueueKey{App: "leaves"}
	s.fill(leaves, claimed)
	few := s.fill(hangs, claimed)
	opened := false
	for s.of(leaves).taken[claimed] > 0 {
		opened = s.release(s.of(leaves), false, claimed) || opened
	}
	if more := s.fill(hangs, claimed); !opened || more == 0 {
		t.Errorf("opened: %v; %d places next to the first %d", opened, more, few)
	}
}

// At any time, no more places are taken than there are, each share counts those of its parts, unused shares are
// removed, and a share without places gets one if any is free.
func TestSharesNeverExceedThePool(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := func(name string, most int) int { return rapid.IntRange(1, most).Draw(t, name) }
		o := Options{Workers: size("workers", 40), Queue: size("queue", 100)}
		o.AppWorkers, o.HostWorkers = size("app workers", o.Workers), size("host workers", o.Workers)
		s := newShares(o)
		type place struct {
			in      QueueKey
			purpose use
		}
		var taken []place
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			if len(taken) > 0 && rapid.IntRange(0, 3).Draw(t, "give back") == 0 {
				i := rapid.IntRange(0, len(taken)-1).Draw(t, "which")
				one := taken[i]
				taken = append(taken[:i], taken[i+1:]...)
				s.release(s.of(one.in), one.in.Late, one.purpose)
				continue
			}
			one := place{QueueKey{
				App:  fmt.Sprint("app", rapid.IntRange(0, 3).Draw(t, "app")),
				Host: fmt.Sprint("host", rapid.IntRange(0, 2).Draw(t, "host")),
				Job:  rapid.Int64Range(0, 3).Draw(t, "job"), Late: rapid.IntRange(0, 5).Draw(t, "late") == 0,
			}, use(rapid.IntRange(0, 1).Draw(t, "purpose"))}
			before := s.left(one.purpose)
			admitted := s.admit(one.in, one.purpose) == Admitted
			if admitted {
				taken = append(taken, one)
			}
			if admitted && before < 1 {
				t.Fatal("a place was given that the pool does not have")
			}
		}
		newcomer := QueueKey{App: "newcomer"}
		if full := s.full(s.of(newcomer), newcomer, attempted); s.left(attempted) >= 1 && full != Admitted {
			t.Fatalf("%v places are free, and an app without any gets none: %d", s.left(attempted), full)
		}
		for _, one := range taken {
			s.release(s.of(one.in), one.in.Late, one.purpose)
		}
		if s.all.taken != [uses]int{} || s.late.taken != [uses]int{} {
			t.Fatalf("%v places are taken at the end, %v of them late", s.all.taken, s.late.taken)
		}
	})
}

func TestUnusedSharesAreRemoved(t *testing.T) {
	t.Parallel()
	s := newShares(whole)
	for i := range 10 * mostIdle {
		in := QueueKey{App: fmt.Sprint(i), Host: fmt.Sprint(i), Job: int64(i)}
		s.admit(in, claimed)
		s.release(s.of(in), false, claimed)
	}
	if n := len(s.byPath); n > mostIdle+int(levels) {
		t.Errorf("%d shares are kept, want some %d", n, mostIdle)
	}
}

// One app with only hanging attempts, of any number of jobs and hosts, delays no run of another.
func TestHangingAppLeavesEveryOtherAppItsPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var healthy atomic.Int32
		p := startPool(t, whole, func(_ context.Context, run testRun) {
			if run.Queue.App == "hangs" {
				<-release
				return
			}
			time.Sleep(time.Millisecond)
			healthy.Add(1)
		})
		hanging := held(runs(3000))
		for i, run := range hanging {
			run.Queue = QueueKey{App: "hangs", Host: fmt.Sprint(i % 7), Job: int64(i % 100)}
		}
		if kept := 3000 - len(p.submit(hanging)); kept > 192 {
			t.Errorf("%d of 3000 runs of an app that hangs are held, want 192 at most of 256", kept)
		}
		for app := range 20 {
			few := held(runs(10))
			for i, run := range few {
				run.TriggerID = int64(10_000 + 100*app + i)
				run.Queue = QueueKey{App: fmt.Sprint("healthy", app), Job: run.TriggerID}
			}
			if refused := p.submit(few); len(refused) > 0 {
				t.Errorf("%d of 10 runs of healthy app %d found no place", len(refused), app)
			}
			time.Sleep(20 * time.Millisecond)
			if n := int(healthy.Load()); n != 10*(app+1) {
				t.Errorf("20 ms later %d runs of the %d healthy apps have ended, want all %d", n, app+1, 10*(app+1))
			}
		}
		if use, _ := p.Load(); use > 0.75 {
			t.Errorf("use = %v with nothing but the app that hangs, want its part", use)
		}
		close(release)
		p.TakeNotAttempted()
		p.Drain(time.Second)
	})
}
