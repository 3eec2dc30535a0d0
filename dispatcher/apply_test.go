package dispatcher_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

var monday = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

// minutely fires at every full minute.
const minutely = "* * * * *"

func trigger(expression string, change ...func(*dispatcher.Trigger)) dispatcher.Trigger {
	var t dispatcher.Trigger
	t.SetDefaults()
	t.Expression = expression
	for _, c := range change {
		c(&t)
	}
	return t
}

// job returns the declaration of a job with one trigger named "t", or none for an empty expression.
func job(expression string, change ...func(*dispatcher.Job)) dispatcher.Job {
	j := dispatcher.Job{App: "crm", Name: "sync", JobSpec: dispatcher.JobSpec{Triggers: map[string]dispatcher.Trigger{}}}
	j.SetDefaults()
	j.Target.Webhook = &target.Webhook{URL: "https://example.com/hook"}
	j.Target.Webhook.SetDefaults()
	if expression != "" {
		j.Triggers["t"] = trigger(expression)
	}
	for _, c := range change {
		c(&j)
	}
	return j
}

func withTrigger(change func(*dispatcher.Trigger)) func(*dispatcher.Job) {
	return func(j *dispatcher.Job) {
		t := j.Triggers["t"]
		change(&t)
		j.Triggers["t"] = t
	}
}

func endAt(end time.Time) func(*dispatcher.Job) {
	return withTrigger(func(t *dispatcher.Trigger) { t.EndAt = &end })
}

func revise(t *testing.T, old *dispatcher.Job, declared dispatcher.Job, now time.Time) (dispatcher.Job, []dispatcher.Misfire) {
	t.Helper()
	revised, missed, err := dispatcher.Apply(old, declared, dispatcher.Prior{}, nil, now)
	if err != nil {
		t.Fatalf("Apply at %v: %v", now, err)
	}
	return revised, missed
}

func instant(t *time.Time) string {
	if t == nil {
		return "none"
	}
	return t.Format(time.TimeOnly)
}

func TestApplyRefusesNewScheduleWithNoFireLeft(t *testing.T) {
	t.Parallel()
	tomorrow := monday.AddDate(0, 0, 1)
	for name, tt := range map[string]struct {
		declared dispatcher.Job
		want     []string
	}{
		"a past end":            {job(minutely, endAt(monday.Add(-time.Second))), []string{"/triggers/t/end_at at_past"}},
		"an end at this moment": {job("rate(1m)", endAt(monday)), []string{"/triggers/t/end_at at_past"}},
		"an instant and an end, past": {job("at(2026-03-02T09:00:00Z)", endAt(monday)),
			[]string{"/triggers/t/end_at at_past", "/triggers/t/expression at_past"}},
		"an instant after a past end": {job("at(2026-03-03T09:00:00Z)", endAt(monday)), []string{"/triggers/t/end_at at_past"}},
		"an instant after an end":     {job("at(2026-03-09T09:00:00Z)", endAt(tomorrow)), []string{"/triggers/t/expression cron_never"}},
		"a past end, if it is off":    {job(minutely, endAt(monday), func(j *dispatcher.Job) { j.Enabled = false }), nil},
	} {
		for old, before := range map[string]*dispatcher.Job{"new": nil, "changed": new(job("@daily"))} {
			_, _, err := dispatcher.Apply(before, tt.declared, dispatcher.Prior{}, nil, monday)
			var problems input.Problems
			problems.AddError("", err)
			var got []string
			for _, f := range problems {
				got = append(got, f.Path+" "+f.Code)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s, %s: (-want +got):\n%s", name, old, diff)
			}
		}
	}
}

