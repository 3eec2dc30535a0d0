package definitions

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// importTests test imports by a malicious caller.
func importTests() tests {
	return tests{
		"an import does not take over runs of another app": testImportOfForeignRuns,
		"a run that follows missed fires moves":            testMissedFollowerMoves,
		"an import with a run twice is refused":            testImportOfRunTwice,
		"an import with numbers out of range is refused":   testImportOfLargeNumbers,
		"an import of more runs than may wait is refused":  testImportQuota,
		"the quotas of an import are those of its app":     testQuotasOfImport,
	}
}

// evilImport returns an import of an app "evil" with one job, "child", and waiting runs of it.
func evilImport(runs ...access.ExportedRun) access.Export {
	j := fixture.Job("child", nil)
	j.App = "evil"
	return access.Export{
		Format: access.ExportFormat, Installation: "there", ExportedAt: fixture.T0, App: access.App{Name: "evil"},
		Jobs: []access.ExportedJob{{Job: j}}, Waiting: runs,
	}
}

// wantRefused expects an import to be refused without creating the app.
func (f *wing) wantRefused(export access.Export, want string) {
	f.Helper()
	_, err := f.ImportApp(f.Context(), export, fixture.Operator(fixture.T0))
	f.WantProblem("the import", err, want)
	if _, err := f.App(f.Context(), "evil"); !errors.Is(err, dispatcher.ErrNotFound) {
		f.Errorf("the app of the import: %v, want ErrNotFound", err)
	}
}

func testImportOfForeignRuns(t *testing.T, f *wing) {
	f.PutFollowed(func(j *dispatcher.Job) {
		j.OnFailure = &dispatcher.Follow{Jobs: []string{"child"}, Payload: dispatcher.FollowResult}
	})
	parent := f.FireOf("parent")
	f.RecordFollowed(parent, fixture.Ended(run.Failed, fixture.T0.Add(time.Minute)))
	f.Expect("runs that follow", f.FollowAll(fixture.T0.Add(time.Minute)), 1)
	// A user who saw the id, as in a log, cannot use it.
	read, err := f.Store.Run(t.Context(), parent.String())
	f.Must(err)
	key, err := run.ParseKey(read.FollowedBy[0].Run)
	f.Must(err)
	before, err := f.Store.Run(t.Context(), key.String())
	f.Must(err)
	for name, input := range map[string]*run.Input{
		"without an input": nil,
		"as its parent":    {Cause: &run.Cause{Run: parent.String(), On: string(run.OnFailure)}},
	} {
		f.wantRefused(evilImport(access.ExportedRun{
			Job: "child", Kind: key.Kind, ScheduledAt: key.ScheduledAt, State: run.Retrying, Attempt: 1, Run: key.String(), Input: input,
		}), "enum /waiting_runs/0/run")
		after, err := f.Store.Run(t.Context(), key.String())
		f.Must(err)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s, the run of the other app changed (-before +after):\n%s", name, diff)
		}
	}
	// A future key of the other app is refused as well.
	next := parent.Key
	next.ScheduledAt = next.ScheduledAt.Add(time.Minute)
	later := dispatcher.FollowerKey(nil, next, run.OnFailure, run.JobID("shop", "child"), run.KindChain)
	f.wantRefused(evilImport(access.ExportedRun{
		Job: "child", Kind: later.Kind, ScheduledAt: later.ScheduledAt, State: run.Queued, Run: later.String(),
		Input: &run.Input{Cause: &run.Cause{Run: next.String(), On: string(run.OnFailure)}},
	}), "enum /waiting_runs/0/run")
}

