package dispatcher_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// with returns a job with a trigger after changes.
func with(expression string, changes ...func(*dispatcher.Trigger)) dispatcher.Job {
	return job(expression, withTrigger(func(t *dispatcher.Trigger) {
		for _, change := range changes {
			change(t)
		}
	}))
}

func policy(p dispatcher.MisfirePolicy) func(*dispatcher.Trigger) {
	return func(t *dispatcher.Trigger) { t.MisfirePolicy = p }
}

func jitter(d time.Duration) func(*dispatcher.Trigger) {
	return func(t *dispatcher.Trigger) { t.Jitter = input.Duration(d) }
}

func repeated(n int) func(*dispatcher.Trigger) {
	return func(t *dispatcher.Trigger) { t.RepeatCount = n }
}

func window(d time.Duration) func(*dispatcher.Trigger) {
	return func(t *dispatcher.Trigger) { t.CatchUpWindow = input.Duration(d) }
}

// decisions formats the decisions about pending fires.
func decisions(missed []dispatcher.Misfire) (all []string) {
	for _, m := range missed {
		text := fmt.Sprintf("%s %d %s-%s", m.Decision, m.Count, m.From.Format("15:04:05"), m.To.Format("15:04:05"))
		if m.Run != "" {
			key, err := run.ParseKey(m.Run)
			if err != nil {
				return []string{err.Error()}
			}
			text += fmt.Sprintf(", run %s at %s", key.Kind, m.RunDueAt.Format("15:04:05"))
		}
		all = append(all, text)
	}
	return all
}

