package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/freeport"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// flock is a group of 200 endpoints that register themselves, and a job of 100 fires a second.
type flock struct {
	tb       testing.TB
	store    *store.Store // of the API
	metrics  []*prometheus.Registry
	live     string // the URL of an endpoint without its path
	dead     string // an endpoint that refuses connections
	got      atomic.Int64
	came     loop.Signal
	flaps    int
	expiring time.Duration
}

const flockSize = 200

// mostTimesCalm bounds the statements of a fire while endpoints flap, as a multiple of those in a calm fleet.
const mostTimesCalm = 1.2

func newFlock(tb testing.TB) (f *flock, stop func()) {
	tb.Helper()
	f = &flock{tb: tb, came: loop.NewSignal()}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		f.got.Add(1)
		f.came.Notify()
	}))
	tb.Cleanup(server.Close)
	refusing, err := freeport.Address(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	f.live, f.dead = server.URL, "http://"+refusing
	for range strategyNodes {
		f.metrics = append(f.metrics, prometheus.NewRegistry())
	}
	database := pgtest.New(tb)
	_, stop = startMeasured(tb, database, strategyNodes, f.metrics)
	if f.store, err = store.Open(tb.Context(), database, store.Options{}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = f.store.Close() })
	group := target.EndpointGroup{App: "app", Name: "flock"}
	group.SetDefaults()
	var port int
	if _, err := fmt.Sscanf(refusing, "127.0.0.1:%d", &port); err != nil {
		tb.Fatal(err)
	}
	group.Registration = &target.Registration{Networks: []string{"127.0.0.0/8"}, Ports: []int{portOf(tb, server), port}}
	group.Registration.SetDefaults()
	f.expiring = group.Registration.ExpireAfter.Std()
	job := dispatcher.Job{App: "app", Name: "steady", JobSpec: dispatcher.JobSpec{Triggers: map[string]dispatcher.Trigger{}}}
	job.SetDefaults()
	job.Target.Group = &target.GroupTarget{Name: "flock", Path: "/run"}
	job.Target.Group.SetDefaults()
	job.Target.Group.Timeout = input.Duration(10 * time.Minute) // a slow machine sends nothing again
	for n := range strategyTriggers {
		trigger := dispatcher.Trigger{}
		trigger.SetDefaults()
		trigger.Expression, trigger.Jitter = "rate(1s)", input.Duration(time.Second)
		trigger.MisfireAfter = input.Duration(10 * time.Minute)
		job.Triggers[fmt.Sprintf("t%02d", n)] = trigger
	}
	_, _, err = f.store.PutGroup(tb.Context(), group, input.Change{Actor: "test"})
	for n := range flockSize {
		if err == nil {
			err = f.register(n, f.live, time.Time{})
		}
	}
	if err == nil {
		_, _, err = f.store.PutJob(tb.Context(), job, input.Change{Actor: "test"})
	}
	if err != nil {
		tb.Fatal(err)
	}
	return f, stop
}

func (f *flock) register(n int, url string, now time.Time) error {
	e := target.Endpoint{ID: fmt.Sprintf("w%03d", n), StaticEndpoint: target.StaticEndpoint{URL: fmt.Sprintf("%s/w%03d", url, n)}}
	_, _, err := f.store.RegisterEndpoint(f.tb.Context(), "app", "flock", e, input.Change{Actor: "test", Now: now})
	return err
}

// flap changes endpoints one after the other until ctx ends: each deregisters, registers, dies silently and expires
// half a second later, and registers again. Half of them stay.
func (f *flock) flap(ctx context.Context) error {
	for tick := time.NewTicker(10 * time.Millisecond); ; f.flaps++ {
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-tick.C:
		}
		var err error
		switch n := 2 * (f.flaps % (flockSize / 2)); f.flaps / (flockSize / 2) % 3 {
		case 0:
			err = f.store.DeregisterEndpoint(f.tb.Context(), "app", "flock", fmt.Sprintf("w%03d", n), input.Change{Actor: "test"})
			if errors.Is(err, dispatcher.ErrNotFound) {
				err = nil // on a slow machine it has expired
			}
		case 1:
			err = f.register(n, f.dead, time.Now().Add(500*time.Millisecond-f.expiring))
		case 2:
			err = f.register(n, f.live, time.Time{})
		}
		if err != nil {
			return err
		}
	}
}

