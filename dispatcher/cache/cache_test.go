package cache

import (
	"testing"

	"pgregory.net/rapid"
)

func TestCacheKeepsUsedValuesWithinItsBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const most = 40
		c := Sized[int64](most, func(size int) int { return size })
		for range 200 {
			id := rapid.Int64Range(1, 60).Draw(t, "id")
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0:
				c.Delete(id)
				if _, ok := c.Get(id); ok {
					t.Fatalf("%d is there after it was dropped", id)
				}
			case 1:
				c.Get(id)
			default:
				c.Put(id, rapid.IntRange(1, 5).Draw(t, "size"))
				if _, ok := c.Get(id); !ok {
					t.Fatalf("%d is not there after it was put", id)
				}
			}
			total, recent := 0, 0
			for _, size := range c.recent {
				recent += size
			}
			total = recent
			for _, size := range c.older {
				total += size
			}
			if recent != c.size || total > most+10 {
				t.Fatalf("the cache holds %d of %d, %d of them recent and counted as %d", total, most, recent, c.size)
			}
		}
	})
}

func TestCacheKeepsFrequentlyUsedValues(t *testing.T) {
	t.Parallel()
	c := Sized[int64](100, func(int) int { return 1 })
	for i := range int64(10_000) {
		if _, ok := c.Get(1); !ok && i > 0 {
			t.Fatalf("what is used at each step is gone after %d others", i)
		}
		c.Put(1, 1)
		c.Put(i+2, 1)
	}
	c.DeleteFunc(func(int) bool { return true })
	if left := len(c.recent) + len(c.older); left != 0 || c.size != 0 {
		t.Errorf("%d are left, counted as %d; want none", left, c.size)
	}
}
