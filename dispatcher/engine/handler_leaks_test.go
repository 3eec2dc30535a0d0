package engine

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/carillon-dev/carillon/dispatcher"
)

// leaking has leaks.
// leakPage is how many leaks are mended at once.
const leakPage = 1000

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

// The handler looks for leaks once a minute, and in each round while there may be more.
func TestHandlerCountsMendedLeaks(t *testing.T) {
	t.Parallel()
	full := make([]dispatcher.Leak, leakPage)
	for i := range full {
		full[i].Kind = dispatcher.LeakWaiting
	}
	leaks := &leaking{pages: [][]dispatcher.Leak{full, {{Kind: dispatcher.LeakCallback}}}}
	r := newRig(t, func(s Store) Store { leaks.Store = s; return leaks })
	for round, calls := range []int{1, 2, 2, 2, 2, 3} { // every 15 s, the second has no full page
		if err := r.round(t.Context(), r.now.Add(time.Duration(round)*15*time.Second)); err != nil {
			t.Fatal(err)
		}
		if leaks.calls != calls {
			t.Errorf("after round %d the store was asked %d times, want %d", round, leaks.calls, calls)
		}
	}
	const want = `
		# HELP carillon_mended_leaks_total Runs that nothing would have let go on and that this node let go, by kind: ` +
		`waiting for a host without probes, or for a callback without a deadline.
		# TYPE carillon_mended_leaks_total counter
		carillon_mended_leaks_total{kind="callback"} 1
		carillon_mended_leaks_total{kind="waiting"} 1000
	`
	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(want), "carillon_mended_leaks_total"); err != nil {
		t.Error(err)
	}
}
