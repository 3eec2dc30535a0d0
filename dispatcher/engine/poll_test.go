package engine

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// reads is a store that notes its queries.
type reads struct {
	Store
	mu       sync.Mutex
	queries  []dispatcher.DueQuery // of the window and of changed jobs
	triggers int                   // calls of TriggersByID

	overdueFrom []time.Time // lower bounds of OverdueApps
}

func (s *reads) Due(ctx context.Context, query dispatcher.DueQuery) ([]dispatcher.DueTrigger, error) {
	s.mu.Lock()
	if !query.Overdue {
		s.queries = append(s.queries, query)
	}
	s.mu.Unlock()
	if s.Store == nil {
		return nil, nil
	}
	return s.Store.Due(ctx, query)
}

func (s *reads) TriggersByID(ctx context.Context, ids []int64) ([]dispatcher.TriggerVersion, error) {
	s.mu.Lock()
	s.triggers++
	s.mu.Unlock()
	return s.Store.TriggersByID(ctx, ids)
}

func (s *reads) OverdueApps(ctx context.Context, apps []string, labels input.Labels, from, now time.Time) ([]string, error) {
	s.mu.Lock()
	s.overdueFrom = append(s.overdueFrom, from)
	s.mu.Unlock()
	return s.Store.OverdueApps(ctx, apps, labels, from, now)
}

// take returns the queries since the last call.
func (s *reads) take() []dispatcher.DueQuery {
	s.mu.Lock()
	defer s.mu.Unlock()
	queries := s.queries
	s.queries = nil
	return queries
}

// readingRig is a rig that notes its reads.
func readingRig(t *testing.T) (*rig, *reads) {
	t.Helper()
	s := &reads{}
	return newRig(t, func(below Store) Store { s.Store = below; return s }), s
}

func (r *rig) pauseJob(name string, paused bool) {
	r.t.Helper()
	if _, err := r.store.PauseJob(r.t.Context(), "app", name, "", paused, input.Change{Actor: "test", Now: r.now}); err != nil {
		r.t.Fatal(err)
	}
}

// later moves the time of the test, and polls then.
func (r *rig) later(by time.Duration) (planned int) {
	r.t.Helper()
	r.now = r.now.Add(by)
	return r.poll(r.opts.Window)
}

func longThreshold(t *dispatcher.Trigger) { t.MisfireAfter = input.Duration(time.Hour) }

func TestPollBeginsWhereTheLastOneFoundNothingEarlier(t *testing.T) {
	t.Parallel()
	r, s := readingRig(t)
	r.declare("first", "rate(1h)", longThreshold)
	r.poll(r.opts.Window)
	if all := s.take(); len(all) != 1 || !all[0].From.IsZero() {
		t.Fatalf("the first poll asked %+v, want one query without a lower bound", all)
	}
	now := r.now
	r.later(5 * time.Second)
	if next := s.take(); len(next) != 1 || !next[0].From.Equal(now.Add(-r.opts.Window)) {
		t.Errorf("the second poll asked %+v, want one query from a window before the first", next)
	}
}

// A trigger that is resumed, or whose share moves, may be due earlier than any fire that the node has left.
func TestFireEarlierThanTheLowerBoundIsFound(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *rig) (planned int){
		"a job is resumed": func(r *rig) int {
			r.pauseJob("early", false)
			r.hear(dispatcher.Notification{JobID: run.JobID("app", "early")})
			everything, _, jobs := r.changes.take()
			if everything || len(jobs) != 1 {
				r.t.Fatalf("everything %v and the jobs %v changed, want one job", everything, jobs)
			}
			if err := r.plan.PlanChanged(r.t.Context(), jobs, r.now); err != nil {
				r.t.Fatal(err)
			}
			return r.plan.Timeline.Len()
		},
		"an app is enabled, or anything else changed": func(r *rig) int {
			r.pauseJob("early", false)
			r.hear(dispatcher.Notification{App: "app"})
			if everything, _, _ := r.changes.take(); !everything {
				r.t.Fatal("the change of the app does not concern everything")
			}
			r.plan.Floors.Window.Reset() // as changeLoop does
			return r.poll(r.opts.Window)
		},
		"another node left": func(r *rig) int {
			r.pauseJob("early", false)
			live := []dispatcher.Node{{ID: r.fleet.ID()}, {ID: 1}, {ID: 2}, {ID: 3}}
			for _, nodes := range [][]dispatcher.Node{live, live[:1]} {
				r.fleet.Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, Live: nodes}, time.Now())
			}
			return r.poll(r.opts.Window)
		},
		"the notification is lost: within a minute": func(r *rig) int {
			r.pauseJob("early", false)
			if n := r.later(5 * time.Second); n != 0 {
				r.t.Fatalf("the next poll planned %d fires, so the test shows nothing", n)
			}
			return r.later(45 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.declare("early", "rate(1s)", longThreshold)
			r.pauseJob("early", true)
			for range 3 {
				if n := r.later(5 * time.Second); n != 0 {
					t.Fatalf("%d fires of a paused job were planned", n)
				}
			}
			if n := change(r); n != 1 {
				t.Errorf("%d fires are planned, want the one that is due since long before", n)
			}
		})
	}
}

