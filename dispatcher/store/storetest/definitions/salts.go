package storetest

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
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// saltTests are those of the ids of runs that follow others, and of notifications.
func saltTests() tests {
	return tests{
		"ids of what follows cannot be computed from names":          testIDsOfFollowers,
		"ids of notifications cannot be computed from names":         testIDsOfNotifications,
		"an app that is created again keeps its salt":                testSaltOfAppCreatedAgain,
		"an import keeps the salt, and ids with it":                  testSaltMoves,
		"an import without a salt keeps the ids of an older version": testImportWithoutSalt,
		"an import refuses ids that another salt leads to":           testImportOfUnsaltedIDs,
		"the audit log never has a salt":                             testSaltIsNotAudited,
	}
}

// wantUnknown expects that no run has an id that names alone determine.
func (f *fixture) wantUnknown(what string, key run.Key) {
	f.Helper()
	if _, err := f.Store.Run(f.Context(), key.String()); !errors.Is(err, dispatcher.ErrNotFound) {
		f.Errorf("%s by the id that follows from its names: got error %v, want ErrNotFound", what, err)
	}
}

func testIDsOfFollowers(t *testing.T, f *fixture) {
	f.putFollowed(func(j *dispatcher.Job) {
		target := j.Target
		j.OnFailure = &dispatcher.Follow{Jobs: []string{"child"}, Target: &target}
		j.OnMisfire = &dispatcher.Follow{Jobs: []string{"child"}}
	})
	parent := f.fireOf("parent")
	f.recordFollowed(parent, ended(run.Failed, t0.Add(time.Minute)))
	f.expect("runs that follow", f.followEnds(t0.Add(time.Minute)), 2)
	f.wantUnknown("the run of a job",
		dispatcher.FollowerKey(nil, parent.Key, run.OnFailure, run.JobID("shop", "child"), run.KindChain))
	f.wantUnknown("the delivery",
		dispatcher.FollowerKey(nil, parent.Key, run.OnFailure, run.JobID("shop", "parent.on_failure"), run.KindFollow))
	read, err := f.Store.Run(t.Context(), parent.String())
	f.must(err)
	f.expect("runs that the failed one names", len(read.FollowedBy), 2)

	a := f.nextAdvance()
	last := a.Next.Add(2 * time.Minute)
	a.Then = last.Add(time.Minute)
	_, err = f.Settle(t.Context(), dispatcher.SettleBatch{Node: nodeA, Token: f.token(), Now: a.Then, Settlements: []dispatcher.Settlement{{
		Advance: a, To: last, Count: 3, Decision: dispatcher.DecisionSkip, Reason: "no node ran",
	}}})
	f.must(err)
	f.expect("runs that follow missed fires", f.followEnds(a.Then), 1)
	missed := run.Key{TriggerID: a.TriggerID, ScheduledAt: a.Next}
	f.wantUnknown("the run after missed fires",
		dispatcher.FollowerKey(nil, missed, run.OnMisfire, run.JobID("shop", "child"), run.KindChain))
}

func testIDsOfNotifications(t *testing.T, f *fixture) {
	f.watched("sync", nil)
	f.putAlert(pager("night"), t0)
	f.ends("sync", run.Failed)
	runs, err := f.Runs(t.Context(), dispatcher.RunQuery{App: "shop", Job: "night.alert", Page: input.Page{Limit: 9}})
	f.must(err)
	f.expect("notifications", len(runs), 1)
	alert := dispatcher.AlertID("shop", "night")
	f.wantUnknown("the notification", run.Key{ScheduledAt: runs[0].ScheduledAt, Kind: run.KindAlert,
		TriggerID: dispatcher.AlertStateID(nil, alert, run.JobID("shop", "sync"), target.AlertFailure)})
	f.must(f.TestAlert(t.Context(), "shop", "night", at(t0)))
	f.wantUnknown("the test of the alert", run.Key{ScheduledAt: t0, Kind: run.KindAlert,
		TriggerID: dispatcher.AlertStateID(nil, alert, 0, "")})
}

// exportOf disables an app and exports it.
func (f *fixture) exportOf(app string) access.Export {
	f.Helper()
	f.must(f.PutApp(f.Context(), access.App{Name: app}, at(t0)))
	for more := true; more; {
		_, left, err := f.FollowSwitches(f.Context(), 100)
		f.must(err)
		more = left
	}
	export, err := f.ExportApp(f.Context(), app)
	f.must(err)
	return export
}

// failedParent ends a run of a job "parent" that a job "child" follows, and returns it.
func (f *fixture) failedParent() run.HeldRun {
	f.Helper()
	f.putFollowed(onFailure("child"))
	parent := f.fireOf("parent")
	f.recordFollowed(parent, ended(run.Failed, t0.Add(time.Minute)))
	f.expect("runs that follow", f.followEnds(t0.Add(time.Minute)), 1)
	return parent
}

