package reads

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/verify"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

func testVerify(t *testing.T, f *wing) {
	ctx := t.Context()
	f.PutEvery("steady", time.Minute)
	f.PutEvery("edited", time.Minute)
	f.PutEvery("gone", time.Minute)
	f.PutEvery("missed", time.Minute)
	f.PutEvery("paused", time.Minute)
	f.DeclareCalendar(fixture.Closed("11-11"), fixture.T0)
	frozen := fixture.Every(time.Minute, fixture.Minutes(1))
	frozen.Calendar = "freeze"
	f.Put(fixture.Job("frozen", map[string]dispatcher.Trigger{"tick": frozen}), fixture.T0)
	f.Put(fixture.Job("delayed", map[string]dispatcher.Trigger{"tick": {
		TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "delay(1m)"}, Enabled: true,
			MisfireAfter: dispatcher.DefaultMisfireAfter},
	}}), fixture.T0)
	f.FireUntil(fixture.Minutes(3))

	// At 3:30: a target changes but no schedule, another schedule, a removal, a pause.
	at330 := fixture.At(fixture.Minutes(3).Add(30 * time.Second))
	steady := fixture.Job("steady", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.Minutes(1))})
	steady.Target.Webhook.URL = "https://example.com/other"
	f.Must(f.PutJob(ctx, steady, at330))
	f.Must(f.PutJob(ctx, fixture.Job("edited", map[string]dispatcher.Trigger{"tick": fixture.Every(2*time.Minute, fixture.Minutes(1))}),
		at330))
	f.Must(f.DeleteJob(ctx, "shop", "gone", at330))
	f.Must(f.PauseJob(ctx, "shop", "paused", "", true, at330))
	f.FireUntil(fixture.Minutes(5))
	// 4, 5 and 6 are due when the target and the calendar change again: 6 is kept, those of the new calendar are
	// dropped.
	at630 := fixture.At(fixture.Minutes(6).Add(30 * time.Second))
	steady.Target.Webhook.URL = "https://example.com/third"
	f.Must(f.PutJob(ctx, steady, at630))
	f.DeclareCalendar(fixture.Closed(fixture.T0.Format("2006-01-02")), at630.Now)
	f.Must(f.PauseJob(ctx, "shop", "paused", "", false, at330))
	f.SettleAll("missed", fixture.Minutes(8))
	f.SettleAll("paused", fixture.Minutes(8))

	want := map[string]string{
		"steady/tick":  "8: 5 runs, 0 misfired, 3 open, 0 unexplained",
		"edited/tick":  "5: 4 runs, 0 misfired, 1 open, 0 unexplained", // 1, 2, 3, 5, 7
		"gone/tick":    "3: 3 runs, 0 misfired, 0 open, 0 unexplained",
		"missed/tick":  "8: 5 runs, 3 misfired, 0 open, 0 unexplained",
		"paused/tick":  "8: 3 runs, 5 misfired, 0 open, 0 unexplained",
		"frozen/tick":  "6: 5 runs, 1 misfired, 0 open, 0 unexplained",
		"delayed/tick": "0: 0 runs, 0 misfired, 0 open, 0 unexplainedthe fires of a fixed delay follow from its runs",
	}
	if diff := cmp.Diff(want, f.Audit(time.Time{}, time.Time{}, fixture.Minutes(8))); diff != "" {
		t.Error("audit of all (-want +got):\n" + diff)
	}
	// Bounds are inclusive, and future times are not queried.
	for name := range want {
		if name != "delayed/tick" {
			want[name] = "0: 0 runs, 0 misfired, 0 open, 0 unexplained"
		}
	}
	want["steady/tick"], want["missed/tick"] = "2: 2 runs, 0 misfired, 0 open, 0 unexplained", "2: 2 runs, 0 misfired, 0 open, 0 unexplained"
	want["frozen/tick"], want["paused/tick"] = want["steady/tick"], "2: 0 runs, 2 misfired, 0 open, 0 unexplained"
	want["edited/tick"] = "1: 1 runs, 0 misfired, 0 open, 0 unexplained"
	if diff := cmp.Diff(want, f.Audit(fixture.Minutes(4), fixture.Minutes(5), fixture.Minutes(8))); diff != "" {
		t.Error("audit of two minutes (-want +got):\n" + diff)
	}
	_, err := verify.Ledger(ctx, f.Store, verify.Query{App: "nosuch", Page: input.Page{Limit: 1}})
	fixture.WantError(t, "audit of no app", err, dispatcher.ErrNotFound)
	_, err = verify.Ledger(ctx, f.Store, verify.Query{App: "shop", Page: input.Page{Limit: 1, Cursor: "x@y"}})
	fixture.WantError(t, "audit from nowhere", err, verify.ErrCursor)
}

