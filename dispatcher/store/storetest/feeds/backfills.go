package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// backfillTests are those of runs of the instants of ranges.
func backfillTests() tests {
	return tests{
		"a backfill runs each instant once":            testBackfill,
		"a backfill may begin with the latest instant": testBackfillLatestFirst,
		"a backfill leaves out what the ledger has":    testBackfillExisting,
		"a backfill is paused, resumed and cancelled":  testBackfillChanges,
		"a backfill keeps its pace":                    testBackfillPace,
		"a fast backfill goes in portions":             testBackfillPortions,
		"a backfill ends with its job":                 testBackfillOfDeletedJob,
	}
}

// backfilling is a backfill of the job "tick", which fires every minute from t0 + 1 min on.
type backfilling struct {
	*fixture
	id  int64
	now time.Time
}

// backfill puts the job and begins a backfill of it, ten minutes after its first fires.
func (f *fixture) backfill(change func(*repeat.BackfillSpec)) *backfilling {
	f.Helper()
	f.putEvery("tick", time.Minute)
	return f.backfillOf(change)
}

func (f *fixture) backfillOf(change func(*repeat.BackfillSpec)) *backfilling {
	f.Helper()
	return f.begin("tick", func(plan *repeat.BackfillSpec) {
		plan.From, plan.To = t0, t0.Add(6*time.Minute)
		if change != nil {
			change(plan)
		}
	}, nil)
}

// begin begins a backfill of a job of shop, as it is now.
func (f *fixture) begin(name string, change func(*repeat.BackfillSpec), counted func(*repeat.BackfillPlan)) *backfilling {
	f.Helper()
	request := repeat.BackfillRequest{}
	request.SetDefaults()
	change(&request.BackfillSpec)
	plan := f.planOf(name, request.BackfillSpec)
	if counted != nil {
		counted(&plan)
	}
	b := &backfilling{fixture: f, now: t0.Add(10 * time.Minute)}
	created, err := f.CreateBackfill(f.Context(), "shop", name, plan, at(b.now))
	f.must(err)
	b.id, err = repeat.ParseBackfillID(created.ID)
	f.must(err)
	return b
}

// planOf counts a backfill of a job of shop as it is now.
func (f *fixture) planOf(name string, spec repeat.BackfillSpec) repeat.BackfillPlan {
	f.Helper()
	job, err := f.Job(f.Context(), "shop", name)
	f.must(err)
	_, calendars, err := f.AppCalendars(f.Context(), "shop")
	f.must(err)
	plan, err := spec.Plan(f.Context(), job, calendars)
	f.must(err)
	return plan
}

// feed makes steps until nothing more can be queued, and returns what is queued, in minutes since t0.
func (b *backfilling) feed() (queued []int) {
	b.Helper()
	for more := true; more; {
		fed, err := b.FeedBackfill(b.Context(), b.id, b.now)
		b.must(err)
		more = fed.More
	}
	for _, r := range b.adoptIdle(nodeA, b.now) {
		if r.Kind != run.KindBackfill || !r.HasInput {
			b.Errorf("run %s is of kind %s and has an input: %v, want a backfill with one", r.Key, r.Kind, r.HasInput)
		}
		queued = append(queued, int(r.ScheduledAt.Sub(t0)/time.Minute))
	}
	return queued
}

// held are the runs of the backfill that nodeA holds.
func (b *backfilling) held() []run.HeldRun {
	b.Helper()
	held, err := b.Held(b.Context(), nodeA, 0)
	b.must(err)
	return slices.DeleteFunc(held, func(r run.HeldRun) bool { return r.Kind != run.KindBackfill })
}

// endAll ends what nodeA holds.
func (b *backfilling) endAll(state run.State) {
	b.Helper()
	for _, run := range b.held() {
		o := outcome(b.now)
		o.State = state
		b.must(b.Record(b.Context(), []dispatcher.Record{record(run, o)}))
	}
}

// shown is the state of the backfill and its counts.
func (b *backfilling) shown() string {
	b.Helper()
	got, err := b.Store.Backfill(b.Context(), "shop", repeat.BackfillID(b.id))
	b.must(err)
	return fmt.Sprintf("%s total=%d queued=%d skipped=%d running=%d succeeded=%d failed=%d cancelled=%d", got.State, got.Total, got.Queued,
		got.Skipped, got.Running, got.Succeeded, got.Failed, got.Cancelled)
}

func (b *backfilling) want(when, want string) {
	b.Helper()
	if got := b.shown(); got != want {
		b.Errorf("%s: %s, want %s", when, got, want)
	}
}

// wantQueued feeds the backfill and compares what it queued.
func (b *backfilling) wantQueued(when string, want ...int) {
	b.Helper()
	if diff := cmp.Diff(want, b.feed()); diff != "" {
		b.Errorf("%s: queued minutes (-want +got):\n%s", when, diff)
	}
}

