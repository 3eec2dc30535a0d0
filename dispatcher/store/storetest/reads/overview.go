package reads

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// overviewTests test overviews of many jobs for users.
func overviewTests() tests {
	return tests{
		"an overview lists jobs of all apps":                       testSummaries,
		"an overview selects jobs":                                 testSummariesSelected,
		"an overview has pages that meet":                          testSummaryPages,
		"an overview is in the order of next fires":                testSummariesByNextFire,
		"an overview ends a page after bounded work":               testSummariesBounded,
		"an overview shows the latest run":                         testSummaryRuns,
		"an overview shows the health of jobs, up to a bound":      testHealthOfJobs,
		"an overview shows causes for attention":                   testAttention,
		"fires that no node serves need attention":                 testAttentionUnserved,
		"an overview of an app shows only that app":                testAttentionOfApp,
		"an overview shows budgets that burn":                      testAttentionObjectives,
		"an overview distinguishes nodes that left from dead ones": testAttentionNodes,
		"an overview lists jobs that a slot blocks":                testAttentionBlocked,
		"an overview tells how to end a callback that blocks":      testAttentionBlockedByCallback,
		"an overview lists triggers that are to fire":              testUpcomingTriggers,
		"an overview names groups without an endpoint":             testSilentGroups,
		"an overview names secrets that fail":                      testCredentialFailures,
		"an overview names certificates that end":                  testEndingCertificates,
		"a census counts pauses that were forgotten":               testForgottenPauses,
		"an overview names expired history":                        testLateRetention,
		"an overview bounds each of its lists":                     testAttentionBounds,
	}
}

// summaries lists jobs as APP/NAME, page after page.
func (f *wing) summaries(query dispatcher.JobQuery) string {
	f.Helper()
	var all []string
	for range 100 {
		found, next, err := f.JobSummaries(f.Context(), query)
		f.Must(err)
		for _, s := range found {
			all = append(all, s.App+"/"+s.Name)
		}
		if next == "" {
			return strings.Join(all, " ")
		}
		query.Page.Cursor = next
	}
	f.Fatal("the pages have no end")
	return ""
}

// summaryOf returns the summary of a job.
func (f *wing) summaryOf(name string) dispatcher.JobSummary {
	f.Helper()
	found, _, err := f.JobSummaries(f.Context(), dispatcher.JobQuery{Apps: []string{"shop"}, Name: name, Page: input.Page{Limit: 10}})
	f.Must(err)
	if len(found) != 1 {
		f.Fatalf("got %d summaries of %s, want one", len(found), name)
	}
	return found[0]
}

func testSummaries(t *testing.T, f *wing) {
	f.DeclareApp("billing")
	f.PutIn("shop", "a", func(j *dispatcher.Job) {
		j.Description, j.Labels = "first", input.Labels{"team": "x"}
		j.Triggers["late"] = fixture.Every(time.Hour, fixture.T0.Add(2*time.Hour))
		j.Target.Webhook.URL = "https://API.example.com:8443/x"
	})
	f.PutIn("billing", "z", func(j *dispatcher.Job) { j.Target.Webhook.URL = "http://[::1]:80/x" })
	paused, err := f.PauseJob(f.Context(), "billing", "z", "", true, input.Change{Actor: "ann", Reason: "why", Now: fixture.T0})
	f.Must(err)
	f.PutIn("shop", "gone", nil)
	f.Must(f.DeleteJob(f.Context(), "shop", "gone", fixture.At(fixture.T0)))

	found, next, err := f.JobSummaries(f.Context(), dispatcher.JobQuery{Page: input.Page{Limit: 10}})
	f.Must(err)
	want := []dispatcher.JobSummary{{
		App: "billing", Name: "z", State: dispatcher.JobPaused, Enabled: true, Paused: true, Pause: paused.Pause, Revision: 2,
		Target: target.TargetSummary{Kind: target.KindWebhook, Name: "[::1]"}, Triggers: 1,
	}, {
		App: "shop", Name: "a", Description: "first", Labels: input.Labels{"team": "x"}, State: dispatcher.JobExecuting, Enabled: true,
		Revision: 1, Target: target.TargetSummary{Kind: target.KindWebhook, Name: "api.example.com:8443"}, Triggers: 2,
		NextFireTime: new(fixture.T0.Add(time.Hour)),
	}}
	if diff := cmp.Diff(want, found); diff != "" || next != "" {
		t.Errorf("summaries, and next %q (-want +got):\n%s", next, diff)
	}
}

