package feeds

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// lateAlert puts an alert for fires that are late by more than ten seconds.
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
	f.Expect("why", strings.HasPrefix(f.notifications("night")[0].Error, "it waits for a slot of its job, which run "+runs[0].String()), true)
	n := f.notifications("night")[0]
	f.Expect("the run", n.Run, waits.String())
	f.Expect("how late it is", n.LateBy, input.Duration(11*time.Second))
}

// A later fire that begins in time does not end the alert of a run that still waits.
func testAlertLateUntilItBegins(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.lateAlert()
	waits := f.FireOf("sync")
	f.Waits(waits, fixture.WaitOf("sync", "down.example.com"))
	at := waits.ScheduledAt
	f.Expect("notifications once it is late", f.watch(at.Add(11*time.Second)), 1)
	f.Ends("sync", run.Succeeded, run.Succeeded)
	f.Expect("notifications once later fires began in time", f.watch(at.Add(2*time.Minute)), 0)
	f.Must(f.CancelRun(f.Context(), waits.String(), fixture.At(at.Add(2*time.Minute))))
	f.Expect("notifications once it was given up", f.watch(at.Add(3*time.Minute)), 1)
	f.Expect("what is told", f.told("night"), "sync late firing, sync late resolved")
	next := f.FireOf("sync")
	f.Waits(next, fixture.WaitOf("sync", "down.example.com"))
	f.Expect("notifications of one that is late soon after", f.watch(at.Add(4*time.Minute)), 0)
	f.Expect("events", f.alertEvents(), "sync late firing, sync late resolved, [sync late firing too_soon]")
	f.Expect("notifications while it waits for minutes", f.watch(at.Add(8*time.Minute)), 1)
}

// testAlertLateRetried: how late a fire began is that of its first attempt.
func testAlertLateRetried(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.lateAlert()
	fire := f.FireOf("sync")
	f.fails(fire, fire.ScheduledAt)
	retry := f.AdoptRetries(fire.ScheduledAt.Add(time.Minute))[0]
	f.RecordFollowed(retry, fixture.Ended(run.Succeeded, fire.ScheduledAt.Add(time.Minute)))
	f.FollowAll(fire.ScheduledAt.Add(2 * time.Minute))
	f.Expect("events", f.alertEvents(), "")
}

// testAlertLateWhileFailing: the failure that was told explains that the run before the recovery waited.
func testAlertLateWhileFailing(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	a := fixture.Pager("night")
	a.LateAfter = input.Duration(10 * time.Second)
	f.DeclareAlert(a, fixture.T0)
	f.Ends("sync", run.Failed)
	waits := f.FireOf("sync")
	begun := waits.ScheduledAt.Add(11 * time.Second)
	f.RecordFollowed(waits, fixture.Ended(run.Succeeded, begun))
	f.FollowAll(begun)
	f.Expect("events", f.alertEvents(), "sync failure firing, sync failure resolved")
	after := f.FireOf("sync")
	f.RecordFollowed(after, fixture.Ended(run.Succeeded, after.ScheduledAt.Add(11*time.Second)))
	f.FollowAll(after.ScheduledAt.Add(time.Minute))
	f.Expect("events once one began late by itself", f.alertEvents(),
		"sync failure firing, sync failure resolved, sync late firing")
}

// testAlertLateThenMissed: the end is told once the fire is settled, not at the next look.
func testAlertLateThenMissed(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.lateAlert()
	first := fixture.Minutes(1)
	f.Expect("notifications once it is late", f.watch(first.Add(11*time.Second)), 1)
	settled := first.Add(12 * time.Second)
	f.SettleAll("sync", settled)
	f.FollowAll(settled)
	f.Expect("notifications once it counts as missed", f.watch(settled.Add(time.Second)), 1)
	f.Expect("what is told", f.told("night"), "sync late firing, sync late resolved")
}

// More jobs than a page wait for their host; those held by a pause are not notified.
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
	f.Expect("runs that tell that they are late, of three and of one", f.watch(scheduled.Add(11*time.Second)), 2)
	f.Expect("what holds", f.firing(), "a late, b late, d late, e late")
	_, err = f.PauseJob(f.Context(), "shop", "c", "", false, input.Change{Now: scheduled.Add(20 * time.Second)})
	f.Must(err)
	f.Expect("notifications once a paused one is late since its pause", f.watch(scheduled.Add(31*time.Second)), 1)
}

func testAlertLate(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.lateAlert()
	first := f.FireOf("sync")
	f.RecordFollowed(first, fixture.Ended(run.Failed, first.ScheduledAt.Add(time.Minute)))
	f.FollowAll(first.ScheduledAt.Add(2 * time.Minute))
	f.Expect("what is told of a run that began late", f.told("night"), "sync late firing")
	f.Expect("how late it was", f.notifications("night")[0].LateBy, input.Duration(time.Minute))
	f.Expect("what is told of its failure, which is another condition", f.notifications("night")[0].Error, "")
	f.Ends("sync", run.Succeeded)
	f.Expect("what is told of one in time", f.told("night"), "sync late firing, sync late resolved")
}

func testAlertLateNotBegun(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.lateAlert()
	due := fixture.T0.Add(time.Minute)
	f.Expect("notifications before the fire is late", f.watch(due.Add(10*time.Second)), 0)
	f.Expect("notifications when it is", f.watch(due.Add(11*time.Second)), 1)
	f.Expect("notifications while it is", f.watch(due.Add(20*time.Second)), 0)
	n := f.notifications("night")[0]
	f.Expect("which fire it is", n.Trigger+" "+input.FormatInstant(*n.ScheduledAt), "tick "+input.FormatInstant(due))
	f.Expect("its run, which is not there yet", n.Run, "")
	f.Expect("what is told in words", n.Title(), "Job shop/sync is late by 11s: no node has claimed it")
	f.RecordFollowed(f.FireOf("sync"), fixture.Ended(run.Succeeded, due.Add(25*time.Second)))
	f.FollowAll(due.Add(26 * time.Second))
	f.Expect("notifications once it has begun", f.watch(due.Add(30*time.Second)), 1)
	f.Expect("what is told", f.told("night"), "sync late firing, sync late resolved")
}

// Fires that a pause of the job or of its app has held are not notified as late, until they are late again afterwards.
func testAlertLateAfterPause(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	a := fixture.Pager("night")
	a.AlertConditionsOf = alert.AlertConditionsOf{LateAfter: input.Duration(10 * time.Second)}
	f.DeclareAlert(a, fixture.T0)
	pause, err := f.PauseApp(f.Context(), "shop", dispatcher.AppPauseRequest{}, input.Change{Now: fixture.T0.Add(30 * time.Second)})
	f.Must(err)
	f.Expect("notifications while a pause holds", f.watch(fixture.T0.Add(2*time.Minute)), 0)
	resumed := fixture.T0.Add(3 * time.Minute)
	f.Must(f.EndAppPause(f.Context(), "shop", pause.ID, input.Change{Now: resumed}))
	f.Expect("notifications while what a pause has held may begin", f.watch(resumed.Add(10*time.Second)), 0)
	held := f.FireOf("sync")
	f.RecordFollowed(held, fixture.Ended(run.Succeeded, resumed.Add(9*time.Second)))
	f.FollowAll(resumed.Add(9 * time.Second))
	f.Expect("what is told of a run that a pause has held", f.told("night"), "")
	f.Expect("notifications once the next fire is late since the pause", f.watch(resumed.Add(11*time.Second)), 1)
	f.Expect("how late it is", f.notifications("night")[0].LateBy, input.Duration(11*time.Second))
}