func TestApplyToTriggerDueAtTen(t *testing.T) {
	t.Parallel()
	disabled := func(j *dispatcher.Job) { j.Enabled = false }
	off := withTrigger(func(t *dispatcher.Trigger) { t.Enabled = false })
	ended := endAt(monday.Add(4 * time.Minute))
	tests := map[string]struct {
		old      dispatcher.Job // declared at 10:00:00
		declared dispatcher.Job
		after    time.Duration
		next     string
		state    dispatcher.TriggerState
		anchor   string
		missed   int // fires of the former schedule that were due
	}{
		"an unchanged schedule keeps its fire time": {
			old: job(minutely), declared: job(minutely), after: 30 * time.Second,
			next: "10:01:00", state: dispatcher.TriggerWaiting, anchor: "10:00:00",
		},
		"an unchanged schedule keeps even an overdue fire": {
			old: job(minutely), declared: job(minutely), after: 10 * time.Minute,
			next: "10:01:00", state: dispatcher.TriggerWaiting, anchor: "10:00:00",
		},
		"a schedule with its defaults written out is the same": {
			old: job(minutely), after: 30 * time.Second,
			declared: job(minutely, withTrigger(func(t *dispatcher.Trigger) {
				t.Dialect, t.Timezone = schedule.DialectUnix, "UTC"
			})),
			next: "10:01:00", state: dispatcher.TriggerWaiting, anchor: "10:00:00",
		},
		"a change outside the schedule keeps the fire time": {
			old: job(minutely), after: 2 * time.Minute,
			declared: job(minutely, func(j *dispatcher.Job) { j.Target.Webhook.URL = "https://example.com/other" },
				withTrigger(func(t *dispatcher.Trigger) { t.MisfireAfter = input.Duration(time.Hour) })),
			next: "10:01:00", state: dispatcher.TriggerWaiting, anchor: "10:00:00",
		},
		"a changed schedule starts from now": {
			old: job(minutely), declared: job("*/5 * * * *"), after: 30 * time.Second,
			next: "10:05:00", state: dispatcher.TriggerWaiting, anchor: "10:00:30",
		},
		"a changed schedule explains the fires that were due": {
			old: job(minutely), declared: job("*/5 * * * *"), after: 3*time.Minute + time.Second,
			next: "10:05:00", state: dispatcher.TriggerWaiting, anchor: "10:03:01", missed: 3,
		},
		"a fire due at this very moment counts as due": {
			old: job(minutely), declared: job("*/5 * * * *"), after: time.Minute,
			next: "10:05:00", state: dispatcher.TriggerWaiting, anchor: "10:01:00", missed: 1,
		},
		"a changed bound keeps a due fire": {
			old: job(minutely), after: 90 * time.Second,
			declared: job(minutely, withTrigger(func(t *dispatcher.Trigger) {
				end := monday.Add(time.Hour)
				t.EndAt = &end
			})),
			next: "10:01:00", state: dispatcher.TriggerWaiting, anchor: "10:00:00",
		},
		"an interval is anchored again when it changes": {
			old: job("rate(5 minutes)"), declared: job("rate(7 minutes)"), after: time.Minute,
			next: "10:08:00", state: dispatcher.TriggerWaiting, anchor: "10:01:00",
		},
		"a disabled trigger has no next fire, and its due ones are missed": {
			old: job(minutely), declared: job(minutely, off), after: 2 * time.Minute,
			next: "none", state: dispatcher.TriggerWaiting, anchor: "10:00:00", missed: 2,
		},
		"a disabled job has no next fires": {
			old: job(minutely), declared: job(minutely, disabled), after: 30 * time.Second,
			next: "none", state: dispatcher.TriggerWaiting, anchor: "10:00:00",
		},
		"an enabled trigger begins with the next instant": {
			old: job(minutely, off), declared: job(minutely), after: 10*time.Minute + time.Second,
			next: "10:11:00", state: dispatcher.TriggerWaiting, anchor: "10:00:00",
		},
		"an enabled interval keeps its phase": {
			old: job("rate(5 minutes)", disabled), declared: job("rate(5 minutes)"), after: 12 * time.Minute,
			next: "10:15:00", state: dispatcher.TriggerWaiting, anchor: "10:00:00",
		},
		"an unchanged window that has passed completes when it is enabled again": {
			old: job(minutely, ended, off), declared: job(minutely, ended), after: 5 * time.Minute,
			next: "none", state: dispatcher.TriggerComplete, anchor: "10:00:00",
		},
		"an unchanged instant that has passed completes when it is enabled again": {
			old: job("at(2026-03-02T10:01:00Z)", off), declared: job("at(2026-03-02T10:01:00Z)"), after: time.Hour,
			next: "none", state: dispatcher.TriggerComplete, anchor: "10:00:00",
		},
		"an unchanged overdue instant stays due": {
			old: job("at(2026-03-02T10:01:00Z)"), declared: job("at(2026-03-02T10:01:00Z)"), after: time.Hour,
			next: "10:01:00", state: dispatcher.TriggerWaiting, anchor: "10:00:00",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, _ := revise(t, nil, tt.old, monday)
			revised, missed := revise(t, &old, tt.declared, monday.Add(tt.after))
			got := revised.Triggers["t"]
			if instant(got.NextFireTime) != tt.next || got.State != tt.state || instant(&got.AnchorAt) != tt.anchor {
				t.Errorf("trigger is %s with next %s, anchor %s; want %s with %s, %s",
					got.State, instant(got.NextFireTime), instant(&got.AnchorAt), tt.state, tt.next, tt.anchor)
			}
			count := 0
			for _, m := range missed {
				count += m.Count
				want := dispatcher.DecisionFireOnce
				if tt.next == "none" { // it was disabled
					want = dispatcher.DecisionSkip
				}
				if m.Decision != want || m.Reason == "" {
					t.Errorf("misfire %+v, want %s and why", m, want)
				}
			}
			if count != tt.missed {
				t.Errorf("%d fires came back as misfires, want %d", count, tt.missed)
			}
			if revised.Revision != old.Revision+1 || !revised.CreatedAt.Equal(monday) {
				t.Errorf("revision %d created %v, want %d, %v", revised.Revision, revised.CreatedAt, old.Revision+1, monday)
			}
		})
	}
}