func testSummariesSelected(t *testing.T, f *wing) {
	f.DeclareApp("billing")
	f.PutIn("shop", "report_eu", func(j *dispatcher.Job) { j.Labels = input.Labels{"team": "x"} })
	f.PutIn("shop", "report-us", func(j *dispatcher.Job) { j.Enabled = false })
	f.PutIn("billing", "report_eu", nil)
	f.PutIn("billing", "other", func(j *dispatcher.Job) { j.Target.Webhook.URL = "https://other.example.com/" })
	for want, query := range map[string]dispatcher.JobQuery{
		"billing/other billing/report_eu shop/report-us shop/report_eu":  {},
		"shop/report-us shop/report_eu":                                  {Apps: []string{"shop"}},
		"billing/other billing/report_eu shop/report-us shop/report_eu ": {Apps: []string{"shop", "billing", "shop"}},
		"billing/report_eu shop/report_eu":                               {Name: "port_e"},
		"billing/other":                                                  {Host: "other.example.com"},
		"shop/report_eu":                                                 {Page: input.Page{Labels: input.Labels{"team": "x"}}},
		"shop/report-us":                                                 {State: dispatcher.JobInit},
		"":                                                               {Result: run.Failed},
	} {
		for limit := 1; limit < 4; limit++ {
			query.Page.Limit = limit
			f.Expect(fmt.Sprintf("%+v", query), f.summaries(query), strings.TrimSpace(want))
		}
	}
}

func testSummaryPages(t *testing.T, f *wing) {
	f.DeclareApp("b")
	var want []string
	for _, app := range []string{"b", "shop"} {
		for n := range 3 {
			name := fmt.Sprintf("j%d", n)
			f.PutIn(app, name, nil)
			want = append(want, app+"/"+name)
		}
	}
	for limit := 1; limit < 8; limit++ {
		query := dispatcher.JobQuery{Page: input.Page{Limit: limit}}
		f.Expect(fmt.Sprintf("pages of %d", limit), f.summaries(query), strings.Join(want, " "))
	}
	_, _, err := f.JobSummaries(f.Context(), dispatcher.JobQuery{Page: input.Page{Limit: 1, Cursor: "nothing"}})
	if err == nil {
		t.Error("a cursor that is none was accepted")
	}
}

func testSummariesByNextFire(t *testing.T, f *wing) {
	f.DeclareApp("billing")
	in := func(minutes int) func(*dispatcher.Job) {
		return func(j *dispatcher.Job) {
			j.Triggers["tick"] = fixture.Every(24*time.Hour, fixture.T0.Add(time.Duration(minutes)*time.Minute))
		}
	}
	f.PutIn("shop", "third", in(30))
	f.PutIn("billing", "first", func(j *dispatcher.Job) {
		in(10)(j)
		j.Triggers["again"] = fixture.Every(24*time.Hour, fixture.T0.Add(40*time.Minute))
		j.Labels = input.Labels{"team": "x"}
	})
	f.PutIn("shop", "second", in(20))
	f.PutIn("shop", "paused", in(5))
	_, err := f.PauseJob(f.Context(), "shop", "paused", "", true, fixture.At(fixture.T0))
	f.Must(err)
	f.PutIn("shop", "deleted", in(5))
	f.Must(f.DeleteJob(f.Context(), "shop", "deleted", fixture.At(fixture.T0)))
	for want, query := range map[string]dispatcher.JobQuery{
		"billing/first shop/second shop/third": {},
		"shop/second shop/third":               {Apps: []string{"shop"}},
		"shop/third":                           {Name: "third", Host: "example.com"},
		"billing/first":                        {Page: input.Page{Labels: input.Labels{"team": "x"}}},
		"":                                     {Host: "other.example.com"},
	} {
		for limit := 1; limit < 5; limit++ {
			query.ByNextFire, query.Page.Limit = true, limit
			f.Expect(fmt.Sprintf("%+v", query), f.summaries(query), want)
		}
	}
	of := dispatcher.JobQuery{ByNextFire: true, Page: input.Page{Limit: 1, Cursor: "shop/third"}}
	if _, _, err := f.JobSummaries(f.Context(), of); err == nil {
		t.Error("a cursor of the other order was accepted")
	}
}

// A result is looked up job by job, so a page examines 1,000 jobs.
func testSummariesBounded(t *testing.T, f *wing) {
	f.InCheck()
	const jobs = 1_001
	for n := range jobs {
		j := fixture.Job(fmt.Sprintf("j%04d", n), nil)
		_, _, err := f.PutJob(f.Context(), j, fixture.At(fixture.T0))
		f.Must(err)
	}
	f.PutEvery("z", time.Minute)
	held := f.FireOf("z")
	f.Must(f.Record(f.Context(), []dispatcher.Record{fixture.Record(held, fixture.Ended(run.Failed, held.ScheduledAt))}))
	query := dispatcher.JobQuery{Result: run.Failed, Page: input.Page{Limit: 10}}
	found, next, err := f.JobSummaries(f.Context(), query)
	f.Must(err)
	if len(found) != 0 || next != "shop/j0999" {
		t.Errorf("the first page has %d jobs and next %q, want none and shop/j0999", len(found), next)
	}
	f.Expect("all pages", f.summaries(query), "shop/z")
}

