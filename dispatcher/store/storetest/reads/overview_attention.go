package reads

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// attention returns the attention of some apps at a time, as text: the subjects of each kind.
func (f *wing) attention(now time.Time, apps ...string) string {
	f.Helper()
	a, err := f.Attention(f.Context(), apps, now)
	f.Must(err)
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

// trouble causes one problem of each kind in the app "shop", by T0 plus an hour.
func (f *wing) trouble() {
	f.Helper()
	for _, state := range []run.State{run.Failed, run.Succeeded, run.TimedOut} {
		f.DeadLettersOf("bad", state)
	}
	byAnn := input.Change{Actor: "ann", Reason: "it fails", Now: fixture.T0.Add(20 * time.Minute)}
	f.Must(f.PauseJob(f.Context(), "shop", "bad", "", true, byAnn))
	f.PutEvery("missed", time.Minute)
	f.SettleAll("missed", fixture.Minutes(30))
	f.Must(f.PauseJob(f.Context(), "shop", "missed", "tick", true, input.Change{Actor: "bob", Now: fixture.T0.Add(10 * time.Minute)}))
	waiting := f.ClaimOne("waits")
	f.Waits(waiting, fixture.WaitOf("waits", "down.example.com"))
	broken := f.PutEvery("broken", time.Minute)
	f.Must(f.Quarantine(f.Context(), run.TriggerID("shop", "broken", "tick"), broken.Revision, "no such zone"))
	f.Must(f.PauseApp(f.Context(), "shop", dispatcher.AppPauseRequest{Labels: input.Labels{"team": "x"}, Reason: "move"},
		input.Change{Actor: "eve", Now: fixture.T0.Add(5 * time.Minute)}))
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

func testAttention(t *testing.T, f *wing) {
	f.Expect("nothing", f.attention(fixture.T0), "")
	f.trouble()
	f.Expect("an hour later", f.attention(fixture.Minutes(60), "shop"), troubleOfShop)
	f.Expect("in all apps", f.attention(fixture.Minutes(60)), troubleOfShop)
	f.Expect("a day after the latest failure", strings.HasPrefix(f.attention(fixture.Minutes(24*60+31)), "overdue"), true)
	f.Must(f.DeclareRollback(t.Context(), "restored", fixture.At(fixture.Minutes(61))))
	f.Expect("after a rollback", strings.HasSuffix(f.attention(fixture.Minutes(62)), "node 000000000000000a [paused]\nrollback restored"),
		true)
	f.Expect("of an app after a rollback", strings.Contains(f.attention(fixture.Minutes(62), "shop"), "rollback"), false)
	// Solved problems need no attention.
	f.Must(f.PauseJob(t.Context(), "shop", "bad", "", false, fixture.At(fixture.Minutes(61))))
	f.Must(f.PauseJob(t.Context(), "shop", "broken", "", false, fixture.At(fixture.Minutes(61))))
	f.Must(f.DeleteJob(t.Context(), "shop", "missed", fixture.At(fixture.Minutes(61))))
	left := f.attention(fixture.Minutes(62), "shop")
	f.Expect("pauses that ended", strings.Contains(left, "by ann") || strings.Contains(left, "by bob"), false)
	f.Expect("triggers that were resumed", strings.Contains(left, "error broken"), false)
}

func testAttentionOfApp(_ *testing.T, f *wing) {
	f.DeclareApp("quiet")
	f.trouble()
	f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	f.Ends("waits", run.Failed)
	f.Expect("of another app", f.attention(fixture.Minutes(60), "quiet"), "")
	f.Expect("the alert", strings.Contains(f.attention(fixture.Minutes(60), "quiet", "shop"), "alert shop/night waits failure"), true)
}

// testAttentionUnserved: fires that wait for a node with labels that no live node has are among the oldest.
func testAttentionUnserved(_ *testing.T, f *wing) {
	f.PutEvery("served", time.Minute)
	for name, start := range map[string]int{"earlier": 0, "later": 2, "paused": 0} {
		j := fixture.Job(name, map[string]dispatcher.Trigger{"tick": fixture.Every(time.Hour, fixture.Minutes(start))})
		j.NodeLabels = input.Labels{"disk": "ssd"}
		f.Put(j, fixture.T0.Add(-time.Minute))
	}
	f.DeclareApp("quiet")
	f.Must(f.PauseJob(f.Context(), "shop", "paused", "", true, fixture.At(fixture.T0)))
	due := func(apps ...string) string {
		lines := strings.Split(f.attention(fixture.Minutes(3), apps...), "\n")
		return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return !strings.HasPrefix(l, "overdue") }), ", ")
	}
	f.Expect("overdue triggers", due("shop"), "overdue earlier/tick 3m0s, overdue served/tick 2m0s, overdue later/tick 1m0s")
	f.Expect("overdue triggers of another app", due("quiet"), "")
	f.Must(f.Register(f.Context(), dispatcher.Node{ID: fixture.NodeB, Labels: input.Labels{"disk": "ssd"}}, fixture.Minutes(3)))
	f.Expect("overdue triggers once a node has the labels", due("shop"),
		"overdue earlier/tick 3m0s, overdue served/tick 2m0s, overdue later/tick 1m0s")
}