// A trigger with more instants than one call covers comes in parts, none of them twice.
func testVerifyInParts(t *testing.T, f *wing) {
	f.PutEvery("dense", time.Second)
	f.PutEvery("sparse", time.Hour)
	now := fixture.T0.Add(12 * time.Hour)
	f.SettleAll("sparse", now)
	want := map[string]string{
		"dense/tick":  "43141: 0 runs, 0 misfired, 43141 open, 0 unexplained",
		"sparse/tick": "12: 0 runs, 12 misfired, 0 open, 0 unexplained",
	}
	if diff := cmp.Diff(want, f.Audit(time.Time{}, time.Time{}, now)); diff != "" {
		t.Error("audit (-want +got):\n" + diff)
	}
	page, err := verify.Ledger(t.Context(), f.Store, verify.Query{App: "shop", Now: now, Page: input.Page{Limit: 10}})
	f.Must(err)
	if len(page.Items) != 1 || page.Items[0].Scheduled > 20_000 || !strings.HasPrefix(page.Next, "dense@") {
		t.Errorf("first page = %+v, want a part of the dense trigger", page)
	}
}

// An instant that was claimed ahead of its time, before its job was deleted, is not due again when the job is declared
// again: the new job starts with later instants.
func testVerifyOwedTwice(t *testing.T, f *wing) {
	f.PutEvery("tick", time.Minute)
	ahead := fixture.Minutes(1).Add(-1500 * time.Millisecond)
	f.Must(f.Claim(t.Context(), dispatcher.ClaimBatch{Node: fixture.NodeA, Token: f.NextToken(), Lead: 2 * time.Second,
		Advances: []dispatcher.Advance{f.NextAdvance()}, Now: ahead}))
	f.Must(f.DeleteJob(t.Context(), "shop", "tick", fixture.At(ahead.Add(50*time.Millisecond))))
	f.Must(f.PutJob(t.Context(), fixture.Job("tick", map[string]dispatcher.Trigger{"tick": {
		TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "* * * * * ?"}, MisfireAfter: input.Duration(time.Minute),
			Enabled: true},
	}}), fixture.At(ahead.Add(100*time.Millisecond))))
	now := fixture.Minutes(1).Add(1500 * time.Millisecond)
	f.FireUntil(now)
	want := map[string]string{"tick/tick": "2: 2 runs, 0 misfired, 0 open, 0 unexplained"}
	if diff := cmp.Diff(want, f.Audit(time.Time{}, time.Time{}, now)); diff != "" {
		t.Error("audit (-want +got):\n" + diff)
	}
}

