package reads

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// objectiveTests test the counts for objectives.
func objectiveTests() tests {
	return tests{
		"an objective counts fires once they have ended":        testObjectiveCounts,
		"an objective counts a fire by its first attempt":       testObjectiveRetries,
		"an objective does not count a superseded fire as late": testObjectiveSuperseded,
		"fires that waited as their job asked are not late":     testWaitedFires,
		"an objective waits for overdue fires":                  testObjectiveOwed,
		"an objective counts fixed delays that continue late":   testObjectiveOfDelays,
		"an objective with another bound is counted again":      testObjectiveChanged,
		"a removed objective is not counted":                    testObjectiveRemoved,
		"the counts of an objective equal the ledger":           testObjectiveModel,
		"an objective of a job with history begins with it":     testObjectiveOfHistory,
		"an objective counts many pending fires a page a time":  testObjectivePages,
		"objectives of an app are listed in pages":              testObjectivesListed,
		"an objective's counts are removed after the window":    testObjectiveRetention,
	}
}

// counted returns the counts of a job: good, late, missed, pending.
func (f *wing) counted(name string) [4]int64 {
	f.Helper()
	s, err := f.ObjectiveStatus(f.Context(), "shop", name)
	f.Must(err)
	return [4]int64{s.Good, s.Late, s.Missed, s.Pending}
}

// began records that a run succeeded in an attempt that began so long after its scheduled time.
func (f *wing) began(held run.HeldRun, late time.Duration) {
	f.Helper()
	f.Must(f.Record(f.Context(), []dispatcher.Record{fixture.Record(held, fixture.Outcome(held.ScheduledAt.Add(late)))}))
}

func testObjectiveCounts(t *testing.T, f *wing) {
	f.Punctual(time.Second)
	runs := make([]run.HeldRun, 8)
	for i := range runs {
		runs[i] = f.ClaimNext(run.Token(1000 + i))
	}
	for i, late := range []time.Duration{0, 500 * time.Millisecond, time.Second, 1001 * time.Millisecond} {
		f.began(runs[i], late)
	}
	f.Must(f.CancelRun(f.Context(), runs[7].String(), fixture.At(fixture.Minutes(9)))) // may have begun
	f.SettleAll("tick", fixture.Minutes(15))                                           // 9 to 15
	f.Roll(fixture.Minutes(16))
	f.Expect("counted up to minute 15", f.counted("tick"), [4]int64{3, 1, 7, 3})
	f.began(runs[4], 0)
	f.began(runs[5], time.Minute)
	f.Roll(fixture.Minutes(16))
	f.Expect("nothing more at the same time", f.counted("tick"), [4]int64{3, 1, 7, 3})
	f.SettleAll("tick", fixture.Minutes(20))
	f.Roll(fixture.Minutes(21))
	got := f.counted("tick")
	f.Expect("pending, missed and late", [3]int64{got[1], got[2], got[3]}, [3]int64{2, 12, 1})
	f.began(runs[6], 0)
	f.SettleAll("tick", fixture.Minutes(25))
	f.Roll(fixture.Minutes(26))
	status, err := f.ObjectiveStatus(f.Context(), "shop", "tick")
	f.Must(err)
	if status.Pending != 0 || status.Missed != 17 || !status.To.Equal(fixture.Minutes(25)) {
		t.Errorf("status %+v, want nothing pending, 17 missed, up to minute 25", status)
	}
	if burns, why := status.Burns(); !burns {
		t.Errorf("19 of 24 are bad where one in ten may be, %q; want that to burn", why)
	}
}

// A late fire that was refused as stale does not count as late: a newer one ran instead. A stale one in time is good.
func testObjectiveSuperseded(_ *testing.T, f *wing) {
	f.Punctual(time.Second)
	for i, late := range []time.Duration{0, time.Minute, 2 * time.Minute} {
		held := f.ClaimNext(run.Token(1000 + i))
		o := fixture.Superseded(held.ScheduledAt.Add(late))
		if i == 2 { // pending first, and counted when it ends
			f.Roll(fixture.Minutes(4))
		}
		f.Must(f.Record(f.Context(), []dispatcher.Record{fixture.Record(held, o)}))
	}
	f.SettleAll("tick", fixture.Minutes(5))
	f.Roll(fixture.Minutes(6))
	f.Expect("counted", f.counted("tick"), [4]int64{1, 0, 2, 0})
}