func TestApplyKeepsFireTimesAndPauses(t *testing.T) {
	t.Parallel()
	old, _ := revise(t, nil, job(minutely), monday)
	prev, next := monday.Add(time.Minute), monday.Add(2*time.Minute)
	withTrigger(func(t *dispatcher.Trigger) {
		t.Paused, t.State, t.PrevFireTime, t.NextFireTime = true, dispatcher.TriggerPaused, &prev, &next
	})(&old)
	old.Paused = true

	revised, _ := revise(t, &old, job(minutely), monday.Add(90*time.Second))
	got := revised.Triggers["t"]
	if !revised.Paused || !got.Paused || got.PrevFireTime == nil || !got.PrevFireTime.Equal(prev) || !got.NextFireTime.Equal(next) {
		t.Errorf("job paused %v, trigger %+v; want the pauses and fire times of before", revised.Paused, got)
	}
	if got.State != dispatcher.TriggerWaiting {
		t.Errorf("state to store is %s, want %s: the pause is only shown", got.State, dispatcher.TriggerWaiting)
	}
	if revised.State != dispatcher.JobPaused {
		t.Errorf("job is %s, want %s", revised.State, dispatcher.JobPaused)
	}
}

func TestApplyEndsErrorState(t *testing.T) {
	t.Parallel()
	old, _ := revise(t, nil, job(minutely), monday)
	withTrigger(func(t *dispatcher.Trigger) {
		t.State, t.Error, t.NextFireTime = dispatcher.TriggerError, "no such zone", nil
	})(&old)
	revised, _ := revise(t, &old, job(minutely), monday.Add(90*time.Second))
	if got := revised.Triggers["t"]; got.State != dispatcher.TriggerWaiting || got.Error != "" || instant(got.NextFireTime) != "10:02:00" {
		t.Errorf("trigger is %+v, want it armed for 10:02:00", got)
	}
}

func TestApplyIgnoresReadOnlyFields(t *testing.T) {
	t.Parallel()
	declared := job(minutely, withTrigger(func(t *dispatcher.Trigger) {
		t.Paused, t.State, t.Error, t.PrevFireTime, t.NextFireTime, t.AnchorAt = true, dispatcher.TriggerComplete, "x",
			&monday, &monday, monday.Add(-time.Hour)
	}))
	declared.Paused, declared.Revision, declared.State, declared.CreatedAt = true, 77, dispatcher.JobError, monday.Add(-time.Hour)
	want, _ := revise(t, nil, job(minutely), monday)
	got, _ := revise(t, nil, declared, monday)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("job declared with read-only fields (-want +got):\n%s", diff)
	}
}

