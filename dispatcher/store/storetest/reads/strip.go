package reads

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/verify"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// stripTests test the latest and next scheduled times of a trigger.
func stripTests() tests {
	return tests{
		"a strip shows the outcome of each time":                      testStrip,
		"a strip goes back through changed definitions":               testStripOfChanges,
		"a strip shows times that a calendar excludes as one stretch": testStripOfCalendar,
		"a strip shows times that daylight saving leaves out":         testStripOfDaylightSaving,
		"a strip of a fixed delay shows its runs":                     testStripOfDelay,
		"a strip of a rare schedule reaches back to its fires":        testStripOfRareSchedule,
		"a strip of a dense schedule is as long as requested":         testStripOfDenseSchedule,
		"a strip of a single fire has one cell":                       testStripOfOneFire,
	}
}

// strip returns the cells of shop/NAME/tick, each as its result and its time of day; it requires that explain agrees
// with each.
func (f *wing) strip(name string, past, next int, now time.Time) []string {
	f.Helper()
	query := view.StripQuery{App: "shop", Job: name, Trigger: "tick", Past: past, Next: next, Now: now}
	found, err := verify.Strip(f.Context(), f.Store, query)
	f.Must(err)
	f.agree(name, found, now)
	cells := []string{}
	for _, cell := range found.Cells {
		text := string(cell.What) + " " + cell.ScheduledAt.Sub(fixture.T0).String()
		if cell.Until != nil {
			text += " to " + cell.Until.Sub(fixture.T0).String()
		}
		cells = append(cells, text)
	}
	return cells
}

// agree requires that a strip is in order and agrees with explain at each time.
func (f *wing) agree(name string, found view.Strip, now time.Time) {
	f.Helper()
	for i, cell := range found.Cells {
		if i > 0 && !found.Cells[i-1].ScheduledAt.Before(cell.ScheduledAt) {
			f.Errorf("cell %s follows %s", cell.ScheduledAt, found.Cells[i-1].ScheduledAt)
		}
		times := []time.Time{cell.ScheduledAt}
		if cell.Until != nil {
			times = append(times, *cell.Until)
		}
		for _, at := range times {
			e, err := verify.Explain(f.Context(), f.Store, verify.ExplainQuery{App: "shop", Job: name, Trigger: "tick", At: at, Now: now})
			f.Must(err)
			var run, state string
			switch {
			case e.Run != nil:
				run, state = e.Run.ID, string(e.Run.State)
			case e.CatchUp != nil:
				run, state = e.CatchUp.ID, string(e.CatchUp.State)
			}
			want := fmt.Sprintf("%s (%s %s) in revision %d", e.Reason, run, state, e.Revision)
			if got := fmt.Sprintf("%s (%s %s) in revision %d", cell.Why, cell.Run, cell.State, cell.Revision); got != want {
				f.Errorf("%s at %s: the strip says %q, explain %q", name, at.Sub(fixture.T0), got, want)
			}
			if !fits(cell.What, e.Verdict) {
				f.Errorf("%s at %s: the strip says %s, explain %s", name, at.Sub(fixture.T0), cell.What, e.Verdict)
			}
		}
	}
}

// fits reports whether a kind of cell goes with a verdict.
func fits(what view.CellKind, verdict verify.Verdict) bool {
	switch what {
	case view.CellSkipped:
		return verdict == verify.VerdictRun
	case view.CellWaiting:
		return verdict == verify.VerdictOpen
	case view.CellExcluded:
		return verdict == verify.VerdictNone
	}
	return string(what) == string(verdict)
}

