package plan

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

func planned(id, revision int64, next time.Time) Entry {
	return Entry{
		DueTrigger:   dispatcher.DueTrigger{ID: id, Revision: revision, NextFireTime: next, DueAt: next},
		KnownTrigger: &KnownTrigger{},
	}
}

func everyQueue(pool.QueueKey) pool.Admission { return pool.Admitted }

func noPlace(pool.QueueKey) pool.Admission { return pool.PoolFull }

func keepAll(...pool.QueueKey) {}

func TestPlannedFireIsClaimableUntilItIsMissed(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_000_000, 0)
	for name, tt := range map[string]struct {
		jitter, delay, late time.Duration // delay is that of DueAt
		zones               *schedule.Zones
		want                bool
	}{
		"on time":                  {zones: schedule.CurrentZones(), want: true},
		"late":                     {late: time.Minute, zones: schedule.CurrentZones(), want: true},
		"missed":                   {late: time.Minute + 1, zones: schedule.CurrentZones()},
		"late after its jitter":    {jitter: time.Hour, delay: time.Hour, late: time.Minute, zones: schedule.CurrentZones(), want: true},
		"missed after its jitter":  {jitter: time.Hour, delay: time.Hour, late: time.Minute + 1, zones: schedule.CurrentZones()},
		"a catch-up without place": {delay: time.Hour, late: time.Hour, zones: schedule.CurrentZones(), want: true},
		"other zones":              {},
	} {
		e := planned(1, 1, at)
		e.DueAt, e.MisfireAfter, e.Jitter, e.Zones = at.Add(tt.delay), time.Minute, tt.jitter, tt.zones
		if got := e.Claimable(e.DueAt.Add(tt.late)); got != tt.want {
			t.Errorf("%s: claimable is %t, want %t", name, got, tt.want)
		}
	}
}

func TestTimelineReturnsTheEarliestFireFirst(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		line, base := newTimeline(), time.Unix(1_000_000, 0)
		offsets := rapid.SliceOfN(rapid.IntRange(0, 100), 0, 50).Draw(t, "offsets")
		for i, offset := range offsets {
			line.add(planned(int64(i), 1, base.Add(time.Duration(offset)*time.Second)))
		}
		until := base.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "until")) * time.Second)
		want := 0
		for _, offset := range offsets {
			if !base.Add(time.Duration(offset) * time.Second).After(until) {
				want++
			}
		}
		got := line.Take(until, len(offsets)+1, everyQueue, keepAll)
		if len(got) != want {
			t.Fatalf("took %d fires, want the %d that are due", len(got), want)
		}
		for i := 1; i < len(got); i++ {
			if got[i].NextFireTime.Before(got[i-1].NextFireTime) {
				t.Fatalf("fire %d is earlier than the one before it", i)
			}
		}
		if rest := line.Take(base.Add(time.Hour), len(offsets)+1, everyQueue, keepAll); len(rest) != len(offsets)-want {
			t.Fatalf("%d fires remained, want %d", len(rest), len(offsets)-want)
		}
	})
}

func TestTimelineKeepsTheNewestOfATrigger(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	for name, tt := range map[string]struct {
		first, second Entry
		want          time.Time
	}{
		"a poll that read before a claim does not undo it":  {planned(1, 1, now.Add(time.Second)), planned(1, 1, now), now.Add(time.Second)},
		"a later instant of the same revision replaces":     {planned(1, 1, now), planned(1, 1, now.Add(time.Second)), now.Add(time.Second)},
		"a newer revision replaces, also by an earlier one": {planned(1, 1, now.Add(time.Second)), planned(1, 2, now), now},
		"an older revision never replaces":                  {planned(1, 2, now), planned(1, 1, now.Add(time.Second)), now},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line := newTimeline()
			line.add(tt.first)
			line.add(tt.second)
			got := line.Take(now.Add(time.Hour), 10, everyQueue, keepAll)
			if len(got) != 1 || !got[0].NextFireTime.Equal(tt.want) {
				t.Errorf("planned %d fires, the first for %s; want one for %s", len(got), got[0].NextFireTime, tt.want)
			}
		})
	}
}

