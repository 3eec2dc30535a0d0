package storetest

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// timelineTests are those of what happened to the jobs of an app and what is planned.
func timelineTests() tests {
	return tests{
		"a timeline has runs, misfires and planned fires":  testTimeline,
		"a timeline is paged by job":                       testTimelinePages,
		"a timeline of a busy job keeps what failed":       testTimelineOfBusyJob,
		"a timeline plans only what nothing keeps waiting": testTimelinePlans,
	}
}

// timeline returns the marks of the jobs of the app "shop", in words by job.
func (f *fixture) timeline(from, to, now time.Time) map[string][]string {
	f.Helper()
	page, err := f.Timeline(f.Context(), view.TimelineQuery{App: "shop", From: from, To: to, Now: now, Page: input.Page{Limit: 50}})
	f.must(err)
	found := map[string][]string{}
	for _, row := range page.Items {
		marks := []string{}
		for _, m := range row.Marks {
			text := string(m.What) + " " + m.ScheduledAt.Sub(t0).String() + " " + string(m.State) + string(m.Decision)
			if m.Last != nil {
				text += " to " + m.Last.Sub(t0).String()
			}
			marks = append(marks, text)
		}
		found[row.Job] = marks
	}
	return found
}

func testTimeline(t *testing.T, f *fixture) {
	f.putEvery("tick", time.Minute)
	f.fireUntil(minutes(2))
	failing := f.claimNext(token1)
	f.again(failing, failure(failing.ScheduledAt), failedUntil(failing.ScheduledAt.Add(time.Minute)))
	f.claimNext(token2)
	f.settleAll("tick", minutes(7))
	f.put(job("quiet", map[string]dispatcher.Trigger{"tick": every(time.Minute, t0.Add(24*time.Hour))}), t0)
	f.wantTimeline("an hour", f.timeline(t0, minutes(10), minutes(8)), map[string][]string{
		"quiet": {},
		"tick": {"run 1m0s succeeded", "run 2m0s succeeded", "run 3m0s retrying", "run 4m0s claimed", "misfire 5m0s fire_once to 7m0s",
			"run 7m0s claimed", "planned 9m0s ", "planned 10m0s "},
	})
	f.wantTimeline("a part", f.timeline(minutes(2), minutes(3), minutes(8)), map[string][]string{
		"quiet": {}, "tick": {"run 2m0s succeeded", "run 3m0s retrying"},
	})
	f.wantTimeline("the future", f.timeline(minutes(9), minutes(9), minutes(8)), map[string][]string{"quiet": {}, "tick": {"planned 9m0s "}})
	page, err := f.Timeline(t.Context(), view.TimelineQuery{App: "shop", Job: "tick", From: t0, To: minutes(1), Now: minutes(8),
		Page: input.Page{Limit: 1}})
	f.must(err)
	if len(page.Items) != 1 || page.Next != "" || !page.Now.Equal(minutes(8)) {
		t.Fatalf("of one job: got %+v", page)
	}
	m := page.Items[0].Marks[0]
	if m.Run == "" || m.Trigger != "tick" || m.StartedAt == nil || m.EndedAt == nil || m.EndedAt.Sub(*m.StartedAt) != time.Second {
		t.Errorf("got %+v, want a run with its start and its end", m)
	}
	_, err = f.Timeline(t.Context(), view.TimelineQuery{App: "nosuch", From: t0, To: minutes(1), Page: input.Page{Limit: 1}})
	wantError(t, "a timeline of no app", err, dispatcher.ErrNotFound)
	_, err = f.Timeline(t.Context(), view.TimelineQuery{App: "shop", Job: "nosuch", From: t0, To: minutes(1),
		Page: input.Page{Limit: 1}})
	wantError(t, "a timeline of no job", err, dispatcher.ErrNotFound)
}

func (f *fixture) wantTimeline(what string, got, want map[string][]string) {
	f.Helper()
	if len(got) != len(want) {
		f.Errorf("%s: got jobs %v, want %v", what, got, want)
	}
	for job := range want {
		f.wantStrip(what+" of "+job, got[job], want[job])
	}
}

func testTimelinePages(t *testing.T, f *fixture) {
	for _, name := range []string{"a", "b", "c"} {
		f.putEvery(name, time.Minute)
	}
	query := view.TimelineQuery{App: "shop", From: t0, To: minutes(1), Now: t0, Page: input.Page{Limit: 2}}
	first, err := f.Timeline(t.Context(), query)
	f.must(err)
	query.Page.Cursor = first.Next
	second, err := f.Timeline(t.Context(), query)
	f.must(err)
	if len(first.Items) != 2 || first.Next != "b" || len(second.Items) != 1 || second.Items[0].Job != "c" || second.Next != "" {
		t.Errorf("got %+v and %+v, want two jobs and one", first, second)
	}
}

func testTimelineOfBusyJob(t *testing.T, f *fixture) {
	f.inCheck()
	f.putEvery("tick", time.Second)
	first := f.claimNext(token1)
	f.must(f.Record(t.Context(), []dispatcher.Record{record(first, failure(first.ScheduledAt))}))
	f.fireUntil(minutes(8))
	page, err := f.Timeline(t.Context(), view.TimelineQuery{App: "shop", From: t0, To: minutes(16), Now: minutes(8),
		Page: input.Page{Limit: 1}})
	f.must(err)
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

func testTimelinePlans(t *testing.T, f *fixture) {
	f.putEvery("fires", time.Minute)
	f.putEvery("paused", time.Minute)
	f.must(f.PauseJob(t.Context(), "shop", "paused", "", true, at(t0)))
	delayed := dispatcher.Trigger{TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "delay(1m)"}, Enabled: true,
		MisfireAfter: dispatcher.DefaultMisfireAfter}}
	f.put(job("delayed", map[string]dispatcher.Trigger{"tick": delayed}), t0)
	f.wantTimeline("plans", f.timeline(t0, minutes(2), t0), map[string][]string{
		"fires": {"planned 1m0s ", "planned 2m0s "}, "paused": {}, "delayed": {"planned 1m0s "},
	})
}
