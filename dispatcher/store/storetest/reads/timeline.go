package reads

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// timelineTests test the past and planned events of the jobs of an app.
func timelineTests() tests {
	return tests{
		"a timeline has runs, misfires and planned fires": testTimeline,
		"a timeline is paged by job":                      testTimelinePages,
		"a timeline of a busy job keeps failed runs":      testTimelineOfBusyJob,
		"a timeline plans only triggers that may fire":    testTimelinePlans,
	}
}

// timeline returns the marks of the jobs of the app "shop", as text by job.
func (f *wing) timeline(from, to, now time.Time) map[string][]string {
	f.Helper()
	page, err := f.Timeline(f.Context(), view.TimelineQuery{App: "shop", From: from, To: to, Now: now, Page: input.Page{Limit: 50}})
	f.Must(err)
	found := map[string][]string{}
	for _, row := range page.Items {
		marks := []string{}
		for _, m := range row.Marks {
			text := string(m.What) + " " + m.ScheduledAt.Sub(fixture.T0).String() + " " + string(m.State) + string(m.Decision)
			if m.Last != nil {
				text += " to " + m.Last.Sub(fixture.T0).String()
			}
			marks = append(marks, text)
		}
		found[row.Job] = marks
	}
	return found
}

func testTimeline(t *testing.T, f *wing) {
	f.PutEvery("tick", time.Minute)
	f.FireUntil(fixture.Minutes(2))
	failing := f.ClaimNext(fixture.Token1)
	f.Again(failing, fixture.Failure(failing.ScheduledAt), fixture.FailedUntil(failing.ScheduledAt.Add(time.Minute)))
	f.ClaimNext(fixture.Token2)
	f.SettleAll("tick", fixture.Minutes(7))
	f.Put(fixture.Job("quiet", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(24*time.Hour))}), fixture.T0)
	f.wantTimeline("an hour", f.timeline(fixture.T0, fixture.Minutes(10), fixture.Minutes(8)), map[string][]string{
		"quiet": {},
		"tick": {"run 1m0s succeeded", "run 2m0s succeeded", "run 3m0s retrying", "run 4m0s claimed", "misfire 5m0s fire_once to 7m0s",
			"run 7m0s claimed", "planned 9m0s ", "planned 10m0s "},
	})
	f.wantTimeline("a part", f.timeline(fixture.Minutes(2), fixture.Minutes(3), fixture.Minutes(8)), map[string][]string{
		"quiet": {}, "tick": {"run 2m0s succeeded", "run 3m0s retrying"},
	})
	f.wantTimeline("the future", f.timeline(fixture.Minutes(9), fixture.Minutes(9), fixture.Minutes(8)),
		map[string][]string{"quiet": {}, "tick": {"planned 9m0s "}})
	page, err := f.Timeline(t.Context(), view.TimelineQuery{App: "shop", Job: "tick", From: fixture.T0, To: fixture.Minutes(1),
		Now:  fixture.Minutes(8),
		Page: input.Page{Limit: 1}})
	f.Must(err)
	if len(page.Items) != 1 || page.Next != "" || !page.Now.Equal(fixture.Minutes(8)) {
		t.Fatalf("of one job: got %+v", page)
	}
	m := page.Items[0].Marks[0]
	if m.Run == "" || m.Trigger != "tick" || m.StartedAt == nil || m.EndedAt == nil || m.EndedAt.Sub(*m.StartedAt) != time.Second {
		t.Errorf("got %+v, want a run with its start and its end", m)
	}
	_, err = f.Timeline(t.Context(), view.TimelineQuery{App: "nosuch", From: fixture.T0, To: fixture.Minutes(1), Page: input.Page{Limit: 1}})
	fixture.WantError(t, "a timeline of no app", err, dispatcher.ErrNotFound)
	_, err = f.Timeline(t.Context(), view.TimelineQuery{App: "shop", Job: "nosuch", From: fixture.T0, To: fixture.Minutes(1),
		Page: input.Page{Limit: 1}})
	fixture.WantError(t, "a timeline of no job", err, dispatcher.ErrNotFound)
}

func (f *wing) wantTimeline(what string, got, want map[string][]string) {
	f.Helper()
	if len(got) != len(want) {
		f.Errorf("%s: got jobs %v, want %v", what, got, want)
	}
	for job := range want {
		f.wantStrip(what+" of "+job, got[job], want[job])
	}
}

func testTimelinePages(t *testing.T, f *wing) {
	for _, name := range []string{"a", "b", "c"} {
		f.PutEvery(name, time.Minute)
	}
	query := view.TimelineQuery{App: "shop", From: fixture.T0, To: fixture.Minutes(1), Now: fixture.T0, Page: input.Page{Limit: 2}}
	first, err := f.Timeline(t.Context(), query)
	f.Must(err)
	query.Page.Cursor = first.Next
	second, err := f.Timeline(t.Context(), query)
	f.Must(err)
	if len(first.Items) != 2 || first.Next != "b" || len(second.Items) != 1 || second.Items[0].Job != "c" || second.Next != "" {
		t.Errorf("got %+v and %+v, want two jobs and one", first, second)
	}
}

func testTimelineOfBusyJob(t *testing.T, f *wing) {
	f.InCheck()
	f.PutEvery("tick", time.Second)
	first := f.ClaimNext(fixture.Token1)
	f.Must(f.Record(t.Context(), []dispatcher.Record{fixture.Record(first, fixture.Failure(first.ScheduledAt))}))
	f.FireUntil(fixture.Minutes(8))
	page, err := f.Timeline(t.Context(), view.TimelineQuery{App: "shop", From: fixture.T0, To: fixture.Minutes(16), Now: fixture.Minutes(8),
		Page: input.Page{Limit: 1}})
	f.Must(err)
	row, failed, runs, planned := page.Items[0], 0, 0, 0
	for _, m := range row.Marks {
		switch {
		case m.State == run.TimedOut:
			failed += m.Count
		case m.What == view.MarkRun:
			runs += m.Count
		case m.What == view.MarkPlanned:
			planned++
		}
	}
	if failed != 1 || runs != 400 || planned == 0 || !row.More || len(row.Marks) > view.MostTimelineMarks {
		t.Errorf("got %d failed, %d other runs and %d planned marks, more %v, in %d marks; want the failed one, the latest 400 and plans",
			failed, runs, planned, row.More, len(row.Marks))
	}
}

func testTimelinePlans(t *testing.T, f *wing) {
	f.PutEvery("fires", time.Minute)
	f.PutEvery("paused", time.Minute)
	f.Must(f.PauseJob(t.Context(), "shop", "paused", "", true, fixture.At(fixture.T0)))
	delayed := dispatcher.Trigger{TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "delay(1m)"}, Enabled: true,
		MisfireAfter: dispatcher.DefaultMisfireAfter}}
	f.Put(fixture.Job("delayed", map[string]dispatcher.Trigger{"tick": delayed}), fixture.T0)
	f.wantTimeline("plans", f.timeline(fixture.T0, fixture.Minutes(2), fixture.T0), map[string][]string{
		"fires": {"planned 1m0s ", "planned 2m0s "}, "paused": {}, "delayed": {"planned 1m0s "},
	})
}