func TestApplyContinuesRevisionOfDeletedJob(t *testing.T) {
	t.Parallel()
	got, _, err := dispatcher.Apply(nil, job(minutely), dispatcher.Prior{Revision: 41}, nil, monday)
	if err != nil || got.Revision != 42 {
		t.Errorf("revision %d, %v, want 42: an ETag must not come back", got.Revision, err)
	}
}

// A node may claim a fire shortly before it is due. Deleting the trigger and declaring it again before that must not
// repeat the fire.
func TestApplyFiresAfterTheLastFireOfADeletedTrigger(t *testing.T) {
	t.Parallel()
	fired := monday.Add(time.Minute)
	for name, tt := range map[string]struct {
		fired    time.Time
		declared dispatcher.Job
		next     string
		state    dispatcher.TriggerState
		prev     *time.Time
	}{
		"ahead of its instant": {fired, job(minutely), "10:02:00", dispatcher.TriggerWaiting, &fired},
		"another schedule":     {fired, job("*/5 * * * *"), "10:05:00", dispatcher.TriggerWaiting, &fired},
		"the only instant":     {fired, job("at(2026-03-02T10:01:00Z)"), "none", dispatcher.TriggerComplete, &fired},
		"long ago":             {monday.Add(-time.Hour), job(minutely), "10:01:00", dispatcher.TriggerWaiting, nil},
		"at this moment":       {monday, job(minutely), "10:01:00", dispatcher.TriggerWaiting, nil},
	} {
		prior := dispatcher.Prior{Revision: 3, Fired: map[string]time.Time{"t": tt.fired, "other": fired}}
		revised, _, err := dispatcher.Apply(nil, tt.declared, prior, nil, monday)
		got := revised.Triggers["t"]
		if err != nil || instant(got.NextFireTime) != tt.next || got.State != tt.state || instant(got.PrevFireTime) != instant(tt.prev) {
			t.Errorf("%s: %v, %s with previous fire %s and next %s, want %s, %s and %s", name, err, got.State,
				instant(got.PrevFireTime), instant(got.NextFireTime), tt.state, instant(tt.prev), tt.next)
		}
	}
}

func TestApplyRefusesNewTimeInThePast(t *testing.T) {
	t.Parallel()
	past := job("at(2026-03-02T09:00:00Z)")
	old, _ := revise(t, nil, job("at(2026-03-02T10:01:00Z)"), monday)
	for name, before := range map[string]*dispatcher.Job{"new": nil, "changed": &old} {
		_, _, err := dispatcher.Apply(before, past, dispatcher.Prior{}, nil, monday)
		var problems input.Problems
		if !errors.As(err, &problems) || len(problems) != 1 || problems[0].Code != input.CodeAtPast ||
			problems[0].Path != "/triggers/t/expression" {
			t.Errorf("%s instant in the past: %v, want %s at /triggers/t/expression", name, err, input.CodeAtPast)
		}
	}
}

func TestRemovalExplainsDueFires(t *testing.T) {
	t.Parallel()
	old, _ := revise(t, nil, job(minutely), monday)
	now := monday.Add(150 * time.Second)
	want := []dispatcher.Misfire{{
		App: "crm", Job: "sync", Trigger: "t", JobID: run.JobID("crm", "sync"), TriggerID: run.TriggerID("crm", "sync", "t"),
		From: monday.Add(time.Minute), To: monday.Add(2 * time.Minute), Count: 2,
		Decision: dispatcher.DecisionSkip, Reason: "the trigger was removed", DecidedAt: now,
	}}
	_, missed := revise(t, &old, job(""), now)
	if diff := cmp.Diff(want, missed); diff != "" {
		t.Errorf("misfires of a removed trigger (-want +got):\n%s", diff)
	}
	want[0].Reason = "the job was deleted"
	if diff := cmp.Diff(want, dispatcher.Retire(old, nil, now)); diff != "" {
		t.Errorf("misfires of a deleted job (-want +got):\n%s", diff)
	}
}

