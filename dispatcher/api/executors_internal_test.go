package api

import (
	"testing"
	"time"
)

func TestStrayCallbacksAreRepeatedForAWhile(t *testing.T) {
	t.Parallel()
	s, now := newStrays(), time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	one, two := strayKey{"crm", 1}, strayKey{"shop", 1}
	for _, step := range []struct {
		key  strayKey
		at   time.Duration
		want bool
	}{{one, 0, true}, {one, strayTime - 1, true}, {two, strayTime, true}, {one, strayTime, false}, {two, 2*strayTime - 1, true}} {
		if got := s.repeat(step.key, now.Add(step.at)); got != step.want {
			t.Errorf("callback %v after %s is to be repeated: %v, want %v", step.key, step.at, got, step.want)
		}
		if got := s.settled(step.key, now.Add(step.at)); got == step.want {
			t.Errorf("callback %v after %s is settled: %v, want %v", step.key, step.at, got, !step.want)
		}
	}
	if s.settled(strayKey{"crm", 2}, now) {
		t.Error("a callback that never came is settled")
	}
	s.done(two)
	if s.repeat(two, now) || !s.settled(two, now) {
		t.Error("a callback of a run that is over is to be repeated")
	}
}