func testMissedFollowerMoves(t *testing.T, f *wing) {
	f.PutFollowed(func(j *dispatcher.Job) { j.OnMisfire = &dispatcher.Follow{Jobs: []string{"child"}} })
	a := f.NextAdvance()
	last := a.Next.Add(2 * time.Minute)
	a.Then = last.Add(time.Minute)
	_, err := f.Settle(t.Context(), dispatcher.SettleBatch{Node: fixture.NodeA, Token: f.NextToken(), Now: a.Then,
		Settlements: []dispatcher.Settlement{{
			Advance: a, To: last, Count: 3, Decision: dispatcher.DecisionSkip, Reason: "no node ran",
		}}})
	f.Must(err)
	f.Expect("runs that follow", f.FollowAll(a.Then), 1)
	f.Must(f.PutApp(t.Context(), access.App{Name: "shop"}, fixture.At(fixture.T0)))
	for more := true; more; {
		_, left, err := f.FollowSwitches(t.Context(), 100)
		f.Must(err)
		more = left
	}
	export, err := f.ExportApp(t.Context(), "shop")
	f.Must(err)
	if len(export.Waiting) != 1 || export.Waiting[0].Input.Missed == "" || !export.Waiting[0].ScheduledAt.Equal(a.Next) {
		t.Fatalf("runs that move are %+v, want the one that follows the fires missed from %s on", export.Waiting, a.Next)
	}
	f.Must(export.Validate())
}

func testImportOfRunTwice(_ *testing.T, f *wing) {
	run := access.ExportedRun{Job: "child", Kind: run.KindManual, ScheduledAt: fixture.T0, State: run.Queued}
	f.wantRefused(evilImport(run, run), "enum /waiting_runs/1")
}

func testImportOfLargeNumbers(_ *testing.T, f *wing) {
	for field, change := range map[string]func(*access.ExportedRun){
		"attempt":  func(r *access.ExportedRun) { r.Attempt = 1<<31 - 1 },
		"failures": func(r *access.ExportedRun) { r.Failures = -1 },
	} {
		run := access.ExportedRun{Job: "child", Kind: run.KindManual, ScheduledAt: fixture.T0, State: run.Queued}
		change(&run)
		f.wantRefused(evilImport(run), "count_range /waiting_runs/0/"+field)
	}
}

func testImportQuota(t *testing.T, f *wing) {
	run := access.ExportedRun{Job: "child", Kind: run.KindManual, ScheduledAt: fixture.T0, State: run.Queued}
	export := evilImport()
	export.App.Bounds = &target.Bounds{Quotas: target.Quotas{WaitingRuns: 3}}
	for range 4 {
		export.Waiting = append(export.Waiting, run)
		run.ScheduledAt = run.ScheduledAt.Add(time.Second)
	}
	f.wantRefused(export, "bound_quota /waiting_runs")
	export.Waiting = slices.Clone(export.Waiting[:3])
	f.Must(f.ImportApp(t.Context(), export, fixture.Operator(fixture.T0)))
}

// testQuotasOfImport: quotas of a deleted app apply to imports by users, those of an export to imports by operators.
func testQuotasOfImport(t *testing.T, f *wing) {
	brings := access.App{Name: "evil", AppSpec: access.AppSpec{Bounds: &target.Bounds{Quotas: target.Quotas{Jobs: 3}}}}
	check := func(what string, change input.Change, want int) {
		t.Helper()
		quotas, err := f.ImportQuotas(t.Context(), brings, change)
		f.Must(err)
		f.Expect("the quota of jobs, "+what, quotas.Jobs, want)
	}
	check("by default", fixture.At(fixture.T0), 10_000)
	check("for an operator", fixture.Operator(fixture.T0), 3)
	wide := access.App{Name: "evil", AppSpec: access.AppSpec{Bounds: &target.Bounds{Quotas: target.Quotas{Jobs: 7}}}}
	_, _, err := f.PutApp(t.Context(), wide, fixture.Operator(fixture.T0))
	f.Must(err)
	check("of an app", fixture.At(fixture.T0), 7)
	f.Must(f.DeleteApp(t.Context(), "evil", fixture.Operator(fixture.T0)))
	check("of a deleted app", fixture.At(fixture.T0), 7)
}
