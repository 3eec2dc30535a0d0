package plan

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestFiresAheadComeInOrderAndOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, base, want := newAhead(nil), time.Unix(1_000_000, 0), map[int64]time.Time{}
		for revision := range int64(rapid.IntRange(0, 40).Draw(t, "fires")) {
			id := rapid.Int64Range(1, 15).Draw(t, "trigger")
			due := base.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "due")) * time.Second)
			if !a.Add(planned(id, 1+revision, due).DueTrigger) {
				t.Fatal("there was no room")
			}
			want[id] = due
			a.Add(planned(id, revision, base).DueTrigger) // an older reading changes nothing
		}
		if a.Len() != len(want) {
			t.Fatalf("there are %d fires, want %d", a.Len(), len(want))
		}
		last := base
		for len(want) > 0 {
			head, ok := a.Head()
			if early := a.take(head.Add(-1), 3); !ok || len(early) != 0 {
				t.Fatalf("before the first is due there are %d fires, want none", len(early))
			}
			got := a.take(head, rapid.IntRange(1, 5).Draw(t, "limit"))
			if len(got) == 0 {
				t.Fatalf("no fire is left, want %d", len(want))
			}
			for _, d := range got {
				if due, there := want[d.ID]; !there || !due.Equal(d.DueAt) || d.DueAt.Before(last) {
					t.Fatalf("got trigger %d due at %v after %v, want each once and in order: %v", d.ID, d.DueAt, last, want)
				}
				last = d.DueAt
				delete(want, d.ID)
			}
		}
		if _, ok := a.Head(); ok || a.Len() != 0 {
			t.Fatalf("%d fires are left", a.Len())
		}
	})
}

func TestPollIsWokenWhenThereIsRoomAhead(t *testing.T) {
	t.Parallel()
	poll := make(chan struct{}, 1)
	a, now := newAhead(poll), time.Unix(1_000_000, 0)
	for id := range int64(mostAhead) {
		if !a.Add(planned(id, 1, now).DueTrigger) {
			t.Fatalf("there is no room for fire %d", id)
		}
	}
	if a.Add(planned(mostAhead, 1, now).DueTrigger) {
		t.Fatal("there is room without end")
	}
	a.take(now, mostAhead/2-1)
	if len(poll) != 0 {
		t.Error("the poll was woken while there is little room")
	}
	if a.take(now, 1); len(poll) != 1 {
		t.Error("the poll was not woken when half of the room was free")
	}
}

func TestFullTimelineWakesFiresAheadWhenItHasRoom(t *testing.T) {
	t.Parallel()
	room := make(chan struct{}, 1)
	line, now := newTimeline(), time.Unix(1_000_000, 0)
	line.refill = room
	for id := range int64(mostPlanned) {
		line.add(planned(id, 1, now))
	}
	if line.IsFull() || line.add(planned(mostPlanned, 1, now)) || !line.IsFull() {
		t.Fatal("the timeline is not full exactly when a fire finds no room")
	}
	take := func(n int) { line.Claimed(line.Take(now, n, everyQueue, keepAll), nil) }
	take(mostPlanned/2 - 1)
	if len(room) != 0 || !line.IsFull() {
		t.Error("it woke what is ahead while there is little room")
	}
	if take(1); len(room) != 1 || line.IsFull() {
		t.Error("it did not wake what is ahead when half of it was claimed")
	}
}
