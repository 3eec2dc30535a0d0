package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres"
)

// dumped is the name of the copy of a database that is restored.
const dumped = "dumped"

// restorer keeps a copy of a database under running nodes, and restores it.
type restorer struct {
	*gate
	server *postgres.Server
}

// copyTo copies a database while no node is connected, for less time than the nodes need to lose their leases.
func (r *restorer) copyTo(from, to string) {
	r.t.Helper()
	r.close()
	defer r.open()
	sqlIn(r.t, r.server, "postgres", `DROP DATABASE IF EXISTS `+to+` WITH (FORCE)`)
	create := fmt.Sprintf(`CREATE DATABASE %s TEMPLATE %s`, to, from)
	until(r.t, create, func() bool { // even after the last connection has ended
		_ = r.server.Execute(r.t.Context(), "postgres",
			`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname IN ('carillon', 'dumped') AND pid <> pg_backend_pid()`)
		return r.server.Execute(r.t.Context(), "postgres", create) == nil
	})
}

// boundedJobs are jobs of every policy that makes runs wait for one another, each with a trigger
// that fires more often than a request takes. Their paths are their names.
func boundedJobs(url string) map[string]dispatcher.Job {
	jobs := map[string]dispatcher.Job{}
	add := func(name string, change func(*dispatcher.Job)) {
		j := webhookJob("bounded", name, url+"/"+name, map[string]string{"tick": "* * * * * ?"})
		j.QueueLimit = 3
		change(&j)
		jobs[name] = j
	}
	grouped := func(policy run.ConcurrencyPolicy, strategy target.Strategy) func(*dispatcher.Job) {
		return func(j *dispatcher.Job) {
			j.Target = target.Target{Group: &target.GroupTarget{Name: "workers", Path: "/" + j.Name, Strategy: strategy,
				EndpointConcurrency: policy}}
			j.Target.Group.SetDefaults()
		}
	}
	for _, policy := range []run.ConcurrencyPolicy{run.ConcurrencyForbid, run.ConcurrencyQueue,
		run.ConcurrencyReplace} {
		add(string(policy), func(j *dispatcher.Job) { j.ConcurrencyPolicy = policy })
		add("endpoint-"+string(policy), grouped(policy, ""))
		add("broadcast-"+string(policy), func(j *dispatcher.Job) {
			grouped("", target.Broadcast)(j)
			j.ConcurrencyPolicy = policy
		})
	}
	add("allow", func(j *dispatcher.Job) {})
	add("allow-bounded", func(j *dispatcher.Job) { j.MaxConcurrency = 2 })
	add("forbid-once", func(j *dispatcher.Job) {
		j.ConcurrencyPolicy, j.Delivery = run.ConcurrencyForbid, dispatcher.AtMostOnce
	})
	add("queue-delay", func(j *dispatcher.Job) {
		j.ConcurrencyPolicy = run.ConcurrencyQueue
		tick := j.Triggers["tick"]
		tick.Expression, tick.Timezone = "delay(1s)", ""
		j.Triggers["tick"] = tick
	})
	return jobs
}

