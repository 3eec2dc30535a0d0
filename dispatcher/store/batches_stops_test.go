package store_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// badRuns spoil the run of evil, each in a different way.
var badRuns = map[string]func(*batchRig){
	"its group cannot be read": func(r *batchRig) {
		r.expiringEndpoints()
		r.requested(func(job *dispatcher.Job) {
			job.Target = target.Target{Group: &target.GroupTarget{Name: "workers", Method: "POST", Timeout: target.DefaultTimeout}}
		})
		r.exec(`UPDATE endpoint_groups SET definition = '{' WHERE app_id = %d`, run.AppID("evil"))
	},
	"its calendar cannot be read": func(r *batchRig) {
		r.both(func(app string) {
			_, _, err := r.PutCalendar(r.Context(), dispatcher.Calendar{App: app, Name: "c"}, r.change())
			must(r.T, err)
		})
		r.requested(func(job *dispatcher.Job) {
			job.Triggers = map[string]dispatcher.Trigger{"tick": {TriggerSpec: dispatcher.TriggerSpec{
				Schedule:     dispatcher.Schedule{Expression: "rate(1m)", Calendar: "c"},
				MisfireAfter: dispatcher.DefaultMisfireAfter, Enabled: true}}}
		})
		r.exec(`UPDATE calendars SET definition = '{' WHERE app_id = %d`, run.AppID("evil"))
	},
	"an alert of its app cannot be read": func(r *batchRig) {
		r.alerted()
		r.requested(nil)
		r.exec(`UPDATE alerts SET definition = '{' WHERE app_id = %d`, run.AppID("evil"))
	},
	"the alert state of its job cannot be read": func(r *batchRig) {
		r.alerted()
		r.requested(nil)
		_, _, err := r.WatchAlerts(r.Context(), &alert.LateFire{}, 10, r.now)
		must(r.T, err)
		r.exec(`UPDATE alert_states SET track = '{'`)
	},
	"its fire is alone in a claim and cannot be written": func(r *batchRig) {
		r.claimed()
		r.refuse("INSERT", "live_runs", "ROW.job_id = %d", r.job("evil"))
	},
	"its fire is with another one in a claim and cannot be written": (*batchRig).claimedTogether,
	"its claim was divided and set aside because it cannot be written": func(r *batchRig) {
		r.claimedTogether()
		_, err := r.UnfoldClaims(r.Context(), batchNode, time.Minute, r.now.Add(time.Hour))
		must(r.T, err)
	},
	"its claim belongs to a dead node and was set aside because it cannot be written": func(r *batchRig) {
		r.claimedTogether()
		r.nodeDies()
		_, err := r.Adoptable(r.Context(), dispatcher.AdoptQuery{Node: batchNode + 1, Token: 1, Limit: 10, Now: r.now})
		must(r.T, err)
	},
	"it is set aside": func(r *batchRig) {
		r.requested(nil)
		r.spoil("attempt = " + r.most())
		must(r.T, r.adopt(false))
	},
	"it was attempted as often as possible": func(r *batchRig) {
		r.retrying(r.now.Add(time.Hour))
		r.spoil("attempt = " + r.most() + ", failures = " + r.most())
	},
	"its input cannot be read": func(r *batchRig) {
		r.requested(nil)
		r.give("run_inputs", "input", "")
	},
	"its response cannot be read": func(r *batchRig) {
		r.retrying(r.now.Add(time.Hour))
		r.give("responses", "attempt, response", "1, ")
	},
	"the late result of its attempt cannot be read": func(r *batchRig) {
		r.retrying(r.now.Add(time.Hour))
		r.exec(`UPDATE attempts SET late_result = '{'`)
	},
	"its endpoints cannot be read": func(r *batchRig) {
		r.requested(nil)
		r.spoil("state = 'waiting_shards'")
		r.give("broadcasts", "endpoints", "")
	},
	"the note of its accepted attempt cannot be read": func(r *batchRig) {
		r.requested(nil)
		r.spoil("state = 'waiting_callback', callback = '{'")
	},
	"its job cannot be read": func(r *batchRig) {
		r.requested(nil)
		r.exec(`UPDATE jobs SET target = '{', retry = '[', followers = '{', trigger_names = '{', secret_versions = '{',
			pause = '{', labels = '{' WHERE id = %d`, r.job("evil"))
	},
	"its app cannot be read": func(r *batchRig) {
		r.requested(nil)
		r.exec(`UPDATE apps SET bounds = '{', defaults = '{' WHERE name = 'evil'`)
	},
	"its trigger cannot be read": func(r *batchRig) {
		r.claimed()
		r.exec(`UPDATE triggers SET expression = '{', timezone = 'nowhere', pause = '{', node_labels = '{' WHERE app_id = %d`, run.AppID("evil"))
	},
	"the state that its job carries cannot be read": func(r *batchRig) {
		r.requested(func(job *dispatcher.Job) { job.CarryState, job.ConcurrencyPolicy = true, run.ConcurrencyForbid })
		r.exec(`INSERT INTO carried_states (job_id, state, revision, updated_at) VALUES (%d, '{', 1, 1)`, r.job("evil"))
	},
}

