package api_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

func TestConditionsOfWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.must(http.StatusCreated, "PUT", oneApp, `{}`)
	for _, thing := range []struct{ path, body, changed string }{
		{"/v1/apps/other", `{}`, `{"description":"changed"}`}, {oneJob, validJob, strings.Replace(validJob, "{", `{"description":"changed",`, 1)},
	} {
		for _, step := range []struct {
			name, method, header string
			status               int
			code                 string
		}{
			{"If-Match of a missing object fails", "PUT", `If-Match: "1"`, 412, " precondition_failed"},
			{"If-Match * of a missing object fails", "PUT", `If-Match: *`, 412, " precondition_failed"},
			{"If-None-Match * creates it", "PUT", `If-None-Match: *`, 201, ""},
			{"a change without a condition fails", "PUT", `If-Match:`, 428, " precondition_required"},
			{"and so does a deletion", "DELETE", `If-Match:`, 428, " precondition_required"},
			{"If-None-Match * does not create it twice", "PUT", `If-None-Match: *`, 412, " name_taken"},
			{"If-None-Match must be *", "PUT", `If-None-Match: "1"`, 412, " precondition_failed"},
			{"the current revision matches", "PUT", `If-Match: "1"`, 200, ""},
			{"what changes nothing keeps the revision", "PUT", `If-Match: "1"`, 200, ""},
			{"what changes something does not", "CHANGE", `If-Match: "1"`, 200, ""},
			{"an old revision does not match", "PUT", `If-Match: "1"`, 412, " precondition_failed"},
			{"nor a future one", "PUT", `If-Match: "99"`, 412, " precondition_failed"},
			{"nor a weak one", "PUT", `If-Match: W/"2"`, 412, " precondition_failed"},
			{"nor one without quotes", "PUT", `If-Match: 2`, 412, " precondition_failed"},
			{"nor a list", "PUT", `If-Match: "2", "3"`, 412, " precondition_failed"},
			{"nor zero, which would be no condition", "PUT", `If-Match: "0"`, 412, " precondition_failed"},
			{"nor an overflow", "PUT", `If-Match: "99999999999999999999"`, 412, " precondition_failed"},
			{"nor a sign", "PUT", `If-Match: "+2"`, 412, " precondition_failed"},
			{"If-Match * of an existing object holds", "PUT", `If-Match: *`, 200, ""},
			{"a deletion at an old revision fails", "DELETE", `If-Match: "2"`, 412, " precondition_failed"},
			{"a deletion at the current revision is done", "DELETE", `If-Match: "3"`, 204, ""},
			{"a second deletion finds nothing", "DELETE", `If-Match:`, 404, " not_found"},
		} {
			body := thing.body
			method := step.method
			switch method {
			case "DELETE":
				body = ""
			case "CHANGE":
				method, body = "PUT", thing.changed
			}
			got := w.do(method, thing.path, body, step.header)
			if step.code != "" {
				got.refused(step.status, step.code)
			} else if got.Code != step.status {
				t.Errorf("status %d, want %d: %s", got.Code, step.status, got.Body)
			}
		}
	}
}

func TestFailedConditionNamesTheCurrentRevision(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.must(http.StatusOK, "PUT", oneJob, strings.Replace(validJob, "{", `{"description":"changed",`, 1))
	for _, header := range []string{`If-Match: "1"`, `If-None-Match: *`} {
		if got := w.do("PUT", oneJob, validJob, header).Body.String(); !strings.Contains(got, "crm/sync") ||
			!strings.Contains(got, "at revision 2") {
			t.Errorf("%s returns %s, want it to name crm/sync and revision 2", header, got)
		}
	}
}

