package feeds

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// lateAlert puts an alert of fires that are late by more than ten seconds.
func (f *wing) lateAlert() {
	f.Helper()
	a := fixture.Pager("night")
	a.AlertConditionsOf = alert.AlertConditionsOf{LateAfter: input.Duration(10 * time.Second)}
	f.DeclareAlert(a, fixture.T0)
}

// A run that waits for its slot has not begun, although a node has claimed its fire.
func testAlertLateInQueue(_ *testing.T, f *wing) {
	runs := f.Bounded(2, func(j *dispatcher.Job) { j.ConcurrencyPolicy, j.QueueLimit = run.ConcurrencyQueue, 9 })
	f.lateAlert()
	f.Expect("runs with a slot", f.AcquireSlots(runs...), []int{1})
	waits := runs[1]
	f.Expect("notifications in time", f.watch(waits.ScheduledAt.Add(10*time.Second)), 0)
	f.Expect("notifications once the run that waits is late", f.watch(waits.ScheduledAt.Add(11*time.Second)), 1)
	f.Expect("notifications while it waits", f.watch(waits.ScheduledAt.Add(20*time.Second)), 0)
	f.Expect("what is told", f.told("night"), "tick late firing")
	n := f.notifications("night")[0]
	f.Expect("the run", n.Run, waits.String())
	f.Expect("how late it is", n.LateBy, input.Duration(11*time.Second))
}

// More jobs than a page has wait for their host; those that a pause holds are not told.
func testAlertLateForHost(_ *testing.T, f *wing) {
	jobs := []string{"a", "b", "c", "d", "e"}
	for _, name := range jobs {
		f.Watched(name, nil)
	}
	f.lateAlert()
	var scheduled time.Time
	for _, name := range jobs {
		held := f.FireOf(name)
		scheduled = held.ScheduledAt
		f.Waits(held, fixture.WaitOf(name, "down.example.com"))
	}
	_, err := f.PauseJob(f.Context(), "shop", "c", "", true, fixture.At(fixture.T0))
	f.Must(err)
	f.Expect("notifications in time", f.watch(scheduled.Add(10*time.Second)), 0)
	f.Expect("notifications once the runs are late", f.watch(scheduled.Add(11*time.Second)), 4)
	f.Expect("what holds", f.firing(), "a late, b late, d late, e late")
	_, err = f.PauseJob(f.Context(), "shop", "c", "", false, input.Change{Now: scheduled.Add(20 * time.Second)})
	f.Must(err)
	f.Expect("notifications once a paused one is late since its pause", f.watch(scheduled.Add(31*time.Second)), 1)
}