func TestTimelineWakesOnlyForAnEarlierHead(t *testing.T) {
	t.Parallel()
	line, now := newTimeline(), time.Unix(1_000_000, 0)
	woken := func() bool {
		select {
		case <-line.Changed:
			return true
		default:
			return false
		}
	}
	line.add(planned(1, 1, now.Add(time.Minute)))
	if !woken() {
		t.Error("the first fire did not wake the claimer")
	}
	line.add(planned(2, 1, now.Add(time.Hour)))
	if woken() {
		t.Error("a fire behind the head woke the claimer")
	}
	line.add(planned(3, 1, now))
	if !woken() {
		t.Error("a fire before the head did not wake the claimer")
	}
}

// It is planned like the others: again when it changes, and once.
func TestDueFireWaitingForAPlaceIsReplaced(t *testing.T) {
	t.Parallel()
	line, now := newTimeline(), time.Unix(1_000_000, 0)
	line.add(planned(1, 1, now))
	line.add(planned(2, 1, now))
	if got := line.Take(now, 10, noPlace, keepAll); len(got) != 0 || line.Waiting() != 2 {
		t.Fatalf("%d fires were taken without a place, or none waits", len(got))
	}
	line.add(planned(1, 1, now)) // read again by a poll
	line.add(planned(2, 2, now.Add(time.Hour)))
	given := 0
	got := line.Take(now, 10, everyQueue, func(queues ...pool.QueueKey) { given += len(queues) })
	if len(got) != 1 || got[0].ID != 1 || given != 1 || line.Waiting() != 0 {
		t.Errorf("took %d fires and gave %d places back, want the one that is still planned and the other's place", len(got), given)
	}
	if later := line.Take(now.Add(time.Hour), 10, everyQueue, keepAll); len(later) != 1 || later[0].ID != 2 {
		t.Errorf("later %d fires were taken, want the one that was moved", len(later))
	}
}

func TestTimelineDropsFiresReadBeforeTheirClaim(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	take := func(line *timeline) []*Entry { return line.Take(now, 1, everyQueue, keepAll) }
	won := map[int64]*run.HeldRun{1: {}}
	for name, tt := range map[string]struct {
		won    map[int64]*run.HeldRun
		reread Entry
		want   int
	}{
		"the same fire, won":                 {won, planned(1, 1, now), 0},
		"the same fire, lost":                {nil, planned(1, 1, now), 1},
		"the next fire":                      {won, planned(1, 1, now.Add(time.Second)), 1},
		"the same instant in a new revision": {won, planned(1, 2, now), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line := newTimeline()
			line.add(planned(1, 1, now))
			done := line.reading()
			taken := take(line)
			line.add(planned(1, 1, now))
			if got := line.Len(); got != 0 {
				t.Errorf("%d fires planned while the claim is under way, want none", got)
			}
			line.Claimed(taken, tt.won)
			line.add(tt.reread)
			if got := line.Len(); got != tt.want {
				t.Errorf("%d fires planned after the claim, want %d", got, tt.want)
			}
			done()
			if len(line.taken) != 0 {
				t.Errorf("%d claims are remembered without a reader", len(line.taken))
			}
			line.add(planned(1, 1, now))
			if got := line.Len(); got != 1 {
				t.Errorf("%d fires planned by a later reader, want 1", got)
			}
		})
	}
}

func TestTimelineReportsOverdueFires(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	line := newTimeline()
	line.add(planned(1, 1, now))
	if line.overdue(now) {
		t.Error("overdue at its instant")
	}
	if !line.overdue(now.Add(time.Millisecond)) {
		t.Error("not overdue after its instant")
	}
	line.Take(now, 1, noPlace, keepAll)
	if !line.overdue(now) {
		t.Error("not overdue while it waits for a place")
	}
}