// Each instant of the range is queued once, in order, and never more runs are under way than the concurrency.
func testBackfill(t *testing.T, f *fixture) {
	b := f.backfill(func(s *repeat.BackfillSpec) { s.Concurrency, s.Payload = 4, json.RawMessage(`{"again":"<1>"}`) })
	b.wantQueued("at first", 1, 2, 3, 4)
	b.wantQueued("again")
	b.want("under way", "running total=6 queued=4 skipped=0 running=4 succeeded=0 failed=0 cancelled=0")
	r := f.run(b.held()[0].Key)
	want := &run.Cause{Backfill: repeat.BackfillID(b.id), Range: &run.Range{From: t0, To: t0.Add(6 * time.Minute)}}
	if diff := cmp.Diff(want, r.Cause); diff != "" || r.Trigger != "tick" || string(r.Payload) != `{"again":"<1>"}` {
		t.Errorf("run of trigger %q with payload %s, cause (-want +got):\n%s", r.Trigger, r.Payload, diff)
	}
	b.endAll(run.Failed)
	b.wantQueued("once they failed", 5, 6)
	b.endAll(run.Succeeded)
	b.wantQueued("at the end")
	b.want("at the end", "complete total=6 queued=6 skipped=0 running=0 succeeded=2 failed=4 cancelled=0")
	counts, err := f.Backfilled(t.Context(), run.JobID("shop", "tick"), t0.Add(2*time.Minute), t0.Add(5*time.Minute))
	if f.must(err); counts[run.TriggerID("shop", "tick", "tick")] != 4 {
		t.Errorf("verify counts %v runs in four minutes, want 4", counts)
	}
	_, err = f.ChangeBackfill(t.Context(), "shop", repeat.BackfillID(b.id), repeat.PauseBackfill, at(b.now))
	wantError(t, "pause one that has ended", err, dispatcher.ErrConflict)
	if open, err := f.OpenBackfills(t.Context()); err != nil || len(open) != 0 {
		t.Errorf("open backfills %v, %v, want none", open, err)
	}
}

// The latest instant goes first if it is wanted so.
func testBackfillLatestFirst(_ *testing.T, f *fixture) {
	b := f.backfill(func(s *repeat.BackfillSpec) { s.Order = repeat.BackfillLatestFirst })
	for want := 6; want > 0; want-- {
		b.wantQueued("next", want)
		b.endAll(run.Succeeded)
	}
	b.wantQueued("at the end")
	b.want("at the end", "complete total=6 queued=6 skipped=0 running=0 succeeded=6 failed=0 cancelled=0")
}

// Of what the ledger has, the option decides. A backfill brings back runs of one before it.
func testBackfillExisting(t *testing.T, f *fixture) {
	for i, tt := range []struct {
		existing repeat.BackfillExisting
		want     []int
	}{
		{repeat.ExistingSkip, []int{3, 4, 5, 6}},
		{repeat.ExistingSkip, nil},
		{repeat.ExistingFailed, []int{2}},
		{repeat.ExistingRun, []int{1, 2, 3, 4, 5, 6}},
	} {
		if i == 0 { // minute 1 succeeded, and minute 2 failed
			held := f.claimOne("tick")
			f.must(f.Record(t.Context(), []dispatcher.Record{record(held, outcome(held.ScheduledAt))}))
			second := f.claim(f.nextAdvance())[0]
			failed := outcome(second.ScheduledAt)
			failed.State = run.Failed
			f.must(f.Record(t.Context(), []dispatcher.Record{record(second, failed)}))
		}
		plan := f.planOf("tick", repeat.BackfillSpec{From: t0, To: t0.Add(6 * time.Minute), Existing: tt.existing})
		if skipped, err := f.BackfillSkips(t.Context(), plan); err != nil || skipped != plan.Total-len(tt.want) {
			t.Errorf("%d %s: %d instants would be left out (%v), want all but %d of %d", i, tt.existing, skipped, err, len(tt.want), plan.Total)
		}
		b := f.backfillOf(func(s *repeat.BackfillSpec) { s.Existing, s.Concurrency = tt.existing, 10 })
		b.wantQueued(fmt.Sprint(i, " ", tt.existing), tt.want...)
		for _, run := range b.held() {
			if cause := f.run(run.Key).Cause; cause == nil || cause.Backfill != repeat.BackfillID(b.id) {
				t.Errorf("%d %s: run %s is of %+v, want of backfill %s", i, tt.existing, run.Key, cause, repeat.BackfillID(b.id))
			}
		}
		b.endAll(run.Succeeded)
		b.feed()
		if got := b.shown(); !strings.HasPrefix(got, "complete") {
			t.Errorf("%d %s: %s, want it complete", i, tt.existing, got)
		}
	}
}

