package dispatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// carriedStateTests test states that runs of a job pass on to the next.
func carriedStateTests() tests {
	return tests{
		"a carried state is stored with the end of its run":             testCarriedStateKept,
		"a carried state of a late result is not stored":                testCarriedStateFenced,
		"a carried state that an operator changed stays":                testCarriedStateOvertaken,
		"a carried state is set and cleared by operators":               testCarriedStateSet,
		"a carried state comes with a callback":                         testCarriedStateOfCallback,
		"a carried state may come before the acceptance is recorded":    testCarriedStateBeforeRecord,
		"a carried state outlives a rename and is deleted with its job": testCarriedStateOfRenamed,
		"a carried state moves with an exported app":                    testCarriedStateExported,
	}
}

// returned records that a run succeeded and returned a state based on a revision.
func (f *wing) returned(held run.HeldRun, state string, revision int64) {
	f.Helper()
	o := fixture.Outcome(held.ScheduledAt)
	o.Returned = &run.ReturnedState{State: json.RawMessage(state), Revision: revision}
	f.Must(f.Record(f.Context(), []dispatcher.Record{fixture.Record(held, o)}))
	f.Must(f.ReleaseSlots(f.Context(), []run.HeldRun{held}))
}

func testCarriedStateKept(t *testing.T, f *wing) {
	runs := f.Bounded(3, fixture.Carries)
	f.ExpectState(run.CarriedState{State: json.RawMessage("null")})
	f.Expect("the first", f.AcquireSlots(runs[0]), []int{1})
	f.returned(runs[0], `{"n":1}`, 0)
	f.ExpectState(run.CarriedState{State: json.RawMessage(`{"n":1}`), Revision: 1, Run: runs[0].String()})

	failed := fixture.Outcome(runs[1].ScheduledAt)
	failed.State, failed.Class = run.Failed, run.ClassHTTP5xx
	failed.Returned = &run.ReturnedState{State: json.RawMessage(`{"n":9}`), Revision: 1}
	f.Expect("the second", f.AcquireSlots(runs[1]), []int{2})
	f.Must(f.Record(f.Context(), []dispatcher.Record{fixture.Record(runs[1], failed)}))
	f.Must(f.ReleaseSlots(f.Context(), []run.HeldRun{runs[1]}))
	f.ExpectState(run.CarriedState{State: json.RawMessage(`{"n":1}`), Revision: 1, Run: runs[0].String()})

	f.Expect("the third", f.AcquireSlots(runs[2]), []int{3})
	f.returned(runs[2], "null", 1)
	f.ExpectState(run.CarriedState{State: json.RawMessage("null"), Revision: 2, Run: runs[2].String()})
	states, err := f.CarriedStatesByID(f.Context(), []int64{runs[0].JobID, 1})
	f.Must(err)
	if got := states[runs[0].JobID]; len(states) != 1 || got.Revision != 2 {
		t.Errorf("states by id %v, want that of the job, of revision 2", states)
	}
}

func testCarriedStateFenced(_ *testing.T, f *wing) {
	runs := f.Bounded(1, fixture.Carries)
	f.AcquireSlots(runs[0])
	stale := runs[0]
	stale.Token++
	f.returned(stale, `{"late":true}`, 0)
	f.ExpectState(run.CarriedState{State: json.RawMessage("null")})
	f.returned(runs[0], `{"n":1}`, 0)
	f.returned(runs[0], `{"again":true}`, 1) // recorded again
	f.ExpectState(run.CarriedState{State: json.RawMessage(`{"n":1}`), Revision: 1, Run: runs[0].String()})
}

