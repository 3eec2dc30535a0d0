package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// startAgo moves the time of a test back, so that hours can pass before it reaches the database's clock.
func (r *rig) startAgo(ago time.Duration) { r.now = r.now.Add(-ago) }

// work does the work of a node at a time: misfires, adoption, a poll, and claims.
func (r *rig) work(now time.Time) {
	r.t.Helper()
	r.now = now
	if err := errors.Join(r.settle(r.t.Context(), now), r.adopt(r.t.Context())); err != nil {
		r.t.Fatal(err)
	}
	r.poll(r.opts.Window)
	for r.claimOnce(r.t.Context(), now) > 0 {
		r.quiet()
	}
}

// ledger returns the runs and misfires of a job as text, earliest first, relative to begin.
func (r *rig) ledger(job string, begin time.Time) (lines []string) {
	r.t.Helper()
	r.quiet()
	ctx, query := r.t.Context(), dispatcher.RunQuery{App: "app", Job: job, Page: input.Page{Limit: 1000}}
	runs, err := r.store.Runs(ctx, query)
	misfires, more := r.store.Misfires(ctx, query)
	if err := errors.Join(err, more); err != nil {
		r.t.Fatal(err)
	}
	for _, run := range slices.Backward(runs) {
		line := fmt.Sprintf("%s %s", run.Kind, run.ScheduledAt.Sub(begin))
		if run.Missed != nil {
			line += fmt.Sprintf(" for %d from %s to %s", run.Missed.Count, run.Missed.From.Sub(begin), run.Missed.To.Sub(begin))
		}
		lines = append(lines, line)
	}
	for _, m := range slices.Backward(misfires) {
		lines = append(lines, fmt.Sprintf("%s %d from %s to %s", m.Decision, m.Count, m.From.Sub(begin), m.To.Sub(begin)))
	}
	return lines
}

func TestMissedFiresAreSettledByThePolicyOfTheirTrigger(t *testing.T) {
	t.Parallel()
	type policy = dispatcher.MisfirePolicy
	for name, tt := range map[string]struct {
		policy policy
		window time.Duration
		want   []string
	}{
		"fire_once": {dispatcher.FireOnce, 0, []string{"catch_up 1m0s for 6 from 10s to 1m0s", "fire_once 6 from 10s to 1m0s"}},
		"skip":      {dispatcher.Skip, 0, []string{"skip 6 from 10s to 1m0s"}},
		"fire_all": {dispatcher.FireAll, 0, []string{
			"schedule 10s", "schedule 20s", "schedule 30s", "schedule 40s", "schedule 50s", "schedule 1m0s",
		}},
		"fire_once within the window": {dispatcher.FireOnce, 23 * time.Second, []string{
			"catch_up 1m0s for 2 from 50s to 1m0s", "skip 4 from 10s to 40s", "fire_once 2 from 50s to 1m0s",
		}},
		"fire_all within the window": {dispatcher.FireAll, 23 * time.Second, []string{
			"schedule 50s", "schedule 1m0s", "skip 4 from 10s to 40s",
		}},
		"an instant as old as the window is caught up": {dispatcher.FireOnce, 23500 * time.Millisecond, []string{
			"catch_up 1m0s for 3 from 40s to 1m0s", "skip 3 from 10s to 30s", "fire_once 3 from 40s to 1m0s",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.startAgo(time.Hour)
			begin := r.now
			r.declare("late", "rate(10s)", func(t *dispatcher.Trigger) {
				t.MisfireAfter, t.MisfirePolicy = input.Duration(5*time.Second), tt.policy
				if tt.window > 0 {
					t.CatchUpWindow = input.Duration(tt.window)
				}
			})
			for second := range 6 {
				r.work(begin.Add(63500*time.Millisecond + time.Duration(second)*time.Second))
			}
			if diff := cmp.Diff(tt.want, r.ledger("late", begin)); diff != "" {
				t.Errorf("ledger (-want +got):\n%s", diff)
			}
			isRun := func(line string) bool {
				return strings.HasPrefix(line, "schedule ") || strings.HasPrefix(line, "catch_up ")
			}
			runs := 0
			for _, line := range tt.want {
				if isRun(line) {
					runs++
				}
			}
			if len(r.calls) != runs {
				t.Errorf("%d calls were made, want one for each of %d runs", len(r.calls), runs)
			}
		})
	}
}