// deleteShop deletes the app "shop" with the jobs of failedParent.
func (f *fixture) deleteShop() {
	f.Helper()
	f.must(f.DeleteJob(f.Context(), "shop", "parent", at(t0)))
	f.must(f.DeleteJob(f.Context(), "shop", "child", at(t0)))
	f.must(f.DeleteApp(f.Context(), "shop", at(t0)))
}

func testSaltOfAppCreatedAgain(_ *testing.T, f *fixture) {
	f.putApp("books")
	shop, books := f.exportOf("shop").Salt, f.exportOf("books").Salt
	f.expect("the length of a salt", len(shop), run.SaltBytes)
	if string(shop) == string(books) {
		f.Errorf("two apps have the salt %x", shop)
	}
	f.must(f.PutApp(f.Context(), access.App{Name: "shop", AppSpec: access.AppSpec{Description: "changed"}}, at(t0)))
	f.expect("the salt after a change", string(f.exportOf("shop").Salt), string(shop))
	f.must(f.DeleteApp(f.Context(), "shop", at(t0)))
	f.putApp("shop")
	f.expect("the salt of the app created again", string(f.exportOf("shop").Salt), string(shop))
}

func testSaltMoves(t *testing.T, f *fixture) {
	parent := f.failedParent()
	export := f.exportOf("shop")
	f.expect("runs that move", len(export.Waiting), 1)
	f.deleteShop()
	for i := range export.Salt { // as another installation would have drawn it
		export.Salt[i] ^= 0x5a
	}
	key := dispatcher.FollowerKey(export.Salt, parent.Key, run.OnFailure, run.JobID("shop", "child"), run.KindChain)
	export.Waiting[0].Run = key.String()
	export.App.Enabled = true
	f.must(f.ImportApp(t.Context(), export, operator(t0)))
	f.expect("the run that moved", f.run(key).State, run.Queued)
	again := f.exportOf("shop")
	f.expect("the salt after the move", string(again.Salt), string(export.Salt))
	f.expect("the id after the move", again.Waiting[0].Run, key.String())
}

func testImportWithoutSalt(t *testing.T, f *fixture) {
	parent := f.failedParent()
	export := f.exportOf("shop")
	f.deleteShop()
	key := dispatcher.FollowerKey(nil, parent.Key, run.OnFailure, run.JobID("shop", "child"), run.KindChain)
	export.Salt, export.Waiting[0].Run, export.App.Enabled = nil, key.String(), true
	f.must(f.ImportApp(t.Context(), export, operator(t0)))
	f.expect("the run that moved", f.run(key).State, run.Queued)
	later := f.fireOf("parent")
	f.recordFollowed(later, ended(run.Failed, later.ScheduledAt.Add(time.Second)))
	f.expect("runs that follow after the move", f.followEnds(later.ScheduledAt.Add(time.Minute)), 1)
	key = dispatcher.FollowerKey(nil, later.Key, run.OnFailure, run.JobID("shop", "child"), run.KindChain)
	f.expect("the run that followed", f.run(key).State, run.Queued)
	f.expect("the salt", len(f.exportOf("shop").Salt), 0)
}

func testImportOfUnsaltedIDs(t *testing.T, f *fixture) {
	parent := f.failedParent()
	export := f.exportOf("shop")
	f.deleteShop()
	f.putApp("books")
	for name, salt := range map[string]run.Salt{"no salt": nil, "the salt of another app": f.exportOf("books").Salt} {
		forged := export
		r := export.Waiting[0]
		r.Run = dispatcher.FollowerKey(salt, parent.Key, run.OnFailure, run.JobID("shop", "child"),
			run.KindChain).String()
		forged.Waiting = []access.ExportedRun{r}
		_, err := f.ImportApp(t.Context(), forged, operator(t0))
		f.wantProblem("an id made with "+name, err, "enum /waiting_runs/0/run")
	}
	export.Salt, export.Waiting = export.Salt[1:], nil
	_, err := f.ImportApp(t.Context(), export, operator(t0))
	f.wantProblem("a short salt", err, "count_range /salt")
	if strings.Contains(err.Error(), base64.StdEncoding.EncodeToString(export.Salt)) {
		t.Errorf("the problem has the salt: %s", err)
	}
}

func testSaltIsNotAudited(t *testing.T, f *fixture) {
	f.failedParent()
	export := f.exportOf("shop")
	f.deleteShop()
	export.App.Enabled = true
	f.must(f.ImportApp(t.Context(), export, operator(t0)))
	entries := f.auditLog(access.AuditQuery{From: t0.Add(-time.Hour), OldestFirst: true})
	if len(entries) == 0 {
		t.Fatal("the audit log is empty")
	}
	text, err := json.Marshal(entries)
	f.must(err)
	for _, form := range []string{base64.StdEncoding.EncodeToString(export.Salt), hex.EncodeToString(export.Salt), "salt"} {
		if strings.Contains(string(text), form) {
			t.Errorf("the audit log has the salt as %q", form)
		}
	}
}
