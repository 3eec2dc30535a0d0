package engine

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// late is a store whose responses to statements that win runs arrive after something else has happened, as at a node that
// was frozen.
type late struct {
	Store
	meanwhile func(held []run.HeldRun)
}

func (l *late) Claim(ctx context.Context, batch dispatcher.ClaimBatch) ([]run.HeldRun, error) {
	held, err := l.Store.Claim(ctx, batch)
	l.meanwhile(held)
	return held, err
}

func (l *late) Adopt(ctx context.Context, query dispatcher.AdoptQuery, runs []dispatcher.Adoptable) ([]run.HeldRun, error) {
	held, err := l.Store.Adopt(ctx, query, runs)
	l.meanwhile(held)
	return held, err
}

func (l *late) Settle(ctx context.Context, batch dispatcher.SettleBatch) ([]run.HeldRun, error) {
	held, err := l.Store.Settle(ctx, batch)
	l.meanwhile(held)
	return held, err
}

// Otherwise they would be executed twice.
func TestRunsAreNotReclaimedWhileTheirResponseIsOnItsWay(t *testing.T) {
	t.Parallel()
	slow := &late{}
	r := newRig(t, func(s Store) Store {
		slow.Store = s
		return slow
	})
	slow.meanwhile = func([]run.HeldRun) {
		for i := range 2 {
			if err := r.chores.Reclaim(t.Context(), r.now.Add(time.Duration(i)*r.opts.Handler)); err != nil {
				t.Error(err)
			}
		}
	}
	r.declare("claimed", "rate(10s)", nil)
	r.declare("missed", "rate(1s)", func(trigger *dispatcher.Trigger) { trigger.MisfireAfter = input.Duration(time.Second) })
	if _, err := r.store.RequestRun(t.Context(), "app", "claimed", nil, input.Change{Actor: "test"}); err != nil {
		t.Fatal(err)
	}
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.now = r.now.Add(10 * time.Second)
	if err := r.settle(t.Context(), r.now); err != nil {
		t.Fatal(err)
	}
	r.poll(0)
	for r.claimOnce(t.Context(), r.now) > 0 {
	}
	r.quiet()
	times, kinds := map[run.Key]int{}, map[run.Kind]int{}
	for _, call := range r.calls {
		times[call.Key]++
		kinds[call.Key.Kind]++
	}
	for key, n := range times {
		if n > 1 {
			t.Errorf("run %s of kind %s was executed %d times", key, key.Kind, n)
		}
	}
	if len(kinds) != 3 {
		t.Errorf("executed were kinds %v, want one that was asked for, one scheduled and one caught up", kinds)
	}
}

// A backlog of one app whose target hangs takes only the places that the app may have. The rest stays in the database,
// and the runs of another app are adopted at once.
func TestBacklogOfAHangingAppTakesOnlyItsPlaces(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	release := make(chan struct{})
	r.invoke = func(_ context.Context, call target.Call) run.Outcome {
		if call.Job == "hangs" {
			<-release
		}
		return run.Outcome{State: run.Succeeded, HTTPStatus: 200}
	}
	change := input.Change{Actor: "test"}
	if _, _, err := r.store.PutApp(t.Context(), access.App{Name: "other", AppSpec: access.AppSpec{Enabled: true}}, change); err != nil {
		t.Fatal(err)
	}
	requested := map[string]string{}
	request := func(app, name string, times int) {
		job := dispatcher.Job{App: app, Name: name}
		job.SetDefaults()
		job.Target.Webhook = &target.Webhook{URL: "http://127.0.0.1/", Method: "POST", Timeout: target.DefaultTimeout}
		if _, _, err := r.store.PutJob(t.Context(), job, change); err != nil {
			t.Fatal(err)
		}
		for range times {
			run, err := r.store.RequestRun(t.Context(), app, name, nil, change)
			if err != nil {
				t.Fatal(err)
			}
			requested[app] = run.ID
		}
	}
	request("app", "hangs", 300)
	for range 20 {
		if err := r.adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	held := r.pool.Held()
	if held == 0 || held > 48 {
		t.Errorf("%d of 300 runs of an app that hangs are held, want at most 48 of 64 places", held)
	}
	request("other", "well", 1)
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	done, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for r.read(requested["other"]).State != run.Succeeded {
		select {
		case <-r.pool.Freed():
		case <-done.Done():
			t.Fatalf("the run of another app is %s", r.read(requested["other"]).State)
		default:
		}
	}
	close(release)
	ended, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	for r.read(requested["app"]).State != run.Succeeded && ended.Err() == nil {
		if err := r.adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if last := r.read(requested["app"]); last.State != run.Succeeded {
		t.Errorf("the last run of the backlog is %s", last.State)
	}
}

// While the backlog of one app has more runs than the pool has places, waiting runs of another app have their turn,
// even if they were there before and had no place.
func TestBacklogOfOneAppLeavesTurnsToAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.adopter.Options.Batch = 5
	change := input.Change{Actor: "test"}
	for i, app := range []string{"app", "other"} {
		if _, _, err := r.store.PutApp(t.Context(), access.App{Name: app, AppSpec: access.AppSpec{Enabled: true}}, change); err != nil {
			t.Fatal(err)
		}
		job := dispatcher.Job{App: app, Name: "job"}
		job.SetDefaults()
		job.Target.Webhook = &target.Webhook{URL: "http://127.0.0.1/", Method: "POST", Timeout: target.DefaultTimeout}
		if _, _, err := r.store.PutJob(t.Context(), job, change); err != nil {
			t.Fatal(err)
		}
		for range []int{400, 100}[i] {
			if _, err := r.store.RequestRun(t.Context(), app, "job", nil, change); err != nil {
				t.Fatal(err)
			}
		}
	}
	for len(r.calls) < 500 {
		if err := r.adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.quiet()
	}
	last := map[string]int{}
	for i, call := range r.calls {
		last[call.App] = i
	}
	if last["other"] > 350 {
		t.Errorf("the last run of the small backlog is number %d of 500, want it among the first 350", last["other"])
	}
}
