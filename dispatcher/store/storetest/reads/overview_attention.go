package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// attention returns what asks for attention in some apps at a time, as words: of each kind what it is about.
func (f *fixture) attention(now time.Time, apps ...string) string {
	f.Helper()
	a, err := f.Attention(f.Context(), apps, now)
	f.must(err)
	var all []string
	add := func(kind string, format string, args ...any) {
		all = append(all, kind+" "+fmt.Sprintf(format, args...))
	}
	for _, r := range a.Failed.Items {
		add("failed", "%s %s", r.Job, r.State)
	}
	for _, m := range a.Misfires.Items {
		add("missed", "%s %d", m.Job, m.Count)
	}
	for _, t := range a.Overdue.Items {
		add("overdue", "%s/%s %s", t.Job, t.Trigger, t.Overdue)
	}
	for _, t := range a.Quarantined.Items {
		add("error", "%s/%s %s", t.Job, t.Trigger, t.Error)
	}
	for _, p := range a.Paused.Items {
		add("paused", "%s/%s/%s %s by %s: %s", p.App, p.Job, p.Trigger, p.Labels, p.PausedBy, p.PauseReason)
	}
	for _, s := range a.Alerts.Items {
		add("alert", "%s/%s %s %s", s.App, s.Alert, s.Job, s.Condition)
	}
	for _, c := range a.Circuits.Items {
		add("circuit", "%s %s %d %s: %d since %s: %s", c.App, c.Host, c.Jobs, c.Job, c.Runs, c.Since.Format("15:04"), c.Error)
	}
	for _, s := range a.Objectives.Items {
		add("budget", "%s/%s %.0f", s.App, s.Job, s.BurnRates["1h"])
	}
	for _, e := range a.SetAside.Items {
		add("set aside", "%s/%s %d %s", e.App, e.Job, e.Tries, e.Problem)
	}
	for _, n := range a.Nodes {
		add("node", "%s %v", n.ID, n.Reasons)
	}
	if a.MoreNodes > 0 {
		add("nodes", "%d more", a.MoreNodes)
	}
	if a.Rollback != nil {
		add("rollback", "%s", a.Rollback.Reason)
	}
	return strings.Join(all, "\n")
}

// trouble brings about one thing of each kind in app "shop", by t0 plus an hour.
func (f *fixture) trouble() {
	f.Helper()
	for _, state := range []run.State{run.Failed, run.Succeeded, run.TimedOut} {
		f.deadLetters("bad", state)
	}
	byAnn := input.Change{Actor: "ann", Reason: "it fails", Now: t0.Add(20 * time.Minute)}
	f.must(f.PauseJob(f.Context(), "shop", "bad", "", true, byAnn))
	f.putEvery("missed", time.Minute)
	f.settleAll("missed", minutes(30))
	f.must(f.PauseJob(f.Context(), "shop", "missed", "tick", true, input.Change{Actor: "bob", Now: t0.Add(10 * time.Minute)}))
	waiting := f.claimOne("waits")
	f.waits(waiting, waitOf("waits", "down.example.com"))
	broken := f.putEvery("broken", time.Minute)
	f.must(f.Quarantine(f.Context(), run.TriggerID("shop", "broken", "tick"), broken.Revision, "no such zone"))
	f.must(f.PauseApp(f.Context(), "shop", dispatcher.AppPauseRequest{Labels: input.Labels{"team": "x"}, Reason: "move"},
		input.Change{Actor: "eve", Now: t0.Add(5 * time.Minute)}))
}

const troubleOfShop = `failed bad timed_out
failed bad failed
missed missed 30
overdue waits/tick 58m0s
error broken/tick no such zone
paused shop// team=x by eve: move
paused shop/missed/tick  by bob: 
paused shop/bad/  by ann: it fails
circuit shop down.example.com 1 waits: 1 since 10:01: the host is down`

func testAttention(t *testing.T, f *fixture) {
	f.expect("nothing", f.attention(t0), "")
	f.trouble()
	f.expect("an hour later", f.attention(minutes(60), "shop"), troubleOfShop)
	f.expect("in all apps", f.attention(minutes(60)), troubleOfShop)
	f.expect("a day after the latest failure", strings.HasPrefix(f.attention(minutes(24*60+31)), "overdue"), true)
	f.must(f.DeclareRollback(t.Context(), "restored", at(minutes(61))))
	f.expect("after a rollback", strings.HasSuffix(f.attention(minutes(62)), "node 000000000000000a [paused]\nrollback restored"), true)
	f.expect("of an app after a rollback", strings.Contains(f.attention(minutes(62), "shop"), "rollback"), false)
	// What is in order again asks for no attention.
	f.must(f.PauseJob(t.Context(), "shop", "bad", "", false, at(minutes(61))))
	f.must(f.PauseJob(t.Context(), "shop", "broken", "", false, at(minutes(61))))
	f.must(f.DeleteJob(t.Context(), "shop", "missed", at(minutes(61))))
	left := f.attention(minutes(62), "shop")
	f.expect("pauses that ended", strings.Contains(left, "by ann") || strings.Contains(left, "by bob"), false)
	f.expect("triggers that were resumed", strings.Contains(left, "error broken"), false)
}

