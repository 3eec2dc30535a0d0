package api_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

type page[T any] struct {
	Items []T
	Next  string
}

func appNames(apps []access.App) []string {
	var names []string
	for _, app := range apps {
		names = append(names, app.Name)
	}
	return names
}

// walk reads a list page by page and returns the sizes of the pages and all items.
func walk[T any](w *world, path string, limit int) (sizes []int, all []T) {
	w.t.Helper()
	for cursor := ""; ; {
		query := url.Values{"limit": {fmt.Sprint(limit)}}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		got := into[page[T]](w.must(http.StatusOK, "GET", path+"?"+query.Encode(), ""))
		sizes = append(sizes, len(got.Items))
		all = append(all, got.Items...)
		if cursor = got.Next; cursor == "" || len(sizes) > 20 {
			return sizes, all
		}
	}
}

func TestListsPageToTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	var names []string
	for i := range 6 {
		name := fmt.Sprintf("app-%d", i)
		names = append(names, name)
		w.must(http.StatusCreated, "PUT", "/v1/apps/"+name, `{}`)
		w.must(http.StatusCreated, "PUT", "/v1/apps/crm/jobs/"+name, validJob)
		w.must(http.StatusAccepted, "POST", "/v1/apps/crm/jobs/"+name+"/run", "")
	}
	w.must(http.StatusNoContent, "DELETE", "/v1/apps/app-5", "")
	names = append(names[:5], "crm")
	for limit, want := range map[int][]int{2: {2, 2, 2}, 4: {4, 2}, 6: {6}, 1000: {6}} {
		sizes, apps := walk[access.App](w, "/v1/apps", limit)
		if diff := cmp.Diff(want, sizes); diff != "" || !cmp.Equal(names, appNames(apps)) {
			t.Errorf("apps by %d: pages %v of %v, want %v of %v", limit, sizes, appNames(apps), want, names)
		}
		sizes, runs := walk[run.Run](w, "/v1/apps/crm/runs", limit)
		seen := map[string]bool{}
		for i, run := range runs {
			seen[run.ID] = true
			if i > 0 && run.ScheduledAt.After(runs[i-1].ScheduledAt) {
				t.Errorf("runs by %d: %v comes after %v", limit, run.ScheduledAt, runs[i-1].ScheduledAt)
			}
		}
		if diff := cmp.Diff(want, sizes); diff != "" || len(seen) != 6 {
			t.Errorf("runs by %d: pages %v of %d distinct runs, want %v of 6", limit, sizes, len(seen), want)
		}
	}
	if sizes, jobs := walk[dispatcher.Job](w, "/v1/apps/crm/jobs", 3); !cmp.Equal(sizes, []int{3, 3, 1}) || jobs[6].Name != "sync" {
		t.Errorf("jobs by 3: pages %v", sizes)
	}
}

func TestEmptyListIsAnArray(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.must(http.StatusCreated, "PUT", oneApp, `{}`)
	for _, path := range []string{oneApp + "/jobs", oneApp + "/runs", oneApp + "/misfires", "/v1/nodes"} {
		if got := w.must(http.StatusOK, "GET", path, "").Body.String(); got != "{\"items\":[]}\n" {
			t.Errorf("GET %s = %s", path, got)
		}
	}
}

func TestQueriesAreChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	const runs = "/v1/apps/crm/runs"
	for target, want := range map[string]struct {
		status   int
		problems []string
	}{
		"/v1/apps?limit=0":                {400, []string{"/limit page_limit"}},
		"/v1/apps?limit=-1":               {400, []string{"/limit page_limit"}},
		"/v1/apps?limit=1000000":          {400, []string{"/limit page_limit"}},
		"/v1/apps?limit=1001":             {400, []string{"/limit page_limit"}},
		"/v1/apps?limit=":                 {400, []string{"/limit page_limit"}},
		"/v1/apps?limit=ten":              {400, []string{"/limit page_limit"}},
		"/v1/apps?limit=%2B5":             {400, []string{"/limit page_limit"}},
		"/v1/apps?limit=05":               {400, []string{"/limit page_limit"}},
		"/v1/apps?limit=1.0":              {400, []string{"/limit page_limit"}},
		"/v1/apps?cursor=":                {400, []string{"/cursor page_cursor"}},
		"/v1/apps?cursor=%00":             {400, []string{"/cursor page_cursor"}},
		"/v1/apps/crm/jobs?cursor=A%20B":  {400, []string{"/cursor page_cursor"}},
		runs + "?cursor=garbage":          {400, []string{"/cursor page_cursor"}},
		runs + "?cursor=1%20OR%201=1":     {400, []string{"/cursor page_cursor"}},
		"/v1/apps/crm/misfires?cursor=x":  {400, []string{"/cursor page_cursor"}},
		"/v1/apps?limit=0&cursor=%00":     {400, []string{"/cursor page_cursor", "/limit page_limit"}},
		"/v1/apps?limit=1&limit=2":        {400, []string{"/limit query_duplicate"}},
		"/v1/apps?limit=1&limit=1&limt=1": {400, []string{"/limit query_duplicate", "/limt query_unknown"}},
		"/v1/apps?=1":                     {400, []string{"/ query_unknown"}},
		runs + "?job=nosuch;x=1":          {400, []string{" query_syntax"}},
		runs + "?limit=1;state=failed":    {400, []string{" query_syntax"}},
		runs + "?state=failed&x=%zz":      {400, []string{" query_syntax"}},
		"/livez?;":                        {400, []string{" query_syntax"}},
		"/v1/apps?Limit=1":                {400, []string{"/Limit query_unknown"}},
		oneJob + "?force=1":               {400, []string{"/force query_unknown"}},
		"/v1/apps/crm/misfires?state=x":   {400, []string{"/state query_unknown"}},
		runs + "?state=done":              {422, []string{"/state enum"}},
		runs + "?state=":                  {422, []string{"/state enum"}},
		runs + "?job=a%00b":               {422, []string{"/job name_format"}},
		runs + "?trigger=nightly":         {422, []string{"/job required"}},
		runs + "?from=2026-01-01":         {422, []string{"/from time_invalid"}},
		runs + "?to=2026-01-01T00:00:00":  {422, []string{"/to time_zone_missing"}},
		runs + "?job=nosuch":              {404, []string{" not_found"}},
		runs + "?job=sync&trigger=nosuch": {404, []string{" not_found"}},
		"/v1/apps/nosuch/runs":            {404, []string{" not_found"}},
		"/v1/apps/nosuch/misfires":        {404, []string{" not_found"}},
		"/v1/apps/nosuch/jobs":            {404, []string{" not_found"}},
		runs + "?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z": {422, []string{"/from window_order"}},
	} {
		w.do("GET", target, "").refused(want.status, want.problems...)
	}
	w.must(http.StatusOK, "GET", runs+"?job=sync&trigger=nightly&state=failed&from=2026-01-01T00:00:00Z&to=2027-01-01T00:00:00%2B02:00", "")
}

func TestRunsAreFiltered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.must(http.StatusCreated, "PUT", "/v1/apps/crm/jobs/other", validJob)
	r := into[run.Run](w.must(http.StatusAccepted, "POST", oneJob+"/run", ""))
	w.must(http.StatusAccepted, "POST", "/v1/apps/crm/jobs/other/run", "")
	at := url.QueryEscape(r.ScheduledAt.Format("2006-01-02T15:04:05.000Z07:00"))
	for query, want := range map[string]int{
		"?job=sync": 1, "?job=sync&state=queued": 1, "?job=sync&state=failed": 0, "?state=queued": 2,
		"?job=sync&from=" + at + "&to=" + at: 1, "?job=sync&to=2020-01-01T00:00:00Z": 0, "?from=2099-01-01T00:00:00Z": 0,
	} {
		if got := into[page[run.Run]](w.must(http.StatusOK, "GET", "/v1/apps/crm/runs"+query, "")); len(got.Items) != want {
			t.Errorf("GET runs%s gives %d runs, want %d", query, len(got.Items), want)
		}
	}
}

func TestJobsAreFoundByTheirLabels(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.must(http.StatusOK, "PUT", oneJob, strings.Replace(validJob, "{", `{"labels":{"team":"pay","tier":"1"},`, 1))
	w.must(http.StatusCreated, "PUT", oneApp+"/jobs/other", strings.Replace(validJob, "{", `{"labels":{"team":"pay"},`, 1))
	for query, want := range map[string]string{
		"": "other sync", "?label=team=pay": "other sync", "?label=team=pay&label=tier=1": "sync", "?label=tier%3D1": "sync", "?label=team=x": "",
	} {
		var names []string
		for _, job := range into[struct{ Items []dispatcher.Job }](w.must(http.StatusOK, "GET", oneApp+"/jobs"+query, "")).Items {
			names = append(names, job.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("jobs%s are %q, want %q", query, got, want)
		}
	}
	w.do("GET", oneApp+"/jobs?label=team", "").refused(422, "/label label_format")
	w.do("GET", oneApp+"/jobs?label=a=1&label=a=2", "").refused(422, "/label label_format")
	w.do("GET", oneApp+"/jobs?label=%22=1", "").refused(422, "/label/\" label_format")
	w.do("PUT", oneJob, strings.Replace(validJob, "{", `{"labels":{"team":"a b"},`, 1)).refused(422, "/labels/team label_format")
}
