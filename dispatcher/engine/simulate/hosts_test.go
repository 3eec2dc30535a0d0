package simulate

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/engine"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
)

// first returns the time of the first request for a fire of a job; zero: none was made.
func (w *world) first(app, job string, at time.Time) (sent time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := run.Key{TriggerID: run.TriggerID(app, job, "t"), ScheduledAt: at, Kind: run.KindSchedule}
	return w.requests[attempt{key, 1}]
}

// One job that always fails, however often it fires, delays the jobs that call the same host by seconds, in its own
// app, and not at all in others.
func TestBrokenJobDelaysNoHealthyJobOnItsHost(t *testing.T) {
	t.Parallel()
	for _, every := range []string{"rate(5s)", "rate(1m)"} {
		t.Run(every, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, *seed, engine.Options{PurgeInterval: time.Hour})
				w.response = func(job string, _ *rand.Rand) (time.Duration, int) {
					if job == "broken" {
						return 10 * time.Millisecond, http.StatusServiceUnavailable
					}
					return 50 * time.Millisecond, http.StatusOK
				}
				other := access.App{Name: "other", AppSpec: access.AppSpec{Enabled: true, Retention: input.Duration(24 * time.Hour)}}
				if _, _, err := w.store.PutApp(t.Context(), other, byTest); err != nil {
					t.Fatal(err)
				}
				w.declare("broken", every, nil)
				for i := range 20 {
					w.declare(fmt.Sprint("healthy", i), "0 0/20 * * * ?", func(j *dispatcher.Job, _ *dispatcher.Trigger) {
						j.App = []string{"app", "other"}[i%2]
					})
				}
				n := w.add("n", 0)
				// By then the pause between two probes of the broken job has doubled to its maximum.
				fire := time.Now().UTC().Truncate(20 * time.Minute).Add(20 * time.Minute)
				time.Sleep(time.Until(fire) + 10*time.Second)
				for i := range 20 {
					app, most := "app", 5*time.Second
					if i%2 == 1 {
						app, most = "other", time.Second
					}
					sent := w.first(app, fmt.Sprint("healthy", i), fire)
					switch late := sent.Sub(fire); {
					case sent.IsZero():
						t.Errorf("the fire of healthy job %d of %s was not sent, want it after %s at most", i, app, most)
					case late > most:
						t.Errorf("the fire of healthy job %d of %s was sent after %s, want it after %s at most", i, app, late, most)
					}
				}
				n.drain()
			})
		})
	}
}

// Hundreds of runs that wait for a host cost the database almost nothing. When the host is back, all are sent and none
// is given up.
func TestRunsThatWaitForAHostShareOneRow(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, *seed, engine.Options{PurgeInterval: time.Hour, Batch: 100}) // the runs fill several batches
		down := true
		w.response = func(string, *rand.Rand) (time.Duration, int) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if down {
				return 10 * time.Millisecond, http.StatusServiceUnavailable
			}
			return 10 * time.Millisecond, http.StatusOK
		}
		const runs = 250
		w.declare("calls", "0 0 0 1 1 ?", func(j *dispatcher.Job, _ *dispatcher.Trigger) {
			j.Retry.SetDefaults()
			j.Retry.MaxAttempts = 100
		})
		n := w.add("n", 0)
		time.Sleep(time.Minute)
		calls := n.store.calls.Load()
		const spell = 5 * time.Minute
		time.Sleep(spell)
		idle := n.store.calls.Load() - calls
		var ids []string
		for range runs {
			run, err := w.store.RequestRun(t.Context(), "app", "calls", nil, byTest)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, run.ID)
		}
		calls, rows := n.store.calls.Load(), n.store.rows.Load()
		time.Sleep(spell)
		calls, rows = n.store.calls.Load()-calls-idle, n.store.rows.Load()-rows
		// Two calls a second are the probes and their own bookkeeping; a call of each run at each probe would be ten times that.
		if most := int64(2 * spell / time.Second); calls > most || rows > 3*runs {
			t.Errorf("%d runs that wait for %s took %d calls to the store and %d adoptions and records, want %d and %d at most",
				runs, spell, calls, rows, most, 3*runs)
		}
		w.mu.Lock()
		down = false
		w.mu.Unlock()
		time.Sleep(3 * time.Minute)
		for _, id := range ids {
			r, err := w.store.Run(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if r.State != run.Succeeded {
				t.Errorf("run %s is %s (%s) three minutes after its host is back", id, r.State, r.Error)
				break
			}
		}
		if next, err := w.store.NextRetry(t.Context(), w.clock(), w.clock()); err != nil || next.Waits {
			t.Errorf("when all have been sent, runs wait for a host: %v, %v", next.Waits, err)
		}
		n.drain()
	})
}

