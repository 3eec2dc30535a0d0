package storetest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func testAlertMute(t *testing.T, f *fixture) {
	f.watched("sync", nil)
	f.watched("brief", nil)
	f.putAlert(pager("night"), t0)
	until := t0.Add(time.Hour)
	_, err := f.MuteAlert(t.Context(), "shop", "night", alert.Mute{Until: &until, Reason: "release"}, at(t0))
	f.must(err)
	f.ends("sync", run.Failed)
	f.ends("brief", run.Failed, run.Succeeded)
	f.expect("what is told while muted", f.told("night"), "")
	f.expect("events", inAnyOrder(f.alertEvents()),
		"[brief failure firing muted], [brief failure resolved not_told], [sync failure firing muted]")
	states, err := f.AlertStates(t.Context(), alert.StateQuery{App: "shop", Job: "sync", Now: t0, Page: input.Page{Limit: 9}})
	f.must(err)
	wantDiff(t, "until when it is muted", &until, states[0].MutedUntil)
	f.expect("notifications before the end", f.watch(until.Add(-time.Second)), 0)
	f.expect("notifications at the end", f.watch(until), 1)
	f.expect("notifications afterwards", f.watch(until.Add(time.Minute)), 0)
	f.expect("what is told", f.told("night"), "sync failure firing")

	_, err = f.MuteAlert(t.Context(), "shop", "night", alert.Mute{}, at(until))
	f.must(err)
	f.ends("sync", run.Succeeded)
	_, err = f.UnmuteAlert(t.Context(), "shop", "night", at(until.Add(time.Hour)))
	f.must(err)
	f.expect("notifications when it is unmuted", f.watch(until.Add(time.Hour)), 1)
	f.expect("what is told in the end", f.told("night"), "sync failure firing, sync failure resolved")
	if _, err := f.MuteAlert(t.Context(), "shop", "night", alert.Mute{Until: &t0}, at(until)); err == nil {
		t.Error("MuteAlert takes a time that has passed")
	}
}

func testAlertAcknowledgement(t *testing.T, f *fixture) {
	f.watched("sync", nil)
	a := pager("night")
	a.Failure.RepeatEvery = 1
	f.putAlert(a, t0)
	ack := alert.Acknowledgement{Job: "sync", Until: new(t0.Add(time.Hour)), Reason: "on it"}
	by := input.Change{Actor: "ann", Now: t0.Add(time.Minute)}
	if _, err := f.AcknowledgeAlert(t.Context(), "shop", "night", ack, by); !errors.Is(err, dispatcher.ErrConflict) {
		t.Errorf("AcknowledgeAlert of what does not hold: %v", err)
	}
	f.ends("sync", run.Failed)
	states, err := f.AcknowledgeAlert(t.Context(), "shop", "night", ack, by)
	f.must(err)
	f.expect("states that were acknowledged", len(states), 1)
	wantDiff(t, "who knows", &alert.AcknowledgedAlert{By: "ann", At: by.Now, Until: ack.Until, Reason: "on it"}, states[0].Acknowledged)
	f.ends("sync", run.Failed)
	f.expect("notifications before it ends", f.watch(t0.Add(time.Hour-time.Second)), 0)
	f.expect("notifications when it ends", f.watch(t0.Add(time.Hour)), 1)
	f.expect("what is told", f.told("night"), "sync failure firing, sync failure acknowledged, sync failure still_firing")
	_, err = f.AcknowledgeAlert(t.Context(), "shop", "night", alert.Acknowledgement{Job: "sync"}, at(t0.Add(time.Hour)))
	f.must(err)
	_, err = f.WithdrawAcknowledgement(t.Context(), "shop", "night", "sync", target.AlertFailure, at(t0.Add(time.Hour)))
	f.must(err)
	f.ends("sync", run.Failed, run.Succeeded)
	f.expect("the end of what is told", strings.TrimPrefix(f.told("night"),
		"sync failure firing, sync failure acknowledged, sync failure still_firing, "),
		"sync failure acknowledged, sync failure still_firing, sync failure resolved")
}

