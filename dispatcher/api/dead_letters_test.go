package api_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

const deadLetters = oneApp + "/dead-letters"

// failRuns makes a number of failed runs of a job.
func (w *world) failRuns(job string, n int, class run.Class) {
	w.t.Helper()
	for range n {
		w.must(http.StatusAccepted, "POST", oneApp+"/jobs/"+job+"/run", "")
		w.recordOutcome(w.adoptRun(), run.Outcome{State: run.Failed, HTTPStatus: 500, Class: class}, nil)
	}
}

func TestDeadLettersAreListedCountedAndReplayed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.register(t.Context(), 7)
	w.must(http.StatusCreated, "PUT", oneApp+"/jobs/other", validJob)
	w.failRuns("sync", 3, run.ClassHTTP5xx)
	w.failRuns("other", 1, run.ClassTLS)
	listed := func(query string) int {
		t.Helper()
		return len(into[struct{ Items []run.Run }](w.must(http.StatusOK, "GET", deadLetters+query, "")).Items)
	}
	for query, want := range map[string]int{
		"": 4, "?job=sync": 3, "?class=tls": 1, "?state=failed": 4, "?state=lost": 0, "?job=other&class=http_5xx": 0,
		"?from=2200-01-01T00:00:00Z": 0, "?limit=2": 2,
	} {
		if got := listed(query); got != want {
			t.Errorf("GET %s has %d dead letters, want %d", query, got, want)
		}
	}
	counted := into[repeat.DeadLetterCount](w.must(http.StatusOK, "POST", deadLetters+"/replay", `{"job":"sync","dry_run":true}`))
	if want := (repeat.DeadLetterCount{Count: 3}); counted != want || listed("") != 4 {
		t.Errorf("a dry run counts %+v, want %+v, and leaves %d of 4", counted, want, listed(""))
	}

	first := into[repeat.Replayed](w.must(http.StatusOK, "POST", deadLetters+"/replay", `{"job":"sync","limit":2}`))
	if first.Replayed != 2 || first.Next == "" || listed("?job=sync") != 1 {
		t.Errorf("the first portion: %+v, and %d are left; want 2 replayed, a cursor and 1 left", first, listed("?job=sync"))
	}
	rest := `{"job":"sync","limit":2,"cursor":"` + first.Next + `"}`
	second := into[repeat.Replayed](w.must(http.StatusOK, "POST", deadLetters+"/replay", rest))
	if diff := cmp.Diff(repeat.Replayed{Replayed: 1}, second); diff != "" || listed("?job=sync") != 0 || listed("") != 1 {
		t.Errorf("the last portion (-want +got):\n%s%d and %d are left", diff, listed("?job=sync"), listed(""))
	}
	all := into[repeat.Replayed](w.must(http.StatusOK, "POST", deadLetters+"/replay", ""))
	if all.Replayed != 1 || listed("") != 0 {
		t.Errorf("without a body: %+v, and %d are left; want 1 replayed", all, listed(""))
	}
}

func TestReplaysAreChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	for body, want := range map[string][]string{
		`{"class":"htp_5xx","state":"succeeded","job":"A","limit":0,"cursor":"x"}`: {
			"/class enum", "/cursor page_cursor", "/job name_format", "/limit count_range", "/state enum"},
		`{"limit":1001}`: {"/limit count_range"},
		`{"from":"2026-01-02T00:00:00Z","to":"2026-01-01T00:00:00Z"}`: {"/from window_order"},
		`{"job":"sync.on_nothing"}`:                                   {"/job name_format"},
	} {
		got := w.do("POST", deadLetters+"/replay", body)
		got.refused(got.Code, want...)
		if got.Code != http.StatusUnprocessableEntity && got.Code != http.StatusBadRequest {
			t.Errorf("%s: status %d", body, got.Code)
		}
	}
	w.do("POST", deadLetters+"/replay", `{"joob":"sync"}`).refused(http.StatusBadRequest, "/joob json_unknown_field")
	for query, want := range map[string][]string{
		"?class=x&state=queued&job=": {"/class enum", "/job required", "/state enum"},
		"?from=x":                    {"/from time_invalid"},
	} {
		w.do("GET", deadLetters+query, "").refused(http.StatusUnprocessableEntity, want...)
	}
	w.do("GET", deadLetters+"?job=nosuch", "").refused(http.StatusNotFound, " not_found")
	w.do("POST", "/v1/apps/nosuch/dead-letters/replay", `{"dry_run":true}`).refused(http.StatusNotFound, " not_found")

	w.must(http.StatusOK, "PATCH", oneApp, `{"enabled":false}`)
	w.do("POST", deadLetters+"/replay", `{}`).refused(http.StatusConflict, " app_disabled")
	w.must(http.StatusOK, "POST", deadLetters+"/replay", `{"dry_run":true}`)
}

func TestJobsMayNameJobsThatDoNotExist(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.must(http.StatusCreated, "PUT", oneApp+"/jobs/first",
		`{"target":{"webhook":{"url":"https://example.com/hook"}},"on_success":{"jobs":["sync"]}}`)
	third := w.must(http.StatusCreated, "PUT", oneApp+"/jobs/third",
		`{"target":{"webhook":{"url":"https://example.com/hook"}},"on_failure":{"jobs":["sync","nosuch"]}}`)
	third.says(`"path":"/on_failure/jobs/1","code":"follow_unknown","message":"app \"crm\" has no job \"nosuch\"`)
	w.do("PUT", oneJob, `{"target":{"webhook":{"url":"https://example.com/hook"}},"on_failure":{"jobs":["first"]}}`).
		refused(http.StatusUnprocessableEntity, "/on_failure/jobs/0 follow_cycle")
	w.must(http.StatusNoContent, "DELETE", oneJob, "")
	w.must(http.StatusOK, "GET", oneApp+"/jobs/first", "").says(`"follow_unknown"`)
}