// Fires that waited, for a host and for a slot, and one that was late.
func testWaitedFires(t *testing.T, f *wing) {
	job := f.Punctual(time.Second)
	job.ConcurrencyPolicy, job.QueueLimit = run.ConcurrencyQueue, 5
	f.Put(job, fixture.T0)
	first, second, third := f.ClaimNext(fixture.Token1), f.ClaimNext(fixture.Token1+1), f.ClaimNext(fixture.Token1+2)
	f.Expect("the first takes the slot, and the second waits for it", f.AcquireSlots(first, second), []int{1})
	wait := fixture.WaitOf("tick", "down.example.com")
	f.Waits(third, wait)
	f.began(first, 2*time.Second)
	f.Must(f.ReleaseSlots(t.Context(), []run.HeldRun{first}))
	for _, held := range f.AdoptIdle(fixture.NodeA, fixture.Minutes(20)) {
		f.Expect("the second waited", held.Waited, run.WaitSlot)
		f.Again(held, fixture.Failure(held.ScheduledAt.Add(time.Minute)), fixture.FailedUntil(held.ScheduledAt.Add(2*time.Minute)))
	}
	f.SettleAll("tick", fixture.Minutes(15))
	f.Roll(fixture.Minutes(16)) // the first attempt of the second is over
	f.Expect("with a run that has not begun", f.counted("tick"), [4]int64{0, 1, 12, 1})
	for _, held := range f.AdoptRetries(fixture.Minutes(20)) {
		f.began(held, 10*time.Minute)
	}
	query := dispatcher.AdoptQuery{Node: fixture.NodeA, Token: fixture.Token2, Limit: 1, Now: wait.ProbeAt, WaitsFor: wait.ID}
	waited, err := f.Store.Adopt(t.Context(), query, f.WaitingFor(wait, wait.ProbeAt))
	f.Must(err)
	for _, held := range waited {
		f.Expect("the third waited", held.Waited, run.WaitCircuit)
		f.began(held, 10*time.Minute)
	}
	f.SettleAll("tick", fixture.Minutes(20))
	f.Roll(fixture.Minutes(21))
	f.Expect("counted", f.counted("tick"), [4]int64{0, 1, 17, 0})
	f.tally(fixture.Minutes(40))
	f.wantDays("statistics", f.days(fixture.Minutes(40)),
		"2026-05-01 map[succeeded:3], 4 attempts, 17 missed, 1 began late by 2s, 2s at most, final false")
	if latest := f.summaryOf("tick").LatestRun; latest.Lateness != nil {
		t.Errorf("latest run %+v, want one without a lateness", latest)
	}
	f.Expect("the run says why", f.RunOf(third.Key).Waited, run.WaitCircuit)
}

func testObjectiveRetries(_ *testing.T, f *wing) {
	f.Punctual(time.Second)
	first := f.ClaimNext(fixture.Token1)
	f.Again(first, fixture.Failure(first.ScheduledAt), fixture.FailedUntil(first.ScheduledAt.Add(time.Minute)))
	second := f.ClaimNext(fixture.Token2)
	f.Again(second, fixture.Failure(second.ScheduledAt.Add(2*time.Second)), fixture.FailedUntil(second.ScheduledAt.Add(time.Minute)))
	f.SettleAll("tick", fixture.Minutes(15))
	f.Roll(fixture.Minutes(16)) // both are pending, and their first attempts are over
	f.Expect("counted before the runs end", f.counted("tick"), [4]int64{1, 1, 13, 0})
	for _, held := range f.AdoptRetries(fixture.Minutes(20)) {
		f.began(held, 10*time.Minute)
	}
	f.SettleAll("tick", fixture.Minutes(25))
	f.Roll(fixture.Minutes(26))
	f.Expect("counted after the runs have ended", f.counted("tick"), [4]int64{1, 1, 23, 0})
}