// The audit log gives the author of an unexpected revision, even if only a trigger was paused.
func TestFailedConditionNamesTheAuthorOfTheChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.must(http.StatusOK, "PUT", oneApp, `{"description":"customers"}`)
	w.must(http.StatusCreated, "PUT", oneCalendar, `{"description":"freeze"}`)
	w.must(http.StatusOK, "POST", oneJob+"/triggers/nightly/pause", "")
	for path, body := range map[string]string{oneApp: `{}`, oneJob: validJob, oneCalendar: `{}`} {
		read := w.must(http.StatusOK, "GET", path, "")
		thing := into[struct {
			Revision  int64     `json:"revision"`
			UpdatedAt time.Time `json:"updated_at"`
		}](read)
		for _, header := range []string{`If-Match: "99"`, `If-None-Match: *`} {
			refused := w.do("PUT", path, body, header)
			problem := into[struct {
				By     string         `json:"changed_by"`
				At     time.Time      `json:"changed_at"`
				Errors input.Problems `json:"errors"`
			}](refused)
			want := fmt.Sprintf("at revision %d, changed by %q at %s", thing.Revision, "admin", thing.UpdatedAt.Format(time.RFC3339))
			if refused.Code != 412 || problem.By != "admin" || !problem.At.Equal(thing.UpdatedAt) ||
				!strings.Contains(problem.Errors[0].Message, want) {
				t.Errorf("%s %s: status %d, changed by %q at %s, message %s; want %s",
					path, header, refused.Code, problem.By, problem.At, problem.Errors[0].Message, want)
			}
		}
	}
	for _, path := range []string{oneJob, oneCalendar} {
		before := time.Now().Truncate(time.Second)
		w.must(http.StatusNoContent, "DELETE", path, "", "X-Request-Id: deletion")
		refused := into[struct {
			By      string         `json:"changed_by"`
			At      time.Time      `json:"changed_at"`
			Request string         `json:"changed_request_id"`
			Errors  input.Problems `json:"errors"`
		}](w.do("PUT", path, map[string]string{oneJob: validJob, oneCalendar: `{}`}[path], `If-Match: "1"`))
		want := `does not exist, deleted by "admin" at ` + refused.At.Format(time.RFC3339)
		if refused.By != "admin" || refused.Request != "deletion" || refused.At.Before(before) ||
			!strings.HasSuffix(refused.Errors[0].Message, want) {
			t.Errorf("PUT of the deleted %s: changed by %q, message %q; want %q", path, refused.By, refused.Errors[0].Message, want)
		}
	}
	if gone := w.do("PUT", "/v1/apps/nosuch", `{}`, `If-Match: "1"`); strings.Contains(gone.Body.String(), "changed_by") {
		t.Errorf("what does not exist was changed: %s", gone.Body)
	}
}

func TestETagsOfReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	for _, path := range []string{oneApp, oneJob} {
		got := w.must(http.StatusOK, "GET", path, "")
		if tag := got.Header().Get("ETag"); tag != `"1"` {
			t.Errorf("GET %s has ETag %s, want \"1\"", path, tag)
		}
		for _, header := range []string{`"1"`, `W/"1"`, `"7", "1"`, `*`} {
			fresh := w.must(http.StatusNotModified, "GET", path, "", "If-None-Match: "+header)
			if fresh.Body.Len() != 0 || fresh.Header().Get("ETag") != `"1"` {
				t.Errorf("304 for %s has ETag %s and %d bytes", header, fresh.Header().Get("ETag"), fresh.Body.Len())
			}
		}
		w.must(http.StatusOK, "GET", path, "", `If-None-Match: "2"`)
	}
}

func TestGetResultCanBePut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	for _, path := range []string{oneApp, oneJob} {
		read := w.must(http.StatusOK, "GET", path, "")
		written := w.must(http.StatusOK, "PUT", path, read.Body.String(), "If-Match: "+read.Header().Get("ETag"))
		before, after := into[map[string]any](read), into[map[string]any](written)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s changed by being written back (-before +after):\n%s", path, diff)
		}
		if got := written.Header().Get("ETag"); got != `"1"` {
			t.Errorf("ETag after the write is %s, want \"1\": it changed nothing", got)
		}
	}
}

