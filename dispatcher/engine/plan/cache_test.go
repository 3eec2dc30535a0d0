package plan

import (
	"testing"

	"pgregory.net/rapid"
)

func TestCacheKeepsWhatIsUsedAndItsBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const most = 40
		g := NewGenerations(most, func(size int) int { return size })
		for range 200 {
			id := rapid.Int64Range(1, 60).Draw(t, "id")
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0:
				g.drop(id)
				if _, ok := g.Get(id); ok {
					t.Fatalf("%d is there after it was dropped", id)
				}
			case 1:
				g.Get(id)
			default:
				g.Put(id, rapid.IntRange(1, 5).Draw(t, "size"))
				if _, ok := g.Get(id); !ok {
					t.Fatalf("%d is not there after it was put", id)
				}
			}
			total, recent := 0, 0
			for _, size := range g.recent {
				recent += size
			}
			total = recent
			for _, size := range g.older {
				total += size
			}
			if recent != g.size || total > most+10 {
				t.Fatalf("the cache holds %d of %d, %d of them recent and counted as %d", total, most, recent, g.size)
			}
		}
	})
}

func TestCacheKeepsWhatIsUsedOften(t *testing.T) {
	t.Parallel()
	g := NewGenerations(100, func(int) int { return 1 })
	for i := range int64(10_000) {
		if _, ok := g.Get(1); !ok && i > 0 {
			t.Fatalf("what is used at each step is gone after %d others", i)
		}
		g.Put(1, 1)
		g.Put(i+2, 1)
	}
	g.dropIf(func(int) bool { return true })
	if left := len(g.recent) + len(g.older); left != 0 || g.size != 0 {
		t.Errorf("%d are left, counted as %d; want none", left, g.size)
	}
}
