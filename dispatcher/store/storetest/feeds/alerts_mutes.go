package feeds

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func testAlertMute(t *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.Watched("brief", nil)
	f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	until := fixture.T0.Add(time.Hour)
	_, err := f.MuteAlert(t.Context(), "shop", "night", alert.Mute{Until: &until, Reason: "release"}, fixture.At(fixture.T0))
	f.Must(err)
	f.Ends("sync", run.Failed)
	f.Ends("brief", run.Failed, run.Succeeded)
	f.Expect("what is told while muted", f.told("night"), "")
	f.Expect("events", inAnyOrder(f.alertEvents()),
		"[brief failure firing muted], [brief failure resolved not_told], [sync failure firing muted]")
	states, err := f.AlertStates(t.Context(), alert.StateQuery{App: "shop", Job: "sync", Now: fixture.T0, Page: input.Page{Limit: 9}})
	f.Must(err)
	fixture.WantDiff(t, "until when it is muted", &until, states[0].MutedUntil)
	f.Expect("notifications before the end", f.watch(until.Add(-time.Second)), 0)
	f.Expect("notifications at the end", f.watch(until), 1)
	f.Expect("notifications afterwards", f.watch(until.Add(time.Minute)), 0)
	f.Expect("what is told", f.told("night"), "sync failure firing")

	_, err = f.MuteAlert(t.Context(), "shop", "night", alert.Mute{}, fixture.At(until))
	f.Must(err)
	f.Ends("sync", run.Succeeded)
	_, err = f.UnmuteAlert(t.Context(), "shop", "night", fixture.At(until.Add(time.Hour)))
	f.Must(err)
	f.Expect("notifications when it is unmuted", f.watch(until.Add(time.Hour)), 1)
	f.Expect("what is told in the end", f.told("night"), "sync failure firing, sync failure resolved")
	if _, err := f.MuteAlert(t.Context(), "shop", "night", alert.Mute{Until: &fixture.T0}, fixture.At(until)); err == nil {
		t.Error("MuteAlert takes a time that has passed")
	}
}

func testAlertAcknowledgement(t *testing.T, f *wing) {
	f.Watched("sync", nil)
	a := fixture.Pager("night")
	a.Failure.RepeatEvery = 1
	f.DeclareAlert(a, fixture.T0)
	ack := alert.Acknowledgement{Job: "sync", Until: new(fixture.T0.Add(time.Hour)), Reason: "on it"}
	by := input.Change{Actor: "ann", Now: fixture.T0.Add(time.Minute)}
	if _, err := f.AcknowledgeAlert(t.Context(), "shop", "night", ack, by); !errors.Is(err, dispatcher.ErrConflict) {
		t.Errorf("AcknowledgeAlert of what does not hold: %v", err)
	}
	f.Ends("sync", run.Failed)
	states, err := f.AcknowledgeAlert(t.Context(), "shop", "night", ack, by)
	f.Must(err)
	f.Expect("states that were acknowledged", len(states), 1)
	fixture.WantDiff(t, "who knows", &alert.AcknowledgedAlert{By: "ann", At: by.Now, Until: ack.Until, Reason: "on it"},
		states[0].Acknowledged)
	f.Ends("sync", run.Failed)
	f.Expect("notifications before it ends", f.watch(fixture.T0.Add(time.Hour-time.Second)), 0)
	f.Expect("notifications when it ends", f.watch(fixture.T0.Add(time.Hour)), 1)
	f.Expect("what is told", f.told("night"), "sync failure firing, sync failure acknowledged, sync failure still_firing")
	_, err = f.AcknowledgeAlert(t.Context(), "shop", "night", alert.Acknowledgement{Job: "sync"}, fixture.At(fixture.T0.Add(time.Hour)))
	f.Must(err)
	_, err = f.WithdrawAcknowledgement(t.Context(), "shop", "night", alert.Acknowledgement{Job: "sync", Condition: target.AlertFailure},
		fixture.At(fixture.T0.Add(time.Hour)))
	f.Must(err)
	f.Ends("sync", run.Failed, run.Succeeded)
	f.Expect("the end of what is told", strings.TrimPrefix(f.told("night"),
		"sync failure firing, sync failure acknowledged, sync failure still_firing, "),
		"sync failure acknowledged, sync failure still_firing, sync failure resolved")
}

