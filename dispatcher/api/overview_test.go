package api_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// summariesPage is a page of GET /v1/jobs.
type summariesPage struct {
	Items []dispatcher.JobSummary
	Next  string
}

// declareTwo declares job sync in apps crm and shop.
func (w *world) declareTwo() {
	w.t.Helper()
	w.declare()
	w.must(http.StatusCreated, "PUT", "/v1/apps/shop", `{}`)
	w.must(http.StatusCreated, "PUT", "/v1/apps/shop/jobs/sync", validJob)
}

func TestJobsOfAllAppsAreListedInPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declareTwo()
	first := into[summariesPage](w.must(http.StatusOK, "GET", "/v1/jobs?limit=1", ""))
	if len(first.Items) != 1 || first.Items[0].App != "crm" || first.Next == "" {
		t.Fatalf("the first page is %+v", first)
	}
	second := into[summariesPage](w.must(http.StatusOK, "GET", "/v1/jobs?limit=1&cursor="+first.Next, ""))
	if len(second.Items) != 1 || second.Items[0].App != "shop" || second.Next != "" {
		t.Errorf("the second page is %+v", second)
	}
	if none := w.must(http.StatusOK, "GET", "/v1/jobs?result=failed", "").Body.String(); none != `{"items":[]}`+"\n" {
		t.Errorf("jobs that failed are %s, want none", none)
	}
	w.do("GET", "/v1/jobs?state=BAD&result=queued&cursor=x&name=&host=a%00b&label=x", "").
		refused(http.StatusBadRequest, "/cursor page_cursor", "/state enum", "/result enum", "/name text_invalid", "/host text_invalid",
			"/label label_format")
	w.do("GET", "/v1/jobs?app=none", "").refused(http.StatusNotFound, " not_found")
	w.do("GET", "/v1/jobs?app=A", "").refused(http.StatusUnprocessableEntity, "/app name_format")
}

func TestOverviewsShowATokenItsApps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declareTwo()
	w.must(http.StatusOK, "POST", oneJob+"/pause", `{"reason":"why"}`)
	w.must(http.StatusOK, "POST", "/v1/apps/shop/jobs/sync/pause", "")
	if err := w.store.Register(t.Context(), dispatcher.Node{ID: 1, State: dispatcher.NodePaused}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	all := into[view.Attention](w.must(http.StatusOK, "GET", "/v1/attention", ""))
	if len(all.Paused.Items) != 2 || len(all.Nodes) != 1 ||
		all.Paused.Items[0].PauseReason != "why" || all.Paused.Items[0].PausedBy != "admin" {
		t.Errorf("a token for all apps sees pauses %+v and nodes %+v, want two and one", all.Paused, all.Nodes)
	}
	bearer := "Authorization: Bearer " + w.newToken("shopkeeper", reads, "shop")
	own := into[view.Attention](w.must(http.StatusOK, "GET", "/v1/attention", "", bearer))
	if len(own.Paused.Items) != 1 || own.Paused.Items[0].App != "shop" || own.Nodes != nil {
		t.Errorf("a token of one app sees pauses %+v and nodes %+v, want its own and none", own.Paused, own.Nodes)
	}
	jobs := into[summariesPage](w.must(http.StatusOK, "GET", "/v1/jobs", "", bearer))
	if len(jobs.Items) != 1 || jobs.Items[0].App != "shop" {
		t.Errorf("a token of one app sees jobs %+v, want its own", jobs.Items)
	}
	for _, path := range []string{"/v1/jobs", "/v1/attention", "/v1/upcoming"} {
		w.do("GET", path+"?app=crm", "", bearer).refused(http.StatusForbidden, " forbidden")
	}
}

func TestUpcomingFiresAreCountedByRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declareTwo()
	idle := into[view.UpcomingFires](w.must(http.StatusOK, "GET", "/v1/upcoming", ""))
	if !idle.Computing || len(idle.Counts) != 0 || idle.ComputedAt != nil {
		t.Errorf("before Run, got %+v, want a count under way", idle)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.api.(*api.API).Run(ctx) })
	defer running.Wait()
	defer cancel()
	total := func(path string) (sum int64) {
		t.Helper()
		for range 100 {
			got := into[view.UpcomingFires](w.must(http.StatusOK, "GET", path, ""))
			if got.Computing {
				continue // each request waits a moment
			}
			for _, n := range got.Counts {
				sum += n
			}
			return sum
		}
		t.Fatalf("%s is never counted", path)
		return 0
	}
	both, one := total("/v1/upcoming"), total("/v1/upcoming?app=crm")
	if one == 0 || both != 2*one {
		t.Errorf("there are %d fires in both apps and %d in one, want twice as many", both, one)
	}
	short := into[view.UpcomingFires](w.must(http.StatusOK, "GET", "/v1/upcoming?hours=2", ""))
	if len(short.Counts) != 24 || short.Step != input.Duration(5*time.Minute) {
		t.Errorf("two hours have %d steps of %s, want 24 of 5m", len(short.Counts), short.Step)
	}
	w.do("GET", "/v1/upcoming?hours=25", "").refused(http.StatusUnprocessableEntity, "/hours count_range")
}
