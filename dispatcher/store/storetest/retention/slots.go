package retention

import (
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// A slot that outlived its job could never be released: its release locks the row of the job.
func testRetentionOfSlots(t *testing.T, f *wing) {
	runs := f.Bounded(2, func(j *dispatcher.Job) { j.ConcurrencyPolicy, j.MaxConcurrency = run.ConcurrencyQueue, 2 })
	f.Expect("acquired", f.AcquireSlots(runs...), []int{1, 2})
	f.Waits(runs[1], fixture.WaitOf("tick", "down.example.com"))
	for _, run := range runs {
		f.Must(f.CancelRun(t.Context(), run.String(), fixture.At(fixture.T0)))
	}
	f.Must(f.DeleteJob(t.Context(), "shop", "tick", fixture.At(fixture.T0)))
	f.PurgeAll(fixture.T0.AddDate(0, 0, 60))
	if names, err := f.EveryJobName(t.Context(), "shop", input.Page{Limit: 10}); err != nil || len(names) != 0 {
		t.Fatalf("jobs %v, %v, want the job purged", names, err)
	}
	left, err := f.LeftSlots(t.Context(), fixture.NodeA, dispatcher.SlotKey{}, 10)
	f.Must(err)
	f.Expect("slots that are left", len(left.Runs), 0)
	dropped, err := f.DropHostWait(t.Context(), fixture.WaitOf("tick", "down.example.com").ID)
	f.Must(err)
	f.Expect("a wait that is left", dropped, false)
}
