package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// audit returns the accounts of the app "shop" at a present, in words by trigger, its parts
// joined.
func (f *fixture) audit(from, to, now time.Time) map[string]string {
	f.Helper()
	sums := map[string]verify.Trigger{}
	query := verify.Query{App: "shop", From: from, To: to, Now: now, Page: input.Page{Limit: 2}}
	for {
		page, err := verify.Ledger(f.Context(), f.Store, query)
		f.must(err)
		for _, part := range page.Items {
			name := part.Job + "/" + part.Trigger
			sum := sums[name]
			sum.Scheduled, sum.Runs, sum.Misfired = sum.Scheduled+part.Scheduled, sum.Runs+part.Runs, sum.Misfired+part.Misfired
			sum.Open, sum.Unexplained = sum.Open+part.Open, sum.Unexplained+part.Unexplained
			sum.Unchecked += part.Unchecked
			sums[name] = sum
		}
		if query.Page.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	words := map[string]string{}
	for name, sum := range sums {
		words[name] = fmt.Sprintf("%d: %d runs, %d misfired, %d open, %d unexplained%s", sum.Scheduled, sum.Runs,
			sum.Misfired, sum.Open, sum.Unexplained, sum.Unchecked)
	}
	return words
}

// fireUntil claims all that is due up to an instant, of each trigger one after the other, and ends it.
func (f *fixture) fireUntil(until time.Time) {
	f.Helper()
	for {
		due, err := f.Due(f.Context(), dispatcher.DueQuery{Until: until, Now: t0, Limit: 1000})
		f.must(err)
		if len(due) == 0 {
			return
		}
		for _, d := range due {
			for _, held := range f.claim(f.advance(d)) {
				f.end(held, held.ScheduledAt.Add(time.Second))
			}
		}
	}
}

// settleAll settles the missed fires of a trigger up to an instant as one.
func (f *fixture) settleAll(name string, until time.Time) {
	f.Helper()
	for _, d := range f.dueAll(until) {
		if d.ID != run.TriggerID("shop", name, "tick") {
			continue
		}
		s, err := schedule.Parse(f.version(d.ID).Spec)
		f.must(err)
		last, count, next, err := dispatcher.Missed(s, d.NextFireTime, until)
		f.must(err)
		advance := f.advance(d)
		advance.Then = *next
		f.must(f.Settle(f.Context(), dispatcher.SettleBatch{Node: nodeA, Token: token1, Now: until, Settlements: []dispatcher.Settlement{
			{Advance: advance, To: last, Count: count, Decision: dispatcher.DecisionFireOnce, Reason: "late", CatchUp: last},
		}}))
	}
}

// closed is the calendar "freeze" that excludes a day.
func closed(day string) dispatcher.Calendar {
	return calendar("freeze", schedule.CalendarRule{Dates: []string{day}})
}

func minutes(n int) time.Time { return t0.Add(time.Duration(n) * time.Minute) }

func testVerify(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.putEvery("steady", time.Minute)
	f.putEvery("edited", time.Minute)
	f.putEvery("gone", time.Minute)
	f.putEvery("missed", time.Minute)
	f.putEvery("paused", time.Minute)
	f.putCalendar(closed("11-11"), t0)
	frozen := every(time.Minute, minutes(1))
	frozen.Calendar = "freeze"
	f.put(job("frozen", map[string]dispatcher.Trigger{"tick": frozen}), t0)
	f.put(job("delayed", map[string]dispatcher.Trigger{"tick": {
		TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "delay(1m)"}, Enabled: true,
			MisfireAfter: dispatcher.DefaultMisfireAfter},
	}}), t0)
	f.fireUntil(minutes(3))

	// At 3:30: a target changes and no schedule, another schedule, a removal, a pause.
	at330 := at(minutes(3).Add(30 * time.Second))
	steady := job("steady", map[string]dispatcher.Trigger{"tick": every(time.Minute, minutes(1))})
	steady.Target.Webhook.URL = "https://example.com/other"
	f.must(f.PutJob(ctx, steady, at330))
	f.must(f.PutJob(ctx, job("edited", map[string]dispatcher.Trigger{"tick": every(2*time.Minute, minutes(1))}), at330))
	f.must(f.DeleteJob(ctx, "shop", "gone", at330))
	f.must(f.PauseJob(ctx, "shop", "paused", "", true, at330))
	f.fireUntil(minutes(5))
	// 4, 5 and 6 are due when the target and the calendar change again: 6 is kept, those of the
	// new calendar are dropped.
	at630 := at(minutes(6).Add(30 * time.Second))
	steady.Target.Webhook.URL = "https://example.com/third"
	f.must(f.PutJob(ctx, steady, at630))
	f.putCalendar(closed(t0.Format("2006-01-02")), at630.Now)
	f.must(f.PauseJob(ctx, "shop", "paused", "", false, at330))
	f.settleAll("missed", minutes(8))
	f.settleAll("paused", minutes(8))

	want := map[string]string{
		"steady/tick":  "8: 5 runs, 0 misfired, 3 open, 0 unexplained",
		"edited/tick":  "5: 4 runs, 0 misfired, 1 open, 0 unexplained", // 1, 2, 3, 5, 7
		"gone/tick":    "3: 3 runs, 0 misfired, 0 open, 0 unexplained",
		"missed/tick":  "8: 5 runs, 3 misfired, 0 open, 0 unexplained",
		"paused/tick":  "8: 3 runs, 5 misfired, 0 open, 0 unexplained",
		"frozen/tick":  "6: 5 runs, 1 misfired, 0 open, 0 unexplained",
		"delayed/tick": "0: 0 runs, 0 misfired, 0 open, 0 unexplainedthe fires of a fixed delay follow from its runs",
	}
	if diff := cmp.Diff(want, f.audit(time.Time{}, time.Time{}, minutes(8))); diff != "" {
		t.Error("audit of all (-want +got):\n" + diff)
	}
	// Bounds are inclusive, and what is to come is not asked for.
	for name := range want {
		if name != "delayed/tick" {
			want[name] = "0: 0 runs, 0 misfired, 0 open, 0 unexplained"
		}
	}
	want["steady/tick"], want["missed/tick"] = "2: 2 runs, 0 misfired, 0 open, 0 unexplained", "2: 2 runs, 0 misfired, 0 open, 0 unexplained"
	want["frozen/tick"], want["paused/tick"] = want["steady/tick"], "2: 0 runs, 2 misfired, 0 open, 0 unexplained"
	want["edited/tick"] = "1: 1 runs, 0 misfired, 0 open, 0 unexplained"
	if diff := cmp.Diff(want, f.audit(minutes(4), minutes(5), minutes(8))); diff != "" {
		t.Error("audit of two minutes (-want +got):\n" + diff)
	}
	_, err := verify.Ledger(ctx, f.Store, verify.Query{App: "nosuch", Page: input.Page{Limit: 1}})
	wantError(t, "audit of no app", err, dispatcher.ErrNotFound)
	_, err = verify.Ledger(ctx, f.Store, verify.Query{App: "shop", Page: input.Page{Limit: 1, Cursor: "x@y"}})
	wantError(t, "audit from nowhere", err, verify.ErrCursor)
}

