package definitions

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// pendingTests test fires that are due when their schedule changes.
func pendingTests() tests {
	return tests{
		"a changed schedule keeps the pending fires that it contains":    testPendingStays,
		"the misfire policy settles pending fires that a change removed": testPendingSettled,
		"a pause holds the runs of pending fires":                        testPendingHeld,
		"a changed calendar settles pending fires by the policy":         testPendingOfCalendar,
		"repeats continue to count through a change":                     testRepeatsGoOn,
		"a fire that is pending for a changed schedule runs only once":   testPendingOnce,
	}
}

// minutely stores a job that fires each minute as a cron expression.
func (f *wing) minutely(name, expression string, now time.Time, change func(*dispatcher.Trigger)) dispatcher.Trigger {
	f.Helper()
	tick := fixture.Every(time.Minute, fixture.T0)
	tick.Expression, tick.Timezone, tick.StartAt = expression, "UTC", nil
	if change != nil {
		change(&tick)
	}
	return f.Put(fixture.Job(name, map[string]dispatcher.Trigger{"tick": tick}), now).Triggers["tick"]
}

func testPendingStays(t *testing.T, f *wing) {
	jitter := func(t *dispatcher.Trigger) { t.Jitter = input.Duration(40 * time.Second) }
	for i, change := range []func(name string) dispatcher.Trigger{
		func(name string) dispatcher.Trigger {
			return f.minutely(name, "0  * * * * ?", fixture.Minutes(1), jitter)
		},
		func(name string) dispatcher.Trigger { return f.minutely(name, "* * * * *", fixture.Minutes(1), nil) },
		func(name string) dispatcher.Trigger {
			return f.minutely(name, "*/1 * * * *", fixture.Minutes(1), jitter)
		},
		func(name string) dispatcher.Trigger {
			return f.minutely(name, "0 0 * * * ?", fixture.Minutes(60), jitter)
		},
		func(name string) dispatcher.Trigger {
			return f.minutely(name, "0 * * * * ?", fixture.Minutes(1), func(t *dispatcher.Trigger) { jitter(t); t.EndAt = new(fixture.Minutes(99)) })
		},
	} {
		name := fmt.Sprintf("job-%d", i)
		first := "0 * * * * ?"
		if i == 3 {
			first = "0 0 */1 * * ?"
		}
		was := f.minutely(name, first, fixture.T0, jitter)
		is := change(name)
		if !is.NextFireTime.Equal(*was.NextFireTime) || !is.DueAt.Equal(*was.DueAt) {
			t.Errorf("%s: next fire %s due at %s, want %s and %s", is.Expression, is.NextFireTime, is.DueAt, was.NextFireTime, was.DueAt)
		}
	}
	if missed := f.misfires(); len(missed) > 0 {
		t.Errorf("decisions: %q, want none", missed)
	}
}

// misfires returns the decisions of the app shop as text, the first ones first.
func (f *wing) misfires() (all []string) {
	f.Helper()
	found, err := f.Misfires(f.Context(), dispatcher.RunQuery{App: "shop", Page: input.Page{Limit: 100}})
	f.Must(err)
	for _, m := range slices.Backward(found) {
		text := fmt.Sprintf("%s: %s %d from %s to %s", m.Job, m.Decision, m.Count, m.From.Sub(fixture.T0), m.To.Sub(fixture.T0))
		if m.Run != "" {
			run, err := f.Store.Run(f.Context(), m.Run)
			f.Must(err)
			text += fmt.Sprintf(", %s run of %s stands for %d", run.Kind, run.ScheduledAt.Sub(fixture.T0), run.Missed.Count)
		}
		all = append(all, text)
	}
	return all
}

// runs returns the runs of a job as text, the first ones first.
func (f *wing) runs(name string) (all []string) {
	f.Helper()
	found, err := f.Runs(f.Context(), dispatcher.RunQuery{App: "shop", Job: name, Page: input.Page{Limit: 100}})
	f.Must(err)
	for _, run := range slices.Backward(found) {
		all = append(all, fmt.Sprintf("%s %s", run.Kind, run.ScheduledAt.Sub(fixture.T0)))
	}
	return all
}

func testPendingSettled(t *testing.T, f *wing) {
	for _, policy := range []dispatcher.MisfirePolicy{dispatcher.FireOnce, dispatcher.FireAll, dispatcher.Skip} {
		name := strings.ReplaceAll(string(policy), "_", "-")
		f.minutely(name, "0 * * * * ?", fixture.T0, nil)
		f.minutely(name, "30 30 * * * ?", fixture.Minutes(3), func(t *dispatcher.Trigger) { t.MisfirePolicy = policy })
	}
	want := []string{"fire-once: fire_once 3 from 1m0s to 3m0s, catch_up run of 3m0s stands for 3", "skip: skip 3 from 1m0s to 3m0s"}
	got := f.misfires()
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
	for name, want := range map[string][]string{
		"fire-once": {"catch_up 3m0s"}, "fire-all": {"schedule 1m0s", "schedule 2m0s", "schedule 3m0s"}, "skip": nil,
	} {
		if diff := cmp.Diff(want, f.runs(name)); diff != "" {
			t.Errorf("runs of %s (-want +got):\n%s", name, diff)
		}
	}
	f.explained(fixture.Minutes(10))
	if adopted := f.AdoptRetries(fixture.Minutes(3)); len(adopted) != 2 {
		t.Errorf("at the change %d runs are to be attempted, want that of fire_once and the first of fire_all", len(adopted))
	}
	if adopted := f.AdoptRetries(fixture.Minutes(4)); len(adopted) != 2 {
		t.Errorf("a minute later %d runs are to be attempted, want two more", len(adopted))
	}
}