func testSummaryRuns(t *testing.T, f *wing) {
	f.DeadLettersOf("tick", run.Failed)
	failed := f.summaryOf("tick")
	want := &dispatcher.RunSummary{ID: failed.LatestRun.ID, State: run.Failed, Class: failed.LatestRun.Class,
		ScheduledAt: fixture.T0.Add(time.Minute), EndedAt: failed.LatestRun.EndedAt, Lateness: new(input.Duration(0))}
	if diff := cmp.Diff(want, failed.LatestRun); diff != "" || failed.Result != run.Failed || failed.LatestRun.EndedAt == nil {
		t.Errorf("result %s, latest run (-want +got):\n%s", failed.Result, diff)
	}
	f.Expect("failed", f.summaries(dispatcher.JobQuery{Result: run.Failed, Page: input.Page{Limit: 1}}), "shop/tick")

	held := f.FireOf("tick")
	claimed := f.summaryOf("tick")
	if claimed.LatestRun.ID != held.String() || claimed.LatestRun.State != run.Claimed || claimed.Result != run.Failed {
		t.Errorf("with a claimed run: %+v after %s", claimed.LatestRun, claimed.Result)
	}
	f.began(held, 2*time.Second)
	done := f.summaryOf("tick")
	if done.LatestRun.Lateness == nil || done.LatestRun.Lateness.Std() != 2*time.Second || done.Result != run.Succeeded {
		t.Errorf("after a late run: %+v, %s, want 2s late and succeeded", done.LatestRun, done.Result)
	}
	_, err := f.RequestRun(f.Context(), "shop", "tick", nil, fixture.At(fixture.T0.Add(time.Hour)))
	f.Must(err)
	if live := f.summaryOf("tick"); live.LatestRun.State != run.Queued || live.LatestRun.EndedAt != nil ||
		live.Result != run.Succeeded {
		t.Errorf("with a queued run: %+v after %s", live.LatestRun, live.Result)
	}
}

func testHealthOfJobs(t *testing.T, f *wing) {
	f.DeclareApp("billing")
	f.PutIn("billing", "other", nil)
	f.PutEvery("tick", time.Minute)
	f.PutIn("shop", "untouched", nil)
	good := f.FireOf("tick")
	f.Must(f.Record(f.Context(), []dispatcher.Record{fixture.Record(good, fixture.Ended(run.Succeeded, good.ScheduledAt))}))
	bad := f.FireOf("tick")
	f.Must(f.Record(f.Context(), []dispatcher.Record{fixture.Record(bad, fixture.Ended(run.Failed, bad.ScheduledAt))}))

	for _, now := range []time.Time{fixture.T0.Add(time.Hour), fixture.T0.Add(10 * 24 * time.Hour)} {
		jobs, more, err := f.HealthOfJobs(f.Context(), []string{"shop"}, 1, now)
		f.Must(err)
		if len(jobs) != 1 || jobs[0].Name != "tick" || more != 1 {
			t.Fatalf("at %s: got %+v and %d more, want tick and one more", now, jobs, more)
		}
		succeeded := jobs[0].LastSuccess
		if jobs[0].Result != run.Failed || succeeded == nil || succeeded.Before(good.ScheduledAt) ||
			!succeeded.Before(bad.ScheduledAt) {
			t.Errorf("at %s: tick has result %s and succeeded last at %v, want failed and the first run", now, jobs[0].Result, succeeded)
		}
	}
	both, more, err := f.HealthOfJobs(f.Context(), []string{"shop", "billing", "none", "shop"}, 1, fixture.T0.Add(time.Hour))
	f.Must(err)
	if len(both) != 1 || both[0].App != "billing" || more != 2 {
		t.Errorf("of two apps: %+v and %d more, want that of billing and two more", both, more)
	}
	all, more, err := f.HealthOfJobs(f.Context(), nil, 10, fixture.T0.Add(time.Hour))
	f.Must(err)
	if len(all) != 3 || all[0].App != "billing" || all[2].LastSuccess != nil || more != 0 {
		t.Errorf("of all apps: %+v and %d more, want other, tick and untouched without a success, and no more", all, more)
	}
}
