package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// happened has the records of a run in the ledger and at the receiver.
type happened struct {
	runs     []ledgerRun
	receiver *receiver
}

// more adds an attempt at the receiver.
func (h *happened) more(key fire, a arrival) {
	h.receiver.arrivals[key] = append(h.receiver.arrivals[key], &a)
}

// The judge of a run detects each way in which a deployment can fail.
func TestJudgeFindsProblems(t *testing.T) {
	t.Parallel()
	from := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	to := from.Add(3 * time.Second)
	told := from.Add(1500 * time.Millisecond) // when the only task got SIGTERM
	key := func(second int) fire {
		return fire{"short-0", "t0", from.Add(time.Duration(second) * time.Second).UnixMilli()}
	}
	// cut cuts off the attempt of the first second, which began some time after SIGTERM. The run
	// succeeds with its second attempt.
	cut := func(began time.Duration) func(*happened) {
		return func(h *happened) {
			first := h.receiver.arrivals[key(1)][0]
			first.at, first.ended, first.cut, first.long = told.Add(began), told.Add(time.Minute), true, true
			h.more(key(1), arrival{attempt: 2, event: first.event})
			h.runs[1].Attempt = 2
		}
	}
	for name, tt := range map[string]struct {
		change func(*happened)
		want   string // a problem, or empty
	}{
		"nothing":                     {func(*happened) {}, ""},
		"a second is missing":         {func(h *happened) { h.runs = h.runs[1:]; delete(h.receiver.arrivals, key(0)) }, "fired 0 times"},
		"a second fired twice":        {func(h *happened) { h.runs = append(h.runs, h.runs[0]) }, "fired 2 times"},
		"a run was lost":              {func(h *happened) { h.runs[1].State = string(run.Lost) }, "is lost"},
		"a run caught up":             {func(h *happened) { h.runs[1].Kind = int16(run.KindCatchUp.Code()) }, "kind"},
		"a run never arrived":         {func(h *happened) { delete(h.receiver.arrivals, key(1)) }, "never arrived"},
		"an attempt arrived twice":    {func(h *happened) { h.more(key(1), arrival{attempt: 1, event: "e1"}) }, "arrived 2 times"},
		"an attempt is not on record": {func(h *happened) { h.more(key(1), arrival{attempt: 2, event: "e1"}) }, "the ledger has 1"},
		"two event ids": {func(h *happened) {
			h.runs[1].Attempt = 2
			h.more(key(1), arrival{attempt: 2, event: "other"})
		}, "two event ids"},
		"an attempt cut off though protected":         {cut(-10 * time.Second), "was cut off"},
		"an attempt cut off before it was protected":  {cut(-100 * time.Millisecond), ""},
		"an attempt cut off that began after SIGTERM": {cut(10 * time.Second), "was cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := happened{receiver: &receiver{arrivals: map[fire][]*arrival{}}}
			for second := range 3 {
				h.runs = append(h.runs, ledgerRun{
					Trigger: run.TriggerID(appName, "short-0", "t0"), Scheduled: key(second).scheduled,
					Kind: int16(run.KindSchedule.Code()), State: string(run.Succeeded), Attempt: 1,
				})
				h.receiver.arrivals[key(second)] = []*arrival{{attempt: 1, event: fmt.Sprintf("e%d", second), at: from}}
			}
			tt.change(&h)
			problems := everySecond(options{fires: 1}, &world{from: from}, h.runs, to)
			_, _, more := h.receiver.compare(h.runs, &service{tasks: []*task{{told: told}}}, from, to)
			all := strings.Join(append(problems, more...), "\n")
			if (all != "") != (tt.want != "") || !strings.Contains(all, tt.want) {
				t.Errorf("got the problems %q, want one with %q", all, tt.want)
			}
		})
	}
}

// A task is stopped only while it is not protected, and cannot be protected when it stops.
func TestAgentAndControllerAgree(t *testing.T) {
	t.Parallel()
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	a := &agent{tasks: map[string]*protection{"protected": {until: now.Add(time.Minute)}, "expired": {until: now}, "never": {}}}
	for id, want := range map[string]bool{"protected": false, "expired": true, "never": true} {
		if got := a.tryStop(id, now); got != want || a.tasks[id].stopping != want {
			t.Errorf("stop of the task %s: got %t, want %t", id, got, want)
		}
	}
}
