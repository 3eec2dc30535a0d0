package api_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/test/need"
)

// pausedOf matches the one metric that each job has, with the names of app and job.
var pausedOf = regexp.MustCompile(`(?m)^carillon_job_paused\{app="([^"]+)",job="([^"]+)"\} 0$`)

// showsJobs checks how many jobs of each app a response shows, and how many it leaves out.
func (r reply) showsJobs(want map[string]int, unlisted int) {
	r.t.Helper()
	got, text := map[string]int{}, r.Body.String()
	for _, job := range pausedOf.FindAllStringSubmatch(text, -1) {
		got[job[1]]++
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || !strings.Contains(text, fmt.Sprintf("\ncarillon_job_unlisted %d\n", unlisted)) {
		r.t.Errorf("%s: jobs by app = %v, want %v and carillon_job_unlisted %d: …%s", r.request, got, want, unlisted,
			text[max(0, len(text)-200):])
	}
}

func TestMetricsOfJobsShowAThousandAndCountTheOthers(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declareTwo()
	w.must(http.StatusCreated, "PUT", "/v1/apps/big", `{}`)
	for i := range dispatcher.MaxMeasuredJobs - 1 {
		w.must(http.StatusCreated, "PUT", fmt.Sprintf("/v1/apps/big/jobs/job-%04d", i), validJob)
	}
	// 1,001 jobs: those of big and crm come before that of shop.
	w.must(http.StatusOK, "GET", "/metrics/jobs", "").showsJobs(map[string]int{"big": 999, "crm": 1}, 1)
	w.must(http.StatusOK, "GET", "/metrics/jobs?app=shop", "").showsJobs(map[string]int{"shop": 1}, 0)
	w.must(http.StatusOK, "GET", "/metrics/jobs?app=big", "").showsJobs(map[string]int{"big": 999}, 0)
	// One app with 1,001 jobs.
	for i := range 2 {
		w.must(http.StatusCreated, "PUT", fmt.Sprintf("/v1/apps/big/jobs/more-%d", i), validJob)
	}
	w.must(http.StatusOK, "GET", "/metrics/jobs?app=big", "").showsJobs(map[string]int{"big": 1000}, 1)
	w.must(http.StatusOK, "GET", "/metrics/jobs", "").showsJobs(map[string]int{"big": 1000}, 3)
	w.do("GET", "/metrics/jobs?app=none", "").refused(http.StatusNotFound, " not_found")
}

func TestMetricsOfJobsShowATokenItsApps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declareTwo()
	w.must(http.StatusCreated, "PUT", "/v1/apps/tools", `{}`)
	w.must(http.StatusCreated, "PUT", "/v1/apps/tools/jobs/sync", validJob)
	scrape := []access.Scope{access.ScopeMetrics}
	bound := "Authorization: Bearer " + w.newToken("bound", scrape, "crm")
	w.must(http.StatusOK, "GET", "/metrics/jobs", "", bound).showsJobs(map[string]int{"crm": 1}, 0)
	w.must(http.StatusOK, "GET", "/metrics/jobs?app=crm", "", bound).showsJobs(map[string]int{"crm": 1}, 0)
	for _, app := range []string{"shop", "none"} { // it does not learn which one exists
		w.do("GET", "/metrics/jobs?app="+app, "", bound).refused(http.StatusForbidden, " forbidden")
	}
	two := "Authorization: Bearer " + w.newToken("two", scrape, "shop", "crm")
	w.must(http.StatusOK, "GET", "/metrics/jobs", "", two).showsJobs(map[string]int{"crm": 1, "shop": 1}, 0)
	w.must(http.StatusOK, "GET", "/metrics/jobs", "", "Authorization: Bearer "+w.newToken("all", scrape)).
		showsJobs(map[string]int{"crm": 1, "shop": 1, "tools": 1}, 0)
}
