package alert

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

var alertStart = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

// alertStep is one event of a track, and the notifications that follow: transitions in brackets are held back.
type alertStep struct {
	do      string // fail, succeed, ack, ack 1h, check
	mute    bool
	failing bool
	want    []string
}

func TestTransitionsOfAlerts(t *testing.T) {
	t.Parallel()
	one := Rule{After: 1, Recovery: true}
	for name, tt := range map[string]struct {
		rule  Rule
		steps []alertStep
	}{
		"the first failure and the recovery are notified once each": {one, []alertStep{
			{do: "succeed"}, {do: "fail", want: []string{"firing"}}, {do: "fail"}, {do: "fail"}, {do: "succeed", want: []string{"resolved"}},
			{do: "succeed"}, {do: "fail", want: []string{"firing"}},
		}},
		"failures in a row are counted": {Rule{After: 3, Recovery: true}, []alertStep{
			{do: "fail"}, {do: "fail"}, {do: "succeed"}, {do: "fail"}, {do: "fail"}, {do: "fail", want: []string{"firing"}},
		}},
		"a continuing condition is notified again after further failures": {Rule{After: 2, RepeatEvery: 2, Recovery: true}, []alertStep{
			{do: "fail"}, {do: "fail", want: []string{"firing"}}, {do: "fail"}, {do: "fail", want: []string{"still_firing"}}, {do: "fail"},
			{do: "fail", want: []string{"still_firing"}},
		}},
		"without recovery the end is not notified": {Rule{After: 1}, []alertStep{
			{do: "fail", want: []string{"firing"}}, {do: "succeed", want: []string{"[resolved recovery]"}}, {do: "check"},
			{do: "fail", want: []string{"firing"}},
		}},
		"a condition at the end of a mute is notified then": {one, []alertStep{
			{do: "fail", mute: true, want: []string{"[firing muted]"}}, {do: "check", mute: true}, {do: "check", want: []string{"firing"}},
			{do: "check"}, {do: "succeed", want: []string{"resolved"}},
		}},
		"a condition within a mute is not notified": {one, []alertStep{
			{do: "fail", mute: true, want: []string{"[firing muted]"}}, {do: "succeed", mute: true, want: []string{"[resolved not_told]"}},
			{do: "check"},
		}},
		"an end within a mute is notified at the end of the mute": {one, []alertStep{
			{do: "fail", want: []string{"firing"}}, {do: "succeed", mute: true, want: []string{"[resolved muted]"}},
			{do: "check", want: []string{"resolved"}}, {do: "check"},
		}},
		"a condition that ends and begins within a mute is not notified again": {one, []alertStep{
			{do: "fail", want: []string{"firing"}}, {do: "succeed", mute: true, want: []string{"[resolved muted]"}},
			{do: "fail", mute: true, want: []string{"[firing muted]"}}, {do: "check"}, {do: "succeed", want: []string{"resolved"}},
		}},
		"an acknowledgement is notified and stops repetitions": {Rule{After: 1, RepeatEvery: 1, Recovery: true}, []alertStep{
			{do: "fail", want: []string{"firing"}}, {do: "ack", want: []string{"acknowledged"}},
			{do: "fail", want: []string{"[still_firing acknowledged]"}}, {do: "succeed", want: []string{"resolved"}},
			{do: "fail", want: []string{"firing"}}, {do: "fail", want: []string{"still_firing"}},
		}},
		"at the end of an acknowledgement a continuing condition is notified": {one, []alertStep{
			{do: "fail", want: []string{"firing"}}, {do: "ack 1h", want: []string{"acknowledged"}}, {do: "check"},
			{do: "wait"}, {do: "check", want: []string{"still_firing"}}, {do: "check"},
		}},
		"a recovery replaces the notification at the end of an acknowledgement": {one, []alertStep{
			{do: "fail", want: []string{"firing"}}, {do: "ack 1h", want: []string{"acknowledged"}}, {do: "wait"},
			{do: "succeed", want: []string{"resolved"}},
		}},
		"a condition that begins again soon is notified only if it does not end": {Rule{After: 1, Recovery: true, Least: time.Hour}, []alertStep{
			{do: "fail", want: []string{"firing"}}, {do: "succeed", want: []string{"resolved"}},
			{do: "fail", want: []string{"[firing too_soon]"}}, {do: "succeed", want: []string{"[resolved not_told]"}},
			{do: "fail", want: []string{"[firing too_soon]"}}, {do: "check"}, {do: "wait"}, {do: "check", want: []string{"firing"}},
			{do: "succeed", want: []string{"resolved"}},
		}},
		"a condition that a failure explains is notified only if it outlasts the failure": {one, []alertStep{
			{do: "fail", failing: true, want: []string{"[firing failing]"}}, {do: "check", failing: true},
			{do: "succeed", failing: true, want: []string{"[resolved not_told]"}},
			{do: "fail", failing: true, want: []string{"[firing failing]"}},
			{do: "ack", failing: true, want: []string{"[acknowledged failing]"}}, {do: "check", want: []string{"firing"}},
			{do: "ack", failing: true, want: []string{"acknowledged"}},
			{do: "succeed", failing: true, want: []string{"resolved"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			track, now := Track{}, alertStart
			for i, step := range tt.steps {
				now = now.Add(time.Second)
				rule := tt.rule
				rule.Muted, rule.Failing = step.mute, step.failing
				var made []Made
				switch step.do {
				case "fail":
					track, made = track.Observe(rule, Observation{Met: 1, At: now}, now)
				case "succeed":
					track, made = track.Observe(rule, Observation{At: now}, now)
				case "ack":
					track, made = track.Acknowledge(rule, AcknowledgedAlert{}, now)
				case "ack 1h":
					track, made = track.Acknowledge(rule, AcknowledgedAlert{Until: new(now.Add(time.Hour))}, now)
				case "wait":
					now = now.Add(2 * time.Hour)
				case "check":
					track, made = track.Check(rule, now)
				}
				var got []string
				for _, m := range made {
					text := string(m.Transition)
					if m.Kept != "" {
						text = "[" + text + " " + string(m.Kept) + "]"
					}
					got = append(got, text)
				}
				if diff := cmp.Diff(step.want, got); diff != "" {
					t.Errorf("step %d, %s: (-want +got)\n%s", i, step.do, diff)
				}
			}
		})
	}
}

// TestFiringConditionNamesTheRunOfNow: anyone who reads a condition that holds cancels or releases the run that it names.
func TestFiringConditionNamesTheRunOfNow(t *testing.T) {
	t.Parallel()
	most := input.Duration(10 * time.Second)
	alert := Alert{Spec: Spec{AlertConditionsOf: AlertConditionsOf{LateAfter: most, OverrunAfter: most, Blocked: true}}}
	at := func(trigger int64, since time.Time) Facts {
		one := Case{Key: run.Key{TriggerID: trigger, ScheduledAt: since}, Since: since, Why: fmt.Sprint("because of ", trigger)}
		return Facts{Late: one, Oldest: one, Blocked: one, Accepted: trigger == 2}
	}
	for _, condition := range []target.AlertCondition{target.AlertLate, target.AlertOverrun, target.AlertBlocked} {
		track := Track{Condition: condition, LookAt: alertStart}
		var runs, texts []string
		for trigger, since := range []time.Time{alertStart, alertStart, alertStart.Add(time.Minute)} {
			now := alertStart.Add(time.Duration(2+2*trigger) * time.Minute)
			track, _ = track.Look(alert, Rule{After: 1}, at(int64(trigger), since), now)
			runs, texts = append(runs, track.Run), append(texts, track.Error)
			if want := at(int64(trigger), since).Late.String(); !track.Firing || track.Run != want {
				t.Errorf("%s at %s: firing %t because of %s, want %s", condition, now, track.Firing, track.Run, want)
			}
		}
		if texts[1] == texts[2] || runs[1] == runs[2] {
			t.Errorf("%s says %q of runs %q, want what is true of the last", condition, texts, runs)
		}
	}
}

// TestReceiverOfAlertsKnowsTheState applies steps at random and compares what a receiver knows with the state.
func TestReceiverOfAlertsKnowsTheState(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		rule := Rule{After: 1 + r.IntN(3), RepeatEvery: r.IntN(3), Recovery: true}
		track, now, knows, last := Track{}, alertStart, false, Made{}
		for step := range 60 {
			now = now.Add(time.Duration(r.IntN(3)) * time.Millisecond) // several steps in one millisecond, too
			rule.Muted = r.IntN(4) == 0
			var made []Made
			acknowledged := track.Acknowledged != nil && !track.acknowledgementEnded(now)
			switch r.IntN(4) {
			case 0:
				track, made = track.Observe(rule, Observation{Met: 1, At: now}, now)
			case 1:
				track, made = track.Observe(rule, Observation{At: now}, now)
			case 2:
				track, made = track.Check(rule, now)
			case 3:
				if track.Firing {
					ack := AcknowledgedAlert{}
					if r.IntN(2) == 0 {
						ack.Until = new(now.Add(3 * time.Millisecond))
					}
					track, made = track.Acknowledge(rule, ack, now)
				}
			}
			for _, m := range made {
				if !m.At.After(last.At) || m.Sequence != last.Sequence+1 {
					t.Fatalf("seed %d, step %d: transition %d at %s follows %d at %s", seed, step, m.Sequence, m.At, last.Sequence, last.At)
				}
				last = m
				if m.Kept != "" {
					continue
				}
				if rule.Muted || m.Transition == target.AlertStillFiring && acknowledged || m.Transition == target.AlertResolved && !knows {
					t.Fatalf("seed %d, step %d: %s was notified", seed, step, m.Transition)
				}
				knows = m.Transition != target.AlertResolved
			}
			if rule.Muted {
				continue
			}
			checked, made := track.Check(rule, now)
			for _, m := range made {
				knows, last = m.Transition != target.AlertResolved, m
			}
			if track = checked; knows != track.Firing {
				t.Fatalf("seed %d, step %d: the receiver thinks that it holds is %t, and it is %t", seed, step, knows, track.Firing)
			}
		}
	}
}

// The end may be the only message: one about a condition that ended at once is overtaken.
func TestEndOfAConditionTellsSinceWhenAndHowOftenItHeld(t *testing.T) {
	t.Parallel()
	rule := Rule{After: 1, Recovery: true}
	track, _ := Track{}.Observe(rule, Observation{Met: 132, At: alertStart}, alertStart)
	ends := alertStart.Add(time.Second)
	_, made := track.Observe(rule, Observation{At: ends}, ends)
	if len(made) != 1 || made[0].Count != 132 || !made[0].Since.Equal(alertStart) {
		t.Errorf("the end is %+v, want one of 132 since %s", made, alertStart)
	}
}