func testCarriedStateOvertaken(t *testing.T, f *wing) {
	runs := f.Bounded(2, fixture.Carries)
	f.AcquireSlots(runs[0])
	set, err := f.SetCarriedState(f.Context(), "shop", "tick", json.RawMessage(`{"n":100}`), fixture.At(fixture.T0.Add(2*time.Minute)))
	f.Must(err)
	f.returned(runs[0], `{"n":1}`, 0)
	want := run.CarriedState{State: json.RawMessage(`{"n":100}`), Revision: 1, SetBy: "test", DiscardedRun: runs[0].String()}
	f.ExpectState(want)
	if r := f.RunOf(runs[0].Key); r.State != run.Succeeded {
		t.Errorf("the run whose state was discarded is %s, want succeeded", r.State)
	}
	f.AcquireSlots(runs[1])
	f.returned(runs[1], `{"n":101}`, set.Revision)
	f.ExpectState(run.CarriedState{State: json.RawMessage(`{"n":101}`), Revision: 2, Run: runs[1].String()})
}

func testCarriedStateSet(t *testing.T, f *wing) {
	f.Bounded(1, fixture.Carries)
	set := func(state string, change input.Change) error {
		var value json.RawMessage
		if state != "" {
			value = json.RawMessage(state)
		}
		_, err := f.SetCarriedState(f.Context(), "shop", "tick", value, change)
		return err
	}
	absent, first := fixture.At(fixture.T0), fixture.At(fixture.T0)
	absent.IfAbsent, first.IfRevision = true, 1
	for _, step := range []struct {
		what, state string
		change      input.Change
		want        error
	}{
		{"set where there is none", "\"\u00e4 \\u00e4\"", absent, nil},
		{"set where there is one", `1`, absent, dispatcher.ErrPrecondition},
		{"set again by its revision", `2`, first, nil},
		{"clear by a stale revision", "", first, dispatcher.ErrPrecondition},
		{"clear", "", fixture.At(fixture.T0), nil},
		{"set once it was cleared", `[3]`, absent, nil},
	} {
		if err := set(step.state, step.change); !errors.Is(err, step.want) {
			t.Errorf("%s: got %v, want %v", step.what, err, step.want)
		}
	}
	f.ExpectState(run.CarriedState{State: json.RawMessage(`[3]`), Revision: 4, SetBy: "test"})
	if err := set(`"`+strings.Repeat("x", run.MaxCarriedState)+`"`, fixture.At(fixture.T0)); err == nil {
		t.Error("a state that is too long was stored")
	}
	plain := fixture.Job("plain", nil)
	f.Put(plain, fixture.T0)
	var problems input.Problems
	if _, err := f.SetCarriedState(f.Context(), "shop", "plain", json.RawMessage(`1`), fixture.At(fixture.T0)); !errors.As(err, &problems) {
		t.Errorf("state of a job that carries none: got %v, want Problems", err)
	}
	if _, err := f.CarriedState(f.Context(), "shop", "none"); !errors.Is(err, dispatcher.ErrNotFound) {
		t.Errorf("state of a job that does not exist: got %v, want ErrNotFound", err)
	}
	entries := f.AuditLog(access.AuditQuery{Action: "set state"})
	if text := fmt.Sprint(entries); len(entries) != 3 || strings.Contains(text, "[3]") {
		t.Errorf("audit log %v, want three entries without values", entries)
	}
}

func testCarriedStateOfCallback(t *testing.T, f *wing) {
	runs := f.Bounded(2, fixture.Carries)
	complete := func(held run.HeldRun, state string) error {
		_, err := f.CompleteRun(f.Context(), held.String(), held.Attempt, run.CallbackResult{State: json.RawMessage(state)},
			byTarget(held.ScheduledAt.Add(5*time.Second)))
		return err
	}
	f.AcquireSlots(runs[0])
	f.acceptAs(runs[0], runs[0].ScheduledAt, run.Callback{Within: within, StateRevision: new(int64)})
	f.Must(complete(runs[0], `{"n":1}`))
	f.ExpectState(run.CarriedState{State: json.RawMessage(`{"n":1}`), Revision: 1, Run: runs[0].String()})
	if shown := f.RunOf(runs[0].Key); len(shown.Attempts) != 1 || shown.Attempts[0].Response == nil ||
		string(shown.Attempts[0].Response.State) != `{"n":1}` {
		t.Errorf("attempts %+v, want the state that was returned", shown.Attempts)
	}
	f.Must(complete(runs[0], `{"n":2}`)) // a repetition changes nothing
	f.ExpectState(run.CarriedState{State: json.RawMessage(`{"n":1}`), Revision: 1, Run: runs[0].String()})

	f.AcquireSlots(runs[1])
	f.accept(runs[1], runs[1].ScheduledAt) // its job carried no state when it began
	var problems input.Problems
	if err := complete(runs[1], `{"n":2}`); !errors.As(err, &problems) {
		t.Errorf("state of an attempt that was given none: got %v, want Problems", err)
	}
}