func testAttentionObjectives(_ *testing.T, f *wing) {
	f.Punctual(time.Second)
	f.Expect("before anything is counted", f.attention(fixture.T0), "")
	f.Burn("tick", 15)
	f.Expect("while it burns", strings.HasSuffix(f.attention(fixture.Minutes(16), "shop"), "budget shop/tick 10"), true)
	f.Expect("in the eyes of another app", f.attention(fixture.Minutes(16), "other"), "")
	for range 31 {
		f.Ends("tick", run.Succeeded) // up to minute 46
	}
	f.Roll(fixture.Minutes(57))
	f.Expect("when it no longer burns", strings.Contains(f.attention(fixture.Minutes(57), "shop"), "budget"), false)
}

// A run takes seven minutes, and the next one hangs: its node is alive and makes the attempt. The slot is taken by the
// clock of the database.
func testAttentionBlocked(t *testing.T, f *wing) {
	job := f.PutEvery("tick", time.Minute)
	job.ConcurrencyPolicy = run.ConcurrencyForbid
	f.Put(job, fixture.T0)
	first := f.ClaimNext(fixture.Token1)
	o := fixture.Outcome(first.ScheduledAt)
	o.EndedAt = first.ScheduledAt.Add(7 * time.Minute)
	f.Must(f.Record(t.Context(), []dispatcher.Record{fixture.Record(first, o)}))
	hangs := f.ClaimNext(fixture.Token1 + 1)
	f.Expect("the second takes the slot", f.AcquireSlots(hangs), []int{2})
	taken, err := f.Slots(t.Context(), "shop", "tick")
	f.Must(err)
	since := taken[0].Since
	blocked := func(what string, after time.Duration, want string) {
		t.Helper()
		a, err := f.Attention(t.Context(), []string{"shop"}, since.Add(after))
		f.Must(err)
		got := ""
		for _, b := range a.Blocked.Items {
			got += fmt.Sprintf("%s/%s by %s, ended %v, %d skipped", b.App, b.Job, b.Run, b.Ended, b.Skipped)
		}
		f.Expect(what, got, want)
	}
	for i := range 3 {
		blocked("before three fires were skipped", time.Hour, "")
		f.Expect("a later fire", f.AcquireSlots(f.ClaimNext(fixture.Token1+2+run.Token(i))), []int{})
	}
	blocked("within three times the longest run", 21*time.Minute, "")
	blocked("after that", 21*time.Minute+time.Second, "shop/tick by "+hangs.String()+", ended false, 3 skipped")
	census, err := f.Census(t.Context(), time.Now(), 100)
	f.Must(err)
	f.Expect("counted by the clock, which is too early", census.Blocked, 0)
	f.Must(f.Record(t.Context(), []dispatcher.Record{fixture.Record(hangs, fixture.Outcome(hangs.ScheduledAt))}))
	f.Must(f.ReleaseSlots(t.Context(), []run.HeldRun{hangs}))
	f.AcquireSlots(f.ClaimNext(fixture.Token2))
	blocked("once it has ended", time.Hour, "")
}