func testObjectiveOwed(_ *testing.T, f *wing) {
	j := f.Punctual(time.Second)
	two := j
	two.Triggers = map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.Minutes(1)),
		"tock": fixture.Every(time.Minute, fixture.Minutes(1))}
	f.Must(f.PutJob(f.Context(), two, fixture.At(fixture.T0)))
	for range 20 { // only one trigger fires; the other is paused
		for _, d := range f.DueAll(fixture.Minutes(24)) {
			if d.ID == two.TriggerKey("tick") {
				f.began(f.ClaimAll(f.Advance(d))[0], 0)
			}
		}
	}
	f.Must(f.PauseJob(f.Context(), "shop", "tick", "tock", true, fixture.At(fixture.Minutes(20))))
	f.Roll(fixture.Minutes(21))
	f.Expect("what one trigger owes does not hold the other", f.counted("tick"), [4]int64{19, 0, 0, 0})
	f.Must(f.PauseJob(f.Context(), "shop", "tick", "tock", false, fixture.At(fixture.Minutes(22))))
	for _, d := range f.DueAll(fixture.Minutes(5)) { // a late claim of an earlier fire
		if d.ID == two.TriggerKey("tock") {
			f.began(f.ClaimAll(f.Advance(d))[0], 20*time.Minute)
		}
	}
	f.Roll(fixture.Minutes(27))
	f.Expect("a fire from before is counted", f.counted("tick"), [4]int64{20, 1, 0, 0})
}

func testObjectiveOfDelays(_ *testing.T, f *wing) {
	j := fixture.Job("tick", map[string]dispatcher.Trigger{"tick": {
		TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "delay(1m)"}, Enabled: true,
			MisfireAfter: dispatcher.DefaultMisfireAfter},
	}})
	j.Objective = &dispatcher.Objective{Within: input.Duration(time.Second), Of: "90%"}
	f.Put(j, fixture.T0)
	first := f.ClaimNext(fixture.Token1)
	f.Roll(fixture.Minutes(16))
	f.Expect("while the run is under way", f.counted("tick"), [4]int64{0, 0, 0, 1})
	f.began(first, 0)
	f.Roll(fixture.Minutes(21))
	f.Expect("when it has ended", f.counted("tick"), [4]int64{1, 0, 0, 0})
	ended := first.ScheduledAt.Add(time.Second)
	next := ended.Add(time.Minute) // long ago, because no node scheduled it
	f.Must(f.ScheduleNext(f.Context(), []dispatcher.DelayedFire{{
		TriggerID: first.TriggerID, Revision: f.RevisionOf("tick"), Prev: first.ScheduledAt, Anchor: ended, Next: next, Due: next,
	}}))
	f.began(f.ClaimNext(fixture.Token2), 20*time.Minute)
	f.Roll(fixture.Minutes(26))
	f.Expect("when the next one has run late", f.counted("tick"), [4]int64{1, 1, 0, 0})
}

func testObjectiveChanged(_ *testing.T, f *wing) {
	j := f.Punctual(time.Second)
	for range 5 {
		f.began(f.ClaimNext(f.NextToken()), 3*time.Second)
	}
	f.SettleAll("tick", fixture.Minutes(15))
	f.Roll(fixture.Minutes(16))
	f.Expect("within 1s", f.counted("tick"), [4]int64{0, 5, 10, 0})
	j.Objective = &dispatcher.Objective{Within: input.Duration(time.Second), Of: "95%"}
	f.Put(j, fixture.Minutes(16))
	f.Expect("another share", f.counted("tick"), [4]int64{0, 5, 10, 0})
	j.Objective = &dispatcher.Objective{Within: input.Duration(5 * time.Second), Of: "95%"}
	f.Put(j, fixture.Minutes(16))
	f.Expect("within 5s, at once", f.counted("tick"), [4]int64{})
	f.Roll(fixture.Minutes(16))
	f.Expect("within 5s", f.counted("tick"), [4]int64{5, 0, 10, 0})
}

func testObjectiveRemoved(t *testing.T, f *wing) {
	j := f.Punctual(time.Second)
	f.began(f.ClaimNext(fixture.Token1), 0)
	f.SettleAll("tick", fixture.Minutes(15))
	f.Roll(fixture.Minutes(16))
	objective := j.Objective
	j.Objective = nil
	f.Put(j, fixture.Minutes(17))
	if _, err := f.ObjectiveStatus(f.Context(), "shop", "tick"); !errors.Is(err, dispatcher.ErrNotFound) {
		t.Errorf("objective of a job that has none: got %v, want ErrNotFound", err)
	}
	f.Roll(fixture.Minutes(26))
	j.Objective = objective
	f.Put(j, fixture.Minutes(27))
	f.Expect("declared again", f.counted("tick"), [4]int64{})
	f.Roll(fixture.Minutes(27))
	f.Expect("counted again", f.counted("tick"), [4]int64{1, 0, 14, 0})
}