// A pause keeps what is under way, and a cancel ends what waits.
func testBackfillChanges(t *testing.T, f *fixture) {
	b := f.backfill(func(s *repeat.BackfillSpec) { s.Concurrency = 2 })
	id := repeat.BackfillID(b.id)
	_, err := f.CreateBackfill(t.Context(), "shop", "tick", f.planOf("tick", repeat.BackfillSpec{From: t0, To: t0}), at(b.now))
	wantError(t, "another backfill of the job", err, dispatcher.ErrConflict)
	b.wantQueued("at first", 1, 2)
	f.must(f.ChangeBackfill(t.Context(), "shop", id, repeat.PauseBackfill, at(b.now)))
	b.endAll(run.Succeeded)
	b.wantQueued("paused")
	b.want("paused", "paused total=6 queued=2 skipped=0 running=0 succeeded=2 failed=0 cancelled=0")
	f.must(f.ChangeBackfill(t.Context(), "shop", id, repeat.ResumeBackfill, at(b.now)))
	b.wantQueued("resumed", 3, 4)
	b.must(f.Release(t.Context(), b.held()[:1]))
	f.must(f.ChangeBackfill(t.Context(), "shop", id, repeat.CancelBackfill, at(b.now)))
	b.wantQueued("cancelled")
	b.want("while a run is in flight", "cancelling total=6 queued=4 skipped=0 running=1 succeeded=2 failed=0 cancelled=1")
	b.endAll(run.Succeeded)
	b.feed()
	b.want("at the end", "cancelled total=6 queued=4 skipped=0 running=0 succeeded=3 failed=0 cancelled=1")
	all, err := f.Backfills(t.Context(), repeat.BackfillQuery{App: "shop", Job: "tick", Page: input.Page{Limit: 10}})
	if f.must(err); len(all) != 1 || all[0].ID != id {
		t.Errorf("listed %+v, want one backfill", all)
	}
	if _, err := f.Store.Backfill(t.Context(), "other", id); !errors.Is(err, dispatcher.ErrNotFound) {
		t.Errorf("read from another app: error %v, want ErrNotFound", err)
	}
}

// The pace holds on average: what was not used in a second is made up for.
func testBackfillPace(t *testing.T, f *fixture) {
	b := f.backfill(func(s *repeat.BackfillSpec) {
		s.Concurrency, s.Pace = 10, input.Duration(400*time.Millisecond)
	})
	b.wantQueued("at first", 1, 2, 3)
	fed, err := f.FeedBackfill(t.Context(), b.id, b.now)
	if f.must(err); !fed.NextAt.Equal(b.now.Add(200 * time.Millisecond)) {
		t.Errorf("goes on at %s, want 200 ms later", fed.NextAt)
	}
	b.now = b.now.Add(199 * time.Millisecond)
	b.wantQueued("before it may")
	b.now = b.now.Add(time.Millisecond)
	b.wantQueued("when it may", 4)
}

// A pace of less than a tenth of a second goes in portions of that time, and a step before its time is idle.
func testBackfillPortions(t *testing.T, f *fixture) {
	f.putEvery("tick", 10*time.Second)
	b := f.backfillOf(func(s *repeat.BackfillSpec) {
		s.Concurrency, s.Pace = 1000, input.Duration(50*time.Millisecond)
	})
	for _, step := range []struct {
		after  time.Duration
		queued int
		next   time.Duration
	}{{0, 21, 100}, {60, 0, 40}, {40, 2, 100}, {99, 0, 1}, {1, 2, 100}} {
		b.now = b.now.Add(step.after * time.Millisecond)
		fed, err := b.FeedBackfill(t.Context(), b.id, b.now)
		if f.must(err); fed.Queued != step.queued || !fed.NextAt.Equal(b.now.Add(step.next*time.Millisecond)) {
			t.Errorf("%d ms later %d are queued, and it goes on at %s, want %d and %d ms later", step.after, fed.Queued, fed.NextAt, step.queued,
				step.next)
		}
	}
}

// A backfill of a job that is deleted ends, and says why.
func testBackfillOfDeletedJob(t *testing.T, f *fixture) {
	b := f.backfill(nil)
	f.must(f.DeleteJob(t.Context(), "shop", "tick", at(b.now)))
	b.feed()
	if got, err := f.Store.Backfill(t.Context(), "shop", repeat.BackfillID(b.id)); err != nil ||
		got.State != repeat.BackfillCancelled || got.Error != "the job was deleted" {
		t.Errorf("got %+v, %v, want it cancelled because the job was deleted", got, err)
	}
}