// The handler looks for misfires from the earliest fire that polls have left, and everywhere after a change.
func TestMisfiresAreReadFromTheEarliestFireLeft(t *testing.T) {
	t.Parallel()
	r, s := readingRig(t)
	r.now = r.now.Add(-10 * time.Minute)
	r.declare("early", "rate(1s)", func(t *dispatcher.Trigger) { t.MisfireAfter = input.Duration(5 * time.Second) })
	r.pauseJob("early", true)
	r.poll(r.opts.Window)
	bound := r.now.Add(-r.opts.Window)
	look := func(want time.Time, when string) {
		t.Helper()
		if err := r.chores.SettleMisfires(t.Context(), r.now); err != nil {
			t.Fatal(err)
		}
		if got := s.overdueFrom[len(s.overdueFrom)-1]; !got.Equal(want) {
			t.Errorf("%s: looked from %v, want %v", when, got, want)
		}
	}
	look(time.Time{}, "at the start")
	look(bound, "after a poll")
	r.now = r.now.Add(5 * time.Minute)
	look(time.Time{}, "after five minutes")
	r.pauseJob("early", false)
	if err := r.plan.PlanChanged(t.Context(), []int64{run.JobID("app", "early")}, r.now); err != nil {
		t.Fatal(err)
	}
	look(time.Time{}, "after a job was resumed")
	if r.settled(); len(r.calls) != 1 {
		t.Errorf("%d calls for the misfires of the job, want one", len(r.calls))
	}
}

func TestChangedJobIsReadByItsID(t *testing.T) {
	t.Parallel()
	r, s := readingRig(t)
	r.declare("other", "rate(1s)", nil)
	r.declare("changed", "rate(1s)", nil)
	id := run.JobID("app", "changed")
	if err := r.plan.PlanChanged(t.Context(), []int64{id}, r.now); err != nil {
		t.Fatal(err)
	}
	if all := s.take(); len(all) != 1 || !slices.Equal(all[0].JobIDs, []int64{id}) || r.plan.Timeline.Len() != 1 {
		t.Errorf("asked %+v and planned %d fires, want the one of the changed job", all, r.plan.Timeline.Len())
	}
}

func TestKnownFireIsNotReadAgain(t *testing.T) {
	t.Parallel()
	r, s := readingRig(t)
	r.declare("often", "rate(1s)", nil)
	for range 5 {
		r.later(time.Second)
		for r.claimOnce(t.Context(), r.now.Add(time.Second)) > 0 {
		}
	}
	if r.quiet(); s.triggers != 1 || len(r.calls) < 3 {
		t.Errorf("definitions of triggers were read %d times for %d fires, want once", s.triggers, len(r.calls))
	}
	r.declare("often", "rate(2s)", nil)
	r.later(5 * time.Second)
	if s.triggers != 2 {
		t.Errorf("after a change they were read %d times, want twice", s.triggers)
	}
}

// They change no trigger, and begin at once.
func TestManualRunsCauseNoPolls(t *testing.T) {
	t.Parallel()
	below, err := store.Open(t.Context(), newDatabase(t), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	change := input.Change{Actor: "test"}
	job := dispatcher.Job{App: "app", Name: "manual", JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: map[string]dispatcher.Trigger{}}}
	job.Target.Webhook = &target.Webhook{URL: "http://127.0.0.1/", Method: "POST", Timeout: target.DefaultTimeout}
	if _, _, err := below.PutApp(t.Context(), access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, change); err != nil {
		t.Fatal(err)
	}
	if _, _, err := below.PutJob(t.Context(), job, change); err != nil {
		t.Fatal(err)
	}
	s, started, ended := &reads{Store: below}, make(chan struct{}), make(chan struct{}, 1000)
	// No interval passes during the test, so a run begins only if a notification reaches the node.
	e := New(s, &rig{}, Options{
		Logger: slog.New(slog.DiscardHandler), Pool: pool.Options{Workers: 8, Queue: 500},
		Window: time.Hour, Handler: time.Hour, DeadAfter: time.Hour,
		OnStarted: func(run.NodeID) { close(started) },
		OnOutcome: func(target.Call, run.Outcome) { ended <- struct{}{} },
	})
	ctx, end := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); e.Run(ctx) }()
	<-started
	late, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for n := range 100 {
		if _, err := below.RequestRun(t.Context(), "app", "manual", nil, change); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
		case <-late.Done():
			t.Fatalf("run %d did not begin when it was asked for", n)
		}
	}
	end()
	<-over
	// At the start a node polls, learns that it may have missed notifications, and learns of the other nodes.
	if polls := len(s.take()); polls > 5 {
		t.Errorf("100 manual runs caused %d polls, want 5 at most", polls)
	}
	if err := below.Close(); err != nil {
		t.Error(err)
	}
}
