package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func takeAll(q *fairQueue[string], limit int) []string {
	return q.take(limit, func(lane) bool { return true })
}

func TestAppsTakeTurnsByWeight(t *testing.T) {
	t.Parallel()
	q := newFairQueue[string]()
	for range 12 {
		q.push("big", lane{app: "big"}, 3)
	}
	for range 4 {
		q.push("small", lane{app: "small"}, 1)
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
func TestAppThatComesLateNeitherWaitsNorOvertakes(t *testing.T) {
	t.Parallel()
	q := newFairQueue[string]()
	for range 10_000 {
		q.push("crowd", lane{app: "crowd"}, 1)
	}
	takeAll(q, 5000)
	for range 10 {
		q.push("single", lane{app: "single"}, 1)
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
	q := newFairQueue[string]()
	q.push("first", lane{app: "a", host: "x"}, 1)
	q.push("urgent", lane{app: "a", host: "x", priority: 5}, 1)
	q.push("second", lane{app: "a", host: "y"}, 1)
	q.push("third", lane{app: "a", host: "x"}, 1)
	if diff := cmp.Diff([]string{"urgent", "first", "second", "third"}, takeAll(q, 10)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if len(q.lines) != 0 || len(q.turns) != 0 || q.len() != 0 {
		t.Errorf("an empty queue keeps %d lines, %d turns and counts %d", len(q.lines), len(q.turns), q.len())
	}
}

func TestLaneThatIsRefusedKeepsNobodyElseWaiting(t *testing.T) {
	t.Parallel()
	q := newFairQueue[string]()
	q.push("hangs", lane{app: "a", host: "down", priority: 9}, 1)
	q.push("works", lane{app: "a", host: "up"}, 1)
	up := func(in lane) bool { return in.host == "up" }
	if diff := cmp.Diff([]string{"works"}, q.take(5, up)); diff != "" {
		t.Errorf("taken (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"hangs"}, takeAll(q, 5)); diff != "" {
		t.Errorf("taken later (-want +got):\n%s", diff)
	}
}

// Whatever is pushed, refused and removed: everything leaves once, and each lane in order.
func TestFairQueueLosesNothingAndKeepsLanesInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type item struct {
			in lane
			n  int
		}
		q := newFairQueue[item]()
		lanes := rapid.Custom(func(t *rapid.T) lane {
			return lane{
				app: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "app"), host: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "host"),
				priority: rapid.IntRange(0, 2).Draw(t, "priority"),
			}
		})
		pushed, out := 0, map[lane][]int{}
		note := func(items []item) {
			for _, one := range items {
				out[one.in] = append(out[one.in], one.n)
			}
		}
		removed := 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				refused := lanes.Draw(t, "refused")
				note(q.take(rapid.IntRange(0, 5).Draw(t, "limit"), func(in lane) bool { return in != refused }))
			case 1:
				gone := rapid.IntRange(0, 60).Draw(t, "removed")
				removed += len(q.remove(func(i item) bool { return i.n == gone }))
			default:
				in := lanes.Draw(t, "lane")
				q.push(item{in, pushed}, in, rapid.IntRange(0, 3).Draw(t, "weight"))
				pushed++
			}
		}
		note(q.take(1000, func(lane) bool { return true }))
		total := removed
		for in, numbers := range out {
			total += len(numbers)
			for i := 1; i < len(numbers); i++ {
				if numbers[i] < numbers[i-1] {
					t.Fatalf("lane %+v gave %v", in, numbers)
				}
			}
		}
		if total != pushed || q.len() != 0 {
			t.Fatalf("%d of %d left, %d remain", total, pushed, q.len())
		}
	})
}

func TestWhatCatchesUpGoesBehindWhatIsOnTime(t *testing.T) {
	t.Parallel()
	q := newFairQueue[string]()
	q.push("late and urgent", lane{app: "a", priority: 9, late: true}, 1)
	q.push("late", lane{app: "a", late: true}, 1)
	q.push("on time", lane{app: "a"}, 1)
	q.push("on time and urgent", lane{app: "a", priority: 5}, 1)
	want := []string{"on time and urgent", "on time", "late and urgent", "late"}
	if diff := cmp.Diff(want, takeAll(q, 4)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