func TestPendingFiresSurviveAChange(t *testing.T) {
	t.Parallel()
	end := func(at time.Duration) func(*dispatcher.Trigger) {
		return func(t *dispatcher.Trigger) { end := monday.Add(at); t.EndAt = &end }
	}
	for name, tt := range map[string]struct {
		old, declared dispatcher.Job // old at 10:00:00
		after         time.Duration
		next          string // empty if unchanged
		want          []string
	}{
		"one more space":  {old: with("* * * * *"), declared: with("*  * * * *"), after: 10 * time.Minute},
		"another dialect": {old: with("* * * * *"), declared: with("0 * * * * ?"), after: 10 * time.Minute},
		"jitter":          {old: with("* * * * *"), declared: with("* * * * *", jitter(time.Minute)), after: 90 * time.Second},
		"an end to come":  {old: with("* * * * *"), declared: with("* * * * *", end(time.Hour)), after: 10 * time.Minute},
		"no more jitter":  {old: with("0 * * * *", jitter(time.Hour)), declared: with("0 * * * *"), after: time.Hour + time.Second},
		"a sparser schedule": {old: with("* * * * *"), declared: with("*/5 * * * *"), after: 5*time.Minute + time.Second,
			next: "10:05:00", want: []string{"fire_once 4 10:01:00-10:04:00, run catch_up at 10:05:01"}},
		"the first of them": {old: with("* * * * *"), declared: with("1 * * * *"), after: 3*time.Minute + time.Second,
			next: "10:01:00", want: []string{"fire_once 2 10:02:00-10:03:00, run catch_up at 10:03:01"}},
		"one in the middle, fire_once": {old: with("* * * * *"), declared: with("2 * * * *"), after: 3 * time.Minute,
			next: "11:02:00", want: []string{
				"fire_once 1 10:01:00-10:01:00, run catch_up at 10:03:00",
				"fire_all 1 10:02:00-10:02:00, run schedule at 10:02:00", "fire_once 1 10:03:00-10:03:00, run catch_up at 10:03:00"}},
		"one in the middle, long ago": {old: with("* * * * *"), declared: with("2 * * * *"), after: 5 * time.Minute,
			next: "11:02:00", want: []string{
				"fire_once 5 10:01:00-10:05:00, run catch_up at 10:05:00"}},
		"one in the middle, skip": {old: with("* * * * *"), declared: with("2 * * * *", policy(dispatcher.Skip)),
			after: 3*time.Minute + time.Second, next: "10:02:00", want: []string{
				"skip 1 10:01:00-10:01:00", "skip 1 10:03:00-10:03:00"}},
		"one in the middle, fire_all": {old: with("* * * * *"), declared: with("2 * * * *", policy(dispatcher.FireAll)),
			after: 3*time.Minute + time.Second, next: "10:02:00", want: []string{
				"fire_all 1 10:01:00-10:01:00, run schedule at 10:03:01", "fire_all 1 10:03:00-10:03:00, run schedule at 10:03:02"}},
		"another schedule, once": {old: with("* * * * *"), declared: with("30 12 * * *"),
			after: time.Minute + time.Second, next: "12:30:00",
			want: []string{"fire_once 1 10:01:00-10:01:00, run catch_up at 10:01:01"}},
		"another schedule, skip": {old: with("* * * * *"), declared: with("30 12 * * *", policy(dispatcher.Skip)),
			after: 3*time.Minute + time.Second, next: "12:30:00", want: []string{"skip 3 10:01:00-10:03:00"}},
		"another schedule, all": {old: with("* * * * *"), declared: with("30 12 * * *", policy(dispatcher.FireAll)),
			after: 2*time.Minute + time.Second, next: "12:30:00", want: []string{
				"fire_all 1 10:01:00-10:01:00, run schedule at 10:02:01", "fire_all 1 10:02:00-10:02:00, run schedule at 10:02:02"}},
		"older than the window": {old: with("* * * * *"), declared: with("30 12 * * *", window(2*time.Minute)),
			after: 4 * time.Minute, next: "12:30:00", want: []string{
				"skip 1 10:01:00-10:01:00", "fire_once 3 10:02:00-10:04:00, run catch_up at 10:04:00"}},
		// The new schedule has times that the old one did not have: a fire that is on time gets a run of its own.
		"a denser schedule": {old: with("* * * * *"), declared: with("0/20 * * * * ?"),
			after: time.Minute + 30*time.Second, next: "10:01:40", want: []string{
				"fire_all 1 10:01:00-10:01:00, run schedule at 10:01:00"}},
		"a denser schedule, missed": {old: with("* * * * *"), declared: with("0/20 * * * * ?"),
			after: 3*time.Minute + 30*time.Second, next: "10:03:40", want: []string{
				"fire_once 2 10:01:00-10:02:00, run catch_up at 10:03:30", "fire_all 1 10:03:00-10:03:00, run schedule at 10:03:00"}},
		"an end that has passed except for a fire": {old: with("* * * * *"), declared: with("* * * * *", end(4*time.Minute),
			repeated(9)), after: 3 * time.Minute},
		"a used up repeat count": {old: with("* * * * *"), declared: with("* * * * *", repeated(2)),
			after: 4 * time.Minute, next: "none", want: []string{
				"fire_once 4 10:01:00-10:04:00, run catch_up at 10:04:00"}},
		"a single time becomes a schedule": {old: with("at(2026-03-02T10:01:00Z)"), declared: with("0 12 * * *"),
			after: 2 * time.Minute, next: "12:00:00", want: []string{
				"fire_once 1 10:01:00-10:01:00, run catch_up at 10:02:00"}},
		"a fixed delay becomes longer": {old: with("delay(1m)"), declared: with("delay(2m)"), after: 90 * time.Second,
			next: "10:03:30", want: []string{
				"fire_once 1 10:01:00-10:01:00, run catch_up at 10:01:30"}},
		"a fixed delay gets jitter": {old: with("delay(1m)"), declared: with("delay(60s)", jitter(time.Minute)),
			after: 90 * time.Second},
		"a fixed delay, respelled": {old: with("delay(1m)"), declared: with(" delay(60s) "), after: 30 * time.Second},
		"a schedule in another zone": {old: with("0 11 * * *", func(t *dispatcher.Trigger) { t.Timezone = "Europe/Berlin" }),
			declared: with("0 10 * * *"), after: time.Second, next: "10:00:00"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := monday
			if name == "a schedule in another zone" { // 11:00 in Berlin is 10:00 UTC
				begin = monday.Add(-time.Minute)
			}
			old, _ := revise(t, nil, tt.old, begin)
			revised, missed := revise(t, &old, tt.declared, monday.Add(tt.after))
			was, is := old.Triggers["t"], revised.Triggers["t"]
			want := tt.next
			if want == "" {
				want = instant(was.NextFireTime)
			}
			if got := instant(is.NextFireTime); got != want {
				t.Errorf("next fire at %s, want %s", got, want)
			}
			if tt.next == "" && !is.DueAt.Equal(*was.DueAt) {
				t.Errorf("due at %s, want %s as before", instant(is.DueAt), instant(was.DueAt))
			}
			if diff := cmp.Diff(tt.want, decisions(missed)); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
		})
	}
}

