package plan

import (
	"testing"
	"time"
)

func TestFloorIsTheEarliestFireLeft(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	var none time.Time
	// Each step is a look at a time, and its result.
	type step struct {
		now          time.Time
		version      int
		least, most  time.Time
		others, want time.Time
		reset, fails bool
	}
	for name, steps := range map[string][]step{
		"the first look is at everything": {
			{now: at(0), want: none},
		},
		"from the earliest fire left": {
			{now: at(0), least: at(-20), most: at(-5), want: none},
			{now: at(5), want: at(-20)},
		},
		"no fire left: from the bound for changes on their way": {
			{now: at(0), most: at(-5), want: none},
			{now: at(5), most: at(0), want: at(-5)},
			{now: at(10), want: at(0)},
		},
		"a look that was not finished moves nothing": {
			{now: at(0), most: at(-5), want: none},
			{now: at(5), fails: true, want: at(-5)},
			{now: at(10), want: at(-5)},
		},
		"the share changed": {
			{now: at(0), most: at(-5), want: none},
			{now: at(5), version: 1, most: at(0), want: none},
			{now: at(10), version: 1, want: at(0)},
		},
		"the share changed, and no share has old fires": {
			{now: at(0), most: at(-5), want: none},
			{now: at(5), version: 1, others: at(-40), most: at(0), want: at(-40)},
			{now: at(10), version: 1, others: at(-40), want: at(0)},
			{now: at(900), version: 1, others: at(-40), want: none},
		},
		"a node that knows the floor of all shares begins with everything": {
			{now: at(0), others: at(-40), most: at(-5), want: none},
		},
		"a notification came": {
			{now: at(0), most: at(-5), want: none},
			{now: at(5), reset: true, want: none},
		},
		"a minute has passed": {
			{now: at(0), most: at(-5), want: none},
			{now: at(59), most: at(54), want: at(-5)},
			{now: at(60), most: at(55), want: at(60).Add(-lookBack)},
			{now: at(65), want: at(55)},
		},
		"a quarter of an hour has passed": {
			{now: at(0), most: at(-5), want: none},
			{now: at(900), want: none},
		},
		"the database's clock was set back": {
			{now: at(0), most: at(-5), want: none},
			{now: at(-3600), want: none},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f floor
			for i, s := range steps {
				if s.reset {
					f.Reset()
				}
				l := f.Begin(s.now, s.version, s.others)
				if !l.From.Equal(s.want) {
					t.Errorf("look %d begins at %v, want %v", i, l.From, s.want)
				}
				if !s.fails {
					f.End(l, s.least, s.most)
				}
			}
		})
	}
}

// A look for fires that nodes shortly before this one left alone is never a look at everything.
func TestBoundedFloorNeverLooksAtEverything(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	floors := newFloors(Options{})
	f := &floors.near
	for i, version := range []int{0, 1, 1} {
		at := now.Add(time.Duration(i) * time.Hour)
		others := at.Add(-lookBack)
		l := f.Begin(at, version, others)
		if l.full() || i < 2 && !l.From.Equal(others) {
			t.Errorf("look %d begins at %v, want at %v", i, l.From, others)
		}
		f.End(l, time.Time{}, at)
	}
	f.Reset()
	if l := f.Begin(now, 1, now); !l.From.Equal(now) {
		t.Errorf("after a change, a look begins at %v, want %v", l.From, now)
	}
}

func TestChangeDuringALookIsNotMissed(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	var f floor
	l := f.Begin(now, 0, time.Time{})
	f.Reset()
	f.End(l, time.Time{}, now)
	if next := f.Begin(now.Add(time.Second), 0, time.Time{}); !next.full() {
		t.Errorf("the next look begins at %v, want at everything: a notification came during the one before", next.From)
	}
}
