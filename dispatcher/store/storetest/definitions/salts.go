package definitions

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// saltTests test the ids of runs that follow others, and of notifications.
func saltTests() tests {
	return tests{
		"ids of followers cannot be computed from names":             testIDsOfFollowers,
		"ids of notifications cannot be computed from names":         testIDsOfNotifications,
		"an app that is created again keeps its salt":                testSaltOfAppCreatedAgain,
		"an import keeps the salt, and ids with it":                  testSaltMoves,
		"an import without a salt keeps the ids of an older version": testImportWithoutSalt,
		"an import refuses ids that another salt leads to":           testImportOfUnsaltedIDs,
		"the audit log never has a salt":                             testSaltIsNotAudited,
	}
}

// wantUnknown expects that no run has an id derived from names alone.
func (f *wing) wantUnknown(what string, key run.Key) {
	f.Helper()
	if _, err := f.Store.Run(f.Context(), key.String()); !errors.Is(err, dispatcher.ErrNotFound) {
		f.Errorf("%s by the id that follows from its names: got error %v, want ErrNotFound", what, err)
	}
}

func testIDsOfFollowers(t *testing.T, f *wing) {
	f.PutFollowed(func(j *dispatcher.Job) {
		j.OnFailure = &dispatcher.Follow{Jobs: []string{"child"}, FollowDestination: fixture.Hook("https://example.com/one")}
		j.OnMisfire = &dispatcher.Follow{Jobs: []string{"child"}}
	})
	parent := f.FireOf("parent")
	f.RecordFollowed(parent, fixture.Ended(run.Failed, fixture.T0.Add(time.Minute)))
	f.Expect("runs that follow", f.FollowAll(fixture.T0.Add(time.Minute)), 2)
	f.wantUnknown("the run of a job",
		dispatcher.FollowerKey(nil, parent.Key, run.OnFailure, run.JobID("shop", "child"), run.KindChain))
	f.wantUnknown("the delivery",
		dispatcher.FollowerKey(nil, parent.Key, run.OnFailure, run.JobID("shop", "parent.on_failure"), run.KindFollow))
	read, err := f.Store.Run(t.Context(), parent.String())
	f.Must(err)
	f.Expect("runs that the failed one names", len(read.FollowedBy), 2)

	a := f.NextAdvance()
	last := a.Next.Add(2 * time.Minute)
	a.Then = last.Add(time.Minute)
	_, err = f.Settle(t.Context(), dispatcher.SettleBatch{Node: fixture.NodeA, Token: f.NextToken(), Now: a.Then,
		Settlements: []dispatcher.Settlement{{
			Advance: a, To: last, Count: 3, Decision: dispatcher.DecisionSkip, Reason: "no node ran",
		}}})
	f.Must(err)
	f.Expect("runs that follow missed fires", f.FollowAll(a.Then), 1)
	missed := run.Key{TriggerID: a.TriggerID, ScheduledAt: a.Next}
	f.wantUnknown("the run after missed fires",
		dispatcher.FollowerKey(nil, missed, run.OnMisfire, run.JobID("shop", "child"), run.KindChain))
}

func testIDsOfNotifications(t *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	f.Ends("sync", run.Failed)
	runs, err := f.Runs(t.Context(), dispatcher.RunQuery{App: "shop", Job: "night.alert", Page: input.Page{Limit: 9}})
	f.Must(err)
	f.Expect("notifications", len(runs), 1)
	alert := dispatcher.AlertID("shop", "night")
	f.wantUnknown("the notification", run.Key{ScheduledAt: runs[0].ScheduledAt, Kind: run.KindAlert,
		TriggerID: dispatcher.AlertStateID(nil, alert, run.JobID("shop", "sync"), target.AlertFailure)})
	f.Must(f.TestAlert(t.Context(), "shop", "night", fixture.At(fixture.T0)))
	f.wantUnknown("the test of the alert", run.Key{ScheduledAt: fixture.T0, Kind: run.KindAlert,
		TriggerID: dispatcher.AlertStateID(nil, alert, 0, "")})
}

// exportOf disables an app and exports it.
func (f *wing) exportOf(app string) access.Export {
	f.Helper()
	f.Must(f.PutApp(f.Context(), access.App{Name: app}, fixture.At(fixture.T0)))
	for more := true; more; {
		_, left, err := f.FollowSwitches(f.Context(), 100)
		f.Must(err)
		more = left
	}
	export, err := f.ExportApp(f.Context(), app)
	f.Must(err)
	return export
}