func testAlertOfDeletedJob(t *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	f.Ends("sync", run.Failed)
	f.Must(f.DeleteJob(t.Context(), "shop", "sync", fixture.At(fixture.T0.Add(time.Hour))))
	f.Expect("what is told", f.told("night"), "sync failure firing, sync failure resolved")
	f.Expect("why", f.notifications("night")[1].Reason, "the job was deleted")
	f.Expect("what holds", f.firing(), "")
	f.Expect("notifications later", f.watch(fixture.T0.Add(48*time.Hour)), 0)
}

func testAlertOfRenamedJob(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	a := fixture.Pager("night")
	a.Jobs = []string{"sync"}
	f.DeclareAlert(a, fixture.T0)
	f.Ends("sync", run.Failed)
	f.Rename("sync", "sync2", nil, fixture.T0.Add(time.Hour))
	f.Expect("notifications after the rename", f.watch(fixture.T0.Add(2*time.Hour)), 0)
	renamed, err := f.Alert(f.Context(), "shop", "night")
	f.Must(err)
	f.Expect("the jobs of the alert", renamed.Jobs, []string{"sync2"})
	f.Expect("what holds", f.firing(), "sync2 failure")
	f.Ends("sync", run.Succeeded) // the trigger keeps its key
	f.Expect("what is told", f.told("night"), "sync failure firing, sync2 failure resolved")

	f.Ends("sync", run.Failed)
	f.Rename("sync2", "sync3", nil, fixture.T0.Add(3*time.Hour))
	f.DeclareAlert(a, fixture.T0.Add(3*time.Hour)) // the old name is declared again
	f.Expect("notifications when the alert names another job", len(f.notifications("night")), 4)
	f.Expect("why", f.notifications("night")[3].Reason, "the alert no longer applies to the job")
}

func testAlertChanged(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	f.Ends("sync", run.Failed)
	other := fixture.Pager("night")
	other.AlertConditionsOf = alert.AlertConditionsOf{Missed: true}
	f.DeclareAlert(other, fixture.T0.Add(90*time.Second))
	f.Expect("what is told when the condition goes", f.told("night"), "sync failure firing, sync failure resolved")
	f.DeclareAlert(fixture.Pager("night"), fixture.T0.Add(90*time.Second))
	f.Ends("sync", run.Failed)
	own := fixture.Pager("own")
	own.Jobs = []string{"sync"}
	f.DeclareAlert(own, fixture.T0.Add(3*time.Minute)) // the job has no default any more
	f.Expect("what is told when another alert takes the job", f.told("night"),
		"sync failure firing, sync failure resolved, sync failure firing, sync failure resolved")
}

func testAlertDeleted(t *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	f.Ends("sync", run.Failed)
	f.Must(f.DeleteAlert(t.Context(), "shop", "night", fixture.At(fixture.T0.Add(time.Hour))))
	f.Expect("what holds", f.firing(), "")
	f.Expect("events", f.alertEvents(), "sync failure firing")
	f.Ends("sync", run.Failed, run.Succeeded)
	f.Expect("events afterwards", f.alertEvents(), "sync failure firing")
	f.Expect("notifications afterwards", f.watch(fixture.T0.Add(48*time.Hour)), 0)
}