// Each job of a host that is down has probes of its own, and only one a second may go from a node. Jobs that are not
// next cost no statement, and nodes leave a probe to the one that made the last.
func TestProbesOfManyJobsCostFewStatements(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, *seed, engine.Options{PurgeInterval: time.Hour})
		w.response = func(string, *rand.Rand) (time.Duration, int) {
			return 10 * time.Millisecond, http.StatusServiceUnavailable
		}
		const jobs, spell = 40, 5 * time.Minute
		for i := range jobs {
			w.declare(fmt.Sprint("calls-", i), "0 0 0 1 1 ?", func(j *dispatcher.Job, _ *dispatcher.Trigger) {
				j.Retry.SetDefaults()
				j.Retry.MaxAttempts = 100
			})
		}
		nodes := []*node{w.add("a", 0), w.add("b", 0), w.add("c", 0)}
		calls := func() (sum int64) {
			before := int64(0)
			for _, n := range nodes {
				before -= n.store.calls.Load()
			}
			time.Sleep(spell)
			for _, n := range nodes {
				sum += n.store.calls.Load()
			}
			return sum + before
		}
		time.Sleep(time.Minute)
		idle := calls()
		for i := range jobs {
			for range 3 {
				if _, err := w.store.RequestRun(t.Context(), "app", fmt.Sprint("calls-", i), nil, byTest); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(10 * time.Minute)
		requested := func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.requests)
		}
		before := requested()
		busy := calls()
		requests := requested() - before
		// A request usually takes 13 calls; if each node looked for all due waits, it would take 21.
		if requests < jobs || busy-idle > int64(17*requests) {
			t.Errorf("%d calls to the store, want 17 at most for each of %d requests, and %d requests at least", busy-idle, requests, jobs)
		}
		for _, n := range nodes {
			n.drain()
		}
	})
}

// waitForDownHost makes a world whose job calls a host that is down, and requests runs of it, which wait for the host or
// have failed.
func waitForDownHost(t *testing.T, runs int, change func(*dispatcher.Job)) (w *world, n *node, ids []string, back func()) {
	t.Helper()
	w = newWorld(t, *seed, engine.Options{PurgeInterval: time.Hour})
	down := true
	w.response = func(string, *rand.Rand) (time.Duration, int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if down {
			return 10 * time.Millisecond, http.StatusServiceUnavailable
		}
		return 10 * time.Millisecond, http.StatusOK
	}
	w.declare("calls", "0 0 0 1 1 ?", func(j *dispatcher.Job, _ *dispatcher.Trigger) { change(j) })
	n = w.add("n", 0)
	time.Sleep(time.Minute)
	for range runs {
		run, err := w.store.RequestRun(t.Context(), "app", "calls", nil, byTest)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, run.ID)
	}
	return w, n, ids, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		down = false
	}
}

// When a user gives a job another host, because its host is down, its runs need not wait for the old one.
func TestWaitingRunsGoWhenTheirJobCallsAnotherHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		retries := func(j *dispatcher.Job) {
			j.Retry.SetDefaults()
			j.Retry.MaxAttempts = 100
		}
		runs := 300
		if testing.Short() {
			runs = 30
		}
		w, n, ids, back := waitForDownHost(t, runs, retries)
		time.Sleep(15 * time.Minute)
		back() // the other host is up
		w.declare("calls", "0 0 0 1 1 ?", func(j *dispatcher.Job, _ *dispatcher.Trigger) {
			retries(j)
			j.Target.Webhook.URL = "http://127.0.0.2/"
		})
		time.Sleep(3 * time.Minute)
		waiting := 0
		for _, id := range ids {
			r, err := w.store.Run(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if r.State != run.Succeeded {
				waiting++
			}
		}
		if waiting > 0 {
			t.Errorf("%d of %d runs have not succeeded three minutes after their job calls another host", waiting, len(ids))
		}
		n.drain()
	})
}

// A run that was never attempted is attempted once, even if its circuit is open for longer than the job retries.
func TestRunOfAJobWithAShortMaxAgeIsAttempted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, n, _, back := waitForDownHost(t, 60, func(j *dispatcher.Job) {
			j.Retry.SetDefaults()
			j.Retry.MaxAge = input.Duration(time.Second)
		})
		time.Sleep(time.Second)
		last, err := w.store.RequestRun(t.Context(), "app", "calls", nil, byTest)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		back()
		time.Sleep(5 * time.Minute)
		r, err := w.store.Run(t.Context(), last.ID)
		if err != nil {
			t.Fatal(err)
		}
		if r.State != run.Succeeded {
			t.Errorf("the run is %s in attempt %d (%s), want it sent to the host that is back", r.State, r.Attempt, r.Error)
		}
		n.drain()
	})
}
