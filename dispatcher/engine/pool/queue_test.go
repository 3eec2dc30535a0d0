package pool

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func takeAll(q *FairQueue[string], limit int) []string {
	return q.Take(limit, func(QueueKey) bool { return true })
}

func TestAppsTakeTurnsByWeight(t *testing.T) {
	t.Parallel()
	q := NewFairQueue[string]()
	for range 12 {
		q.Push("big", QueueKey{App: "big"}, 3)
	}
	for range 4 {
		q.Push("small", QueueKey{App: "small"}, 1)
	}
	count := map[string]int{}
	for _, app := range takeAll(q, 8) {
		count[app]++
	}
	if diff := cmp.Diff(map[string]int{"big": 6, "small": 2}, count); diff != "" {
		t.Errorf("of 8 turns (-want +got):\n%s", diff)
	}
}

// An app that had nothing waiting gets its turn at once, and has no turns saved up.
func TestNewAppNeitherWaitsNorOvertakes(t *testing.T) {
	t.Parallel()
	q := NewFairQueue[string]()
	for range 10_000 {
		q.Push("crowd", QueueKey{App: "crowd"}, 1)
	}
	takeAll(q, 5000)
	for range 10 {
		q.Push("single", QueueKey{App: "single"}, 1)
	}
	want := []string{"crowd", "single", "crowd", "single", "crowd", "single"}
	got := takeAll(q, 6)
	if got[0] == "single" {
		want = append(want[1:], "crowd")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
}

func TestPriorityThenOrderWithinAnApp(t *testing.T) {
	t.Parallel()
	q := NewFairQueue[string]()
	q.Push("first", QueueKey{App: "a", Host: "x"}, 1)
	q.Push("urgent", QueueKey{App: "a", Host: "x", Priority: 5}, 1)
	q.Push("second", QueueKey{App: "a", Host: "y"}, 1)
	q.Push("third", QueueKey{App: "a", Host: "x"}, 1)
	if diff := cmp.Diff([]string{"urgent", "first", "second", "third"}, takeAll(q, 10)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if len(q.queues) != 0 || len(q.turns) != 0 || q.Len() != 0 {
		t.Errorf("an empty queue keeps %d lines, %d turns and counts %d", len(q.queues), len(q.turns), q.Len())
	}
}

func TestRefusedQueueDelaysNoOther(t *testing.T) {
	t.Parallel()
	q := NewFairQueue[string]()
	q.Push("hangs", QueueKey{App: "a", Host: "down", Priority: 9}, 1)
	q.Push("works", QueueKey{App: "a", Host: "up"}, 1)
	up := func(in QueueKey) bool { return in.Host == "up" }
	if diff := cmp.Diff([]string{"works"}, q.Take(5, up)); diff != "" {
		t.Errorf("taken (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"hangs"}, takeAll(q, 5)); diff != "" {
		t.Errorf("taken later (-want +got):\n%s", diff)
	}
}

// Every item leaves once, and each queue in order, whatever is pushed, refused or removed.
func TestFairQueueLosesNothingAndKeepsEachQueueInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type item struct {
			in QueueKey
			n  int
		}
		q := NewFairQueue[item]()
		queues := rapid.Custom(func(t *rapid.T) QueueKey {
			return QueueKey{
				App: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "app"), Host: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "host"),
				Priority: rapid.IntRange(0, 2).Draw(t, "priority"),
			}
		})
		pushed, out := 0, map[QueueKey][]int{}
		note := func(items []item) {
			for _, one := range items {
				out[one.in] = append(out[one.in], one.n)
			}
		}
		removed := 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				refused := queues.Draw(t, "refused")
				note(q.Take(rapid.IntRange(0, 5).Draw(t, "limit"), func(in QueueKey) bool { return in != refused }))
			case 1:
				gone := rapid.IntRange(0, 60).Draw(t, "removed")
				removed += len(q.Remove(func(i item) bool { return i.n == gone }))
			default:
				in := queues.Draw(t, "queue")
				q.Push(item{in, pushed}, in, rapid.IntRange(0, 3).Draw(t, "weight"))
				pushed++
			}
		}
		note(q.Take(1000, func(QueueKey) bool { return true }))
		total := removed
		for in, numbers := range out {
			total += len(numbers)
			for i := 1; i < len(numbers); i++ {
				if numbers[i] < numbers[i-1] {
					t.Fatalf("queue %+v gave %v", in, numbers)
				}
			}
		}
		if total != pushed || q.Len() != 0 {
			t.Fatalf("%d of %d left, %d remain", total, pushed, q.Len())
		}
	})
}

func TestCatchUpGoesBehindFiresOnTime(t *testing.T) {
	t.Parallel()
	q := NewFairQueue[string]()
	q.Push("late and urgent", QueueKey{App: "a", Priority: 9, Late: true}, 1)
	q.Push("late", QueueKey{App: "a", Late: true}, 1)
	q.Push("on time", QueueKey{App: "a"}, 1)
	q.Push("on time and urgent", QueueKey{App: "a", Priority: 5}, 1)
	want := []string{"on time and urgent", "on time", "late and urgent", "late"}
	if diff := cmp.Diff(want, takeAll(q, 4)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
