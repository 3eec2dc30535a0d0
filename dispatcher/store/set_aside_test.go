package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// asideRun makes the run of evil be set aside: the number of its attempt does not fit into its column.
func asideRun(r *batchRig) {
	r.Helper()
	r.requested(nil)
	r.spoil("attempt = " + r.most())
	must(r.T, r.adopt(false))
}

// A run that is set aside shows the reason, waits longer after each failure, and continues once it can be adopted.
func TestRunSetAsideIsTriedAgain(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newBatchRig(t, database)
		asideRun(r)
		one, err := r.Store.Run(t.Context(), r.keys["evil"].String())
		must(t, err)
		if one.State != run.Queued || one.Class != run.ClassOther || !strings.Contains(one.Error, "set aside, tried again at") {
			t.Errorf("the run is %s: %s %q, want that it says why it is set aside", one.State, one.Class, one.Error)
		}
		again := func(at time.Time) int {
			t.Helper()
			n, err := r.RetrySetAside(t.Context(), 100, at)
			must(t, err)
			return n
		}
		if n := again(r.now.Add(9 * time.Second)); n != 0 {
			t.Errorf("before its time %d runs are tried again", n)
		}
		r.now = r.now.Add(10 * time.Second)
		if n := again(r.now); n != 1 {
			t.Fatalf("at its time %d runs are tried again, want 1", n)
		}
		must(t, r.adopt(false))
		if aside := r.aside(dispatcher.WorkAdopt); len(aside) != 1 || aside[0].Tries != 2 || !aside[0].TryAt.Equal(r.now.Add(20*time.Second)) {
			t.Errorf("after the second try: %+v, want that the pause is twice as long", aside)
		}
		r.spoil("attempt = 0")
		r.now = r.now.Add(20 * time.Second)
		again(r.now)
		must(t, r.adopt(false))
		if got := r.state("evil"); got != run.Claimed {
			t.Errorf("once it can be adopted, the run is %s", got)
		}
		if aside := r.aside(dispatcher.WorkAdopt); len(aside) != 0 {
			t.Errorf("attention shows %+v, want nothing", aside)
		}
		again(r.now.Add(time.Hour))
		if n := r.count(`SELECT count(*) FROM set_aside`); n != 0 {
			t.Errorf("%d entries are left", n)
		}
	})
}

// A retry that was set aside is a retry again afterwards.
func TestRetrySetAsideIsTriedAgain(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newBatchRig(t, database)
		r.retrying(r.now.Add(time.Hour))
		r.spoil("attempt = " + r.most())
		must(t, r.adopt(true))
		if n, err := r.GiveUp(t.Context(), r.now.Add(2*time.Hour)); err != nil || n != 0 {
			t.Errorf("gave up %d runs, %v; want that one that is set aside stays", n, err)
		}
		r.spoil("attempt = 1")
		r.now = r.now.Add(time.Minute)
		_, err := r.RetrySetAside(t.Context(), 100, r.now)
		must(t, err)
		if got := r.state("evil"); got != run.Retrying {
			t.Errorf("the run is %s, want that it is retrying again", got)
		}
		must(t, r.adopt(true))
		if got := r.state("evil"); got != run.Claimed {
			t.Errorf("the run is %s, want that it was adopted", got)
		}
	})
}

// Neither a cancellation nor the deletion of the job or the app depends on the failing batch; a run that fails when it
// is adopted can be ended before and after it was set aside.
func TestBadRunEndsWithoutItsBatch(t *testing.T) {
	t.Parallel()
	cancel := func(r *batchRig) {
		_, err := r.CancelRun(r.Context(), r.keys["evil"].String(), r.change())
		must(r.T, err)
	}
	remove := func(r *batchRig) {
		must(r.T, r.DeleteJob(r.Context(), "evil", "job", r.change()))
		must(r.T, r.DeleteApp(r.Context(), "evil", r.change()))
	}
	sweep := func(r *batchRig) {
		must(r.T, r.adopt(false))
		_, err := r.RetrySetAside(r.Context(), 100, r.now)
		must(r.T, err)
	}
	for name, steps := range map[string][]func(*batchRig){
		"cancelled before":       {cancel},
		"cancelled while aside":  {sweep, cancel},
		"deleted before":         {remove, sweep},
		"deleted while aside":    {sweep, remove},
		"deleted, and set aside": {remove, sweep, sweep},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBothDatabases(t, func(t *testing.T, database string) {
				r := newBatchRig(t, database)
				r.requested(nil)
				r.spoil("attempt = " + r.most())
				for _, step := range steps {
					step(r)
				}
				if got := r.state("evil"); got != run.Cancelled {
					t.Errorf("the run is %s, want cancelled", got)
				}
				if aside := r.aside(dispatcher.WorkAdopt); len(aside) != 0 {
					t.Errorf("attention shows %+v, want nothing", aside)
				}
			})
		})
	}
}

