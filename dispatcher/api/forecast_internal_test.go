package api

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/view"
)

// A count that is a little too old is shown at once; one that is much too old, only if the next one takes long.
func TestRequestsWaitForUpcomingFiresOnlyIfOld(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		age  time.Duration
		wait time.Duration
	}{
		{"young", forecastAge - time.Second, 0},
		{"a little too old", 2*forecastAge - time.Second, 0},
		{"much too old", 2 * forecastAge, forecastPatience},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, now := newForecasts(nil, slog.New(slog.DiscardHandler)), time.Now()
				f.apps.Put("crm", &forecast{apps: []string{"crm"}, at: now.Add(-test.age), fires: view.UpcomingFires{Counts: []int64{7}}})
				got := f.latest(t.Context(), []string{"crm"}, now)
				if waited := time.Since(now); waited != test.wait {
					t.Errorf("waited %v, want %v", waited, test.wait)
				}
				if len(got.Counts) != 1 || got.Computing != (test.age >= forecastAge) {
					t.Errorf("got %+v, want the count of before, under way: %v", got, test.age >= forecastAge)
				}
			})
		})
	}
}