// failedParent fails a run of a job "parent" with the follower "child", and returns it.
func (f *wing) failedParent() run.HeldRun {
	f.Helper()
	f.PutFollowed(fixture.OnFailure("child"))
	parent := f.FireOf("parent")
	f.RecordFollowed(parent, fixture.Ended(run.Failed, fixture.T0.Add(time.Minute)))
	f.Expect("runs that follow", f.FollowAll(fixture.T0.Add(time.Minute)), 1)
	return parent
}

// deleteShop deletes the app "shop" with the jobs of failedParent.
func (f *wing) deleteShop() {
	f.Helper()
	f.Must(f.DeleteJob(f.Context(), "shop", "parent", fixture.At(fixture.T0)))
	f.Must(f.DeleteJob(f.Context(), "shop", "child", fixture.At(fixture.T0)))
	f.Must(f.DeleteApp(f.Context(), "shop", fixture.At(fixture.T0)))
}

func testSaltOfAppCreatedAgain(_ *testing.T, f *wing) {
	f.DeclareApp("books")
	shop, books := f.exportOf("shop").Salt, f.exportOf("books").Salt
	f.Expect("the length of a salt", len(shop), run.SaltBytes)
	if string(shop) == string(books) {
		f.Errorf("two apps have the salt %x", shop)
	}
	f.Must(f.PutApp(f.Context(), access.App{Name: "shop", AppSpec: access.AppSpec{Description: "changed"}}, fixture.At(fixture.T0)))
	f.Expect("the salt after a change", string(f.exportOf("shop").Salt), string(shop))
	f.Must(f.DeleteApp(f.Context(), "shop", fixture.At(fixture.T0)))
	f.DeclareApp("shop")
	f.Expect("the salt of the app created again", string(f.exportOf("shop").Salt), string(shop))
}

func testSaltMoves(t *testing.T, f *wing) {
	parent := f.failedParent()
	export := f.exportOf("shop")
	f.Expect("runs that move", len(export.Waiting), 1)
	f.deleteShop()
	for i := range export.Salt { // as another installation would have drawn it
		export.Salt[i] ^= 0x5a
	}
	key := dispatcher.FollowerKey(export.Salt, parent.Key, run.OnFailure, run.JobID("shop", "child"), run.KindChain)
	export.Waiting[0].Run = key.String()
	export.App.Enabled = true
	f.Must(f.ImportApp(t.Context(), export, fixture.Operator(fixture.T0)))
	f.Expect("the run that moved", f.RunOf(key).State, run.Queued)
	again := f.exportOf("shop")
	f.Expect("the salt after the move", string(again.Salt), string(export.Salt))
	f.Expect("the id after the move", again.Waiting[0].Run, key.String())
}

func testImportWithoutSalt(t *testing.T, f *wing) {
	parent := f.failedParent()
	export := f.exportOf("shop")
	f.deleteShop()
	key := dispatcher.FollowerKey(nil, parent.Key, run.OnFailure, run.JobID("shop", "child"), run.KindChain)
	export.Salt, export.Waiting[0].Run, export.App.Enabled = nil, key.String(), true
	f.Must(f.ImportApp(t.Context(), export, fixture.Operator(fixture.T0)))
	f.Expect("the run that moved", f.RunOf(key).State, run.Queued)
	later := f.FireOf("parent")
	f.RecordFollowed(later, fixture.Ended(run.Failed, later.ScheduledAt.Add(time.Second)))
	f.Expect("runs that follow after the move", f.FollowAll(later.ScheduledAt.Add(time.Minute)), 1)
	key = dispatcher.FollowerKey(nil, later.Key, run.OnFailure, run.JobID("shop", "child"), run.KindChain)
	f.Expect("the run that followed", f.RunOf(key).State, run.Queued)
	f.Expect("the salt", len(f.exportOf("shop").Salt), 0)
}

