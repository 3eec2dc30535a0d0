package api_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

func TestDefaultsOfAnAppFillAJobWhenItIsPut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	const defaults = `{"timezone":"Europe/Berlin","headers":{"X-Team":"finance"},"misfire_policy":"skip","concurrency_policy":"forbid",` +
		`"retry":{"max_attempts":7}}`
	const bare = `{"target":{"webhook":{"url":"https://example.com/hook"}},"triggers":{"nightly":{"expression":"0 0 2 * * ?"}}}`
	w.must(http.StatusCreated, "PUT", "/v1/apps/crm", `{"defaults":`+defaults+`}`)
	put := into[dispatcher.Job](w.must(http.StatusCreated, "PUT", oneJob, bare))
	check := func(what string, job dispatcher.Job) {
		t.Helper()
		if got := job.Triggers["nightly"]; got.Timezone != "Europe/Berlin" || got.MisfirePolicy != dispatcher.Skip ||
			job.ConcurrencyPolicy != run.ConcurrencyForbid || job.Retry.MaxAttempts != 7 || job.Retry.Base != run.DefaultBase ||
			cmp.Diff(map[string]string{"X-Team": "finance"}, job.Target.Webhook.Headers) != "" {
			t.Errorf("%s: %+v with %+v", what, job, got)
		}
	}
	check("the job as it was put", put)
	preview := into[view.Preview](w.must(http.StatusOK, "POST", "/v1/schedules/preview", `{"expression":"0 2 * * *","app":"crm"}`))
	if preview.Timezone != "Europe/Berlin" {
		t.Errorf("preview is in %s", preview.Timezone)
	}

	w.must(http.StatusOK, "PUT", "/v1/apps/crm", `{}`)
	if app := into[access.App](w.must(http.StatusOK, "GET", "/v1/apps/crm", "")); app.Defaults != nil {
		t.Errorf("a PUT without defaults leaves %+v", app.Defaults)
	}
	check("the job after its app has lost its defaults", into[dispatcher.Job](w.must(http.StatusOK, "GET", oneJob, "")))
	w.do("PUT", oneJob, bare).refused(422, "/triggers/nightly/timezone timezone_required")
	w.do("POST", "/v1/schedules/preview", `{"expression":"0 2 * * *","app":"crm"}`).refused(422, "/timezone timezone_required")
	w.do("POST", "/v1/schedules/preview", `{"expression":"0 2 * * *"}`).refused(422, "/timezone timezone_required")
	w.do("PUT", "/v1/apps/crm", `{"defaults":{"timezone":"CEST","retry":{"max_attempts":0},"nothing":1}}`).
		refused(400, "/defaults/nothing json_unknown_field", "/defaults/timezone tz_unknown", "/defaults/retry/max_attempts attempts_range")
	// An app that does not exist has no defaults.
	w.do("PUT", "/v1/apps/nosuch/jobs/sync", validJob).refused(404, " not_found")
}
