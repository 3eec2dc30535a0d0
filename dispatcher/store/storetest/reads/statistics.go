package reads

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// statisticsTests test the sums of the runs of each day.
func statisticsTests() tests {
	return tests{
		"statistics count each run and misfire once":         testStatistics,
		"statistics count late runs on the day of their end": testStatisticsOfLateRuns,
		"statistics of concurrent nodes count each run once": testStatisticsRace,
		"statistics of some apps leave out the others":       testStatisticsOfApps,
		"statistics count the lateness of fires alone":       testStatisticsOfManualRuns,
		"statistics are kept longer than history":            testStatisticsKept,
		"statistics of a job have percentiles and hours":     testJobStatistics,
	}
}

// tally counts everything there is to count at now.
func (f *wing) tally(now time.Time) {
	f.Helper()
	for more := true; more; {
		rolled, err := f.RollUpStatistics(f.Context(), now)
		f.Must(err)
		more = rolled.More
	}
}

// days returns the statistics of some apps up to now, a line a day.
func (f *wing) days(now time.Time, apps ...string) []string {
	f.Helper()
	found, err := f.Statistics(f.Context(), view.StatisticsQuery{Apps: apps, Now: now})
	f.Must(err)
	lines := []string{}
	for _, d := range found.Days {
		lines = append(lines, fmt.Sprintf("%s %v, %d attempts, %d missed, %d began late by %s, %s at most, final %v",
			d.Day, d.Runs, d.Attempts, d.Misfires, d.Started, d.LateMean, d.LateMost, d.Final))
	}
	return lines
}