func testAlertOfDeletedJob(t *testing.T, f *fixture) {
	f.watched("sync", nil)
	f.putAlert(pager("night"), t0)
	f.ends("sync", run.Failed)
	f.must(f.DeleteJob(t.Context(), "shop", "sync", at(t0.Add(time.Hour))))
	f.expect("what is told", f.told("night"), "sync failure firing, sync failure resolved")
	f.expect("why", f.notifications("night")[1].Reason, "the job was deleted")
	f.expect("what holds", f.firing(), "")
	f.expect("notifications later", f.watch(t0.Add(48*time.Hour)), 0)
}

func testAlertOfRenamedJob(_ *testing.T, f *fixture) {
	f.watched("sync", nil)
	a := pager("night")
	a.Jobs = []string{"sync"}
	f.putAlert(a, t0)
	f.ends("sync", run.Failed)
	f.rename("sync", "sync2", nil, t0.Add(time.Hour))
	f.expect("notifications after the rename", f.watch(t0.Add(2*time.Hour)), 0)
	renamed, err := f.Alert(f.Context(), "shop", "night")
	f.must(err)
	f.expect("the jobs of the alert", renamed.Jobs, []string{"sync2"})
	f.expect("what holds", f.firing(), "sync2 failure")
	f.ends("sync", run.Succeeded) // the trigger keeps its key
	f.expect("what is told", f.told("night"), "sync failure firing, sync2 failure resolved")

	f.ends("sync", run.Failed)
	f.rename("sync2", "sync3", nil, t0.Add(3*time.Hour))
	f.putAlert(a, t0.Add(3*time.Hour)) // somebody declares the old name
	f.expect("notifications when the alert names another job", len(f.notifications("night")), 4)
	f.expect("why", f.notifications("night")[3].Reason, "the alert no longer applies to the job")
}

func testAlertChanged(_ *testing.T, f *fixture) {
	f.watched("sync", nil)
	f.putAlert(pager("night"), t0)
	f.ends("sync", run.Failed)
	other := pager("night")
	other.AlertConditionsOf = alert.AlertConditionsOf{Missed: true}
	f.putAlert(other, t0.Add(90*time.Second))
	f.expect("what is told when the condition goes", f.told("night"), "sync failure firing, sync failure resolved")
	f.putAlert(pager("night"), t0.Add(90*time.Second))
	f.ends("sync", run.Failed)
	own := pager("own")
	own.Jobs = []string{"sync"}
	f.putAlert(own, t0.Add(3*time.Minute)) // the job has no default any more
	f.expect("what is told when another alert takes the job", f.told("night"),
		"sync failure firing, sync failure resolved, sync failure firing, sync failure resolved")
}

func testAlertDeleted(t *testing.T, f *fixture) {
	f.watched("sync", nil)
	f.putAlert(pager("night"), t0)
	f.ends("sync", run.Failed)
	f.must(f.DeleteAlert(t.Context(), "shop", "night", at(t0.Add(time.Hour))))
	f.expect("what holds", f.firing(), "")
	f.expect("events", f.alertEvents(), "sync failure firing")
	f.ends("sync", run.Failed, run.Succeeded)
	f.expect("events afterwards", f.alertEvents(), "sync failure firing")
	f.expect("notifications afterwards", f.watch(t0.Add(48*time.Hour)), 0)
}

func testAlertUndelivered(t *testing.T, f *fixture) {
	f.watched("sync", nil)
	f.putAlert(pager("night"), t0)
	f.ends("sync", run.Failed)
	held := f.adoptIdle(nodeA, t0.Add(time.Hour))
	f.expect("runs to deliver", len(held), 1)
	o := ended(run.Failed, t0.Add(time.Hour))
	r := record(held[0], o)
	r.Followed = true
	f.must(f.Record(t.Context(), []dispatcher.Record{r}))
	f.expect("runs that follow a failed delivery", f.followEnds(t0.Add(time.Hour)), 0)
	states, err := f.AlertStates(t.Context(), alert.StateQuery{App: "shop", Now: t0, Page: input.Page{Limit: 9}})
	f.must(err)
	wantDiff(t, "what became of the notification", &alert.Delivery{Run: held[0].String(), Transition: target.AlertFiring,
		At: held[0].ScheduledAt, State: run.Failed, Class: run.ClassHTTP5xx, Error: "broken"}, states[0].Notification)
}