func testImportOfUnsaltedIDs(t *testing.T, f *wing) {
	parent := f.failedParent()
	export := f.exportOf("shop")
	f.deleteShop()
	f.DeclareApp("books")
	for name, salt := range map[string]run.Salt{"no salt": nil, "the salt of another app": f.exportOf("books").Salt} {
		forged := export
		r := export.Waiting[0]
		r.Run = dispatcher.FollowerKey(salt, parent.Key, run.OnFailure, run.JobID("shop", "child"),
			run.KindChain).String()
		forged.Waiting = []access.ExportedRun{r}
		_, err := f.ImportApp(t.Context(), forged, fixture.Operator(fixture.T0))
		f.WantProblem("an id made with "+name, err, "enum /waiting_runs/0/run")
	}
	export.Salt, export.Waiting = export.Salt[1:], nil
	_, err := f.ImportApp(t.Context(), export, fixture.Operator(fixture.T0))
	f.WantProblem("a short salt", err, "count_range /salt")
	if strings.Contains(err.Error(), base64.StdEncoding.EncodeToString(export.Salt)) {
		t.Errorf("the problem has the salt: %s", err)
	}
}

func testSaltIsNotAudited(t *testing.T, f *wing) {
	f.failedParent()
	export := f.exportOf("shop")
	f.deleteShop()
	export.App.Enabled = true
	f.Must(f.ImportApp(t.Context(), export, fixture.Operator(fixture.T0)))
	entries := f.AuditLog(access.AuditQuery{From: fixture.T0.Add(-time.Hour), OldestFirst: true})
	if len(entries) == 0 {
		t.Fatal("the audit log is empty")
	}
	text, err := json.Marshal(entries)
	f.Must(err)
	for _, form := range []string{base64.StdEncoding.EncodeToString(export.Salt), hex.EncodeToString(export.Salt), "salt"} {
		if strings.Contains(string(text), form) {
			t.Errorf("the audit log has the salt as %q", form)
		}
	}
}

// eventTests test the event ids with which receivers drop duplicates.
func eventTests() tests {
	return tests{
		"event ids cannot be computed from names":          testEventIDsNeedTheSalt,
		"an app with a salt of an older version keeps ids": testEventIDsOfOlderSalts,
	}
}

// wantEvent expects that users see the event id of a run as nodes send it, and that it follows from names or not.
func (f *wing) wantEvent(key run.Key, job, trigger string, fromNames bool) {
	f.Helper()
	installation, err := f.Installation(f.Context())
	f.Must(err)
	version := f.Prepared(run.JobID("shop", job))
	read, sent := f.RunOf(key).EventID, key.EventOf(version.EventID(installation, trigger, key.ScheduledAt, key.Kind))
	f.Expect("the event id of a run of kind "+string(key.Kind)+" as it is sent", sent, read)
	of := run.Origin{Installation: installation, App: "shop", Job: job, Trigger: trigger}
	names := key.EventOf(run.Salt(nil).EventID(of, key.ScheduledAt, key.Kind))
	if (read == names) != fromNames {
		f.Errorf("a run of kind %s has event id %s; names lead to %s, want equal: %t", key.Kind, read, names, fromNames)
	}
}

func testEventIDsNeedTheSalt(t *testing.T, f *wing) {
	parent := f.failedParent()
	f.wantEvent(parent.Key, "parent", "tick", false)
	export := f.exportOf("shop")
	follower, err := run.ParseKey(export.Waiting[0].Run)
	f.Must(err)
	f.wantEvent(follower, "child", "", false)
	export.App.Enabled = true
	f.Must(f.PutApp(t.Context(), export.App, fixture.At(fixture.T0)))
	manual, err := f.RequestRun(t.Context(), "shop", "child", nil, fixture.At(fixture.T0.Add(time.Minute)))
	f.Must(err)
	f.wantEvent(run.Key{TriggerID: run.JobID("shop", "child"), ScheduledAt: manual.ScheduledAt, Kind: run.KindManual}, "child", "", false)
}

// Receivers know the waiting run of an export, and retries of its fires, by ids without the salt.
func testEventIDsOfOlderSalts(t *testing.T, f *wing) {
	parent := f.failedParent()
	export := f.exportOf("shop")
	f.deleteShop()
	export.Salt, export.App.Enabled = export.Salt[:16], true
	key := dispatcher.FollowerKey(export.Salt, parent.Key, run.OnFailure, run.JobID("shop", "child"), run.KindChain)
	export.Waiting[0].Run = key.String()
	f.Must(f.ImportApp(t.Context(), export, fixture.Operator(fixture.T0)))
	f.wantEvent(key, "child", "", true)
	later := f.FireOf("parent")
	f.wantEvent(later.Key, "parent", "tick", true)
}