func (f *wing) wantDays(what string, got []string, want ...string) {
	f.Helper()
	if want == nil {
		want = []string{}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		f.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

const secondDay = 24 * time.Hour

func testStatistics(t *testing.T, f *wing) {
	f.PutEvery("tick", time.Minute)
	f.tally(fixture.T0)
	f.wantDays("before any run", f.days(fixture.T0))
	runs := make([]run.HeldRun, 6)
	for i := range runs {
		runs[i] = f.ClaimNext(run.Token(1000 + i))
	}
	for i, late := range []time.Duration{0, 500 * time.Millisecond, time.Second} {
		f.began(runs[i], late)
	}
	f.Again(runs[3], fixture.Failure(runs[3].ScheduledAt.Add(100*time.Millisecond)), fixture.FailedUntil(runs[3].ScheduledAt.Add(time.Minute)))
	for _, held := range f.AdoptRetries(fixture.Minutes(20)) {
		f.began(held, 10*time.Minute)
	}
	f.Must(f.CancelRun(t.Context(), runs[4].String(), fixture.At(fixture.Minutes(9)))) // it never began
	f.SettleAll("tick", fixture.Minutes(15))                                           // 7 to 15
	now := fixture.Minutes(30)
	first := "2026-05-01 map[cancelled:1 succeeded:4], 6 attempts, 9 missed, 4 began late by 400ms, 1s at most, final false"
	for range 2 {
		f.tally(now)
		f.wantDays("the first day, without what runs still", f.days(now), first)
	}
	f.began(runs[5], 2*time.Hour)
	f.tally(fixture.Minutes(40))
	f.wantDays("what ends after its portion was counted", f.days(now), first)
	f.tally(fixture.T0.Add(secondDay + 20*time.Hour))
	final := "2026-05-01 map[cancelled:1 succeeded:5], 7 attempts, 9 missed, 5 began late by 24m0.32s, 2h0m0s at most, final true"
	f.wantDays("the day for good", f.days(fixture.T0.Add(secondDay+20*time.Hour)), final)
	f.tally(fixture.T0.Add(3 * secondDay))
	f.wantDays("the same later", f.days(fixture.T0.Add(3*secondDay)), final)
	found, err := f.Statistics(t.Context(), view.StatisticsQuery{From: fixture.T0.Add(secondDay), To: fixture.T0.Add(2 * secondDay)})
	f.Must(err)
	if want := fixture.T0.Add(3*secondDay - 5*time.Minute); len(found.Days) != 0 || !found.CountedTo.Equal(want) {
		t.Errorf("other days: got %+v, want none, counted up to %s", found, want)
	}
}

func testStatisticsOfLateRuns(_ *testing.T, f *wing) {
	f.PutEvery("tick", time.Minute)
	f.tally(fixture.T0)
	held := f.ClaimNext(fixture.Token1)
	f.began(held, 30*time.Hour)                                 // ends on the second day
	f.SettleAll("tick", fixture.T0.Add(secondDay+12*time.Hour)) // decided on that day, too
	now := fixture.T0.Add(4 * secondDay)
	f.tally(now)
	f.wantDays("late", f.days(now),
		"2026-05-02 map[succeeded:1], 1 attempts, 2159 missed, 1 began late by 30h0m0s, 30h0m0s at most, final true")
}

func testJobStatistics(t *testing.T, f *wing) {
	f.PutEvery("tick", time.Minute)
	for i := range 100 {
		f.began(f.ClaimNext(run.Token(1000+i)), time.Duration(i)*time.Second)
	}
	f.SettleAll("tick", fixture.Minutes(130)) // 101 to 130 are missed
	to := fixture.Minutes(130)
	found, err := f.JobStatistics(t.Context(), "shop", "tick", fixture.Minutes(1), to)
	f.Must(err)
	seconds := func(n int) input.Duration { return input.Duration(time.Duration(n) * time.Second) }
	want := view.JobStatistics{
		From: fixture.Minutes(1), To: to,
		Waits:     view.Percentiles{Count: 100, P50: seconds(49), P95: seconds(94), P99: seconds(98), Max: seconds(99)},
		Durations: found.Durations,
		Hours: []view.HourStatistics{
			{At: fixture.T0, Runs: map[run.State]int64{run.Succeeded: 59}},
			{At: fixture.T0.Add(time.Hour), Runs: map[run.State]int64{run.Succeeded: 41}, Misfires: 30},
		},
	}
	if diff := cmp.Diff(want, found); diff != "" || found.Durations.Count != 100 {
		t.Errorf("statistics of a job, with %d durations (-want +got):\n%s", found.Durations.Count, diff)
	}
	if found, err = f.JobStatistics(t.Context(), "shop", "tick", fixture.T0.Add(3*time.Hour), fixture.T0.Add(4*time.Hour)); err != nil ||
		len(found.Hours) != 0 || found.Waits.Count != 0 {
		t.Errorf("a time without runs: %+v, %v, want nothing", found, err)
	}
	if _, err := f.JobStatistics(t.Context(), "shop", "none", fixture.T0, to); !errors.Is(err, dispatcher.ErrNotFound) {
		t.Errorf("a job that does not exist: %v, want ErrNotFound", err)
	}
}

func testStatisticsRace(t *testing.T, f *wing) {
	f.PutEvery("tick", time.Minute)
	f.tally(fixture.T0)
	f.FireUntil(fixture.Minutes(40))
	now := fixture.T0.Add(2 * secondDay)
	var nodes sync.WaitGroup
	for range 4 {
		nodes.Go(func() { f.tally(now) })
	}
	nodes.Wait()
	found, err := f.Statistics(t.Context(), view.StatisticsQuery{Now: now})
	f.Must(err)
	if len(found.Days) != 1 || found.Days[0].Runs[run.Succeeded] != 40 || !found.Days[0].Final {
		t.Errorf("got %+v, want 40 runs on one day", found.Days)
	}
}

func testStatisticsOfApps(t *testing.T, f *wing) {
	f.PutEvery("tick", time.Minute)
	f.DeclareApp("other")
	f.tally(fixture.T0)
	f.began(f.ClaimNext(fixture.Token1), 0)
	now := fixture.Minutes(30)
	f.tally(now)
	one := "2026-05-01 map[succeeded:1], 1 attempts, 0 missed, 1 began late by 0s, 0s at most, final false"
	f.wantDays("of both", f.days(now, "other", "shop"), one)
	f.wantDays("of the one", f.days(now, "shop"), one)
	f.wantDays("of the other", f.days(now, "other"))
	none, err := f.Statistics(t.Context(), view.StatisticsQuery{Apps: []string{}, Now: now})
	f.Must(err)
	if len(none.Days) != 0 {
		t.Errorf("of no app: got %+v, want nothing", none.Days)
	}
}

func testStatisticsOfManualRuns(_ *testing.T, f *wing) {
	f.PutEvery("tick", time.Minute)
	f.tally(fixture.T0)
	run, err := f.RequestRun(f.Context(), "shop", "tick", nil, fixture.At(fixture.Minutes(1)))
	f.Must(err)
	f.Must(f.CancelRun(f.Context(), run.ID, fixture.At(fixture.Minutes(2))))
	now := fixture.Minutes(30)
	f.tally(now)
	f.wantDays("a manual run has no lateness", f.days(now),
		"2026-05-01 map[cancelled:1], 0 attempts, 0 missed, 0 began late by 0s, 0s at most, final false")
}

func testStatisticsKept(_ *testing.T, f *wing) {
	f.InCheck()
	f.PutEvery("tick", time.Minute)
	f.tally(fixture.T0)
	f.began(f.ClaimNext(fixture.Token1), 0)
	f.tally(fixture.T0.Add(3 * secondDay))
	later := fixture.T0.Add(60 * secondDay)
	f.PurgeAll(later)
	of := view.StatisticsQuery{From: fixture.T0, To: fixture.T0, Now: later}
	found, err := f.Statistics(f.Context(), of)
	f.Must(err)
	if len(found.Days) != 1 {
		f.Errorf("after the history is gone: got %+v, want the day", found.Days)
	}
	f.tally(fixture.T0.Add(view.StatisticsKept + 5*secondDay))
	if found, err = f.Statistics(f.Context(), of); err != nil || len(found.Days) != 0 {
		f.Errorf("after all that time: got %+v, %v, want nothing", found.Days, err)
	}
}