// A trigger with more instants than one call looks at comes in parts, none of them twice.
func testVerifyInParts(t *testing.T, f *fixture) {
	f.putEvery("dense", time.Second)
	f.putEvery("sparse", time.Hour)
	now := t0.Add(12 * time.Hour)
	f.settleAll("sparse", now)
	want := map[string]string{
		"dense/tick":  "43141: 0 runs, 0 misfired, 43141 open, 0 unexplained",
		"sparse/tick": "12: 0 runs, 12 misfired, 0 open, 0 unexplained",
	}
	if diff := cmp.Diff(want, f.audit(time.Time{}, time.Time{}, now)); diff != "" {
		t.Error("audit (-want +got):\n" + diff)
	}
	page, err := verify.Ledger(t.Context(), f.Store, verify.Query{App: "shop", Now: now, Page: input.Page{Limit: 10}})
	f.must(err)
	if len(page.Items) != 1 || page.Items[0].Scheduled > 20_000 || !strings.HasPrefix(page.Next, "dense@") {
		t.Errorf("first page = %+v, want a part of the dense trigger", page)
	}
}

// An instant that was claimed ahead of its time, before its job was deleted, is not owed once more when the job is
// declared again: that owes what comes after it.
func testVerifyOwedTwice(t *testing.T, f *fixture) {
	f.putEvery("tick", time.Minute)
	ahead := minutes(1).Add(-1500 * time.Millisecond)
	f.must(f.Claim(t.Context(), dispatcher.ClaimBatch{Node: nodeA, Token: f.token(), Lead: 2 * time.Second,
		Advances: []dispatcher.Advance{f.nextAdvance()}, Now: ahead}))
	f.must(f.DeleteJob(t.Context(), "shop", "tick", at(ahead.Add(50*time.Millisecond))))
	f.must(f.PutJob(t.Context(), job("tick", map[string]dispatcher.Trigger{"tick": {
		TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "* * * * * ?"}, MisfireAfter: input.Duration(time.Minute),
			Enabled: true},
	}}), at(ahead.Add(100*time.Millisecond))))
	now := minutes(1).Add(1500 * time.Millisecond)
	f.fireUntil(now)
	want := map[string]string{"tick/tick": "2: 2 runs, 0 misfired, 0 open, 0 unexplained"}
	if diff := cmp.Diff(want, f.audit(time.Time{}, time.Time{}, now)); diff != "" {
		t.Error("audit (-want +got):\n" + diff)
	}
}

