package dispatcher_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// ledger is a trigger through edits, with the outcome of each time that it scheduled.
type ledger struct {
	t         *rapid.T
	job       dispatcher.Job
	now       time.Time
	scheduled map[time.Time]bool // by the schedule that was in force then
	settled   map[time.Time]int
	log       []string
}

func (l *ledger) trigger() (dispatcher.Trigger, *schedule.Schedule) {
	one := l.job.Triggers["t"]
	s, err := one.Parse(l.job.Identity("t"), one.AnchorAt, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	return one, s
}

// wait lets time pass.
func (l *ledger) wait(d time.Duration) {
	_, s := l.trigger()
	if l.job.Enabled {
		for _, at := range timesBetween(s, l.now, l.now.Add(d), 100_000) {
			l.scheduled[at] = true
		}
	}
	l.now = l.now.Add(d)
	l.log = append(l.log, "wait "+d.String())
}

// fire lets a node run up to n fires that are due.
func (l *ledger) fire(n int) {
	one, s := l.trigger()
	for ; n > 0 && one.NextFireTime != nil && !one.NextFireTime.After(l.now); n-- {
		at := *one.NextFireTime
		l.settled[at]++
		one.PrevFireTime, one.NextFireTime, one.DueAt, one.State = &at, nil, nil, dispatcher.TriggerComplete
		if next, ok := s.Next(at); ok {
			one.NextFireTime, one.DueAt, one.State = &next, new(next.Add(s.Delay(next))), dispatcher.TriggerWaiting
		}
	}
	l.job.Triggers["t"] = one
	l.log = append(l.log, "fire")
}

// declare declares the job again after change.
func (l *ledger) declare(change func(*dispatcher.Job)) {
	_, was := l.trigger()
	declared := l.job
	declared.Triggers = map[string]dispatcher.Trigger{"t": l.job.Triggers["t"]}
	change(&declared)
	applied, missed, err := dispatcher.Apply(&l.job, declared, dispatcher.Prior{}, nil, l.now)
	one := declared.Triggers["t"]
	l.log = append(l.log, fmt.Sprintf("at %s %s, jitter %s, repeat %d, %s, enabled %t: %v %v", l.now.Format("15:04:05.000"), one.Expression,
		one.Jitter, one.RepeatCount, one.MisfirePolicy, declared.Enabled, err, decisions(missed)))
	if err != nil {
		return // refused
	}
	for _, m := range missed {
		for _, at := range timesBetween(was, m.From.Add(-time.Millisecond), m.To, 100_000) {
			l.settled[at]++
		}
	}
	l.job = applied
}

func (l *ledger) check() {
	for at := range l.settled {
		if !l.scheduled[at] {
			l.t.Fatalf("%s was settled, but not scheduled: %q", at, l.log)
		}
	}
	for at := range l.scheduled {
		if l.settled[at] != 1 {
			l.t.Fatalf("%s was settled %d times: %q", at, l.settled[at], l.log)
		}
	}
}

// After any edits, each time of the schedule in force at that time ends as one run or in one decision.
func TestEachScheduledTimeIsSettledOnceThroughEdits(t *testing.T) {
	t.Parallel()
	expressions := []string{
		"* * * * *", " *  * * * *", "0/20 * * * * ?", "0,20,40 * * * * ?", "*/5 * * * *", "30 * * * * ?", "rate(45s)", "@every 45s", "rate(1m)",
		"every 90 seconds", "0 12 * * *",
	}
	rapid.Check(t, func(t *rapid.T) {
		l := &ledger{t: t, now: monday, scheduled: map[time.Time]bool{}, settled: map[time.Time]int{}}
		l.job, _, _ = dispatcher.Apply(nil, with(rapid.SampledFrom(expressions).Draw(t, "first")), dispatcher.Prior{}, nil, monday)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"wait", "wait", "fire", "all", "edit", "edit", "bounds", "switch"}).Draw(t, "step") {
			case "wait":
				l.wait(time.Duration(rapid.IntRange(1, 200_000).Draw(t, "ms")) * time.Millisecond)
			case "fire":
				l.fire(1)
			case "all":
				l.fire(1000)
			case "edit":
				l.declare(withTrigger(func(one *dispatcher.Trigger) {
					one.Expression, one.Dialect = rapid.SampledFrom(expressions).Draw(t, "expression"), ""
				}))
			case "bounds":
				l.declare(withTrigger(func(one *dispatcher.Trigger) {
					one.Jitter = input.Duration(rapid.SampledFrom([]time.Duration{0, 30 * time.Second, time.Hour}).Draw(t, "jitter"))
					one.RepeatCount = rapid.SampledFrom([]int{0, 0, 2, 5, 9}).Draw(t, "repeat_count")
					one.MisfirePolicy = rapid.SampledFrom([]dispatcher.MisfirePolicy{
						dispatcher.FireOnce, dispatcher.FireAll, dispatcher.Skip,
					}).Draw(t, "policy")
					one.CatchUpWindow = input.Duration(rapid.SampledFrom([]time.Duration{time.Minute, time.Hour}).Draw(t, "window"))
				}))
			case "switch":
				l.declare(func(j *dispatcher.Job) { j.Enabled = !j.Enabled })
			}
		}
		l.fire(100_000)
		l.check()
	})
}