func testExplain(t *testing.T, f *wing) {
	f.PutEvery("tick", time.Minute)
	f.FireUntil(fixture.Minutes(2))
	held := f.ClaimAll(f.NextAdvance())
	f.SettleAll("tick", fixture.Minutes(6))
	f.Must(f.PauseJob(t.Context(), "shop", "tick", "", true, fixture.At(fixture.Minutes(7))))
	const paused = "the trigger or its job is paused by test since 2026-05-01T10:07:00.000Z"
	for at, want := range map[time.Time]string{
		fixture.Minutes(1):                       "run: its run ended as succeeded at attempt 1",
		fixture.Minutes(3):                       "run: its run is claimed",
		fixture.Minutes(5):                       "misfire: it was missed, and the misfire decision was fire_once: late",
		fixture.Minutes(7):                       "open: it is due, but " + paused,
		fixture.Minutes(9):                       "planned: " + paused,
		fixture.Minutes(2).Add(30 * time.Second): `none: "rate(1m0s)" in UTC does not fire at this time`,
		fixture.T0.Add(-time.Minute):             "none: the trigger was not declared yet",
		fixture.T0.AddDate(0, 0, -31):            "unknown: the history of the app only goes back to 2026-04-01T00:00:00.000Z",
	} {
		if got := f.Explain("tick", at, fixture.Minutes(8)); got != want {
			t.Errorf("at %s: got %q, want %q", at.Sub(fixture.T0), got, want)
		}
	}
	chain := func(at time.Time) []string {
		e, err := verify.Explain(t.Context(), f.Store, verify.ExplainQuery{App: "shop", Job: "tick", Trigger: "tick", At: at,
			Now: fixture.Minutes(8)})
		f.Must(err)
		var steps []string
		for _, s := range e.Steps {
			steps = append(steps, s.At.Sub(fixture.T0).String()+" "+s.What)
		}
		return steps
	}
	declared := `0s revision 1 came into force (put by test): "rate(1m0s)" in UTC`
	for at, want := range map[time.Time][]string{
		fixture.Minutes(1): {
			declared, "1m0s scheduled; due at 2026-05-01T10:01:00.000Z", "1m0s claimed by node " + fixture.NodeA.String() + " as attempt 1",
			"1m0s attempt 1 by node " + fixture.NodeA.String(), "1m1s attempt 1 ended: succeeded",
		},
		fixture.Minutes(5): {
			declared, "5m0s scheduled; due at 2026-05-01T10:05:00.000Z",
			"6m0s node " + fixture.NodeA.String() +
				" settled 3 missed fires from 2026-05-01T10:04:00.000Z to 2026-05-01T10:06:00.000Z: fire_once, late",
			"6m0s claimed by node " + fixture.NodeA.String() + " as attempt 1",
		},
		fixture.Minutes(7): {
			`7m0s revision 2 came into force (pause by test): "rate(1m0s)" in UTC, paused`, "7m0s scheduled; due at 2026-05-01T10:07:00.000Z",
		},
	} {
		if diff := cmp.Diff(want, chain(at)); diff != "" {
			t.Errorf("steps at %s (-want +got):\n%s", at.Sub(fixture.T0), diff)
		}
	}
	if len(held) != 1 {
		t.Fatalf("claimed %d runs, want the fire of minute 3", len(held))
	}
	_, err := verify.Explain(t.Context(), f.Store, verify.ExplainQuery{App: "shop", Job: "tick", Trigger: "nosuch", At: fixture.T0,
		Now: fixture.T0})
	fixture.WantError(t, "explain no trigger", err, dispatcher.ErrNotFound)
}