// A run that waits for the callback of its target has a slot, and no node makes an attempt of it.
func testAttentionBlockedByCallback(t *testing.T, f *wing) {
	job := f.PutEvery("tick", time.Minute)
	job.ConcurrencyPolicy = run.ConcurrencyForbid
	f.Put(job, fixture.T0)
	waits := f.ClaimNext(fixture.Token1)
	f.AcquireSlots(waits)
	o, within := fixture.Outcome(waits.ScheduledAt), run.Callback{Within: 24 * time.Hour}
	o.State = run.WaitingCallback
	r := fixture.Record(waits, o)
	r.Next = &dispatcher.NextAttempt{At: o.EndedAt.Add(within.Within), Callback: &within}
	f.Must(f.Record(t.Context(), []dispatcher.Record{r}))
	taken, err := f.Slots(t.Context(), "shop", "tick")
	f.Must(err)
	for i := range run.Token(view.BlockedSkips) {
		f.AcquireSlots(f.ClaimNext(fixture.Token1 + 1 + i))
	}
	a, err := f.Attention(t.Context(), nil, taken[0].Since.Add(time.Hour))
	f.Must(err)
	if len(a.Blocked.Items) != 1 {
		t.Fatalf("%d jobs are blocked, want one", len(a.Blocked.Items))
	}
	blocked := a.Blocked.Items[0]
	f.Expect("whether it waits for a callback", blocked.Callback, true)
	f.Expect("whether a node makes an attempt", blocked.Node == nil, true)
	f.Expect("how to end it", strings.Contains(blocked.Why(), "carillon run complete "+waits.String()), true)
}

func testAttentionNodes(t *testing.T, f *wing) {
	report := dispatcher.NodeReport{Lag: input.Duration(2 * time.Second), ClockOffset: input.Duration(-time.Second)}
	f.Must(f.Heartbeat(t.Context(), fixture.NodeA, report, fixture.T0))
	f.Expect("a node that is not well", f.attention(fixture.T0), "node 000000000000000a [clock late]")
	report.Saturated = true
	f.Must(f.Heartbeat(t.Context(), fixture.NodeA, report, fixture.T0))
	f.Expect("without a free worker", f.attention(fixture.T0), "node 000000000000000a [saturated clock]")
	f.Expect("as others see it", f.attention(fixture.T0, "shop"), "")
	f.Must(f.Deregister(t.Context(), fixture.NodeA))
	f.Expect("a node that left", f.attention(fixture.T0), "")
	quiet := dispatcher.Node{ID: 99, Name: "quiet",
		NodeHeartbeat: dispatcher.NodeHeartbeat{HeartbeatInterval: input.Duration(5 * time.Second)}}
	f.Must(f.Register(t.Context(), quiet, fixture.T0))
	late := dispatcher.NodeReport{Lag: input.Duration(time.Minute)}
	f.Must(f.Heartbeat(t.Context(), quiet.ID, late, fixture.T0))
	f.Expect("before three intervals", f.attention(fixture.T0.Add(15*time.Second-time.Millisecond)), "node 0000000000000063 [late]")
	f.Expect("after three intervals", f.attention(fixture.T0.Add(15*time.Second)), "node 0000000000000063 [silent]")
	f.Must(f.Deregister(t.Context(), quiet.ID))
	f.AddNode(fixture.NodeB)
	f.AddNode(fixture.NodeC)
	alive := f.Heartbeat
	reply, err := alive(t.Context(), fixture.NodeC, dispatcher.NodeReport{}, fixture.T0.Add(time.Hour))
	f.Must(err)
	f.Must(f.MarkDead(t.Context(), fixture.NodeC, reply.At, time.Minute, fixture.T0.Add(time.Hour)))
	f.Expect("a node that vanished", f.attention(fixture.T0), "node 000000000000000b [dead]")
	f.Expect("a day later", f.attention(fixture.Minutes(24*60+1)), "nodes 1 more")
	late.Lag = input.Duration(2 * time.Second)
	_, err = alive(t.Context(), fixture.NodeC, late, fixture.T0.Add(time.Hour))
	f.Must(err)
	f.Expect("the late one last", f.attention(fixture.T0), "node 000000000000000b [dead]\nnode 000000000000000c [late]")
	_, err = alive(t.Context(), fixture.NodeC, dispatcher.NodeReport{}, fixture.T0.Add(time.Hour))
	f.Must(err)
	for n := range run.NodeID(view.MaxAttention + 2) {
		f.AddNode(100 + n)
	}
	f.Must(f.MarkDead(t.Context(), fixture.NodeC, reply.At, time.Minute, fixture.T0.Add(time.Hour)))
	a, err := f.Attention(t.Context(), nil, fixture.T0)
	f.Must(err)
	if len(a.Nodes) != view.MaxAttention || a.MoreNodes != 3 {
		t.Errorf("of %d nodes that vanished %d are listed, and %d are told of, want %d and 3", view.MaxAttention+3, len(a.Nodes),
			a.MoreNodes, view.MaxAttention)
	}
	f.Must(f.Register(t.Context(), dispatcher.Node{ID: 98, Name: "host"}, fixture.T0.Add(2*time.Hour)))
	f.Expect("once a node of their name has started", f.attention(fixture.T0), "")
}

