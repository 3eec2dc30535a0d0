package engine

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/carillon-dev/carillon/dispatcher"
)

// leaking has leaks.
type leaking struct {
	Store
	pages [][]dispatcher.Leak
	calls int
}

func (s *leaking) MendLeaks(context.Context, int, time.Time) (page []dispatcher.Leak, err error) {
	if s.calls++; len(s.pages) > 0 {
		page, s.pages = s.pages[0], s.pages[1:]
	}
	return page, nil
}

// Leaks are looked for once a minute, and in each round as long as there may be more.
func TestHandlerCountsMendedLeaks(t *testing.T) {
	t.Parallel()
	full := make([]dispatcher.Leak, handlerPage)
	for i := range full {
		full[i].Kind = dispatcher.LeakWaiting
	}
	leaks := &leaking{pages: [][]dispatcher.Leak{full, {{Kind: dispatcher.LeakCallback}}}}
	r := newRig(t, func(s Store) Store { leaks.Store = s; return leaks })
	for round, calls := range []int{1, 2, 2, 2, 2, 3} { // every 15 s, the second has no full page
		if err := r.mendLeaks(t.Context(), r.now.Add(time.Duration(round)*15*time.Second)); err != nil {
			t.Fatal(err)
		}
		if leaks.calls != calls {
			t.Errorf("after round %d the store was asked %d times, want %d", round, leaks.calls, calls)
		}
	}
	for kind, want := range map[dispatcher.LeakKind]float64{dispatcher.LeakWaiting: handlerPage, dispatcher.LeakCallback: 1} {
		if got := testutil.ToFloat64(r.metrics.mendedLeaks.WithLabelValues(string(kind))); got != want {
			t.Errorf("%g leaks of kind %s are counted, want %g", got, kind, want)
		}
	}
}