// explain returns account and reason of an instant of shop/NAME/tick.
func (f *fixture) explain(name string, at, now time.Time) string {
	f.Helper()
	e, err := verify.Explain(f.Context(), f.Store, verify.ExplainQuery{App: "shop", Job: name, Trigger: "tick", At: at, Now: now})
	f.must(err)
	return string(e.Verdict) + ": " + e.Reason
}

func testExplain(t *testing.T, f *fixture) {
	f.putEvery("tick", time.Minute)
	f.fireUntil(minutes(2))
	held := f.claim(f.nextAdvance())
	f.settleAll("tick", minutes(6))
	f.must(f.PauseJob(t.Context(), "shop", "tick", "", true, at(minutes(7))))
	for at, want := range map[time.Time]string{
		minutes(1):                       "run: its run ended as succeeded at attempt 1",
		minutes(3):                       "run: its run is claimed",
		minutes(5):                       "misfire: it was missed, and the misfire decision was fire_once: late",
		minutes(7):                       "open: it is due, but the trigger or its job is paused",
		minutes(9):                       "planned: it is in the future",
		minutes(2).Add(30 * time.Second): `none: "rate(1m0s)" in UTC does not fire at this time`,
		t0.Add(-time.Minute):             "none: the trigger was not declared yet",
		t0.AddDate(0, 0, -31):            "unknown: the history of the app only goes back to 2026-04-01T00:00:00.000Z",
	} {
		if got := f.explain("tick", at, minutes(8)); got != want {
			t.Errorf("at %s: got %q, want %q", at.Sub(t0), got, want)
		}
	}
	chain := func(at time.Time) []string {
		e, err := verify.Explain(t.Context(), f.Store, verify.ExplainQuery{App: "shop", Job: "tick", Trigger: "tick", At: at, Now: minutes(8)})
		f.must(err)
		var steps []string
		for _, s := range e.Steps {
			steps = append(steps, s.At.Sub(t0).String()+" "+s.What)
		}
		return steps
	}
	declared := `0s revision 1 came into force (put): "rate(1m0s)" in UTC`
	for at, want := range map[time.Time][]string{
		minutes(1): {
			declared, "1m0s scheduled; due at 2026-05-01T10:01:00.000Z", "1m0s claimed by node " + nodeA.String() + " as attempt 1",
			"1m0s attempt 1 by node " + nodeA.String(), "1m1s attempt 1 ended: succeeded",
		},
		minutes(5): {
			declared, "5m0s scheduled; due at 2026-05-01T10:05:00.000Z",
			"6m0s node " + nodeA.String() + " settled 3 missed fires from 2026-05-01T10:04:00.000Z to 2026-05-01T10:06:00.000Z: fire_once, late",
			"6m0s claimed by node " + nodeA.String() + " as attempt 1",
		},
		minutes(7): {
			`7m0s revision 2 came into force (pause): "rate(1m0s)" in UTC, paused`, "7m0s scheduled; due at 2026-05-01T10:07:00.000Z",
		},
	} {
		if diff := cmp.Diff(want, chain(at)); diff != "" {
			t.Errorf("steps at %s (-want +got):\n%s", at.Sub(t0), diff)
		}
	}
	if len(held) != 1 {
		t.Fatalf("claimed %d runs, want the fire of minute 3", len(held))
	}
	_, err := verify.Explain(t.Context(), f.Store, verify.ExplainQuery{App: "shop", Job: "tick", Trigger: "nosuch", At: t0, Now: t0})
	wantError(t, "explain no trigger", err, dispatcher.ErrNotFound)
}