// At most a thousand fires are caught up; earlier ones are skipped, with one decision.
func TestPendingFiresBeyondTheLatestThousand(t *testing.T) {
	t.Parallel()
	old, _ := revise(t, nil, with("rate(1s)"), monday)
	now := monday.Add(30 * 24 * time.Hour)
	_, missed := revise(t, &old, with("0 12 1 1 *", policy(dispatcher.FireAll)), now)
	if len(missed) != dispatcher.MostCaughtUp+1 || missed[0].Decision != dispatcher.DecisionSkip ||
		!missed[0].To.Add(time.Second).Equal(missed[1].From) || !missed[len(missed)-1].To.Equal(now) {
		t.Fatalf("%d decisions, the first %+v", len(missed), missed[0])
	}
	if kept, missed := revise(t, &old, with(" rate(1000ms)", jitter(time.Second)), now); len(missed) != 0 ||
		!kept.Triggers["t"].NextFireTime.Equal(monday.Add(time.Second)) {
		t.Errorf("of the same schedule with jitter: next %v and %v, want all to stay", kept.Triggers["t"].NextFireTime,
			decisions(missed))
	}
	if _, missed := revise(t, &old, with("rate(3s)"), now); len(missed) != 1 || missed[0].Decision != dispatcher.DecisionFireOnce {
		t.Errorf("of another interval: %v, want one catch-up run", decisions(missed))
	}
}

// A trigger in state error has fires that were due. They stay when it is resumed or declared again.
func TestPendingFiresSurviveStateError(t *testing.T) {
	t.Parallel()
	for _, declared := range []dispatcher.Job{with("* * * * *"), with("0 * * * * ?", jitter(time.Second))} {
		old, _ := revise(t, nil, with("* * * * *"), monday)
		withTrigger(func(t *dispatcher.Trigger) { t.State, t.Error = dispatcher.TriggerError, "it responded 410" })(&old)
		got, missed := revise(t, &old, declared, monday.Add(10*time.Minute))
		if one := got.Triggers["t"]; instant(one.NextFireTime) != "10:01:00" || one.State != dispatcher.TriggerWaiting || len(missed) > 0 {
			t.Errorf("%s: next %s in state %s, %v", one.Expression, instant(one.NextFireTime), one.State, decisions(missed))
		}
	}
}

func TestPendingFiresOfStoppedTriggersAreSkipped(t *testing.T) {
	t.Parallel()
	old, _ := revise(t, nil, with("* * * * *"), monday)
	off, disabled := with("* * * * *"), with("* * * * *", func(t *dispatcher.Trigger) { t.Enabled = false })
	off.Enabled = false
	for want, declared := range map[string]dispatcher.Job{
		"the trigger was removed": job(""), "the trigger was disabled": disabled, "the job was disabled": off,
	} {
		_, missed := revise(t, &old, declared, monday.Add(2*time.Minute))
		if diff := cmp.Diff([]string{"skip 2 10:01:00-10:02:00"}, decisions(missed)); diff != "" || missed[0].Reason != want {
			t.Errorf("%+v, want %q (-want +got):\n%s", missed, want, diff)
		}
	}
}