func (f *wing) wantStrip(what string, got, want []string) {
	f.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		f.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func testStrip(t *testing.T, f *wing) {
	f.PutEvery("tick", time.Minute)
	f.FireUntil(fixture.Minutes(2))
	f.ClaimAll(f.NextAdvance())
	f.SettleAll("tick", fixture.Minutes(6))
	f.Must(f.PauseJob(t.Context(), "shop", "tick", "", true, fixture.At(fixture.Minutes(7))))
	now := fixture.Minutes(8).Add(30 * time.Second)
	f.wantStrip("all", f.strip("tick", 60, 2, now), []string{
		"run 1m0s", "run 2m0s", "run 3m0s", "misfire 4m0s", "misfire 5m0s", "misfire 6m0s", "waiting 7m0s", "waiting 8m0s",
		"planned 9m0s", "planned 10m0s",
	})
	f.wantStrip("the last three", f.strip("tick", 3, 0, now), []string{"misfire 6m0s", "waiting 7m0s", "waiting 8m0s"})
	found, err := verify.Strip(t.Context(), f.Store, view.StripQuery{App: "shop", Job: "tick", Trigger: "tick", Past: 6, Now: now})
	f.Must(err)
	first, missed := found.Cells[0], found.Cells[1]
	if first.State != run.Claimed || first.Late != 0 || missed.Decision != dispatcher.DecisionFireOnce ||
		missed.State != run.Claimed && missed.State != run.Queued {
		t.Errorf("got %+v and %+v, want a claimed run and a misfire with its catch-up run", first, missed)
	}
	_, err = verify.Strip(t.Context(), f.Store, view.StripQuery{App: "shop", Job: "tick", Trigger: "other", Past: 6, Now: now})
	fixture.WantError(t, "a strip of no trigger", err, dispatcher.ErrNotFound)
}

func testStripOfChanges(t *testing.T, f *wing) {
	tick := fixture.Every(time.Minute, fixture.Minutes(1))
	put := func(now time.Time, change func(*dispatcher.Trigger)) {
		t.Helper()
		change(&tick)
		f.Must(f.PutJob(t.Context(), fixture.Job("tick", map[string]dispatcher.Trigger{"tick": tick}), fixture.At(now)))
	}
	put(fixture.T0, func(*dispatcher.Trigger) {})
	f.FireUntil(fixture.Minutes(3))
	put(fixture.Minutes(3).Add(time.Second), func(t *dispatcher.Trigger) { t.Enabled = false })
	put(fixture.Minutes(6).Add(time.Second), func(t *dispatcher.Trigger) { t.Enabled, t.Expression, t.StartAt = true, "0 0/2 * * * ?", nil })
	f.FireUntil(fixture.Minutes(9))
	f.wantStrip("after two changes", f.strip("tick", 60, 1, fixture.Minutes(9)), []string{
		"run 1m0s", "run 2m0s", "run 3m0s", "none 4m0s to 6m0s", "run 8m0s", "planned 10m0s",
	})
	f.Must(f.DeleteJob(t.Context(), "shop", "tick", fixture.At(fixture.Minutes(9))))
	f.wantStrip("after the deletion", f.strip("tick", 2, 5, fixture.Minutes(12)), []string{"none 4m0s to 6m0s", "run 8m0s"})
}

func testStripOfCalendar(t *testing.T, f *wing) {
	f.DeclareCalendar(fixture.Closed("05-02"), fixture.T0)
	tick := dispatcher.Trigger{TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "0 0 0/6 * * ?",
		Calendar: "freeze"}, Enabled: true,
		MisfireAfter: dispatcher.DefaultMisfireAfter}}
	f.Put(fixture.Job("tick", map[string]dispatcher.Trigger{"tick": tick}), fixture.T0)
	f.wantStrip("before", f.strip("tick", 0, 5, fixture.T0), []string{
		"planned 2h0m0s", "planned 8h0m0s", "excluded 14h0m0s to 32h0m0s", "planned 38h0m0s", "planned 44h0m0s",
	})
	f.wantStrip("within", f.strip("tick", 60, 1, fixture.T0.Add(20*time.Hour)), []string{
		"waiting 2h0m0s", "waiting 8h0m0s", "excluded 14h0m0s to 20h0m0s", "excluded 26h0m0s to 32h0m0s",
	})
}