// The call names the fires of a catch-up run, even if another node adopted the run.
func TestCatchUpCarriesItsRange(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.startAgo(time.Hour)
	begin := r.now
	r.declare("catch-up", "rate(10s)", func(t *dispatcher.Trigger) { t.MisfireAfter = dispatcher.DefaultMisfireAfter })
	r.work(begin.Add(100 * time.Second))
	runs := r.settled()
	want := &run.MissedRange{From: begin.Add(10 * time.Second), To: begin.Add(100 * time.Second), Count: 10}
	if len(runs) != 1 || len(r.calls) != 1 {
		t.Fatalf("got %d runs and %d calls, want one catch-up", len(runs), len(r.calls))
	}
	if diff := cmp.Diff(want, r.calls[0].Missed); diff != "" {
		t.Errorf("the call (-want +got):\n%s", diff)
	}
	if _, err := r.store.RetryRun(t.Context(), runs[0].ID, input.Change{Actor: "test"}); err != nil {
		t.Fatal(err)
	}
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.quiet()
	if len(r.calls) != 2 {
		t.Fatalf("%d calls after the retry, want 2", len(r.calls))
	}
	if diff := cmp.Diff(want, r.calls[1].Missed); diff != "" {
		t.Errorf("the call of the adopted run (-want +got):\n%s", diff)
	}
}

// Of three missed days, fire_all runs the latest thousand fires in order, with pauses, and returns to
// the schedule. One decision covers the rest.
func TestFireAllIsCappedAndSpaced(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.startAgo(80 * time.Hour)
	begin := r.now
	r.declare("all", "rate(1m)", func(t *dispatcher.Trigger) {
		t.MisfirePolicy, t.MisfireAfter = dispatcher.FireAll, dispatcher.DefaultMisfireAfter
	})
	now := begin.Add(72 * time.Hour)
	for range 20 {
		r.work(now)
		now = now.Add(time.Second)
	}
	got := r.ledger("all", begin)
	skipped := 72*60 - dispatcher.MostCaughtUp
	first := time.Duration(skipped+1) * time.Minute
	want := []string{}
	// The first round skips and runs the first; from then on one runs each second.
	for i := range 20 {
		want = append(want, fmt.Sprintf("schedule %s", first+time.Duration(i)*time.Minute))
	}
	want = append(want, fmt.Sprintf("skip %d from 1m0s to %s", skipped, first-time.Minute))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ledger after 20 s (-want +got):\n%s", diff)
	}
	caught := r.trigger("all")
	if caught.DueAt.Sub(*caught.NextFireTime) < (dispatcher.MostCaughtUp-30)*time.Minute || !caught.DueAt.After(r.now) {
		t.Errorf("next fire %v is due at %v, want it deferred beyond %v", caught.NextFireTime, caught.DueAt, r.now)
	}
}

func TestCatchUpReturnsToTheSchedule(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{"rate(1s)", "rate(7s)", "*/5 * * * * ?"} {
		r := newRig(t, nil)
		r.startAgo(time.Hour)
		begin := r.now
		r.declare("dense", expression, func(t *dispatcher.Trigger) {
			t.MisfirePolicy, t.MisfireAfter = dispatcher.FireAll, input.Duration(5*time.Second)
		})
		now := begin.Add(time.Minute)
		for now.Before(begin.Add(90 * time.Second)) {
			r.work(now)
			now = now.Add(250 * time.Millisecond)
		}
		trigger := r.trigger("dense")
		if !trigger.NextFireTime.After(r.now) || !trigger.DueAt.Equal(*trigger.NextFireTime) {
			t.Errorf("%s: half a minute after the gap the next fire is %s, due %s later; want it to come, and due at its instant",
				expression, trigger.NextFireTime.Sub(r.now), trigger.DueAt.Sub(*trigger.NextFireTime))
		}
		misfires, err := r.store.Misfires(t.Context(), dispatcher.RunQuery{App: "app", Page: input.Page{Limit: 10}})
		if err != nil || len(misfires) != 0 {
			t.Errorf("%s: misfires = %v, %v, want none: every instant ran", expression, misfires, err)
		}
	}
}

