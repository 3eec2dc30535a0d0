package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestFiresAheadComeInOrderAndOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, base, want := newAhead(nil), time.Unix(1_000_000, 0), map[int64]time.Time{}
		for revision := range int64(rapid.IntRange(0, 40).Draw(t, "fires")) {
			id := rapid.Int64Range(1, 15).Draw(t, "trigger")
			due := base.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "due")) * time.Second)
			if !a.add(planned(id, 1+revision, due).DueTrigger) {
				t.Fatal("there was no room")
			}
			want[id] = due
			a.add(planned(id, revision, base).DueTrigger) // an older reading changes nothing
		}
		if a.len() != len(want) {
			t.Fatalf("there are %d fires, want %d", a.len(), len(want))
		}
		last := base
		for len(want) > 0 {
			head, ok := a.head()
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
		if _, ok := a.head(); ok || a.len() != 0 {
			t.Fatalf("%d fires are left", a.len())
		}
	})
}

func TestPollIsWokenWhenThereIsRoomAhead(t *testing.T) {
	t.Parallel()
	poll := make(chan struct{}, 1)
	a, now := newAhead(poll), time.Unix(1_000_000, 0)
	for id := range int64(mostAhead) {
		if !a.add(planned(id, 1, now).DueTrigger) {
			t.Fatalf("there is no room for fire %d", id)
		}
	}
	if a.add(planned(mostAhead, 1, now).DueTrigger) {
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

// Of many fires only the first are looked up by the poll, and the others before they are due.
func TestManyFiresAreLookedUpSoonBeforeTheyAreDue(t *testing.T) {
	t.Parallel()
	r, s := readingRig(t)
	triggers := map[string]dispatcher.Trigger{}
	for i := range 50 {
		one := dispatcher.Trigger{}
		one.SetDefaults()
		one.Expression = "rate(1h)"
		start := r.now.Add(3*time.Second + time.Duration(i)*time.Millisecond)
		one.StartAt = &start
		triggers[fmt.Sprint("t", i)] = one
	}
	for i := range 14 {
		job := dispatcher.Job{App: "app", Name: fmt.Sprint("job", i), Enabled: true, Triggers: triggers}
		job.Target.Webhook = &target.Webhook{URL: "http://127.0.0.1/", Method: "POST", Timeout: target.DefaultTimeout}
		if _, _, err := r.store.PutJob(t.Context(), job, input.Change{Actor: "test", Now: r.now}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := r.pollOnce(t.Context(), r.now, r.now.Add(5*time.Second)); err != nil || n != 700 {
		t.Fatalf("%d fires were planned, error %v; want 700", n, err)
	}
	if early, err := r.planAhead(t.Context(), r.now.Add(time.Second)); early || err != nil {
		t.Errorf("two seconds before they are due, more fires were looked up: %v, %v", early, err)
	}
	if r.timeline.len() != mostAtOnce || r.ahead.len() != 700-mostAtOnce || s.triggers != 1 {
		t.Errorf("%d fires are looked up by %d reads, and %d are not; want %d by one", r.timeline.len(), s.triggers, r.ahead.len(), mostAtOnce)
	}
	if more, err := r.planAhead(t.Context(), r.now.Add(2100*time.Millisecond)); !more || err != nil || r.timeline.len() != 700 {
		t.Errorf("soon before they are due, %d fires are looked up, error %v; want all 700", r.timeline.len(), err)
	}
}

// unknown is a store that cannot be asked for definitions.
type unknown struct {
	Store
	err error
}

func (u *unknown) TriggersByID(ctx context.Context, ids []int64) ([]dispatcher.TriggerVersion, error) {
	if u.err != nil {
		return nil, u.err
	}
	return u.Store.TriggersByID(ctx, ids)
}

func TestFiresAheadSurviveAnOutage(t *testing.T) {
	t.Parallel()
	u := &unknown{}
	r := newRig(t, func(s Store) Store { u.Store = s; return u })
	r.declare("kept", "rate(5s)", nil)
	due := r.due(10 * time.Second)
	r.triggers.clear()
	r.ahead.add(due.DueTrigger)
	u.err = errors.New("connection refused")
	if _, err := r.planAhead(t.Context(), r.now.Add(5*time.Second)); err == nil || r.ahead.len() != 1 {
		t.Errorf("while the database is unreachable, error %v, and %d fires are ahead; want it kept", err, r.ahead.len())
	}
	r.wantOverdue(time.Minute, 55*time.Second, "while nobody can look it up")
	u.err = nil
	if _, err := r.planAhead(t.Context(), r.now.Add(5*time.Second)); err != nil || r.timeline.len() != 1 {
		t.Errorf("afterwards, error %v, and %d fires are planned; want one", err, r.timeline.len())
	}
}

func TestFireWhoseShareMovedIsNotLookedUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("moved", "rate(5s)", nil)
	r.ahead.add(r.due(10 * time.Second).DueTrigger)
	others := []dispatcher.Node{{ID: 1}, {ID: 2}}
	r.fleet.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, Live: others}, time.Now())
	if _, err := r.planAhead(t.Context(), r.now.Add(5*time.Second)); err != nil || r.timeline.len() != 0 {
		t.Errorf("error %v, and %d fires are planned; want none", err, r.timeline.len())
	}
}

func TestFullTimelineWakesWhatIsAheadOfIt(t *testing.T) {
	t.Parallel()
	room := make(chan struct{}, 1)
	line, now := newTimeline(), time.Unix(1_000_000, 0)
	line.refill = room
	for id := range int64(mostPlanned) {
		line.add(planned(id, 1, now))
	}
	if line.isFull() || line.add(planned(mostPlanned, 1, now)) || !line.isFull() {
		t.Fatal("the timeline is not full exactly when a fire finds no room")
	}
	take := func(n int) { line.claimed(line.take(now, n, anyQueue, keep), nil) }
	take(mostPlanned/2 - 1)
	if len(room) != 0 || !line.isFull() {
		t.Error("it woke what is ahead while there is little room")
	}
	if take(1); len(room) != 1 || line.isFull() {
		t.Error("it did not wake what is ahead when half of it was claimed")
	}
}