func testAttentionBounds(t *testing.T, f *wing) {
	for n := range view.MaxAttention + 1 {
		name := fmt.Sprintf("j%02d", n)
		f.PutEvery(name, time.Minute)
		if n%2 == 0 {
			f.Must(f.PauseJob(t.Context(), "shop", name, "", true, fixture.At(fixture.T0.Add(time.Duration(n)*time.Second))))
		} else {
			f.Must(f.PauseJob(t.Context(), "shop", name, "tick", true, fixture.At(fixture.T0.Add(time.Duration(n)*time.Second))))
		}
	}
	a, err := f.Attention(t.Context(), nil, fixture.T0.Add(time.Hour))
	f.Must(err)
	if len(a.Paused.Items) != view.MaxAttention || !a.Paused.More ||
		a.Paused.Items[1].Job != "j01" || a.Paused.Items[1].Trigger != "tick" {
		t.Errorf("got %d pauses, more %v, the second %+v, want %d, more, and j01/tick", len(a.Paused.Items), a.Paused.More, a.Paused.Items[1],
			view.MaxAttention)
	}
}

func testUpcomingTriggers(t *testing.T, f *wing) {
	f.DeclareApp("billing")
	f.PutIn("billing", "a", nil)
	f.PutIn("shop", "b", func(j *dispatcher.Job) { j.Triggers["second"] = fixture.Every(time.Hour, fixture.T0.Add(2*time.Hour)) })
	f.PutIn("shop", "paused", nil)
	f.Must(f.PauseJob(t.Context(), "shop", "paused", "", true, fixture.At(fixture.T0)))
	f.PutIn("shop", "off", func(j *dispatcher.Job) { j.Enabled = false })
	list := func(until time.Time, apps ...string) map[string]int64 {
		found, after := map[string]int64{}, int64(-1<<63)
		for {
			page, err := f.UpcomingTriggers(t.Context(), apps, until, after, 1)
			f.Must(err)
			if len(page) == 0 {
				return found
			}
			after = page[0].ID
			found[page[0].App+" "+page[0].Identity] = int64(page[0].Trigger.NextFireTime.Sub(fixture.T0).Hours())
		}
	}
	all := map[string]int64{"billing billing/a/tick": 1, "shop shop/b/tick": 1, "shop shop/b/second": 2}
	if diff := cmp.Diff(all, list(fixture.Minutes(121))); diff != "" {
		t.Error("all apps (-want +got):\n" + diff)
	}
	if diff := cmp.Diff(map[string]int64{"billing billing/a/tick": 1}, list(fixture.Minutes(61), "billing", "other")); diff != "" {
		t.Error("one app (-want +got):\n" + diff)
	}
	if diff := cmp.Diff(map[string]int64{}, list(fixture.Minutes(60))); diff != "" {
		t.Error("before the first (-want +got):\n" + diff)
	}
}
