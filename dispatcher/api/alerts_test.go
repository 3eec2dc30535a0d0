package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

const (
	oneAlert   = oneApp + "/alerts/on-call"
	validAlert = `{"failure":{},"destination":{"webhook":{"url":"https://example.com/alerts"}}}`
)

func TestPutReturnsTheResolvedAlert(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.must(http.StatusCreated, "PUT", oneApp, `{}`)
	got := w.must(http.StatusCreated, "PUT", oneAlert, validAlert)
	a := into[alert.Alert](got)
	if a.Failure == nil || a.Failure.After != 1 || !a.Recovery || a.Retry.MaxAttempts == 0 || a.Revision != 1 ||
		a.Destination.Webhook.Format != target.AlertFormatCarillon || a.Destination.Webhook.Method != "POST" {
		t.Errorf("alert is %+v, want the defaults", a)
	}
	read := into[alert.Alert](w.must(http.StatusOK, "GET", oneAlert, ""))
	if diff := cmp.Diff(a, read); diff != "" {
		t.Errorf("GET differs from what PUT returned (-put +get):\n%s", diff)
	}
	listed := into[struct{ Items []alert.Alert }](w.must(http.StatusOK, "GET", oneApp+"/alerts", ""))
	if len(listed.Items) != 1 || listed.Items[0].Name != "on-call" {
		t.Errorf("alerts are %+v", listed.Items)
	}
	w.must(http.StatusNoContent, "DELETE", oneAlert, "", `If-Match: "1"`)
	w.do("GET", oneAlert, "").refused(http.StatusNotFound, " not_found")
}

func TestAlertsListAllTheirProblems(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.must(http.StatusCreated, "PUT", oneApp, `{}`)
	w.do("PUT", oneAlert, `{"jobs":["sync","sync"],"late_after":"1ms","mutes":[{"duration":"1h"}],
		"destination":{"webhook":{"url":"https://hooks.slack.com/services/T/B/canary","format":"slack","routing_key":{"value":"canary"}}}}`).
		refused(422, "/destination/webhook/routing_key alert_form", "/destination/webhook/url alert_form", "/jobs/1 alert_form",
			"/late_after duration_min", "/mutes/0/schedule cron_empty")
	w.do("PUT", oneAlert, `{"destination":{"webhook":{"url":"https://example.com/"}}}`).refused(422, "/failure required")
	const told = `"failure":{},"destination":{"webhook":{"url":"https://example.com/"}}`
	w.do("PUT", oneAlert, `{"jobs":[],`+told+`}`).refused(422, "/jobs required") // without jobs it would be for all of them
	w.must(http.StatusCreated, "PUT", oneAlert, `{"jobs":[],"labels":{"team":"x"},`+told+`}`)
	w.must(http.StatusNoContent, "DELETE", oneAlert, "")
	w.do("PUT", oneAlert, `{"failure":{}}`).refused(422, "/destination/webhook required")
	w.do("PUT", oneApp+"/jobs/j", `{"target":{"alert":{"webhook":{"url":"https://example.com/"}}}}`).refused(422, "/target/webhook required")
}

// The node of this test has no key to encrypt values with. A story of the command tests stored ones.
func TestSecretsOfAlertsAreNotRepeated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.must(http.StatusCreated, "PUT", oneApp, `{}`)
	got := w.do("PUT", oneAlert, `{"failure":{},"destination":{"webhook":{"url":"https://example.com/","format":"pagerduty",
		"secret_url":{"value":"https://example.com/canary"},"routing_key":{"value":"canary-key"}}}}`)
	got.refused(422, "/destination/webhook/routing_key/value secret_keys", "/destination/webhook/secret_url/value secret_keys")
	if body := got.Body.String(); strings.Contains(body, "canary") {
		t.Errorf("response has a secret: %s", body)
	}
	w.do("PUT", oneAlert, `{"failure":{},"destination":{"webhook":{"url":"https://example.com/",
			"secret_url":{"reference":"env:SECRET_OTHER"}}}}`).
		refused(422, "/destination/webhook/secret_url/reference bound_secret")
}

func TestMutesMakeNoRevision(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.must(http.StatusCreated, "PUT", oneApp, `{}`)
	w.must(http.StatusCreated, "PUT", oneAlert, validAlert)
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	muted := into[alert.Alert](w.must(http.StatusOK, "POST", oneAlert+"/mute",
		`{"reason":"we know","until":"`+until.Format(time.RFC3339Nano)+`"}`))
	if mute := muted.Muted; muted.Revision != 1 || mute == nil || mute.Reason != "we know" || mute.By == "" || !mute.Until.Equal(until) {
		t.Errorf("muted alert is %+v", muted)
	}
	w.do("POST", oneAlert+"/mute", `{}`, `If-Match: "1"`).refused(http.StatusPreconditionFailed, " precondition_failed")
	w.must(http.StatusOK, "PUT", oneAlert, strings.Replace(validAlert, "{", `{"description":"x",`, 1), `If-Match: "1"`)
	if got := into[alert.Alert](w.must(http.StatusOK, "GET", oneAlert, "")); got.Muted == nil || got.Revision != 2 {
		t.Errorf("alert is %+v, want a change that leaves the mute alone", got)
	}
	if got := into[alert.Alert](w.must(http.StatusOK, "POST", oneAlert+"/unmute", "")); got.Muted != nil {
		t.Errorf("alert is %+v, want no mute", got)
	}
	w.do("POST", oneApp+"/alerts/none/mute", "").refused(http.StatusNotFound, " not_found")
}

func TestOnlyConditionsThatHoldAreAcknowledged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.must(http.StatusCreated, "PUT", oneApp, `{}`)
	w.must(http.StatusCreated, "PUT", oneAlert, validAlert)
	w.do("POST", oneAlert+"/acknowledge", `{"job":"sync"}`).refused(http.StatusNotFound, " not_found")
	w.must(http.StatusCreated, "PUT", oneJob, validJob)
	w.do("POST", oneAlert+"/acknowledge", `{"job":"sync"}`).refused(http.StatusConflict, " state_conflict")
	w.do("POST", oneAlert+"/acknowledge", `{"job":"Sync!","condition":"bad"}`).refused(422, "/condition enum", "/job name_format")
	w.do("GET", oneApp+"/alert-states?firing=yes&job=A", "").refused(422, "/firing enum", "/job name_format")
	w.do("GET", oneApp+"/alert-events?cursor=%20", "").refused(http.StatusBadRequest, "/cursor page_cursor")
	if got := w.must(http.StatusOK, "GET", oneApp+"/alert-states?firing=true&alert=on-call", "").Body.String(); got != `{"items":[]}`+"\n" {
		t.Errorf("states are %s", got)
	}
}
