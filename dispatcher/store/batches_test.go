package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// batchRig is a store with a job "job" in the app "victim", and in the app "evil", which gets a bad row.
type batchRig struct {
	*testing.T
	*store.Store
	registry *prometheus.Registry
	now      time.Time
	postgres bool
	triggers int // of poison
	keys     map[string]run.Key
}

const (
	batchNode  run.NodeID = 7
	batchToken run.Token  = 1000
)

func newBatchRig(t *testing.T, database string) *batchRig {
	t.Helper()
	registry := prometheus.NewRegistry()
	r := &batchRig{T: t, registry: registry, postgres: !strings.HasPrefix(database, "sqlite:"),
		Store: openAs(t, database, store.Options{Options: db.Options{Metrics: registry}}),
		now:   time.Now().UTC().Truncate(time.Minute),
		keys:  map[string]run.Key{}}
	for _, app := range []string{"evil", "victim"} {
		_, _, err := r.PutApp(t.Context(), access.App{Name: app, AppSpec: access.AppSpec{Enabled: true}}, r.change())
		must(t, err)
	}
	must(t, r.Register(t.Context(), dispatcher.Node{ID: batchNode, Name: "n", Version: "v"}, r.now))
	return r
}

func (r *batchRig) change() input.Change { return input.Change{Actor: "test", Now: r.now} }

// both calls do for each app.
func (r *batchRig) both(do func(app string)) {
	do("evil")
	do("victim")
}

// jobs declares the job of each app.
func (r *batchRig) jobs(change func(*dispatcher.Job)) {
	r.Helper()
	r.both(func(app string) {
		job := dispatcher.Job{App: app, Name: "job", JobSpec: dispatcher.JobSpec{Enabled: true}}
		job.SetDefaults()
		job.Target.Webhook = &target.Webhook{URL: "http://example.com/", Method: "POST", Timeout: target.DefaultTimeout}
		if change != nil {
			change(&job)
		}
		_, _, err := r.PutJob(r.Context(), job, r.change())
		must(r.T, err)
	})
}

// requested declares the jobs and requests a run of each.
func (r *batchRig) requested(change func(*dispatcher.Job)) {
	r.Helper()
	r.jobs(change)
	r.both(func(app string) {
		one, err := r.RequestRun(r.Context(), app, "job", nil, r.change())
		must(r.T, err)
		r.keys[app], err = run.ParseKey(one.ID)
		must(r.T, err)
	})
}

// firing declares jobs with a trigger that fires each minute.
func (r *batchRig) firing(expression string, change func(*dispatcher.Job)) {
	r.Helper()
	r.jobs(func(job *dispatcher.Job) {
		job.Triggers = map[string]dispatcher.Trigger{"tick": {TriggerSpec: dispatcher.TriggerSpec{
			Schedule:     dispatcher.Schedule{Expression: expression},
			MisfireAfter: dispatcher.DefaultMisfireAfter, Enabled: true}}}
		if change != nil {
			change(job)
		}
	})
}

// adopted is requested, and then adopts the runs.
func (r *batchRig) adopted(change func(*dispatcher.Job)) []run.HeldRun {
	r.Helper()
	r.requested(change)
	query := dispatcher.AdoptQuery{Node: batchNode, Token: batchToken, Limit: 10, Now: r.now}
	found, err := r.Adoptable(r.Context(), query)
	must(r.T, err)
	held, err := r.Adopt(r.Context(), query, found)
	must(r.T, err)
	if len(held) != 2 {
		r.Fatalf("adopted %d runs, want 2", len(held))
	}
	return held
}

// record returns the outcome of a run.
func (r *batchRig) record(one run.HeldRun, state run.State) dispatcher.Record {
	return dispatcher.Record{Key: one.Key, JobID: one.JobID, Revision: one.Revision, ClaimedAt: one.ClaimedAt, Node: batchNode,
		Token: one.Token, Attempt: one.Attempt, Followed: true,
		Outcome: run.Outcome{State: state, Class: run.ClassOther, StartedAt: r.now, EndedAt: r.now}}
}

// retrying is adopted, followed by a failure of the runs, which are retried now.
func (r *batchRig) retrying(until time.Time) {
	r.Helper()
	for _, one := range r.adopted(nil) {
		record := r.record(one, run.Failed)
		record.Next = &dispatcher.NextAttempt{At: r.now, Until: until, CountsAsFailure: true}
		must(r.T, r.Record(r.Context(), []dispatcher.Record{record}))
	}
}

// exec runs a statement directly, without the store.
func (r *batchRig) exec(statement string, args ...any) {
	r.Helper()
	if err := store.Exec(context.WithoutCancel(r.Context()), r.Store, fmt.Sprintf(statement, args...)); err != nil {
		r.Fatalf("%s: %v", fmt.Sprintf(statement, args...), err)
	}
}

