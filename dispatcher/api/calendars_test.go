package api_test

import (
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

const (
	oneCalendar   = "/v1/apps/crm/calendars/holidays"
	validCalendar = `{"timezone":"Europe/Berlin","rules":[{"dates":["12-24/12-26"]},{"weekdays":["SAT","SUN"]}]}`
)

func TestCalendarsAreReadAndWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	made := into[dispatcher.Calendar](w.must(http.StatusCreated, "PUT", oneCalendar, validCalendar, "If-None-Match: *"))
	if made.App != "crm" || made.Name != "holidays" || len(made.Rules) != 2 || made.Revision != 1 {
		t.Errorf("calendar is %+v", made)
	}
	read := w.must(http.StatusOK, "GET", oneCalendar, "")
	if diff := cmp.Diff(made, into[dispatcher.Calendar](read)); diff != "" || read.Header().Get("ETag") != `"1"` {
		t.Errorf("GET, ETag %s, differs from what PUT returned (-put +get):\n%s", read.Header().Get("ETag"), diff)
	}
	// The result of GET can be edited and written back.
	w.must(http.StatusOK, "PUT", oneCalendar, strings.Replace(read.Body.String(), "12-24", "12-23", 1), `If-Match: "1"`)
	w.do("PUT", oneCalendar, validCalendar, `If-Match: "1"`).refused(412, " precondition_failed")
	w.do("PUT", oneCalendar, validCalendar, "If-None-Match: *").refused(412, " name_taken")
	w.must(http.StatusNotModified, "GET", oneCalendar, "", `If-None-Match: "2"`)
	w.must(http.StatusOK, "GET", "/v1/apps/crm/calendars?limit=1", "").says(`"holidays"`)
	w.must(http.StatusNoContent, "DELETE", oneCalendar, "", `If-Match: "2"`)
	w.do("GET", oneCalendar, "").refused(404, " not_found")
	w.do("PUT", "/v1/apps/nosuch/calendars/c", `{}`).refused(404, " not_found")
}

func TestBadCalendarReportsAllProblems(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	for body, want := range map[string][]string{
		`{"rules":{}}`: {"/rules json_type"},
		`{"rules":[{"dates":"12-25"},7]}`: {"/rules/0 calendar_rule",
			"/rules/0/dates json_type", "/rules/1 json_type"},
		`{"rules":[{"dates":["25.12."],"day":1}]}`: {"/rules/0/dates/0 time_invalid", "/rules/0/day json_unknown_field"},
		`{"rules":[{"from":"25:00","to":"6"}]}`:    {"/rules/0/from time_invalid", "/rules/0/to time_invalid"},
		`{"rules":[{"days_of_month":[0,1.5]}]}`: {"/rules/0/days_of_month/0 cron_range",
			"/rules/0/days_of_month/1 json_type"},
		`{"timezone":"CEST","bases":["holidays"],"name":"other"}`: {"/timezone tz_unknown", "/name name_mismatch"},
		`{"rules":[{"expression":"61 * * * *"}]}`:                 {"/rules/0/expression cron_range"},
		`{"rules":[null]}`:       {"/rules/0 required"},
		`{"bases":["nosuch"]}`:   {"/bases/0 calendar_unknown"},
		`{"bases":["holidays"]}`: {"/bases/0 calendar_base"},
		`{"revision":7,"rules":[{"icalendar":"BEGIN:VEVENT\nEND:VEVENT"}]}`: {"/rules/0/icalendar time_invalid"},
	} {
		got := w.do("PUT", oneCalendar, body)
		got.refused(got.Code, want...)
		if got.Code != 422 && got.Code != 400 {
			t.Errorf("%s: status %d, want 400 or 422", body, got.Code)
		}
	}
	w.do("GET", oneCalendar, "").refused(404, " not_found")
}

func TestCalendarInUseStaysAndReschedulesTriggers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.do("PUT", oneJob, with(t, `"holidays"`, "triggers", "nightly", "calendar")).refused(422, "/triggers/nightly/calendar calendar_unknown")
	w.must(http.StatusCreated, "PUT", oneCalendar, `{}`)
	job := into[dispatcher.Job](w.must(http.StatusOK, "PUT", oneJob, with(t, `"holidays"`, "triggers", "nightly", "calendar")))
	before := job.Triggers["nightly"]
	w.do("DELETE", oneCalendar, "").refused(409, " calendar_in_use")
	w.do("DELETE", oneCalendar, "").says("sync")

	day := before.NextFireTime.Format(time.DateOnly)
	w.must(http.StatusOK, "PUT", oneCalendar, `{"rules":[{"dates":["`+day+`"]}]}`)
	moved := into[dispatcher.Job](w.must(http.StatusOK, "GET", oneJob, ""))
	if got, want := moved.Triggers["nightly"].NextFireTime, before.NextFireTime.AddDate(0, 0, 1); !got.Equal(want) ||
		moved.Revision != job.Revision {
		t.Errorf("next fire is %v at revision %d, want %v at revision %d", got, moved.Revision, want, job.Revision)
	}
	w.do("DELETE", oneApp, "").refused(409, " app_not_empty")
	w.do("DELETE", oneApp, "").says(`still has job \"sync\", calendar \"`)
	w.must(http.StatusNoContent, "DELETE", oneJob, "")
	w.do("DELETE", oneApp, "").refused(409, " app_not_empty")
	w.do("DELETE", oneApp, "").says("still has calendar")
	w.must(http.StatusNoContent, "DELETE", oneCalendar, "")
	w.must(http.StatusNoContent, "DELETE", oneApp, "")
}

