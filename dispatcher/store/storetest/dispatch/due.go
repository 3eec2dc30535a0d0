package dispatch

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// dueTests test reading due triggers, for a node's share of them.
func dueTests() tests {
	return tests{
		"ranges of ids divide due triggers":                   testDueByRange,
		"a poll can begin at an instant":                      testDueFrom,
		"due triggers are found by jobs, apps and labels":     testDueByJobsAndLabels,
		"the definitions of triggers are read by id":          testTriggersByID,
		"queued runs are adopted by a node with their labels": testAdoptByLabels,
	}
}

// dueIDs returns the ids of the triggers that a query for the first minute after T0 finds, in order.
func (f *wing) dueIDs(query dispatcher.DueQuery) []int64 {
	f.Helper()
	if query.Until.IsZero() {
		query.Until = fixture.Minutes(1)
	}
	if query.Now.IsZero() {
		query.Now = fixture.T0
	}
	query.Limit = 1000
	due, err := f.Due(f.Context(), query)
	f.Must(err)
	ids := []int64{}
	for _, d := range due {
		ids = append(ids, d.ID)
	}
	slices.Sort(ids)
	return ids
}

func testDueByRange(t *testing.T, f *wing) {
	triggers := map[string]dispatcher.Trigger{}
	for k := range 50 {
		triggers[fmt.Sprint("t", k)] = fixture.Every(time.Minute, fixture.Minutes(1))
	}
	f.Put(fixture.Job("j", triggers), fixture.T0)
	all := f.dueIDs(dispatcher.DueQuery{})
	if len(all) != 50 {
		t.Fatalf("%d triggers are due, want 50", len(all))
	}
	for _, late := range []bool{false, true} {
		query := dispatcher.DueQuery{Overdue: late, Until: fixture.Minutes(1)}
		if late {
			query.Now, query.Until = fixture.Minutes(5), fixture.Minutes(5)
		}
		var got []int64
		for _, bounds := range [][2]int64{{0, all[10]}, {all[10], all[30] + 1}, {all[30] + 1, math.MaxInt64}} {
			query.IDFrom, query.IDTo = bounds[0], bounds[1]
			if bounds[1] == math.MaxInt64 {
				query.IDTo = 0
			}
			part := f.dueIDs(query)
			for _, id := range part {
				if id < bounds[0] || id >= bounds[1] {
					t.Errorf("trigger %d is not in %v", id, bounds)
				}
			}
			got = append(got, part...)
		}
		if diff := cmp.Diff(all, got); diff != "" {
			t.Errorf("overdue %t: all ranges together (-want +got):\n%s", late, diff)
		}
	}
}

func testDueFrom(t *testing.T, f *wing) {
	triggers := map[string]dispatcher.Trigger{}
	for k := range 10 {
		triggers[fmt.Sprint("t", k)] = fixture.Every(time.Hour, fixture.Minutes(k/2))
	}
	f.Put(fixture.Job("j", triggers), fixture.T0.Add(-time.Hour))
	for _, tt := range []struct{ from, until, want int }{{0, 4, 10}, {1, 4, 8}, {4, 4, 2}, {1, 2, 4}, {5, 9, 0}} {
		query := dispatcher.DueQuery{From: fixture.Minutes(tt.from), Until: fixture.Minutes(tt.until), Now: fixture.T0, Limit: 3}
		got := 0
		for {
			page, err := f.Due(t.Context(), query)
			f.Must(err)
			if got += len(page); len(page) < query.Limit {
				break
			}
			query.AfterTime, query.AfterID = page[len(page)-1].DueAt, page[len(page)-1].ID
		}
		if got != tt.want {
			t.Errorf("from minute %d to %d, page by page: %d triggers, want %d", tt.from, tt.until, got, tt.want)
		}
	}
}