// spoil changes the live run of evil.
func (r *batchRig) spoil(set string) {
	r.Helper()
	r.exec(`UPDATE live_runs SET %s WHERE job_id = %d`, set, r.job("evil"))
}

// most is the largest value of a column of attempts.
func (r *batchRig) most() string {
	if r.postgres {
		return "2147483647"
	}
	return "9223372036854775807"
}

func (r *batchRig) job(app string) int64 { return run.JobID(app, "job") }

// refuse makes the database refuse rows of a table that meet a condition, as it refuses a value that does not fit.
func (r *batchRig) refuse(event, table, condition string, args ...any) {
	r.Helper()
	r.triggers++
	condition = fmt.Sprintf(condition, args...)
	row := "NEW"
	if event == "DELETE" {
		row = "OLD"
	}
	condition = strings.ReplaceAll(condition, "ROW.", row+".")
	if !r.postgres {
		r.exec(`CREATE TRIGGER refuse_%d BEFORE %s ON %s WHEN %s BEGIN SELECT RAISE(ABORT, 'a value does not fit'); END`, r.triggers, event,
			table, condition)
		return
	}
	r.exec(`CREATE FUNCTION refuse_%d() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF %s THEN RAISE 'a value does not fit' USING ERRCODE = '22003'; END IF; RETURN %s; END $$`, r.triggers, condition, row)
	r.exec(`CREATE TRIGGER refuse_%d BEFORE %s ON %s FOR EACH ROW EXECUTE FUNCTION refuse_%d()`, r.triggers, event, table, r.triggers)
}

// count counts rows.
func (r *batchRig) count(query string, args ...any) int64 {
	r.Helper()
	n, err := store.Count(r.Context(), r.Store, fmt.Sprintf(query, args...))
	must(r.T, err)
	return n
}

// state returns the state of the run of an app.
func (r *batchRig) state(app string) run.State {
	r.Helper()
	run, err := r.Store.Run(r.Context(), r.keys[app].String())
	must(r.T, err)
	return run.State
}

// aside returns the rows set aside by a kind of work, as attention shows them.
func (r *batchRig) aside(work dispatcher.Work) (found []dispatcher.SetAside) {
	r.Helper()
	a, err := r.Attention(r.Context(), nil, r.now)
	must(r.T, err)
	for _, one := range a.SetAside.Items {
		if one.Work == work {
			found = append(found, one)
		}
	}
	return found
}

// quarantined returns the apps with triggers in state error.
func (r *batchRig) quarantined() (apps []string) {
	r.Helper()
	a, err := r.Attention(r.Context(), nil, r.now)
	must(r.T, err)
	for _, one := range a.Quarantined.Items {
		apps = append(apps, one.App)
	}
	return apps
}

// counted returns the metric of rows set aside by a kind of work.
func (r *batchRig) counted(work dispatcher.Work) (n float64) {
	r.Helper()
	families, err := r.registry.Gather()
	must(r.T, err)
	for _, family := range families {
		if family.GetName() != "carillon_set_aside_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "work" && label.GetValue() == string(work) {
					n += metric.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// A row that makes its batch fail is set aside. The row of the other app is processed, attention shows the reason,
// and the next round does not fail on the row again.
func TestBadRowDoesNotStopItsBatch(t *testing.T) {
	t.Parallel()
	for _, batch := range poisonedBatches() {
		t.Run(batch.name, func(t *testing.T) {
			t.Parallel()
			onBothDatabases(t, func(t *testing.T, database string) {
				r := newBatchRig(t, database)
				batch.poison(r)
				for round := range 3 {
					if err := batch.call(r); err != nil {
						t.Fatalf("round %d: %v", round, err)
					}
				}
				if !batch.goesOn(r) {
					t.Errorf("the row of the other app did not go on: its run is %v", r.keys["victim"])
				}
				if n := r.counted(batch.work); n != 1 {
					t.Errorf("set aside %v times in three rounds, want once", n)
				}
				if batch.quarantines {
					if apps := r.quarantined(); !slices.Equal(apps, []string{"evil"}) {
						t.Errorf("quarantined triggers of %v, want those of evil", apps)
					}
					return
				}
				aside := r.aside(batch.work)
				if len(aside) != 1 || aside[0].App != "evil" && !batch.ofNoApp || aside[0].Problem == "" || aside[0].Tries != 1 {
					t.Errorf("attention shows %+v, want one row of evil with the reason", aside)
				}
			})
		})
	}
}

// Each batch over rows of several apps is tested with a bad row.
func TestEachBatchIsPoisoned(t *testing.T) {
	t.Parallel()
	poisoned := map[string]bool{}
	for _, batch := range poisonedBatches() {
		for _, method := range batch.methods {
			poisoned[method] = true
		}
	}
	for method, batch := range storetest.Batches {
		if wanted := batch.Works != nil; wanted != poisoned[method] {
			t.Errorf("%s is in a case of poisonedBatches: %v, want %v: storetest.Batches says %q", method, poisoned[method], wanted, batch.Why)
		}
	}
}