func TestPreviewUsesCalendarsHashesAndJitter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.must(http.StatusCreated, "PUT", oneCalendar, `{"rules":[{"dates":["2026-05-02/2026-05-04"]}]}`)
	const preview = "/v1/schedules/preview"
	got := into[view.Preview](w.must(http.StatusOK, "POST", preview, `{"expression":"0 H * * *","timezone":"UTC",
		"identity":"crm/sync/n","app":"crm",
		"calendar":"holidays","jitter":"10m","from":"2026-05-01T00:00:00Z","count":2}`))
	if len(got.FireTimes) != 2 || got.FireTimes[1].Sub(got.FireTimes[0]) != 96*time.Hour || len(got.DueTimes) != 2 ||
		got.Calendar != "holidays" {
		t.Errorf("preview is %+v, want two fires four days apart", got)
	}
	for i, due := range got.DueTimes {
		if late := due.Sub(got.FireTimes[i]); late < 0 || late >= 10*time.Minute {
			t.Errorf("fire %d is due %s after its instant, want less than the jitter", i, late)
		}
	}
	w.do("POST", preview, `{"expression":"H * * * *","timezone":"UTC","jitter":"1m"}`).
		refused(422, "/expression cron_hash", "/identity required")
	w.do("POST", preview, `{"expression":"* * * * *","timezone":"UTC","calendar":"holidays"}`).refused(422, "/app required")
	w.do("POST", preview, `{"expression":"* * * * *","timezone":"UTC","calendar":"nosuch","app":"crm"}`).
		refused(422, "/calendar calendar_unknown")
	w.do("POST", preview, `{"expression":"* * * * *","timezone":"UTC","calendar":"holidays","app":"nosuch"}`).refused(404, " not_found")
	bound := w.newToken("bound", reads, "other")
	w.do("POST", preview, `{"expression":"* * * * *","timezone":"UTC","calendar":"holidays","app":"crm"}`,
		"Authorization: Bearer "+bound).refused(403, " forbidden")
}

func TestCalendarIsDeletedWithItsLastUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.must(http.StatusCreated, "PUT", oneCalendar, validCalendar)
	w.must(http.StatusOK, "PUT", oneJob, strings.Replace(validJob, `"expression"`, `"calendar":"holidays","expression"`, 1))
	w.do("DELETE", oneCalendar, "").refused(409, " calendar_in_use")
	w.do("DELETE", oneCalendar+"?when_unused=perhaps", "").refused(422, "/when_unused enum")
	w.do("DELETE", oneCalendar+"?when_unused=true", "", "If-Match:").refused(428, " precondition_required")
	w.do("DELETE", oneCalendar+"?when_unused=true", "", `If-Match: "9"`).refused(412, " precondition_failed")
	got := w.must(http.StatusAccepted, "DELETE", oneCalendar+"?when_unused=true", "", `If-Match: "1"`)
	marked := into[dispatcher.Calendar](got)
	if marked.RemovalRequestedAt == nil || got.Header().Get("ETag") != `"2"` {
		t.Errorf("in use: ETag %s, marked at %v", got.Header().Get("ETag"), marked.RemovalRequestedAt)
	}
	w.must(http.StatusOK, "PUT", oneJob, validJob)
	w.do("GET", oneCalendar, "").refused(404, " not_found")
	w.must(http.StatusCreated, "PUT", oneCalendar, validCalendar)
	w.must(http.StatusNoContent, "DELETE", oneCalendar+"?when_unused=true", "")
}

func TestGroupIsDeletedWithItsLastUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.must(http.StatusCreated, "PUT", oneGroup, `{}`)
	_, name := path.Split(oneGroup)
	job := oneApp + "/jobs/grouped"
	w.must(http.StatusCreated, "PUT", job, `{"target":{"group":{"name":"`+name+`","path":"/"}}}`)
	w.do("DELETE", oneGroup, "").refused(409, " group_in_use")
	got := w.must(http.StatusAccepted, "DELETE", oneGroup+"?when_unused=true", "", `If-Match: "1"`)
	if marked := into[target.EndpointGroup](got); marked.RemovalRequestedAt == nil || got.Header().Get("ETag") != `"2"` {
		t.Errorf("in use: ETag %s, marked at %v", got.Header().Get("ETag"), marked.RemovalRequestedAt)
	}
	w.must(http.StatusNoContent, "DELETE", job, "")
	w.do("GET", oneGroup, "").refused(404, " not_found")
}