func TestPatchChangesOnlyEnabled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.must(http.StatusCreated, "PUT", oneApp, `{"description":"customers"}`)
	got := into[access.App](w.must(http.StatusOK, "PATCH", oneApp, `{"enabled":false}`))
	if got.Enabled || got.Description != "customers" || got.Revision != 2 {
		t.Errorf("app after PATCH is %+v", got)
	}
	w.do("PATCH", oneApp, `{"enabled":true}`, `If-Match: "1"`).refused(412, " precondition_failed")
	w.must(http.StatusOK, "PATCH", oneApp, `{"enabled":true}`, `If-Match: "2"`)
	w.do("PATCH", oneApp, `{}`).refused(422, "/enabled required")
	w.do("PATCH", oneApp, `{"enabled":"yes"}`).refused(400, "/enabled json_type")
	w.do("PATCH", oneApp, `{"enabled":true,"description":"x"}`).refused(400, "/description json_unknown_field")
	w.do("PATCH", "/v1/apps/nosuch", `{"enabled":true}`).refused(404, " not_found")
}

// Add new routes here, so that they require a condition. Endpoints have no revision.
func TestEveryPutAndDeleteDemandsACondition(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	const calendar = "/v1/apps/crm/calendars/holidays"
	w.must(http.StatusCreated, "PUT", calendar, `{}`)
	w.must(http.StatusCreated, "PUT", oneGroup, `{}`)
	w.must(http.StatusCreated, "PUT", oneAlert, validAlert)
	const token, reader = "/v1/tokens/reader", `{"scopes":["read"]}`
	w.must(http.StatusCreated, "PUT", token, reader)
	w.must(http.StatusOK, "PUT", oneJob, carryingJob(), "If-Match: *")
	w.must(http.StatusOK, "PUT", oneJob+"/state", `{"state":1}`)
	exist := map[string]struct{ at, body string }{
		"/v1/apps/{app}/jobs/{job}/state":     {oneJob + "/state", `{"state":2}`},
		"/v1/apps/{app}":                      {oneApp, `{}`},
		"/v1/apps/{app}/jobs/{job}":           {oneJob, validJob},
		"/v1/apps/{app}/calendars/{calendar}": {calendar, `{}`},
		"/v1/apps/{app}/groups/{group}":       {oneGroup, `{}`},
		"/v1/apps/{app}/alerts/{alert}":       {oneAlert, validAlert},
		"/v1/tokens/{token}":                  {token, reader},
	}
	described := into[struct{ Paths map[string]map[string]any }](w.must(http.StatusOK, "GET", "/openapi.json", ""))
	for path, methods := range described.Paths {
		if strings.HasSuffix(path, "/endpoints/{endpoint}") || strings.HasSuffix(path, "/pauses/{pause}") { // these have no revision
			continue
		}
		one := exist[path]
		if _, puts := methods["put"]; puts {
			w.do("PUT", one.at, one.body, "If-Match:").refused(428, " precondition_required")
		}
		if _, deletes := methods["delete"]; deletes {
			w.do("DELETE", one.at, "", "If-Match:").refused(428, " precondition_required")
		}
	}
	w.do("DELETE", oneJob, "", "If-Match:").says(`send If-Match: \"2\"`)
	w.must(http.StatusOK, "PATCH", oneApp, `{"enabled":true}`)
	w.must(http.StatusOK, "POST", oneJob+"/pause", "")
	w.must(http.StatusNoContent, "DELETE", oneJob, "", "If-Match: *")
}

func TestWritersWithoutAConditionCannotOverwriteEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	const writers = 8
	statuses := make(chan int, writers)
	for range writers {
		go func() { statuses <- w.once("PUT", oneApp, `{}`).Code }()
	}
	seen := map[int]int{}
	for range writers {
		seen[<-statuses]++
	}
	if want := map[int]int{http.StatusCreated: 1, http.StatusPreconditionRequired: writers - 1}; !maps.Equal(seen, want) {
		t.Errorf("statuses of %d writers at once: %v, want %v", writers, seen, want)
	}
}
