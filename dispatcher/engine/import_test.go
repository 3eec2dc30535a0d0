package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// exported disables the app, and returns its export.
func (r *rig) exported() access.Export {
	r.t.Helper()
	r.enable(false)
	export, err := r.store.ExportApp(r.t.Context(), "app")
	if err != nil {
		r.t.Fatal(err)
	}
	export.App.Enabled = true
	return export
}

func (r *rig) enable(on bool) {
	r.t.Helper()
	app := access.App{Name: "app", AppSpec: access.AppSpec{Enabled: on}}
	_, _, err := r.store.PutApp(r.t.Context(), app, input.Change{Actor: "test"})
	for more := true; more && err == nil; {
		_, more, err = r.store.FollowSwitches(r.t.Context(), 100)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// remove deletes the app with its only job.
func (r *rig) remove(ctx context.Context, job string) error {
	by := input.Change{Actor: "test"}
	return errors.Join(r.store.DeleteJob(ctx, "app", job, by), r.store.DeleteApp(ctx, "app", by))
}

// The node hears nothing of the import, and its attempt of the run from before begins only then. The run came back, too.
func TestRunOfADeletedAppIsNotAttemptedAfterItsReturn(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("report", "rate(1h)", nil)
	change := input.Change{Actor: "test"}
	if _, err := r.store.RequestRun(t.Context(), "app", "report", nil, change); err != nil {
		t.Fatal(err)
	}
	export := r.exported()
	if len(export.Waiting) != 1 {
		t.Fatalf("the export has the waiting runs %+v, want one", export.Waiting)
	}
	if err := r.remove(t.Context(), "report"); err != nil {
		t.Fatal(err)
	}
	query := dispatcher.AdoptQuery{Node: r.fleet.ID(), Token: 77, Limit: 10, Now: time.Now()}
	found, err := r.store.Adoptable(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	held, err := r.store.Adopt(t.Context(), query, found)
	if err != nil || len(held) != 1 {
		t.Fatalf("adopted: %v, %v, want the run of the deleted app", held, err)
	}
	if shown := r.runNow(held[0].String()); shown.Revision != found[0].Revision {
		t.Errorf("the adopted run is shown with revision %d, want that of its job, %d", shown.Revision, found[0].Revision)
	}
	if _, err := r.store.ImportApp(t.Context(), export, change); err != nil {
		t.Fatal(err)
	}
	waiting := r.plan.HeldBy(query.Node, held)
	if waiting[0].Queue.App = "app"; r.pool.Admit(waiting[0].Queue) != pool.Admitted {
		t.Fatal("the pool has no place")
	}
	r.pool.Submit(waiting)
	r.quiet()
	if len(r.calls) != 0 {
		t.Errorf("%d calls by the attempt from before the import, want none", len(r.calls))
	}
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := r.settled(); len(all) != 1 || all[0].State != run.Succeeded || len(r.calls) != 1 {
		t.Errorf("runs = %+v after %d calls, want the imported one, called once", all, len(r.calls))
	}
}

// The end of the run is all that happens to it, so its attempt has to stop.
func TestImportCutsOffAttemptsFromBefore(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("report", "rate(1h)", nil)
	export := r.exported()
	r.enable(true)
	r.listens()
	r.invoke = func(ctx context.Context, _ target.Call) run.Outcome {
		lasting := context.WithoutCancel(ctx)
		err := r.remove(lasting, "report")
		if err == nil {
			_, err = r.store.ImportApp(lasting, export, input.Change{Actor: "test"})
		}
		if err != nil {
			r.t.Error(err)
		}
		return r.cutOff(ctx)
	}
	id := r.requestRun("report").ID
	r.quiet()
	if one := r.runNow(id); one.State != run.Cancelled || one.Class != run.ClassJobDeleted {
		t.Errorf("run = %+v, want it cancelled because of the deletion", one)
	}
}