// Repeats go on through a change that keeps the times, and a completed trigger with more of them fires again.
func TestRepeatCountGoesOnThroughAChange(t *testing.T) {
	t.Parallel()
	const later = 10 * time.Minute
	for name, tt := range map[string]struct {
		old, declared dispatcher.Job
		left          int
		anchor        string
	}{
		"one more space": {with("* * * * * ?", repeated(3)), with("*  * * * * ?", repeated(3)), 0, "10:00:00"},
		"a gap": {with("* * * * * ?", repeated(3)), with("* * * * * ?", repeated(3),
			func(t *dispatcher.Trigger) { t.Gap = schedule.GapNext }), 0, "10:00:00"},
		"jitter":             {with("* * * * * ?", repeated(3)), with("* * * * * ?", repeated(3), jitter(time.Second)), 0, "10:00:00"},
		"one more":           {with("* * * * * ?", repeated(3)), with("* * * * * ?", repeated(4)), 1, "10:00:00"},
		"one less":           {with("* * * * * ?", repeated(3)), with("* * * * * ?", repeated(2)), 0, "10:00:00"},
		"one more of a rate": {with("rate(7s)", repeated(3)), with("rate(7s)", repeated(4)), 1, "10:00:00"},
		"one more of steps":  {with("every 7 seconds", repeated(3)), with("every 7 seconds", repeated(4)), 1, "10:00:00"},
		"one more, with a start": {with("rate(7s)", repeated(3), startAt(monday.Add(time.Second))), with("rate(7s)",
			repeated(4), startAt(monday.Add(time.Second))), 1, "10:00:00"},
		"another schedule": {with("* * * * * ?", repeated(3)), with("0/2 * * * * ?", repeated(3)), 3, "10:10:00"},
		"another period":   {with("rate(7s)", repeated(3)), with("rate(8s)", repeated(3)), 3, "10:10:00"},
	} {
		old, _ := revise(t, nil, tt.old, monday)
		withTrigger(func(t *dispatcher.Trigger) { // its three fires have run
			t.PrevFireTime, t.NextFireTime, t.DueAt, t.State = &monday, nil, nil, dispatcher.TriggerComplete
		})(&old)
		now := monday.Add(later)
		revised, missed := revise(t, &old, tt.declared, now)
		for range 2 { // a second time without a change, and with a changed bound that is not reached
			got := revised.Triggers["t"]
			s, err := got.Parse(revised.Identity("t"), got.AnchorAt, nil)
			if err != nil {
				t.Fatal(err)
			}
			if left := len(timesBetween(s, now, now.AddDate(1, 0, 0),
				10)); left != tt.left || instant(&got.AnchorAt) != tt.anchor || len(missed) > 0 {
				t.Errorf("%s: %d fires left from anchor %s with %v, want %d from %s", name, left, instant(&got.AnchorAt),
					decisions(missed), tt.left, tt.anchor)
			}
			if (got.NextFireTime != nil) != (tt.left > 0) {
				t.Errorf("%s: next fire at %s in state %s, %d are left", name, instant(got.NextFireTime), got.State, tt.left)
			}
			withTrigger(func(t *dispatcher.Trigger) { t.EndAt = new(monday.AddDate(0, 1, 0)) })(&tt.declared)
			revised, missed = revise(t, &revised, tt.declared, now)
		}
	}
}

func startAt(at time.Time) func(*dispatcher.Trigger) {
	return func(t *dispatcher.Trigger) { t.StartAt = &at }
}

// timesBetween is Between without what follows a search that is given up.
func timesBetween(s *schedule.Schedule, a, b time.Time, limit int) []time.Time {
	times, _ := s.Between(a, b, limit)
	return times
}