func testStripOfDaylightSaving(t *testing.T, f *wing) {
	for name, tt := range map[string]struct {
		expression string
		from       time.Time
		want       []string
	}{
		"gap": {"0 30 2 * * ?", time.Date(2027, 3, 26, 12, 0, 0, 0, time.UTC),
			[]string{"planned 27T01:30", "none 28T01:00", "planned 29T00:30"}},
		"overlap": {"0 30 2 * * ?", time.Date(2027, 10, 29, 12, 0, 0, 0, time.UTC),
			[]string{"planned 30T00:30", "none 31T00:30", "planned 31T01:30"}},
		"hourly": {"0 30 * * * ?", time.Date(2027, 3, 28, 0, 0, 0, 0, time.UTC),
			[]string{"planned 28T00:30", "planned 28T01:30", "planned 28T02:30"}},
	} {
		f.Put(fixture.Job(name,
			map[string]dispatcher.Trigger{"tick": {TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: tt.expression,
				Timezone: "Europe/Berlin"}, Enabled: true, MisfireAfter: dispatcher.DefaultMisfireAfter}}}), tt.from)
		found, err := verify.Strip(t.Context(), f.Store, view.StripQuery{App: "shop", Job: name, Trigger: "tick", Next: 3, Now: tt.from})
		f.Must(err)
		f.agree(name, found, tt.from)
		var got []string
		for _, cell := range found.Cells {
			got = append(got, string(cell.What)+" "+cell.ScheduledAt.Format("02T15:04"))
		}
		f.wantStrip(name, got, tt.want)
	}
}

func testStripOfDelay(t *testing.T, f *wing) {
	f.Put(fixture.Job("tick", map[string]dispatcher.Trigger{"tick": {
		TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "delay(1m)"}, Enabled: true,
			MisfireAfter: dispatcher.DefaultMisfireAfter},
	}}), fixture.T0)
	f.wantStrip("before", f.strip("tick", 5, 5, fixture.T0), []string{"planned 1m0s"})
	f.FireUntil(fixture.Minutes(1))
	f.wantStrip("after a run", f.strip("tick", 5, 5, fixture.Minutes(30)), []string{"run 1m0s"})
}

// A yearly trigger next to one that fires each second: its fires are found, and the others cost it little.
func testStripOfRareSchedule(t *testing.T, f *wing) {
	rare := dispatcher.Trigger{TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "0 0 12 1 5 ?"}, Enabled: true,
		MisfireAfter: dispatcher.DefaultMisfireAfter}}
	f.Put(fixture.Job("tick", map[string]dispatcher.Trigger{"tick": rare, "often": fixture.Every(time.Second, fixture.T0)}), fixture.T0)
	f.FireUntil(fixture.Minutes(2))
	year := func(n int) string { return fixture.T0.AddDate(n, 0, 0).Add(2 * time.Hour).Sub(fixture.T0).String() }
	f.wantStrip("at first", f.strip("tick", 60, 2, fixture.Minutes(2)), []string{"planned " + year(0), "planned " + year(1)})
}

func testStripOfDenseSchedule(t *testing.T, f *wing) {
	f.InCheck()
	f.PutEvery("tick", time.Second)
	now := fixture.T0.Add(12 * time.Hour)
	got := f.strip("tick", view.MostStripPast, view.MostStripNext, now)
	if len(got) != view.MostStripPast+view.MostStripNext || got[0] != "waiting "+(12*time.Hour-199*time.Second).String() ||
		got[200] != "planned "+(12*time.Hour+time.Second).String() {
		t.Errorf("got %d cells, %v, want the 200 before now and the 100 after it", len(got), got)
	}
}

func testStripOfOneFire(t *testing.T, f *wing) {
	f.Put(fixture.Job("tick", map[string]dispatcher.Trigger{"tick": {TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{
		Expression: "at(2026-05-01T10:05:00Z)", Dialect: schedule.DialectAt}, Enabled: true,
		MisfireAfter: dispatcher.DefaultMisfireAfter}}}), fixture.T0)
	f.wantStrip("before", f.strip("tick", 5, 5, fixture.T0), []string{"planned 5m0s"})
	f.FireUntil(fixture.Minutes(5))
	f.wantStrip("after", f.strip("tick", 5, 5, fixture.Minutes(6)), []string{"run 5m0s"})
}