// A job with a run that is set aside gives its slots to its other runs.
func TestRunSetAsideDoesNotBlockItsQueue(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newBatchRig(t, database)
		queue := func(job *dispatcher.Job) {
			job.ConcurrencyPolicy, job.QueueLimit = run.ConcurrencyQueue, 10
		}
		r.requested(queue)
		r.spoil("attempt = " + r.most())
		must(t, r.adopt(false))
		r.now = r.now.Add(time.Second)
		next, err := r.RequestRun(t.Context(), "evil", "job", nil, r.change())
		must(t, err)
		must(t, r.adopt(false))
		held, err := r.Held(t.Context(), batchNode, batchToken+1)
		must(t, err)
		granted, err := r.Acquire(t.Context(), held)
		must(t, err)
		for _, run := range granted {
			if run.String() == next.ID {
				return
			}
		}
		t.Errorf("granted %d runs slots, want the run after the one that is set aside among them", len(granted))
	})
}

// An unreadable note of an accepted attempt ends the attempt, and hides no run.
func TestUnreadableCallbackEndsItsAttempt(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newBatchRig(t, database)
		r.requested(nil)
		r.spoil(`callback = '{"started":'`)
		query := dispatcher.AdoptQuery{Node: batchNode, Token: batchToken, Limit: 10, Now: r.now}
		found, err := r.Adoptable(t.Context(), query)
		must(t, err)
		held, err := r.Adopt(t.Context(), query, found)
		must(t, err)
		if len(held) != 2 {
			t.Fatalf("adopted %d runs, want both", len(held))
		}
		for _, run := range held {
			if bad := run.JobID == r.job("evil"); bad != (run.Accepted != nil && run.Accepted.Failed) {
				t.Errorf("the run of job %d has %+v of an accepted attempt", run.JobID, run.Accepted)
			}
		}
		r.exec(`UPDATE live_runs SET state = 'waiting_callback'`)
		runs, err := r.Runs(t.Context(), dispatcher.RunQuery{App: "evil", Page: input.Page{Limit: 10}})
		if err != nil || len(runs) != 1 || !strings.Contains(runs[0].Error, "cannot be read") {
			t.Errorf("listed %+v, %v; want the run with the reason", runs, err)
		}
	})
}

// A trigger with the longest possible misfire_after does not prevent reading others.
func TestLongestMisfireAfterDoesNotStopPolls(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newBatchRig(t, database)
		r.firing("rate(1m)", nil)
		r.exec(`UPDATE trigger_clock SET misfire_after = 9223372036854775807 WHERE app_id = %d`, run.AppID("evil"))
		for _, overdue := range []bool{false, true} {
			due, err := r.Due(t.Context(), dispatcher.DueQuery{Until: r.now.Add(time.Hour), Now: r.now, Limit: 10, Overdue: overdue})
			if err != nil || !overdue && len(due) != 2 {
				t.Errorf("overdue %v: %d triggers, %v", overdue, len(due), err)
			}
		}
		_, err := r.OverdueApps(t.Context(), nil, nil, time.Time{}, r.now)
		must(t, err)
	})
}

// A fire with a run that is set aside is explained: its run shows why it waits.
func TestFireOfARunSetAsideIsExplained(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newBatchRig(t, database)
		r.firing("rate(1m)", nil)
		advances := r.advances(true)
		_, err := r.Claim(t.Context(), dispatcher.ClaimBatch{Node: batchNode, Token: batchToken, Lead: time.Hour, Now: r.now, Advances: advances})
		must(t, err)
		r.spoil("attempt = " + r.most() + ", state = 'queued', node = 0, token = 0")
		must(t, r.adopt(false))
		e, err := verify.Explain(t.Context(), r.Store, verify.ExplainQuery{App: "evil", Job: "job", Trigger: "tick", At: advances[0].Next,
			Now: advances[0].Next.Add(time.Minute)})
		must(t, err)
		if e.Run == nil || !strings.Contains(e.Reason, "set aside, tried again at") {
			t.Errorf("explained as %q with run %v, want that the run is set aside", e.Reason, e.Run)
		}
	})
}

// A run that cannot even be set aside, as all writes of its row fail, is left out by its process and reported once.
func TestRunThatCannotBeSetAsideStopsNoOtherRun(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newBatchRig(t, database)
		r.requested(nil)
		r.refuse("UPDATE", "live_runs", "ROW.job_id = %d", r.job("evil"))
		for range 3 {
			must(t, r.adopt(false))
		}
		if !r.holds() {
			t.Error("the run of the other app was not adopted")
		}
		if n := r.counted(dispatcher.WorkAdopt); n != 1 {
			t.Errorf("told of it %v times, want once", n)
		}
	})
}

// Errors of the database do not set rows aside.
func TestDatabaseErrorsSetNoRowsAside(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newBatchRig(t, database)
		r.requested(nil)
		query := dispatcher.AdoptQuery{Node: batchNode, Token: batchToken, Limit: 10, Now: r.now}
		found, err := r.Adoptable(t.Context(), query)
		must(t, err)
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := r.Adopt(ended, query, found); err == nil {
			t.Error("with a context that has ended: adopted")
		}
		table := "live_runs_away"
		r.exec(`ALTER TABLE live_runs RENAME TO %s`, table)
		if _, err := r.Adopt(t.Context(), query, found); err == nil {
			t.Error("without the table: adopted")
		}
		r.exec(`ALTER TABLE %s RENAME TO live_runs`, table)
		if n := r.counted(dispatcher.WorkAdopt); n != 0 {
			t.Errorf("%v rows were set aside, want none", n)
		}
		must(t, r.adopt(false))
		if !r.holds() {
			t.Error("the run was not adopted once the database was well")
		}
	})
}