// give writes a row of the run of evil with truncated JSON.
func (r *batchRig) give(table, columns, values string) {
	r.Helper()
	key := r.keys["evil"]
	r.exec(`INSERT INTO %s (scheduled_at, trigger_id, kind, %s) VALUES (%d, %d, %d, %s'{')`, table, columns, key.ScheduledAt.UnixMilli(),
		key.TriggerID, key.Code(), values)
}

// stops are the actions of users on a run of evil, each in its own database.
var stops = map[string]func(r *batchRig, bad string){
	"cancel": func(r *batchRig, bad string) {
		r.look()
		_, err := r.PauseApp(r.Context(), "evil", dispatcher.AppPauseRequest{}, r.change())
		must(r.T, err)
		change := r.change()
		change.Operator = true
		suspended := access.AppSpec{Enabled: true, Bounds: &target.Bounds{Suspended: true}}
		_, _, err = r.PutApp(r.Context(), access.App{Name: "evil", AppSpec: suspended}, change)
		must(r.T, err)
		id := r.keys["evil"].String()
		_, err = r.CancelRun(r.Context(), id, r.change())
		must(r.T, err)
		r.wantEnded(run.ClassCancelled)
		r.look()
	},
	"cancel many, and replay": func(r *batchRig, bad string) {
		for _, state := range repeat.CancellableStates {
			spec := repeat.BulkSpec{Action: repeat.BulkCancelRuns, Filter: repeat.BulkFilter{State: string(state)}}
			created, err := r.CreateBulkAction(r.Context(), "evil", spec, repeat.BulkCount{}, r.change())
			must(r.T, err)
			id, err := repeat.ParseBulkActionID(created.ID)
			must(r.T, err)
			_, err = r.StepBulkAction(r.Context(), id, r.now)
			must(r.T, err)
		}
		r.wantEnded(run.ClassCancelled)
		if strings.Contains(bad, "cannot be written") || strings.Contains(bad, "app") {
			return // a replay needs the row, and an app that may run
		}
		_, err := r.RetryRun(r.Context(), r.keys["evil"].String(), r.change())
		must(r.T, err)
	},
	"rename the job, and cancel": func(r *batchRig, bad string) {
		in := func(what string) bool { return strings.Contains(bad, what) }
		if !slices.ContainsFunc([]string{"its job", "trigger", "app", "group"}, in) {
			_, err := r.RenameJob(r.Context(), "evil", "job", dispatcher.JobRename{Name: "new"}, r.change())
			must(r.T, err)
		}
		_, err := r.CancelRun(r.Context(), r.keys["evil"].String(), r.change())
		must(r.T, err)
		r.wantEnded(run.ClassCancelled)
	},
	"delete": func(r *batchRig, bad string) {
		must(r.T, r.DeleteJob(r.Context(), "evil", "job", r.change()))
		for _, remove := range []func() error{
			func() error { return r.DeleteGroup(r.Context(), "evil", "workers", r.change()) },
			func() error { return r.DeleteCalendar(r.Context(), "evil", "c", r.change()) },
			func() error { return r.DeleteAlert(r.Context(), "evil", "pager", r.change()) },
		} {
			if err := remove(); !errors.Is(err, dispatcher.ErrNotFound) {
				must(r.T, err)
			}
		}
		must(r.T, r.DeleteApp(r.Context(), "evil", r.change()))
		if !strings.Contains(bad, "set aside") && strings.Contains(bad, "claim") {
			_, err := r.UnfoldClaims(r.Context(), batchNode, time.Minute, r.now.Add(time.Hour))
			must(r.T, err)
			_, err = r.RetrySetAside(r.Context(), 10, time.Now().Add(time.Minute))
			must(r.T, err)
		}
		if strings.Contains(bad, "set aside") || strings.Contains(bad, "claim") {
			r.wantEnded(run.ClassJobDeleted)
		}
	},
}

// look reads the run of evil as users do.
func (r *batchRig) look() {
	r.Helper()
	_, err := r.Store.Run(r.Context(), r.keys["evil"].String())
	must(r.T, err)
	_, err = r.Runs(r.Context(), dispatcher.RunQuery{App: "evil", Page: input.Page{Limit: 10}})
	must(r.T, err)
}

// wantEnded expects the run of evil to be cancelled in the history and to be in no other table.
func (r *batchRig) wantEnded(class run.Class) {
	r.Helper()
	if n := r.count(`SELECT count(*) FROM runs WHERE state = 'cancelled' AND class = '%s' AND job_id = %d`, class, r.job("evil")); n != 1 {
		r.Errorf("%d runs ended as %s, want one", n, class)
	}
	if n := r.count(`SELECT count(*) FROM live_runs WHERE job_id = %d`, r.job("evil")); n != 0 {
		r.Errorf("%d runs are still live", n)
	}
	if n := r.count(`SELECT count(*) FROM set_aside WHERE job_id = %d`, r.job("evil")); n != 0 {
		r.Errorf("%d rows are still set aside", n)
	}
}

// Users can view and cancel a bad run, and delete its job and app, however bad its rows are.
func TestBadRunsAreStopped(t *testing.T) {
	t.Parallel()
	for bad, poison := range badRuns {
		for stop, do := range stops {
			t.Run(bad+": "+stop, func(t *testing.T) {
				t.Parallel()
				onBothDatabases(t, func(t *testing.T, database string) {
					r := newBatchRig(t, database)
					poison(r)
					do(r, bad)
				})
			})
		}
	}
}
