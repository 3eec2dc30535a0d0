package reads

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// testRunSearch searches the runs of two apps: four of a job that fails, one of a job that succeeds, one that is live.
func testRunSearch(t *testing.T, f *wing) {
	ctx := t.Context()
	f.DeclareApp("bank")
	failing := fixture.Job("failing", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))})
	failing.Labels = input.Labels{"team": "payments"}
	f.Put(failing, fixture.T0)
	other := fixture.Job("other", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))})
	other.App = "bank"
	f.Put(other, fixture.T0)
	f.Put(fixture.Job("live", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Hour, fixture.T0.Add(time.Minute))}), fixture.T0)
	var one run.Run
	for range 4 { // at minutes 1 to 4
		var advances []dispatcher.Advance
		for _, d := range f.DueAll(fixture.T0.Add(time.Hour)) {
			advances = append(advances, f.Advance(d))
		}
		for _, held := range f.ClaimAll(advances...) {
			outcome := fixture.Outcome(fixture.T0)
			switch held.JobID {
			case failing.Key():
				outcome.State, outcome.Class, outcome.Error = run.Failed, run.ClassHTTP5xx, "the ledger is 100% LOCKED"
			case other.Key():
			default:
				continue
			}
			f.Must(f.Record(ctx, []dispatcher.Record{fixture.Record(held, outcome)}))
			one = f.RunOf(held.Key)
		}
	}
	search := func(q dispatcher.RunSearch) string {
		t.Helper()
		q.To, q.Page.Limit = fixture.T0.Add(time.Hour), 2
		var got []string
		for range 20 {
			page, next, err := f.SearchRuns(ctx, q)
			f.Must(err)
			for _, r := range page {
				got = append(got, r.Job+" "+r.ScheduledAt.Format("4"))
			}
			if q.Page.Cursor = next; next == "" {
				return strings.Join(got, ", ")
			}
		}
		t.Fatalf("the pages of %+v have no end", q)
		return ""
	}
	const failed = "failing 4, failing 3, failing 2, failing 1"
	for name, tt := range map[string]struct {
		query dispatcher.RunSearch
		want  string
	}{
		"of an app":               {dispatcher.RunSearch{Apps: []string{"bank"}}, "other 4, other 3, other 2, other 1"},
		"of an app by a class":    {dispatcher.RunSearch{Apps: []string{"shop"}, Class: run.ClassHTTP5xx}, failed},
		"of apps by a state":      {dispatcher.RunSearch{Apps: []string{"shop", "bank"}, State: run.Failed}, failed},
		"by a live state":         {dispatcher.RunSearch{State: run.Claimed}, "live 1"},
		"by a class":              {dispatcher.RunSearch{Class: run.ClassHTTP5xx}, failed},
		"by a class without runs": {dispatcher.RunSearch{Class: run.ClassTLS}, ""},
		"by an error":             {dispatcher.RunSearch{Error: "100% locked"}, failed},
		"by a pattern":            {dispatcher.RunSearch{Error: "100_locked"}, ""},
		"by a label":              {dispatcher.RunSearch{Page: input.Page{Labels: input.Labels{"team": "payments"}}}, failed},
		"by a job":                {dispatcher.RunSearch{Job: "other"}, "other 4, other 3, other 2, other 1"},
		"by a job of an app": {dispatcher.RunSearch{Apps: []string{"bank"}, Job: "other", State: run.Succeeded},
			"other 4, other 3, other 2, other 1"},
		"by a trigger":               {dispatcher.RunSearch{Job: "live", Trigger: "tick"}, "live 1"},
		"by another trigger":         {dispatcher.RunSearch{Job: "live", Trigger: "tock"}, ""},
		"by a kind":                  {dispatcher.RunSearch{Kind: run.KindManual}, ""},
		"by a node":                  {dispatcher.RunSearch{Node: *one.Node, Job: "live"}, "live 1"},
		"by another node":            {dispatcher.RunSearch{Node: *one.Node + 1}, ""},
		"by a webhook-id":            {dispatcher.RunSearch{ID: one.EventID}, one.Job + " 4"},
		"by the webhook-id of shard": {dispatcher.RunSearch{ID: one.EventID + "-3"}, one.Job + " 4"},
		"by a trace":                 {dispatcher.RunSearch{ID: one.TraceID}, one.Job + " 4"},
		"by a trace in another app":  {dispatcher.RunSearch{ID: one.TraceID, Apps: []string{"none"}}, ""},
		"by a class in a time": {dispatcher.RunSearch{Class: run.ClassHTTP5xx, From: fixture.T0.Add(3 * time.Minute)},
			"failing 4, failing 3"},
	} {
		if got := search(tt.query); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}