func TestSkippedFixedDelayCountsFromTheDecision(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.startAgo(time.Hour)
	begin := r.now
	r.declare("delayed", "delay(30s)", func(t *dispatcher.Trigger) {
		t.MisfirePolicy, t.MisfireAfter, t.RepeatCount = dispatcher.Skip, input.Duration(5*time.Second), 2
	})
	r.work(begin.Add(time.Minute))
	if err := r.plan.ScheduleNext(t.Context(), nil, r.now); err != nil {
		t.Fatal(err)
	}
	misfires, err := r.store.Misfires(t.Context(), dispatcher.RunQuery{App: "app", Page: input.Page{Limit: 10}})
	if err != nil || len(misfires) != 1 || misfires[0].Decision != dispatcher.DecisionSkip || misfires[0].Count != 1 {
		t.Fatalf("misfires = %+v, %v, want one fire skipped", misfires, err)
	}
	trigger := r.trigger("delayed")
	if trigger.NextFireTime == nil || !trigger.NextFireTime.Equal(misfires[0].DecidedAt.Add(30*time.Second)) {
		t.Fatalf("next fire = %v, want 30 s after the decision at %v", trigger.NextFireTime, misfires[0].DecidedAt)
	}
	if trigger.Fired != 1 {
		t.Errorf("%d fires count against the repeat count, want the skipped one", trigger.Fired)
	}
}

// unreliable fails calls of Settle and Claim, before or after they take effect, as often as a test asks for it.
type unreliable struct {
	Store
	fails func() (before, after bool)
}

func (u *unreliable) Settle(ctx context.Context, b dispatcher.SettleBatch) ([]run.HeldRun, error) {
	before, after := u.fails()
	if before {
		return nil, errLost
	}
	held, err := u.Store.Settle(ctx, b)
	if after {
		return nil, errLost
	}
	return held, err
}

func (u *unreliable) Claim(ctx context.Context, b dispatcher.ClaimBatch) ([]run.HeldRun, error) {
	before, after := u.fails()
	if before {
		return nil, errLost
	}
	held, err := u.Store.Claim(ctx, b)
	if after {
		return nil, errLost
	}
	return held, err
}

// For every policy, jitter and gap, and with any failure or restart, each scheduled time has exactly one run of its own
// or is in exactly one decision.
func TestEveryScheduledTimeHasOneRunOrOneDecision(t *testing.T) {
	t.Parallel()
	problems := &unreliable{}
	r := newRig(t, func(s Store) Store { problems.Store = s; return problems })
	jobs := 0
	base := r.now
	rapid.Check(t, func(rt *rapid.T) {
		jobs++
		name := fmt.Sprintf("job%d", jobs)
		problems.fails = func() (bool, bool) { return false, false }
		// Together they may take longer than a lease lasts.
		if err := r.heartbeatOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		begin := base.Add(-2 * time.Hour)
		r.now = begin
		expressions := []string{"rate(1s)", "rate(7s)", "*/20 * * * * ?", "0 * * * * ?"}
		policies := []dispatcher.MisfirePolicy{dispatcher.FireOnce, dispatcher.FireAll, dispatcher.Skip}
		r.declare(name, rapid.SampledFrom(expressions).Draw(rt, "expression"), func(t *dispatcher.Trigger) {
			t.MisfirePolicy = rapid.SampledFrom(policies).Draw(rt, "policy")
			t.MisfireAfter = input.Duration(rapid.SampledFrom([]time.Duration{time.Second, 30 * time.Second}).Draw(rt, "misfire_after"))
			t.CatchUpWindow = input.Duration(rapid.SampledFrom([]time.Duration{30 * time.Second, time.Hour}).Draw(rt, "catch_up_window"))
			t.Jitter = input.Duration(rapid.SampledFrom([]time.Duration{0, 0, 10 * time.Second}).Draw(rt, "jitter"))
		})
		problems.fails = func() (bool, bool) {
			n := rapid.IntRange(0, 9).Draw(rt, "fault")
			return n == 0, n == 1
		}
		defer r.deleteJob(name)
		now := begin
		for _, gap := range rapid.SliceOfN(rapid.SampledFrom([]int{1, 1, 1, 2, 5, 40, 300}), 1, 12).Draw(rt, "gaps") {
			now = now.Add(time.Duration(gap) * time.Second)
			if rapid.IntRange(0, 3).Draw(rt, "restart") == 0 {
				planned := r.plan.Timeline.Take(now.Add(365*24*time.Hour), 1_000_000, anyQueue, keep)
				r.plan.Timeline.Claimed(planned, nil)
			}
			r.work(now)
		}
		problems.fails = func() (bool, bool) { return false, false }
		r.work(now)
		r.quiet()
		r.verify(rt, name, begin, now)
	})
}