func testAlertUndelivered(t *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	f.Ends("sync", run.Failed)
	held := f.AdoptIdle(fixture.NodeA, fixture.T0.Add(time.Hour))
	f.Expect("runs to deliver", len(held), 1)
	o := fixture.Ended(run.Failed, fixture.T0.Add(time.Hour))
	r := fixture.Record(held[0], o)
	r.Followed = true
	f.Must(f.Record(t.Context(), []dispatcher.Record{r}))
	f.Expect("runs that follow a failed delivery", f.FollowAll(fixture.T0.Add(time.Hour)), 0)
	states, err := f.AlertStates(t.Context(), alert.StateQuery{App: "shop", Now: fixture.T0, Page: input.Page{Limit: 9}})
	f.Must(err)
	fixture.WantDiff(t, "what became of the notification", &alert.Delivery{Run: held[0].String(), Transition: target.AlertFiring,
		At: held[0].ScheduledAt, To: "https://pager.example.com/ (carillon)", State: run.Failed, Class: run.ClassHTTP5xx, Error: "broken"},
		states[0].Notification)
	f.Expect("who knows that somebody was told", states[0].Notification.Fails(), true)
	attention, err := f.Attention(t.Context(), nil, fixture.T0.Add(time.Hour))
	f.Must(err)
	fixture.WantDiff(t, "what attention says of it", states[0].Notification, attention.Alerts.Items[0].Notification)
	f.Expect("alerts of attention that did not arrive", len(attention.Undelivered()), 1)
	events, err := f.AlertEvents(t.Context(), alert.EventQuery{App: "shop", Page: input.Page{Limit: 9}})
	f.Must(err)
	f.Expect("whether the event says that somebody was told", events[0].Notified, false)
	fixture.WantDiff(t, "what the event says", states[0].Notification, events[0].Notification)
	f.Expect("counted", f.undelivered(), map[run.State]int{run.Failed: 1})
	f.Ends("sync", run.Succeeded)
	told := f.adoptNotifications(fixture.T0.Add(2 * time.Hour))
	f.Must(f.Record(t.Context(), []dispatcher.Record{fixture.Record(told[0], fixture.Outcome(fixture.T0.Add(2*time.Hour)))}))
	f.Expect("counted after the next notification", f.undelivered(), map[run.State]int{})
}

// undelivered returns the alerts that the census counts as undelivered.
func (f *wing) undelivered() map[run.State]int {
	f.Helper()
	c, err := f.Census(f.Context(), fixture.T0, 100)
	f.Must(err)
	return c.Undelivered
}

// A job that fails has no success and may be late. That is told only if it outlasts the failure.
func testAlertOfFailingJob(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	a := fixture.Pager("night")
	a.NoSuccessFor, a.LateAfter = input.Duration(2*time.Minute), input.Duration(30*time.Second)
	f.DeclareAlert(a, fixture.T0)
	f.Ends("sync", run.Failed, run.Failed, run.Failed)
	late := f.FireOf("sync")
	at := late.ScheduledAt
	f.Waits(late, fixture.WaitOf("sync", "down.example.com"))
	f.Expect("notifications while it fails", f.watch(at.Add(40*time.Second)), 0)
	f.Expect("events", inAnyOrder(f.alertEvents()), "[sync late firing failing], [sync no_success firing failing], sync failure firing")
	_, err := f.AcknowledgeAlert(f.Context(), "shop", "night", alert.Acknowledgement{Job: "sync"}, fixture.At(at.Add(41*time.Second)))
	f.Must(err)
	f.Expect("what an acknowledgement tells", f.told("night"), "sync failure firing, sync failure acknowledged")
	_, err = f.WithdrawAcknowledgement(f.Context(), "shop", "night", alert.Acknowledgement{Job: "sync"}, fixture.At(at.Add(42*time.Second)))
	f.Must(err)
	f.Ends("sync", run.Succeeded)
	const told = "sync failure firing, sync failure acknowledged, sync failure resolved"
	f.Expect("what is told once it succeeds", f.told("night"), told)
	f.Expect("notifications of the run that still waits", f.watch(at.Add(2*time.Minute)), 1)
	f.Expect("what is told in the end", f.told("night"), told+", sync late firing")
}

// A notification that waits for its next attempt is not lost with a rollback.
func testAlertAfterRollback(t *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	at := f.Ends("sync", run.Failed).ScheduledAt.Add(time.Minute)
	f.fails(f.adoptNotifications(at)[0], at)
	f.Expect("undelivered", f.undelivered(), map[run.State]int{run.Retrying: 1})
	f.Must(f.DeclareRollback(t.Context(), "restored", fixture.At(at)))
	f.Must(f.ResolveRollback(t.Context(), dispatcher.RollbackSkip, fixture.At(at)))
	for after, more := int64(0), true; more; {
		done, err := f.SkipRolledBack(t.Context(), after, 10, at)
		f.Must(err)
		after, more = done.Last, done.More
	}
	again := f.adoptNotifications(at.Add(2 * time.Minute))
	f.Expect("notifications that are attempted again", len(again), 1)
	f.Must(f.Record(t.Context(), []dispatcher.Record{fixture.Record(again[0], fixture.Outcome(at))}))
	events, err := f.AlertEvents(t.Context(), alert.EventQuery{App: "shop", Page: input.Page{Limit: 9}})
	f.Must(err)
	f.Expect("whether the event says that somebody was told", events[0].Notified, true)
}