func testObjectiveOfHistory(t *testing.T, f *wing) {
	j := fixture.Job("tick", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Hour, fixture.T0.Add(time.Minute))})
	f.Put(j, fixture.T0)
	for range 50 {
		due := f.DueAll(fixture.T0.Add(100 * time.Hour))
		f.began(f.ClaimAll(f.Advance(due[0]))[0], 0)
	}
	j.Objective = &dispatcher.Objective{Within: input.Duration(time.Second), Of: "99.9%"}
	now := fixture.T0.Add(49*time.Hour + 10*time.Minute)
	f.Put(j, now)
	rolled, err := f.RollUpObjectives(f.Context(), 10, now)
	f.Must(err)
	if first := f.counted("tick"); !rolled.More || first[0] > 2 {
		t.Errorf("the first step counted %v, more: %t; want an hour of the history at most", first, rolled.More)
	}
	f.Roll(now)
	f.Expect("counted", f.counted("tick"), [4]int64{50, 0, 0, 0})
}

func testObjectivePages(_ *testing.T, f *wing) {
	f.InCheck()
	f.Punctual(time.Second)
	runs := make([]run.HeldRun, 1300)
	for i := range runs {
		runs[i] = f.ClaimNext(run.Token(1000 + i))
	}
	now := runs[1299].ScheduledAt.Add(10 * time.Minute)
	f.SettleAll("tick", now)
	f.Roll(now)
	got := f.counted("tick")
	f.Expect("pending", got[3], int64(1300))
	for _, held := range runs {
		f.began(held, 0)
	}
	now = now.Add(5 * time.Minute)
	f.SettleAll("tick", now)
	f.Roll(now)
	got = f.counted("tick")
	f.Expect("good and pending", [2]int64{got[0], got[3]}, [2]int64{1300, 0})
}

func testObjectivesListed(_ *testing.T, f *wing) {
	for _, name := range []string{"c", "a", "b", "none"} {
		j := fixture.Job(name, map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))})
		if name != "none" {
			j.Objective = &dispatcher.Objective{Within: input.Duration(time.Second), Of: "99%"}
		}
		f.Put(j, fixture.T0)
	}
	f.DeclareApp("billing")
	f.PutIn("billing", "z", func(j *dispatcher.Job) {
		j.Objective = &dispatcher.Objective{Within: input.Duration(time.Second), Of: "99%"}
	})
	for want, apps := range map[string][]string{
		"billing/z shop/a shop/b shop/c": nil, "shop/a shop/b shop/c": {"shop"}, "billing/z": {"billing", "nowhere"}, "": {"nowhere"},
	} {
		var names []string
		for cursor := ""; ; {
			page, err := f.ObjectiveStatuses(f.Context(), apps, input.Page{Limit: 2, Cursor: cursor})
			f.Must(err)
			if len(page) == 0 {
				break
			}
			for _, s := range page {
				cursor = dispatcher.JobCursor(s.App, s.Job)
				names = append(names, cursor)
			}
		}
		f.Expect(fmt.Sprint("objectives of ", apps), strings.Join(names, " "), want)
	}
}

func testObjectiveRetention(t *testing.T, f *wing) {
	f.InCheck()
	f.Punctual(time.Second)
	f.began(f.ClaimNext(fixture.Token1), 0)
	f.SettleAll("tick", fixture.Minutes(15))
	f.Roll(fixture.Minutes(16))
	later := fixture.T0.Add(dispatcher.ObjectiveWindow + 2*time.Hour)
	f.SettleAll("tick", later)
	f.Roll(later)
	status, err := f.ObjectiveStatus(f.Context(), "shop", "tick")
	f.Must(err)
	if status.Good != 0 || !status.From.After(fixture.T0) {
		t.Errorf("status %+v, want nothing of the time before the window", status)
	}
}