// An explanation remembers who held a trigger or its app when a fire was due, and why, after that has ended.
func testExplainHolds(t *testing.T, f *wing) {
	ctx := t.Context()
	by := func(actor string, n int) input.Change { return input.Change{Actor: actor, Now: fixture.Minutes(n)} }
	f.PutEvery("tick", time.Minute)
	f.FireUntil(fixture.Minutes(1))
	why := by("ann", 2)
	why.Reason = "db migration"
	f.Must(f.PauseJob(ctx, "shop", "tick", "", true, why))
	for at, want := range map[time.Time]string{
		fixture.Minutes(3): `open: it is due, but the trigger or its job is paused by ann since 2026-05-01T10:02:00.000Z: "db migration"`,
		fixture.Minutes(9): `planned: the trigger or its job is paused by ann since 2026-05-01T10:02:00.000Z: "db migration"`,
	} {
		if got := f.Explain("tick", at, fixture.Minutes(4)); got != want {
			t.Errorf("at %s, while the job is paused: got %q, want %q", at.Sub(fixture.T0), got, want)
		}
	}
	f.Must(f.PauseJob(ctx, "shop", "tick", "", false, by("bob", 5)))
	f.SettleAll("tick", fixture.Minutes(6))
	f.Must(f.PutApp(ctx, access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: false}}, by("eve", 7)))
	f.Must(f.PutApp(ctx, access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true}}, by("eve", 9)))
	f.SettleAll("tick", fixture.Minutes(10))
	pause, err := f.PauseApp(ctx, "shop", dispatcher.AppPauseRequest{Reason: "fair"}, by("ann", 11))
	f.Must(err)
	f.Must(f.EndAppPause(ctx, "shop", pause.ID, by("ann", 12)))
	f.SettleAll("tick", fixture.Minutes(12))
	outage := dispatcher.Outage{Node: fixture.NodeA, From: fixture.Minutes(13).Add(-time.Second), To: fixture.Minutes(14)}
	f.Must(f.RecordOutage(ctx, outage))
	for _, held := range f.ClaimAll(f.NextAdvance()) {
		f.End(held, outage.To.Add(time.Second))
	}
	const missed = "misfire: it was missed, and the misfire decision was fire_once: "
	held := map[int]string{
		3:  `the trigger or its job was paused by ann from 2026-05-01T10:02:00.000Z to 2026-05-01T10:05:00.000Z: "db migration"; late`,
		8:  "the app was disabled or suspended by eve from 2026-05-01T10:07:00.000Z to 2026-05-01T10:09:00.000Z; late",
		11: `all jobs of app shop were paused by ann from 2026-05-01T10:11:00.000Z to 2026-05-01T10:12:00.000Z: "fair"; late`,
	}
	strip, err := verify.Strip(ctx, f.Store, view.StripQuery{App: "shop", Job: "tick", Trigger: "tick", Past: 20, Now: fixture.Minutes(14)})
	f.Must(err)
	for minute, want := range map[int]string{
		3: missed + held[3], 6: missed + held[3], 8: missed + held[8], 11: missed + held[11],
		13: "run: its run ended as succeeded at attempt 1; node host (" + fixture.NodeA.String() + ") could not reach the database from " +
			"2026-05-01T10:12:59.000Z to 2026-05-01T10:14:00.000Z",
		15: "planned: it is in the future",
	} {
		at := fixture.Minutes(minute)
		if got := f.Explain("tick", at, fixture.Minutes(14)); got != want {
			t.Errorf("at %s: got %q, want %q", at.Sub(fixture.T0), got, want)
		}
		for _, cell := range strip.Cells {
			if got := string(cell.What) + ": " + cell.Why; cell.ScheduledAt.Equal(at) && got != want {
				t.Errorf("cell at %s: got %q, want %q", at.Sub(fixture.T0), got, want)
			}
		}
	}
	misfires, err := f.Misfires(ctx, dispatcher.RunQuery{App: "shop", Page: input.Page{Limit: 10}})
	f.Must(errors.Join(err, verify.AddHolds(ctx, f.Store, misfires)))
	var reasons []string
	for _, m := range misfires {
		reasons = append(reasons, m.Reason)
	}
	fixture.WantDiff(t, "reasons of misfires", []string{held[11], held[8], held[3]}, reasons)
	misfires[2].App, misfires[2].Reason = "deleted", "late"
	f.Must(verify.AddHolds(ctx, f.Store, misfires[2:]))
	fixture.WantDiff(t, "the reason of a misfire of a deleted app", held[3], misfires[2].Reason)
	e, err := verify.Explain(ctx, f.Store, verify.ExplainQuery{App: "shop", Job: "tick", Trigger: "tick", At: fixture.Minutes(3),
		Now: fixture.Minutes(14)})
	f.Must(err)
	var steps []string
	for _, s := range e.Steps[:4] {
		steps = append(steps, s.At.Sub(fixture.T0).String()+" "+s.What)
	}
	fixture.WantDiff(t, "steps", []string{
		`2m0s revision 2 came into force (pause by ann): "rate(1m0s)" in UTC, paused: "db migration"`,
		"3m0s scheduled; due at 2026-05-01T10:03:00.000Z",
		`5m0s revision 3 came into force (resume by bob): "rate(1m0s)" in UTC`,
		"6m0s node " + fixture.NodeA.String() + " settled 5 missed fires from 2026-05-01T10:02:00.000Z to 2026-05-01T10:06:00.000Z: " +
			"fire_once, late",
	}, steps)
}