// stalled returns the jobs with fewer than the wanted number of runs since a time, counting each run once.
func stalled(jobs map[string]dispatcher.Job, all []arrival, since time.Time, wanted int) (names []string) {
	runs := map[string]map[time.Time]bool{}
	for _, a := range all {
		if name := a.path[1:]; !a.scheduled.Before(since) {
			if runs[name] == nil {
				runs[name] = map[time.Time]bool{}
			}
			runs[name][a.scheduled] = true
		}
	}
	for name := range jobs {
		if len(runs[name]) < wanted {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func TestStalledJobsAreNoticed(t *testing.T) {
	t.Parallel()
	jobs := map[string]dispatcher.Job{"never": {}, "before": {}, "once": {}, "repeated": {}, "goes-on": {}}
	since := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	of := func(name string, seconds ...int) (all []arrival) {
		for _, s := range seconds {
			all = append(all, arrival{path: "/" + name, scheduled: since.Add(time.Duration(s) * time.Second)})
		}
		return all
	}
	all := slices.Concat(of("before", -3, -2, -1), of("once", -1, 1), of("repeated", 1, 1, 1), of("goes-on", 1, 2))
	if got, want := stalled(jobs, all, since, 2), []string{"before", "never", "once", "repeated"}; !slices.Equal(got, want) {
		t.Errorf("stalled jobs are %v, want %v", got, want)
	}
}

// An old dump is restored under running nodes that hold slots of jobs of every policy, in the dump
// and later. Whatever an operator chooses, each job continues on the same nodes.
func TestEachJobGoesOnAfterARestoredDump(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	server := startServer(t, func(s *postgres.Server) error { return s.Init(t.Context()) })
	sqlIn(t, server, "postgres", "CREATE DATABASE carillon")
	if err := store.Migrate(t.Context(), server.URL("carillon")); err != nil {
		t.Fatal(err)
	}
	token := newToken(t, server.URL("carillon"))
	g, database := newGate(t, server.URL("carillon"))
	g.open()
	restore := &restorer{gate: g, server: server}
	r := newReceiver(t, func(w http.ResponseWriter, _ arrival) {
		elapse(1500 * time.Millisecond)
		w.WriteHeader(http.StatusNoContent)
	})
	settings := []string{"--handler-interval=500ms", "--heartbeat=200ms", "--dead-after=20s"} // no node is marked dead meanwhile
	one := startNode(t, database, token, settings...)
	startNode(t, database, token, settings...)
	must[access.App](t)(one.PutApp(t.Context(), access.App{Name: "bounded", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	must[target.EndpointGroup](t)(one.PutGroup(t.Context(), target.EndpointGroup{App: "bounded", Name: "workers",
		EndpointGroupSpec: target.EndpointGroupSpec{Endpoints: map[string]target.StaticEndpoint{"a": {URL: r.URL}, "b": {URL: r.URL}}}},
		client.Condition{}))
	jobs := boundedJobs(r.URL)
	for _, j := range jobs {
		must[dispatcher.Job](t)(one.PutJob(t.Context(), j, client.Condition{}))
	}
	goOn := func(what string) {
		t.Helper()
		since := time.Now()
		r.await(t, "each job to go on "+what, func(all []arrival) bool { return len(stalled(jobs, all, since, 3)) == 0 })
	}
	goOn("at first")
	for i, choice := range []dispatcher.RollbackChoice{dispatcher.RollbackSkip, dispatcher.RollbackReplay, dispatcher.RollbackSkip} {
		what := fmt.Sprintf("after %s of rollback %d", choice, i+1)
		restore.copyTo("carillon", dumped)
		goOn("since the dump before " + what)
		restore.copyTo(dumped, "carillon")
		until(t, "the rollback to be noticed", func() bool {
			rollback, err := one.Rollback(t.Context())
			return err == nil && rollback.Reason != ""
		})
		until(t, "the choice to be carried out", func() bool {
			rollback, err := one.Rollback(t.Context())
			if err == nil && rollback.Choice == "" { // even of a node that noticed it after the choice
				must[dispatcher.Rollback](t)(one.ResolveRollback(t.Context(), choice))
			}
			return err != nil
		})
		goOn(what)
	}
	until(t, "slots to belong to live runs alone", func() bool { return one.slotsOfEndedRuns(t.Context(), jobs) == 0 })
}

// slotsOfEndedRuns counts the slots of jobs that ended runs still hold.
func (n *process) slotsOfEndedRuns(ctx context.Context, jobs map[string]dispatcher.Job) (ended int) {
	n.t.Helper()
	for name := range jobs {
		for _, slot := range must[client.List[dispatcher.Slot]](n.t)(n.Slots(ctx, "bounded", name)).Items {
			if run := must[run.Run](n.t)(n.Client.Run(ctx, slot.Run)); run.EndedAt != nil {
				ended++
			}
		}
	}
	return ended
}