// testObjectiveModel runs fires, retries, misfires, cancellations and counting in random order: when all has ended, the
// counts equal the ledger, whenever they were made.
func testObjectiveModel(_ *testing.T, f *wing) {
	f.DeclareCalendar(fixture.Closed("12-24"), fixture.T0)
	born := 0
	rapid.Check(f.T, func(r *rapid.T) {
		born++
		j := fixture.Job(fmt.Sprintf("job-%d", born), map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0)})
		j.Objective = &dispatcher.Objective{Within: input.Duration(time.Second), Of: "99%"}
		if rapid.Bool().Draw(r, "slots") {
			j.ConcurrencyPolicy, j.MaxConcurrency = run.ConcurrencyAllow, 1000
		}
		l := &life{wing: f, r: r, now: fixture.T0, job: j}
		l.put()
		open := map[string]run.HeldRun{}
		steps := map[string]func(){
			"wait": func() {
				l.now = l.now.Add(time.Duration(rapid.Int64Range(1, 400_000).Draw(r, "ms")) * time.Millisecond)
			},
			"fire": func() {
				if a, found := l.next(0); found {
					a.Live = j.MaxConcurrency > 0
					won, err := f.Claim(f.Context(), dispatcher.ClaimBatch{Node: fixture.NodeA, Token: f.NextToken(), Advances: []dispatcher.Advance{a},
						Now: l.now})
					f.Must(err)
					for _, held := range won {
						open[held.String()] = held
					}
				}
			},
			"end": func() {
				if held, some := takeAny(r, open); some {
					f.began(held, time.Duration(rapid.Int64Range(0, 2000).Draw(r, "late"))*time.Millisecond)
				}
			},
			"fail": func() {
				if held, some := takeAny(r, open); some {
					f.Again(held, fixture.Failure(held.ScheduledAt.Add(time.Duration(rapid.Int64Range(0, 2000).Draw(r, "late"))*time.Millisecond)),
						fixture.FailedUntil(l.now))
				}
			},
			"retry": func() {
				for _, held := range f.AdoptRetries(l.now) {
					open[held.String()] = held
				}
			},
			"cancel": func() {
				if held, some := takeAny(r, open); some {
					f.Must(f.CancelRun(f.Context(), held.String(), fixture.At(l.now)))
				}
			},
			"miss":  l.miss,
			"pause": func() { l.pause(rapid.Bool().Draw(r, "paused")) },
			"edit":  l.edit,
			"roll":  func() { f.Must(f.RollUpObjectives(f.Context(), 1000, l.now)) },
		}
		for range rapid.IntRange(1, 40).Draw(r, "steps") {
			steps[rapid.SampledFrom([]string{"wait", "wait", "fire", "fire", "fire", "end", "end", "fail", "retry", "cancel", "miss", "pause",
				"edit", "roll", "roll"}).Draw(r, "step")]()
		}
		l.pause(false)
		l.now = l.now.Add(10 * time.Minute)
		for all := -1; len(open) > all; { // each adopts a few
			all = len(open)
			steps["retry"]()
		}
		for _, held := range open {
			f.began(held, 5*time.Second)
		}
		for range 3 {
			l.miss()
		}
		f.Must(f.DeleteJob(f.Context(), "shop", j.Name, fixture.At(l.now))) // settles due fires
		l.put()
		l.now = l.now.Add(10 * time.Minute)
		l.miss()
		f.Roll(l.now)
		if diff := cmp.Diff(f.direct(j.Name, l.now), f.counted(j.Name)); diff != "" {
			r.Fatalf("counted is not what the ledger says (-ledger +counted):\n%s", diff)
		}
		f.Must(f.DeleteJob(f.Context(), "shop", j.Name, fixture.At(l.now)))
	})
}

// takeAny takes one of some runs; false if there is none.
func takeAny(r *rapid.T, runs map[string]run.HeldRun) (held run.HeldRun, found bool) {
	if len(runs) == 0 {
		return held, false
	}
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(runs))).Draw(r, "run")
	held = runs[id]
	delete(runs, id)
	return held, true
}

// direct counts the fires of a job in the ledger, one by one.
func (f *wing) direct(name string, now time.Time) (counts [4]int64) {
	f.Helper()
	status, err := f.ObjectiveStatus(f.Context(), "shop", name)
	f.Must(err)
	query := dispatcher.RunQuery{App: "shop", Job: name, Page: input.Page{Limit: 1000}}
	runs, err := f.Runs(f.Context(), query)
	f.Must(err)
	for _, listed := range runs {
		r, err := f.Store.Run(f.Context(), listed.ID)
		f.Must(err)
		start := r.StartedAt
		if r.Attempt > 1 && r.Attempts[0].Attempt == 1 {
			start = &r.Attempts[0].StartedAt
		}
		switch {
		case r.Kind != run.KindSchedule || !r.ScheduledAt.Before(status.To):
		case r.EndedAt == nil:
			counts[3]++
		case start != nil && start.Sub(r.ScheduledAt) <= time.Second:
			counts[0]++
		case start == nil && (r.State == run.Skipped || r.State == run.Cancelled):
		case r.State == run.Superseded:
		default:
			counts[1]++
		}
	}
	misfires, err := f.Misfires(f.Context(), query)
	f.Must(err)
	for _, m := range misfires {
		if m.From.Before(status.To) {
			counts[2] += int64(m.Count)
		}
	}
	return counts
}