// What held the first of several missed fires is the cause; what held others only happened meanwhile.
func testExplainPauseOfSomeFires(t *testing.T, f *wing) {
	ctx := t.Context()
	f.PutEvery("tick", time.Minute)
	f.FireUntil(fixture.Minutes(1))
	pause := func(from, to int) {
		t.Helper()
		at := func(n int) input.Change { return input.Change{Actor: "ann", Now: fixture.Minutes(n)} }
		begun, err := f.PauseApp(ctx, "shop", dispatcher.AppPauseRequest{}, at(from))
		f.Must(err)
		f.Must(f.EndAppPause(ctx, "shop", begun.ID, at(to)))
	}
	pause(3, 4)
	f.SettleAll("tick", fixture.Minutes(6))
	pause(7, 8)
	f.SettleAll("tick", fixture.Minutes(10))
	const missed = "misfire: it was missed, and the misfire decision was fire_once: "
	const first = "all jobs of app shop were paused by ann from 2026-05-01T10:03:00.000Z to 2026-05-01T10:04:00.000Z"
	const second = "all jobs of app shop were paused by ann from 2026-05-01T10:07:00.000Z to 2026-05-01T10:08:00.000Z"
	strip, err := verify.Strip(ctx, f.Store, view.StripQuery{App: "shop", Job: "tick", Trigger: "tick", Past: 20, Now: fixture.Minutes(10)})
	f.Must(err)
	got := map[int]string{}
	for _, cell := range strip.Cells {
		got[int(cell.ScheduledAt.Sub(fixture.T0)/time.Minute)] = string(cell.What) + ": " + cell.Why
	}
	want := map[int]string{1: got[1]}
	for minute, why := range map[int]string{
		2: "late; meanwhile, " + first, 3: first + "; late", 4: "late; meanwhile, " + first, 5: "late; meanwhile, " + first,
		6: "late; meanwhile, " + first, 7: second + "; late", 8: second + "; late", 9: second + "; late", 10: second + "; late",
	} {
		want[minute] = missed + why
		got := f.Explain("tick", fixture.Minutes(minute), fixture.Minutes(10))
		fixture.WantDiff(t, fmt.Sprintf("explain minute %d", minute), want[minute], got)
	}
	fixture.WantDiff(t, "strip", want, got)
}

// People copy times as lists show them, without milliseconds.
func testExplainWithinTheSecond(t *testing.T, f *wing) {
	anchor := fixture.T0.Add(424 * time.Millisecond)
	f.Put(fixture.Job("tick", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, anchor)}), anchor)
	f.FireUntil(anchor.Add(2 * time.Minute))
	for at, want := range map[time.Time]string{
		fixture.Minutes(1):                   "run: its run ended as succeeded at attempt 1",
		fixture.Minutes(5):                   "planned: it is in the future",
		fixture.Minutes(1).Add(-time.Second): `none: "rate(1m0s)" in UTC does not fire at this time`,
	} {
		if got := f.Explain("tick", at, fixture.Minutes(3)); got != want {
			t.Errorf("at %s: got %q, want %q", at.Sub(fixture.T0), got, want)
		}
	}
}

// A fire that a calendar moves is explained at both of its times.
func testExplainMovedFires(t *testing.T, f *wing) {
	ctx, first := t.Context(), fixture.T0.Truncate(24*time.Hour) // 1 May 2026
	f.DeclareCalendar(fixture.Calendar("freeze", schedule.CalendarRule{Dates: []string{"05-02", "05-06/12-31"}}), fixture.T0)
	at := func(day, hour int) time.Time { return first.AddDate(0, 0, day-1).Add(time.Duration(hour) * time.Hour) }
	for on, times := range map[schedule.OnExcluded]map[time.Time]string{
		schedule.OnExcludedNextDay: {
			at(2, 11): `none: calendar "freeze" excludes it, and on_excluded = "next_day" moves it to 2026-05-03T11:00:00.000Z`,
			at(3, 11): `run: its run ended as succeeded at attempt 1; moved here from 2026-05-02T11:00:00.000Z, which calendar ` +
				`"freeze" excludes (on_excluded = "next_day")`,
			at(6, 11): `none: calendar "freeze" excludes it, and on_excluded = "next_day" finds no day for it`,
			at(4, 11): `none: "0 11 2,6 5 *" in UTC does not fire at this time`,
		},
		schedule.OnExcludedPreviousDay: {
			at(2, 11): `none: calendar "freeze" excludes it, and on_excluded = "previous_day" moves it to 2026-05-01T11:00:00.000Z`,
			at(5, 11): `run: its run ended as succeeded at attempt 1; moved here from 2026-05-06T11:00:00.000Z, which calendar ` +
				`"freeze" excludes (on_excluded = "previous_day")`,
		},
		schedule.OnExcludedNextIncluded: {
			at(2, 11): `none: calendar "freeze" excludes it, and on_excluded = "next_included" moves it to 2026-05-03T00:00:00.000Z`,
			at(3, 0): `run: its run ended as succeeded at attempt 1; moved here from 2026-05-02T11:00:00.000Z, which calendar ` +
				`"freeze" excludes (on_excluded = "next_included")`,
		},
		schedule.OnExcludedSkip: {at(2, 11): `none: calendar "freeze" excludes it`},
	} {
		name := "tick-" + strings.ReplaceAll(string(on), "_", "-")
		tick := fixture.Every(time.Minute, fixture.T0)
		tick.Expression, tick.Timezone, tick.StartAt = "0 11 2,6 5 *", "UTC", nil
		tick.Calendar, tick.OnExcluded = "freeze", on
		f.Put(fixture.Job(name, map[string]dispatcher.Trigger{"tick": tick}), fixture.T0)
		f.FireUntil(at(8, 0))
		for at, want := range times {
			e, err := verify.Explain(ctx, f.Store, verify.ExplainQuery{App: "shop", Job: name, Trigger: "tick", At: at, Now: first.AddDate(0, 0, 8)})
			f.Must(err)
			got := string(e.Verdict) + ": " + e.Reason
			for _, step := range e.Steps {
				if strings.HasPrefix(step.What, "moved") {
					got += "; " + step.What
				}
			}
			if got != want {
				t.Errorf("%s at %s: got %q, want %q", on, at, got, want)
			}
		}
	}
}