// What was declared at the time decides, and not what is declared now.
func testExplainDefinitions(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.putCalendar(closed(t0.Format("2006-01-02")), t0)
	tick := every(time.Minute, minutes(2))
	end := minutes(20)
	tick.EndAt, tick.RepeatCount = &end, 10
	put := func(now time.Time, change func(*dispatcher.Trigger)) {
		t.Helper()
		change(&tick)
		f.must(f.PutJob(ctx, job("tick", map[string]dispatcher.Trigger{"tick": tick}), at(now)))
	}
	put(t0, func(*dispatcher.Trigger) {})
	f.fireUntil(minutes(3))
	put(minutes(3).Add(time.Second), func(t *dispatcher.Trigger) { t.Enabled = false })
	put(minutes(5).Add(time.Second), func(t *dispatcher.Trigger) { t.Enabled = true })
	put(minutes(6).Add(-time.Second), func(t *dispatcher.Trigger) { t.Calendar = "freeze" })
	put(minutes(8).Add(time.Second), func(t *dispatcher.Trigger) { t.Calendar = "" })
	f.must(f.PutApp(ctx, access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: false}}, at(minutes(9).Add(time.Second))))
	now := minutes(10)
	check := func(want map[time.Time]string) {
		t.Helper()
		for at, want := range want {
			if got := f.explain("tick", at, now); got != want {
				t.Errorf("at %s, seen at %s: got %q, want %q", at.Sub(t0), now.Sub(t0), got, want)
			}
		}
	}
	check(map[time.Time]string{
		minutes(1):  "none: it is before start_at 2026-05-01T10:02:00.000Z",
		minutes(3):  "run: its run ended as succeeded at attempt 1",
		minutes(4):  "none: the trigger or its job was disabled",
		minutes(7):  `none: calendar "freeze" excludes it`,
		minutes(9):  "open: it is due, but the app is disabled",
		minutes(10): "open: it is due, but the app is disabled",
		minutes(12): "planned: it is in the future", // two fires that the calendar excluded do not count
		minutes(15): "none: its repeat_count of 10 was used up",
		minutes(21): "none: it is after end_at 2026-05-01T10:20:00.000Z",
	})
	// A calendar that changes, and one that is gone, are remembered.
	f.putCalendar(closed("12-24"), minutes(11))
	f.must(f.DeleteCalendar(ctx, "shop", "freeze", at(minutes(12))))
	f.must(f.DeleteJob(ctx, "shop", "tick", at(minutes(12))))
	now = minutes(13)
	check(map[time.Time]string{
		minutes(7):  `none: calendar "freeze" excludes it`,
		minutes(10): "misfire: it was missed, and the misfire decision was skip: the job was deleted",
		minutes(13): "none: the trigger had been removed",
	})
}

// What triggers were is kept as long as what they did.
func testRecords(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.putCalendar(closed("12-24"), t0)
	f.putEvery("tick", time.Hour)
	for day := range 3 {
		f.must(f.PauseJob(ctx, "shop", "tick", "", day%2 == 0, at(t0.AddDate(0, 0, day))))
		f.putCalendar(closed(fmt.Sprintf("12-1%d", day)), t0.AddDate(0, 0, day))
	}
	revisions := func() (n int) {
		records, err := f.TriggerHistories(ctx, run.JobID("shop", "tick"), t0)
		f.must(err)
		for _, r := range records {
			n += len(r.Revisions)
		}
		return n
	}
	calendarAt := func(revision int64) int {
		all, err := f.CalendarsAt(ctx, "shop", revision)
		f.must(err)
		return len(all)
	}
	if n := revisions(); n != 4 || calendarAt(1) != 1 || calendarAt(4) != 1 {
		t.Errorf("%d revisions, want the first and three pauses; %d and %d calendars", n, calendarAt(1), calendarAt(4))
	}
	f.purge(shopEnd.Add(-time.Millisecond))
	if n := revisions(); n != 4 {
		t.Errorf("%d revisions are left while the day of their end is kept", n)
	}
	f.purge(shopEnd.AddDate(0, 0, 1))
	if n := revisions(); n != 2 || calendarAt(1) != 0 || calendarAt(4) != 1 {
		t.Errorf("%d revisions are left, want that which ended later and that in force; %d and %d calendars", n, calendarAt(1), calendarAt(4))
	}
	f.must(f.DeleteJob(ctx, "shop", "tick", at(shopEnd)))
	f.purge(shopEnd.AddDate(1, 0, 0))
	if n := revisions(); n != 0 {
		t.Errorf("%d revisions of a deleted job are left", n)
	}

	// A longer retention brings nothing back.
	f.must(f.PutApp(ctx, access.App{Name: "shop",
		AppSpec: access.AppSpec{Enabled: true, Retention: input.Duration(90 * 24 * time.Hour)}}, at(shopEnd)))
	for day, want := range map[int]time.Time{0: shopEnd.AddDate(0, 0, -30), 59: shopEnd.AddDate(0, 0, -30), 70: shopEnd.AddDate(0, 0, -20)} {
		record, err := f.AppHistory(ctx, "shop", time.Time{}, shopEnd.AddDate(0, 0, day))
		if err != nil || !record.Since.Equal(want) {
			t.Errorf("history on day %d goes back to %s, %v, want %s", day, record.Since, err, want)
		}
	}
}
