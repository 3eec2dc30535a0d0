package pool

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func all(QueueKey) Admission { return Admitted }

func takeAll(q *FairQueue[string], limit int) []string {
	return q.Take(limit, all)
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

// An app without waiting items gets its turn at once, and has saved no turns.
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
	q.Push("urgent", QueueKey{App: "a", Host: "x", Job: 2, Priority: 5}, 1)
	q.Push("second", QueueKey{App: "a", Host: "y"}, 1)
	q.Push("third", QueueKey{App: "a", Host: "x"}, 1)
	if diff := cmp.Diff([]string{"urgent", "first", "second", "third"}, takeAll(q, 10)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if len(q.nodes) != 0 || len(q.root.children) != 0 || q.Len() != 0 {
		t.Errorf("an empty queue keeps %d nodes, %d apps and counts %d", len(q.nodes), len(q.root.children), q.Len())
	}
}

// When an app, a host or a job is full, items outside of it go on, and its own go first when they can.
func TestFullSharesDelayNoOthers(t *testing.T) {
	t.Parallel()
	all := map[string]QueueKey{
		"its job":       {App: "a", Host: "down", Job: 1, Priority: 9},
		"its host":      {App: "a", Host: "down", Job: 2, Priority: 8},
		"its app":       {App: "a", Host: "up", Job: 3},
		"another app's": {App: "b", Host: "down", Job: 4},
	}
	for full, want := range map[Admission][]string{
		JobFull: {"its host", "another app's", "its app"}, HostFull: {"its app", "another app's"},
		AppFull: {"another app's"}, PoolFull: nil,
	} {
		q := NewFairQueue[string]()
		for _, name := range []string{"its job", "its host", "its app", "another app's"} {
			q.Push(name, all[name], 1)
		}
		got := q.Take(5, func(in QueueKey) Admission {
			if in.Job == 1 {
				return full
			}
			return Admitted
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("when %d is full, taken (-want +got):\n%s", full, diff)
		}
		if rest := takeAll(q, 5); rest[0] != "its job" || len(rest)+len(want) != 4 {
			t.Errorf("when %d is full, taken later: %v", full, rest)
		}
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
				Job: rapid.Int64Range(0, 3).Draw(t, "job"), Late: rapid.Bool().Draw(t, "late"),
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
				full := Admission(rapid.IntRange(int(JobFull), int(PoolFull)).Draw(t, "full"))
				note(q.Take(rapid.IntRange(0, 5).Draw(t, "limit"), func(in QueueKey) Admission {
					if in == refused {
						return full
					}
					return Admitted
				}))
			case 1:
				gone := rapid.IntRange(0, 60).Draw(t, "removed")
				removed += len(q.Remove(func(i item) bool { return i.n == gone }))
			default:
				in := queues.Draw(t, "queue")
				q.Push(item{in, pushed}, in, rapid.IntRange(0, 3).Draw(t, "weight"))
				pushed++
			}
		}
		note(q.Take(1000, all))
		total := removed
		for in, numbers := range out {
			total += len(numbers)
			for i := 1; i < len(numbers); i++ {
				if numbers[i] < numbers[i-1] {
					t.Fatalf("queue %+v gave %v", in, numbers)
				}
			}
		}
		if total != pushed || q.Len() != 0 || len(q.nodes) != 0 {
			t.Fatalf("%d of %d left, %d remain", total, pushed, q.Len())
		}
	})
}

func TestCatchUpGoesBehindFiresOnTime(t *testing.T) {
	t.Parallel()
	q := NewFairQueue[string]()
	q.Push("late and urgent", QueueKey{App: "a", Job: 2, Priority: 9, Late: true}, 1)
	q.Push("late", QueueKey{App: "a", Late: true}, 1)
	q.Push("on time", QueueKey{App: "a"}, 1)
	q.Push("on time and urgent", QueueKey{App: "a", Job: 2, Priority: 5}, 1)
	want := []string{"on time and urgent", "on time", "late and urgent", "late"}
	if diff := cmp.Diff(want, takeAll(q, 4)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