// What was declared at the time decides, and not what is declared now.
func testExplainDefinitions(t *testing.T, f *wing) {
	ctx := t.Context()
	f.DeclareCalendar(fixture.Closed(fixture.T0.Format("2006-01-02")), fixture.T0)
	tick := fixture.Every(time.Minute, fixture.Minutes(2))
	end := fixture.Minutes(20)
	tick.EndAt, tick.RepeatCount = &end, 10
	put := func(now time.Time, change func(*dispatcher.Trigger)) {
		t.Helper()
		change(&tick)
		f.Must(f.PutJob(ctx, fixture.Job("tick", map[string]dispatcher.Trigger{"tick": tick}), fixture.At(now)))
	}
	put(fixture.T0, func(*dispatcher.Trigger) {})
	f.FireUntil(fixture.Minutes(3))
	put(fixture.Minutes(3).Add(time.Second), func(t *dispatcher.Trigger) { t.Enabled = false })
	put(fixture.Minutes(5).Add(time.Second), func(t *dispatcher.Trigger) { t.Enabled = true })
	put(fixture.Minutes(6).Add(-time.Second), func(t *dispatcher.Trigger) { t.Calendar = "freeze" })
	put(fixture.Minutes(8).Add(time.Second), func(t *dispatcher.Trigger) { t.Calendar = "" })
	f.Must(f.PutApp(ctx, access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: false}}, fixture.At(fixture.Minutes(9).Add(time.Second))))
	now := fixture.Minutes(10)
	check := func(want map[time.Time]string) {
		t.Helper()
		for at, want := range want {
			if got := f.Explain("tick", at, now); got != want {
				t.Errorf("at %s, seen at %s: got %q, want %q", at.Sub(fixture.T0), now.Sub(fixture.T0), got, want)
			}
		}
	}
	check(map[time.Time]string{
		fixture.Minutes(1):  "none: it is before start_at 2026-05-01T10:02:00.000Z",
		fixture.Minutes(3):  "run: its run ended as succeeded at attempt 1",
		fixture.Minutes(4):  "none: the trigger or its job was disabled",
		fixture.Minutes(7):  `none: calendar "freeze" excludes it`,
		fixture.Minutes(9):  "open: it is due, but the app is disabled",
		fixture.Minutes(10): "open: it is due, but the app is disabled",
		fixture.Minutes(12): "planned: the app is disabled", // two fires that the calendar excluded do not count
		fixture.Minutes(15): "none: its repeat_count of 10 was used up",
		fixture.Minutes(21): "none: it is after end_at 2026-05-01T10:20:00.000Z",
	})
	// Changed and deleted calendars are remembered.
	f.DeclareCalendar(fixture.Closed("12-24"), fixture.Minutes(11))
	f.Must(f.DeleteCalendar(ctx, "shop", "freeze", fixture.At(fixture.Minutes(12))))
	f.Must(f.DeleteJob(ctx, "shop", "tick", fixture.At(fixture.Minutes(12))))
	now = fixture.Minutes(13)
	check(map[time.Time]string{
		fixture.Minutes(7): `none: calendar "freeze" excludes it`,
		fixture.Minutes(10): "misfire: it was missed, and the misfire decision was skip: the app is disabled or suspended by test since " +
			"2026-05-01T10:09:01.000Z; the job was deleted",
		fixture.Minutes(13): "none: the trigger was removed by test at 2026-05-01T10:12:00.000Z",
	})
}