func testCarriedStateBeforeRecord(_ *testing.T, f *wing) {
	runs := f.Bounded(2, fixture.Carries)
	complete := func(held run.HeldRun, state string) {
		f.Helper()
		f.Must(f.CompleteRun(f.Context(), held.String(), held.Attempt, run.CallbackResult{State: json.RawMessage(state)},
			byTarget(held.ScheduledAt.Add(5*time.Second))))
		f.Must(f.ReleaseSlots(f.Context(), []run.HeldRun{held}))
	}
	f.AcquireSlots(runs[0])
	complete(runs[0], `{"n":1}`)
	f.AcquireSlots(runs[1])
	f.Must(f.SetCarriedState(f.Context(), "shop", "tick", json.RawMessage(`{"n":7}`), fixture.At(runs[1].ScheduledAt.Add(time.Second))))
	complete(runs[1], `{"n":2}`)
	f.ExpectState(run.CarriedState{State: json.RawMessage(`{"n":7}`), Revision: 2, SetBy: "test", DiscardedRun: runs[1].String()})
}

func testCarriedStateOfRenamed(t *testing.T, f *wing) {
	runs := f.Bounded(1, fixture.Carries)
	f.AcquireSlots(runs[0])
	f.returned(runs[0], `{"n":1}`, 0)
	_, err := f.RenameJob(f.Context(), "shop", "tick", dispatcher.JobRename{Name: "tock"}, fixture.At(fixture.T0.Add(time.Hour)))
	f.Must(err)
	if got, err := f.CarriedState(f.Context(), "shop", "tock"); err != nil || got.Revision != 1 {
		t.Errorf("state under the new name: %+v, %v; want that of revision 1", got, err)
	}
	f.Must(f.DeleteJob(f.Context(), "shop", "tock", fixture.At(fixture.T0.Add(2*time.Hour))))
	if _, err := f.CarriedState(f.Context(), "shop", "tock"); !errors.Is(err, dispatcher.ErrNotFound) {
		t.Errorf("state of a deleted job: got %v, want ErrNotFound", err)
	}
	f.PurgeAll(fixture.T0.Add(400 * 24 * time.Hour))
	states, err := f.CarriedStatesByID(f.Context(), []int64{runs[0].JobID})
	if err != nil || len(states) != 0 {
		t.Errorf("states once the job is purged: %v, %v; want none", states, err)
	}
}

func testCarriedStateExported(t *testing.T, f *wing) {
	runs := f.Bounded(1, fixture.Carries)
	f.AcquireSlots(runs[0])
	f.returned(runs[0], `{"n":1}`, 0)
	f.Must(f.PutApp(f.Context(), access.App{Name: "shop"}, fixture.At(fixture.T0.Add(time.Hour))))
	export, err := f.ExportApp(f.Context(), "shop")
	f.Must(err)
	if got := export.Jobs[0].CarriedState; string(got) != `{"n":1}` {
		t.Errorf("exported state %s, want that of the job", got)
	}
	f.Must(f.DeleteJob(f.Context(), "shop", "tick", fixture.At(fixture.T0.Add(time.Hour))))
	f.Must(f.DeleteApp(f.Context(), "shop", fixture.At(fixture.T0.Add(time.Hour))))
	f.Must(f.ImportApp(f.Context(), export, fixture.At(fixture.T0.Add(2*time.Hour))))
	f.ExpectState(run.CarriedState{State: json.RawMessage(`{"n":1}`), Revision: 2, SetBy: "test"})
}