// explained requires that verify finds each scheduled time once.
func (f *wing) explained(now time.Time) {
	f.Helper()
	for name, account := range f.Audit(time.Time{}, now, now) {
		if !strings.Contains(account, " 0 unexplained") {
			f.Errorf("verify says of %s: %s", name, account)
		}
	}
}

func testPendingHeld(t *testing.T, f *wing) {
	f.minutely("tick", "0 * * * * ?", fixture.T0, nil)
	f.Must(f.PauseJob(t.Context(), "shop", "tick", "", true, fixture.At(fixture.T0)))
	f.minutely("tick", "30 30 * * * ?", fixture.Minutes(3), nil)
	if adopted := append(f.AdoptRetries(fixture.Minutes(4)), f.AdoptIdle(fixture.NodeA, fixture.Minutes(4))...); len(adopted) > 0 {
		t.Errorf("while the job is paused: %+v", adopted)
	}
	f.Must(f.PauseJob(t.Context(), "shop", "tick", "", false, fixture.At(fixture.Minutes(5))))
	adopted := f.AdoptRetries(fixture.Minutes(5))
	if len(adopted) != 1 || adopted[0].Kind != run.KindCatchUp || !adopted[0].ScheduledAt.Equal(fixture.Minutes(3)) {
		t.Errorf("once it is resumed: %+v, want the catch-up run", adopted)
	}
	f.explained(fixture.Minutes(10))
}

func testPendingOfCalendar(t *testing.T, f *wing) {
	f.DeclareCalendar(fixture.Calendar("freeze"), fixture.T0)
	for _, policy := range []dispatcher.MisfirePolicy{dispatcher.FireAll, dispatcher.Skip} {
		f.minutely(strings.ReplaceAll(string(policy), "_", "-"), "0 * * * * ?", fixture.T0, func(t *dispatcher.Trigger) {
			t.Calendar, t.MisfirePolicy = "freeze", policy
		})
	}
	f.DeclareCalendar(fixture.Calendar("freeze", allDay), fixture.Minutes(2))
	if diff := cmp.Diff([]string{"skip: skip 2 from 1m0s to 2m0s"}, f.misfires()); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"schedule 1m0s", "schedule 2m0s"}, f.runs("fire-all")); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	f.explained(fixture.Minutes(10))
}

// Three fires are used up, and then one more is allowed.
func testRepeatsGoOn(t *testing.T, f *wing) {
	put := func(now time.Time, expression string, repeat int) dispatcher.Trigger {
		t.Helper()
		return f.minutely("tick", expression, now, func(t *dispatcher.Trigger) { t.RepeatCount = repeat })
	}
	was := put(fixture.T0, "0 * * * * ?", 3)
	f.FireUntil(fixture.Minutes(3))
	if done := f.Trigger("tick"); done.State != dispatcher.TriggerComplete || done.NextFireTime != nil {
		t.Fatalf("after three fires: %+v", done)
	}
	if is := put(fixture.Minutes(10), "0  * * * * ?", 3); is.State != dispatcher.TriggerComplete || !is.AnchorAt.Equal(was.AnchorAt) {
		t.Errorf("one more space: %+v, want it complete", is)
	}
	is := put(fixture.Minutes(20), "0  * * * * ?", 4)
	if is.State != dispatcher.TriggerWaiting || !is.NextFireTime.Equal(fixture.Minutes(21)) ||
		!is.AnchorAt.Equal(was.AnchorAt) || is.Fired != 3 {
		t.Errorf("one more fire: %+v, want it at %s", is, fixture.Minutes(21))
	}
	f.FireUntil(fixture.Minutes(25))
	if done := f.Trigger("tick"); done.State != dispatcher.TriggerComplete {
		t.Errorf("after it: %+v, want it complete", done)
	}
	if diff := cmp.Diff([]string{"schedule 1m0s", "schedule 2m0s", "schedule 3m0s", "schedule 21m0s"}, f.runs("tick")); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	f.explained(fixture.Minutes(30))
}

// The schedule is changed back and forth while a fire is pending.
func testPendingOnce(t *testing.T, f *wing) {
	f.minutely("tick", "0 * * * * ?", fixture.T0, nil)
	for i, expression := range []string{"30 30 * * * ?", "0 * * * * ?", "* * * * *", "0/20 * * * * ?", "0 * * * * ?"} {
		f.minutely("tick", expression, fixture.Minutes(1).Add(time.Duration(i)*time.Second), nil)
	}
	if diff := cmp.Diff([]string{"catch_up 1m0s"}, f.runs("tick")); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	if next := f.Trigger("tick").NextFireTime; !next.Equal(fixture.Minutes(2)) {
		t.Errorf("next fire at %s, want %s", next, fixture.Minutes(2))
	}
	f.explained(fixture.Minutes(1).Add(10 * time.Second))
}