func testAttentionOfApp(_ *testing.T, f *fixture) {
	f.putApp("quiet")
	f.trouble()
	f.putAlert(pager("night"), t0)
	f.ends("waits", run.Failed)
	f.expect("of another app", f.attention(minutes(60), "quiet"), "")
	f.expect("the alert", strings.Contains(f.attention(minutes(60), "quiet", "shop"), "alert shop/night waits failure"), true)
}

func testAttentionObjectives(_ *testing.T, f *fixture) {
	f.punctual(time.Second)
	f.expect("before anything is counted", f.attention(t0), "")
	f.burn("tick", 15)
	f.expect("while it burns", strings.HasSuffix(f.attention(minutes(16), "shop"), "budget shop/tick 10"), true)
	f.expect("in the eyes of another app", f.attention(minutes(16), "other"), "")
	for range 31 {
		f.ends("tick", run.Succeeded) // up to minute 46
	}
	f.roll(minutes(57))
	f.expect("when it no longer burns", strings.Contains(f.attention(minutes(57), "shop"), "budget"), false)
}

func testAttentionNodes(t *testing.T, f *fixture) {
	report := dispatcher.NodeReport{Lag: input.Duration(2 * time.Second), ClockOffset: input.Duration(-time.Second)}
	f.must(f.Heartbeat(t.Context(), nodeA, report, t0))
	f.expect("a node that is not well", f.attention(t0), "node 000000000000000a [saturated clock]")
	f.expect("as others see it", f.attention(t0, "shop"), "")
	f.must(f.Deregister(t.Context(), nodeA))
	f.expect("a node that left", f.attention(t0), "")
	f.register(nodeB)
	f.register(nodeC)
	alive := f.Heartbeat
	reply, err := alive(t.Context(), nodeC, dispatcher.NodeReport{}, t0.Add(time.Hour))
	f.must(err)
	f.must(f.MarkDead(t.Context(), nodeC, reply.At, time.Minute, t0.Add(time.Hour)))
	f.expect("a node that vanished", f.attention(t0), "node 000000000000000b [dead]")
	f.expect("a day later", f.attention(minutes(24*60+1)), "nodes 1 more")
	for n := range run.NodeID(view.MaxAttention + 2) {
		f.register(100 + n)
	}
	f.must(f.MarkDead(t.Context(), nodeC, reply.At, time.Minute, t0.Add(time.Hour)))
	a, err := f.Attention(t.Context(), nil, t0)
	f.must(err)
	if len(a.Nodes) != view.MaxAttention || a.MoreNodes != 3 {
		t.Errorf("of %d nodes that vanished %d are listed, and %d are told of, want %d and 3", view.MaxAttention+3, len(a.Nodes),
			a.MoreNodes, view.MaxAttention)
	}
}

func testAttentionBounds(t *testing.T, f *fixture) {
	for n := range view.MaxAttention + 1 {
		name := fmt.Sprintf("j%02d", n)
		f.putEvery(name, time.Minute)
		if n%2 == 0 {
			f.must(f.PauseJob(t.Context(), "shop", name, "", true, at(t0.Add(time.Duration(n)*time.Second))))
		} else {
			f.must(f.PauseJob(t.Context(), "shop", name, "tick", true, at(t0.Add(time.Duration(n)*time.Second))))
		}
	}
	a, err := f.Attention(t.Context(), nil, t0.Add(time.Hour))
	f.must(err)
	if len(a.Paused.Items) != view.MaxAttention || !a.Paused.More ||
		a.Paused.Items[1].Job != "j01" || a.Paused.Items[1].Trigger != "tick" {
		t.Errorf("got %d pauses, more %v, the second %+v, want %d, more, and j01/tick", len(a.Paused.Items), a.Paused.More, a.Paused.Items[1],
			view.MaxAttention)
	}
}

func testUpcomingTriggers(t *testing.T, f *fixture) {
	f.putApp("billing")
	f.putIn("billing", "a", nil)
	f.putIn("shop", "b", func(j *dispatcher.Job) { j.Triggers["second"] = every(time.Hour, t0.Add(2*time.Hour)) })
	f.putIn("shop", "paused", nil)
	f.must(f.PauseJob(t.Context(), "shop", "paused", "", true, at(t0)))
	f.putIn("shop", "off", func(j *dispatcher.Job) { j.Enabled = false })
	list := func(until time.Time, apps ...string) map[string]int64 {
		found, after := map[string]int64{}, int64(-1<<63)
		for {
			page, err := f.UpcomingTriggers(t.Context(), apps, until, after, 1)
			f.must(err)
			if len(page) == 0 {
				return found
			}
			after = page[0].ID
			found[page[0].App+" "+page[0].Identity] = int64(page[0].Trigger.NextFireTime.Sub(t0).Hours())
		}
	}
	all := map[string]int64{"billing billing/a/tick": 1, "shop shop/b/tick": 1, "shop shop/b/second": 2}
	if diff := cmp.Diff(all, list(minutes(121))); diff != "" {
		t.Error("all apps (-want +got):\n" + diff)
	}
	if diff := cmp.Diff(map[string]int64{"billing billing/a/tick": 1}, list(minutes(61), "billing", "other")); diff != "" {
		t.Error("one app (-want +got):\n" + diff)
	}
	if diff := cmp.Diff(map[string]int64{}, list(minutes(60))); diff != "" {
		t.Error("before the first (-want +got):\n" + diff)
	}
}