func testDueByJobsAndLabels(t *testing.T, f *wing) {
	ssd := input.Labels{"disk": "ssd"}
	f.DeclareApp("books")
	f.Must(f.Register(t.Context(), dispatcher.Node{ID: fixture.NodeB, Labels: ssd}, fixture.T0))
	jobs, names := map[string]int64{}, map[int64]string{}
	put := func(app, name string, labels input.Labels) {
		j := fixture.Job(name, map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.Minutes(1))})
		j.App, j.NodeLabels = app, labels
		f.Put(j, fixture.T0)
		jobs[name], names[run.TriggerID(app, name, "tick")] = run.JobID(app, name), name
	}
	put("shop", "plain", nil)
	put("shop", "ssd", ssd)
	put("books", "book", nil)
	put("books", "paused", nil)
	f.Must(f.PauseJob(t.Context(), "books", "paused", "", true, fixture.At(fixture.T0)))
	for _, tt := range []struct {
		what  string
		query dispatcher.DueQuery
		want  []string
	}{
		{"all", dispatcher.DueQuery{}, []string{"book", "plain", "ssd"}},
		{"an app", dispatcher.DueQuery{Apps: []string{"shop"}}, []string{"plain", "ssd"}},
		{"an app that there is not", dispatcher.DueQuery{Apps: []string{"none"}}, []string{}},
		{"no labels", dispatcher.DueQuery{LabelSets: []string{""}}, []string{"book", "plain"}},
		{"labels", dispatcher.DueQuery{LabelSets: []string{"disk=ssd", "disk=hdd"}}, []string{"ssd"}},
		{"more apps than sets", dispatcher.DueQuery{Apps: []string{"none", "books", "shop"}, LabelSets: []string{""}}, []string{"book", "plain"}},
		{"more sets than apps", dispatcher.DueQuery{Apps: []string{"shop"}, LabelSets: []string{"disk=ssd", ""}}, []string{"plain", "ssd"}},
		{"a job", dispatcher.DueQuery{JobIDs: []int64{jobs["book"]}}, []string{"book"}},
		{"a paused job", dispatcher.DueQuery{JobIDs: []int64{jobs["paused"]}}, []string{}},
		{"a job twice", dispatcher.DueQuery{JobIDs: []int64{jobs["book"], jobs["ssd"], jobs["book"]}}, []string{"book", "ssd"}},
		{"jobs of an app", dispatcher.DueQuery{
			JobIDs: []int64{jobs["book"], jobs["ssd"]}, Apps: []string{"shop", "none", "off"},
		}, []string{"ssd"}},
		{"jobs without labels", dispatcher.DueQuery{JobIDs: []int64{jobs["book"], jobs["ssd"]}, LabelSets: []string{""}}, []string{"book"}},
		{"overdue jobs", dispatcher.DueQuery{
			JobIDs: []int64{jobs["book"]}, Overdue: true, Now: fixture.Minutes(9), Until: fixture.Minutes(9),
		}, []string{"book"}},
		{"jobs that are overdue, but not asked for", dispatcher.DueQuery{
			JobIDs: []int64{jobs["book"]}, Now: fixture.Minutes(9), Until: fixture.Minutes(9),
		}, []string{}},
	} {
		got := []string{}
		for _, id := range f.dueIDs(tt.query) {
			got = append(got, names[id])
		}
		slices.Sort(got)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.what, diff)
		}
	}
}

func testTriggersByID(t *testing.T, f *wing) {
	tick := fixture.Every(time.Minute, fixture.Minutes(1))
	tick.MisfirePolicy, tick.CatchUpWindow = dispatcher.Skip, input.Duration(time.Hour)
	f.Put(fixture.Job("j", map[string]dispatcher.Trigger{"tick": tick, "gone": tick}), fixture.T0)
	stored := f.Put(fixture.Job("j", map[string]dispatcher.Trigger{"tick": tick}), fixture.T0)
	id := run.TriggerID("shop", "j", "tick")
	got, err := f.TriggersByID(t.Context(), []int64{id, run.TriggerID("shop", "j", "gone"), 12345, id})
	f.Must(err)
	one := stored.Triggers["tick"]
	want := []dispatcher.TriggerVersion{{
		ID: id, JobID: run.JobID("shop", "j"), Revision: stored.Revision, Name: "tick", Spec: one.Spec("", one.AnchorAt),
		MisfirePolicy: dispatcher.Skip, CatchUpWindow: time.Hour,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("triggers by id (-want +got):\n%s", diff)
	}
	if none, err := f.TriggersByID(t.Context(), nil); err != nil || len(none) != 0 {
		t.Errorf("of no ids: %v, %v, want none", none, err)
	}
}

// A run that waits for a node with labels is found by a node that has these and others.
func testAdoptByLabels(t *testing.T, f *wing) {
	ctx := t.Context()
	ssd := input.Labels{"disk": "ssd"}
	j := fixture.Job("j", nil)
	j.NodeLabels = ssd
	f.Put(j, fixture.T0)
	f.Must(f.RequestRun(ctx, "shop", "j", nil, fixture.At(fixture.T0)))
	adopt := func(node run.NodeID, labels input.Labels) int {
		t.Helper()
		f.Must(f.Register(ctx, dispatcher.Node{ID: node, Labels: labels}, fixture.T0))
		held, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: node, Labels: labels, Token: run.Token(node), Limit: 10, Now: fixture.T0})
		f.Must(err)
		return len(held)
	}
	if n := adopt(fixture.NodeB, nil); n != 0 {
		t.Errorf("a node without labels adopted %d runs, want none", n)
	}
	if n := adopt(fixture.NodeC, input.Labels{"disk": "hdd"}); n != 0 {
		t.Errorf("a node with another label adopted %d runs, want none", n)
	}
	if n := adopt(fixture.NodeD, input.Labels{"disk": "ssd", "zone": "eu"}); n != 1 {
		t.Errorf("a node with the label adopted %d runs, want 1", n)
	}
}