// deleteJob deletes a job, so that the next case has the engine to itself.
func (r *rig) deleteJob(name string) {
	if err := r.store.DeleteJob(context.WithoutCancel(r.t.Context()), "app", name, input.Change{Actor: "test", Now: r.now}); err != nil {
		r.t.Error(err)
	}
}

// verify checks the ledger of a job against its schedule: it has each time up to the trigger's next fire exactly once,
// and none after.
func (r *rig) verify(t *rapid.T, name string, begin, now time.Time) {
	trigger := r.trigger(name)
	s, err := trigger.Parse(dispatcher.Identity("app", name, "only"), trigger.AnchorAt, nil)
	if err != nil {
		t.Fatal(err)
	}
	query := dispatcher.RunQuery{App: "app", Job: name, Page: input.Page{Limit: 1000}}
	runs, err := r.store.Runs(r.t.Context(), query)
	misfires, more := r.store.Misfires(r.t.Context(), query)
	if err := errors.Join(err, more); err != nil {
		t.Fatal(err)
	}
	found := map[time.Time]int{}
	for _, one := range runs {
		if one.Kind == run.KindSchedule {
			found[one.ScheduledAt]++
		}
	}
	for _, m := range misfires {
		count := 0
		for at := m.From; !at.After(m.To); at, _ = s.Next(at) {
			found[at]++
			count++
		}
		if count != m.Count {
			t.Fatalf("decision %+v covers %d scheduled times", m, count)
		}
	}
	for at, _ := s.Next(begin); at.Before(*trigger.NextFireTime); at, _ = s.Next(at) {
		if found[at] != 1 {
			t.Fatalf("time %s is in the ledger %d times, by runs %+v and misfires %+v", at.Sub(begin), found[at], runs, misfires)
		}
		delete(found, at)
	}
	if len(found) > 0 {
		t.Fatalf("%v are in the ledger but not on the schedule", found)
	}
	if late := now.Sub(*trigger.DueAt); late > trigger.MisfireAfter.Std()+time.Second {
		t.Fatalf("the next fire is %s late after a round of the handler", late)
	}
}

// overdueFrom is a store that notes the lower bounds of reads of overdue triggers.
type overdueFrom struct {
	Store
	from []time.Time
}

func (o *overdueFrom) Due(ctx context.Context, query dispatcher.DueQuery) ([]dispatcher.DueTrigger, error) {
	if query.Overdue {
		o.from = append(o.from, query.From)
	}
	return o.Store.Due(ctx, query)
}

// Otherwise a read next to a long snapshot would visit all earlier fires once more.
func TestMisfiresAndTheirAppsAreReadFromTheSameBound(t *testing.T) {
	t.Parallel()
	o := &overdueFrom{}
	r := newRig(t, func(s Store) Store { o.Store = s; return o })
	r.declare("missed", "rate(1s)", func(trigger *dispatcher.Trigger) { trigger.MisfireAfter = input.Duration(time.Second) })
	now, bound := r.now.Add(10*time.Second), r.now.Add(-time.Minute)
	r.plan.Floors.Misses.End(plan.Look{Now: now}, time.Time{}, bound)
	if err := r.chores.SettleMisfires(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if len(o.from) == 0 || !o.from[0].Equal(bound) {
		t.Errorf("overdue triggers were read from %v on, want %v", o.from, bound)
	}
}