func TestMissedCountsUpToTheBound(t *testing.T) {
	t.Parallel()
	s, err := schedule.Parse(schedule.Spec{Expression: "rate(1 second)", Anchor: monday})
	if err != nil {
		t.Fatal(err)
	}
	from := monday.Add(time.Second)
	now := monday.Add(1000*time.Second + time.Millisecond)
	last, count, next, err := dispatcher.Missed(s, from, now)
	if err != nil || !last.Equal(monday.Add(1000*time.Second)) || count != 1000 || next == nil || !next.Equal(monday.Add(1001*time.Second)) {
		t.Errorf("Missed = %v, %d, %v, want 1000 up to %v", last, count, next, monday.Add(1000*time.Second))
	}
	// The last is an instant of the schedule even if the count stops before it.
	now = monday.Add(2*dispatcher.MostMissed*time.Second + 300*time.Millisecond)
	last, count, next, err = dispatcher.Missed(s, from, now)
	if err != nil || !last.Equal(now.Truncate(time.Second)) || count != dispatcher.MostMissed || next == nil || !next.After(now) {
		t.Errorf("Missed past its bound = %v, %d, %v, want %d and the range up to now", last, count, next, dispatcher.MostMissed)
	}
}

func TestFixedDelayStartsAgainWhenEnabledAgain(t *testing.T) {
	t.Parallel()
	first, _ := revise(t, nil, job("delay(30s)"), monday)
	off := job("delay(30s)")
	off.Enabled = false
	stopped, _ := revise(t, &first, off, monday.Add(time.Hour))
	again, _ := revise(t, &stopped, job("delay(30s)"), monday.Add(2*time.Hour))
	if got, want := again.Triggers["t"], monday.Add(2*time.Hour+30*time.Second); got.NextFireTime == nil ||
		!got.NextFireTime.Equal(want) || got.State != dispatcher.TriggerWaiting {
		t.Errorf("next fire = %v in state %s, want %v", got.NextFireTime, got.State, want)
	}
}

// While its run is in flight a fixed delay has no next fire, and is not complete.
func TestRunningFixedDelayWaitsThroughAChange(t *testing.T) {
	t.Parallel()
	stored, _ := revise(t, nil, job("delay(30s)"), monday)
	running := stored.Triggers["t"]
	running.PrevFireTime, running.NextFireTime, running.DueAt, running.Fired = running.NextFireTime, nil, nil, 3
	for _, paused := range []bool{false, true} {
		running.Paused = paused
		if paused {
			running.State = dispatcher.TriggerPaused
		}
		stored.Triggers["t"] = running
		changed := job("delay(30s)")
		changed.Description = "other"
		got, _ := revise(t, &stored, changed, monday.Add(time.Hour))
		if one := got.Triggers["t"]; one.NextFireTime != nil || one.State != dispatcher.TriggerWaiting || one.Fired != 3 ||
			!one.AnchorAt.Equal(monday) {
			t.Errorf("paused %v: trigger = %+v, want it waiting as it was", paused, one)
		}
	}
}

func TestJitterMovesDueTimeNotScheduledTime(t *testing.T) {
	t.Parallel()
	stored, _ := revise(t, nil, job(minutely, withTrigger(func(t *dispatcher.Trigger) { t.Jitter = input.Duration(time.Hour) })), monday)
	got := stored.Triggers["t"]
	delay := got.DueAt.Sub(*got.NextFireTime)
	if !got.NextFireTime.Equal(monday.Add(time.Minute)) || delay <= 0 || delay >= time.Hour {
		t.Errorf("next fire %v is due %s later, want within the hour", got.NextFireTime, delay)
	}
}

func TestHashedFieldsDependOnTheNamesOfTheTrigger(t *testing.T) {
	t.Parallel()
	minutes := map[int]bool{}
	for _, name := range []string{"one", "two", "three", "four"} {
		declared := job("H * * * *")
		declared.Name = name
		stored, _ := revise(t, nil, declared, monday)
		minutes[stored.Triggers["t"].NextFireTime.Minute()] = true
		again, _ := revise(t, nil, declared, monday)
		if !again.Triggers["t"].NextFireTime.Equal(*stored.Triggers["t"].NextFireTime) {
			t.Errorf("job %s fires at another minute when it is declared again", name)
		}
	}
	if len(minutes) < 2 {
		t.Errorf("four jobs fire at the same minute %v", minutes)
	}
}