// statements returns how many statements the nodes have sent.
func (f *flock) statements() (sent float64) {
	for _, registry := range f.metrics {
		families, err := registry.Gather()
		if err != nil {
			f.tb.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() == "carillon_database_statements_total" {
				sent += family.GetMetric()[0].GetCounter().GetValue()
			}
		}
	}
	return sent
}

// perFire returns how many statements the nodes send per fire.
func (f *flock) perFire(fires int64) float64 {
	f.tb.Helper()
	began, before := f.got.Load(), f.statements()
	f.await(began + fires)
	return (f.statements() - before) / float64(f.got.Load()-began)
}

func (f *flock) await(fires int64) {
	f.tb.Helper()
	ctx, cancel := context.WithTimeout(f.tb.Context(), patience)
	defer cancel()
	for f.got.Load() < fires {
		select {
		case <-f.came:
		case <-ctx.Done():
			f.tb.Fatalf("%d requests came, want %d", f.got.Load(), fires)
		}
	}
}

// compare returns the statements per fire while no endpoint changes, and while half of them come and go.
func (f *flock) compare(fires int64) (calm, flapping float64) {
	f.tb.Helper()
	f.await(f.got.Load() + 200)
	calm = f.perFire(fires)
	ctx, cancel := context.WithCancel(f.tb.Context())
	var flaps sync.WaitGroup
	flaps.Go(func() {
		if err := f.flap(ctx); err != nil {
			f.tb.Error(err)
		}
	})
	flapping = f.perFire(fires)
	cancel()
	flaps.Wait()
	return calm, flapping
}

// Endpoints that flap all the time cost no fire, and few statements.
func TestFlappingEndpointsLoseNoFire(t *testing.T) {
	need.Step(t, "fleets")
	t.Parallel()
	f, stop := newFlock(t)
	const fires = 800
	calm, flapping := f.compare(fires)
	for range 10 { // on a busy machine nodes write more at once, which may change between the two, but not each time
		if flapping > mostTimesCalm*calm {
			calm, flapping = f.compare(fires)
		}
	}
	stop()
	states := map[run.State]int{}
	for cursor := ""; ; {
		runs, err := f.store.Runs(t.Context(), dispatcher.RunQuery{App: "app", Page: input.Page{Limit: 500, Cursor: cursor}})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			states[r.State]++
			cursor = r.ID
			if r.State == run.Succeeded && r.Attempt > 1 {
				t.Errorf("run %s took %d attempts", r.ID, r.Attempt)
			}
		}
		if len(runs) < 500 {
			break
		}
	}
	ended := maps.Clone(states)
	for _, waits := range []run.State{run.Succeeded, run.Queued} { // it was not begun before the nodes stopped
		delete(ended, waits)
	}
	if len(ended) > 0 || int64(states[run.Succeeded]) != f.got.Load() {
		t.Errorf("runs = %v after %d requests, want all to have succeeded with one each", states, f.got.Load())
	}
	if flapping > mostTimesCalm*calm {
		t.Errorf("%.2f statements a fire while endpoints come and go, want %v times %.2f at most", flapping, mostTimesCalm, calm)
	}
}

// BenchmarkFlappingEndpoints compares a minute of flapping endpoints with a calm one. Bar: 1.2 times.
func BenchmarkFlappingEndpoints(b *testing.B) {
	f, _ := newFlock(b)
	calm, flapping := f.compare(60 * strategyTriggers)
	b.ReportMetric(calm, "statements/fire-calm")
	b.ReportMetric(flapping/calm, "times-calm")
}
