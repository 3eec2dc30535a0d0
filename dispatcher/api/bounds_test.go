package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// tenants is a world with the apps appa and appb. Its requests use a write token bound to appa.
func tenants(t *testing.T) (w *world, operator string) {
	t.Helper()
	w = newWorld(t, api.Options{})
	operator = "Authorization: Bearer " + w.token
	for _, app := range []string{"appa", "appb"} {
		w.must(http.StatusCreated, "PUT", "/v1/apps/"+app, `{}`)
	}
	w.token = w.newToken("aw", writes, "appa")
	return w, operator
}

const (
	appA   = "/v1/apps/appa"
	stealA = appA + "/jobs/steal"
)

// T14: a tenant lifts its own limits.
func TestTokenOfAnAppCannotLiftItsLimits(t *testing.T) {
	t.Parallel()
	w, operator := tenants(t)
	w.must(http.StatusCreated, "PUT", appA+"/jobs/own", `{"target":{"webhook":{"url":"https://example.com/"}},"triggers":{}}`)
	w.must(http.StatusOK, "PUT", appA, `{"bounds":{"suspended":true,"suspended_reason":"unpaid"}}`, operator)
	for name, write := range map[string]func() reply{
		"PATCH enabled": func() reply { return w.must(http.StatusOK, "PATCH", appA, `{"enabled":true}`) },
		"PUT enabled":   func() reply { return w.must(http.StatusOK, "PUT", appA, `{"enabled":true}`) },
	} {
		if app := into[access.App](write()); !app.Bounds.Suspended {
			t.Errorf("%s by the app's token lifts the suspension", name)
		}
	}
	run := w.do("POST", appA+"/jobs/own/run", "")
	run.refused(http.StatusConflict, " bound_suspended")
	run.says("unpaid")
	for _, body := range []string{
		`{"bounds":{}}`, `{"bounds":{"suspended":true,"suspended_reason":"unpaid","weight":100}}`,
		`{"bounds":{"suspended":true,"suspended_reason":"unpaid","quotas":{"retention":"87600h"}}}`,
	} {
		w.do("PUT", appA, body).refused(http.StatusUnprocessableEntity, "/bounds bound_operator")
	}
	w.do("PUT", appA, `{"retention":"87600h"}`).refused(http.StatusUnprocessableEntity, "/retention bound_quota")
	w.must(http.StatusOK, "PUT", appA, `{"bounds":{}}`, operator)
	w.must(http.StatusAccepted, "POST", appA+"/jobs/own/run", "")
}

// T3 and T4 in definitions: references, functions and roles of other apps, and signing as the node.
func TestJobCannotUseResourcesOfOtherApps(t *testing.T) {
	t.Parallel()
	w, operator := tenants(t)
	webhook := func(auth string) string {
		return `{"target":{"webhook":{"url":"https://example.com/","auth":` + auth + `}},"triggers":{}}`
	}
	lambda := func(rest string) string {
		return `{"target":{"lambda":{"function":"arn:aws:lambda:eu-central-1:999999999999:function:appb-payroll"` + rest + `}},"triggers":{}}`
	}
	const bearer, function = "/target/webhook/auth/bearer/token/reference bound_secret", "/target/lambda/function bound_function"
	for body, problems := range map[string][]string{
		webhook(`{"bearer":{"token":{"reference":"env:SECRET_APPB_KEY"}}}`): {bearer},
		webhook(`{"bearer":{"token":{"reference":"file:appb/key"}}}`):       {bearer},
		webhook(`{"bearer":{"token":{"reference":"file:pgpass"}}}`):         {bearer},
		webhook(`{"sigv4":{"service":"sts","region":"us-east-1"}}`):         {"/target/webhook/auth/sigv4 bound_signing"},
		lambda(""): {function},
		lambda(`,"assume_role":{"role_arn":"arn:aws:iam::999999999999:role/appb"}`): {
			function, "/target/lambda/assume_role/role_arn bound_role",
		},
		`{"target":{"sqs":{"queue_arn":"arn:aws:sqs:eu-central-1:999999999999:appb-orders"}},"triggers":{}}`: {
			"/target/sqs/queue_arn bound_queue",
		},
		`{"target":{"sns":{"topic_arn":"arn:aws:sns:eu-central-1:999999999999:appb-orders",
			"assume_role":{"role_arn":"arn:aws:iam::999999999999:role/appb"}}},"triggers":{}}`: {
			"/target/sns/topic_arn bound_topic", "/target/sns/assume_role/role_arn bound_role",
		},
	} {
		got := w.do("PUT", stealA, body)
		got.refused(http.StatusUnprocessableEntity, problems...)
		got.says("appa")
	}
	w.must(http.StatusCreated, "PUT", stealA, webhook(`{"bearer":{"token":{"reference":"env:SECRET_APPA_KEY"}}}`))
	w.must(http.StatusOK, "PUT", appA, `{"bounds":{"egress":{"hosts":["example.com"]}}}`, operator)
	oauth2 := func(host string) string {
		return webhook(`{"oauth2":{"token_url":"https://` + host + `/","client_id":"a","client_secret":{"reference":"env:SECRET_APPA_KEY"}}}`)
	}
	w.do("PUT", stealA, oauth2("evil.test")).refused(http.StatusUnprocessableEntity, "/target/webhook/auth/oauth2/token_url bound_egress")
	w.must(http.StatusOK, "PUT", stealA, oauth2("example.com"))
	w.must(http.StatusOK, "PUT", appA, `{"bounds":{
		"lambda":{"functions":["arn:aws:lambda:*:999999999999:function:appb-*"]},
		"sign_as_node":[{"service":"execute-api","hosts":["*.amazonaws.com"]}]}}`, operator)
	w.must(http.StatusOK, "PUT", stealA, lambda(""))
	w.must(http.StatusOK, "PUT", appA, `{"bounds":{"sqs":{"queues":["arn:aws:sqs:*:999999999999:appb-*"]},
		"sns":{"topics":["*"],"roles":["arn:aws:iam::999999999999:role/*"]},
		"sign_as_node":[{"service":"execute-api","hosts":["*.amazonaws.com"]}]}}`, operator)
	w.must(http.StatusOK, "PUT", stealA, `{"target":{"sqs":{"queue_arn":"arn:aws:sqs:eu-central-1:999999999999:appb-orders"}},"triggers":{}}`)
	w.must(http.StatusOK, "PUT", stealA, `{"target":{"sns":{"topic_arn":"arn:aws:sns:eu-central-1:999999999999:appb-orders",
		"assume_role":{"role_arn":"arn:aws:iam::999999999999:role/appb"}}},"triggers":{}}`)
	w.do("PUT", stealA, webhook(`{"sigv4":{"service":"execute-api","region":"us-east-1"}}`)).
		refused(http.StatusUnprocessableEntity, "/target/webhook/auth/sigv4 bound_signing")
	w.must(http.StatusOK, "PUT", stealA, `{"target":{"webhook":{"url":"https://x.execute-api.us-east-1.amazonaws.com/",
		"auth":{"sigv4":{"service":"execute-api","region":"us-east-1"}}}},"triggers":{}}`)
}

func TestChangeOfBoundsShowsTheJobsItBreaks(t *testing.T) {
	t.Parallel()
	w, operator := tenants(t)
	for _, host := range []string{"one", "two"} {
		w.must(http.StatusCreated, "PUT", appA+"/jobs/"+host,
			fmt.Sprintf(`{"target":{"webhook":{"url":"https://%s.example.com/"}},"triggers":{}}`, host))
	}
	const tight = `{"bounds":{"egress":{"hosts":["two.example.com"]}}}`
	app := into[access.App](w.must(http.StatusOK, "PUT", appA, tight, operator))
	if app.Breaks == nil || app.Breaks.Count != 1 || app.Breaks.Jobs[0].Job != "one" {
		t.Errorf("breaks: %+v, want job one", app.Breaks)
	}
	if body := w.must(http.StatusOK, "GET", appA, "").Body.String(); strings.Contains(body, `"breaks"`) {
		t.Errorf("a GET has breaks: %s", body)
	}
	job := into[dispatcher.Job](w.must(http.StatusOK, "GET", appA+"/jobs/one", ""))
	if len(job.Warnings) != 1 || job.Warnings[0].Code != input.CodeBoundEgress || job.Warnings[0].Path != "/target/webhook/url" {
		t.Errorf("warnings of the job: %+v, want bound_egress", job.Warnings)
	}
}

func TestQuotaErrorsNameTheBoundTheNumberAndARemedy(t *testing.T) {
	t.Parallel()
	w, operator := tenants(t)
	w.must(http.StatusOK, "PUT", appA, `{"bounds":{"quotas":{"jobs":1,"manual_runs_per_minute":1}}}`, operator)
	const body = `{"target":{"webhook":{"url":"https://example.com/"}},"triggers":{}}`
	w.must(http.StatusCreated, "PUT", appA+"/jobs/own", body)
	got := w.do("PUT", appA+"/jobs/second", body)
	got.refused(http.StatusUnprocessableEntity, "/name bound_quota")
	got.says("its bounds allow 1 (quotas.jobs); delete some, or ask an operator")
	w.must(http.StatusAccepted, "POST", appA+"/jobs/own/run", "")
	again := w.do("POST", appA+"/jobs/own/run", "")
	if again.Code == http.StatusAccepted { // a minute began in between
		again = w.do("POST", appA+"/jobs/own/run", "")
	}
	again.refused(http.StatusTooManyRequests, " bound_quota")
	again.says("quotas.manual_runs_per_minute")
	if app := into[access.App](w.must(http.StatusOK, "GET", appA, "")); app.Usage == nil || app.Usage.Jobs != 1 {
		t.Errorf("usage %+v, want 1 job", app.Usage)
	}
}

func TestNamesOfAppsDifferByMoreThanDashes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.must(http.StatusCreated, "PUT", "/v1/apps/pay-roll", `{}`)
	w.do("PUT", "/v1/apps/pay_roll", `{}`).refused(http.StatusConflict, "/name name_taken")
}

func TestResponsesWarnOfAddressesThatNoNodeOpens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.must(http.StatusCreated, "PUT", oneApp, `{}`)
	const private = `{"target":{"webhook":{"url":"http://10.0.0.5/x"}},"on_failure":{"webhook":{"url":"http://127.0.0.1/"}}}`
	warnings := func(response reply) (all []string) {
		for _, one := range into[dispatcher.Job](response).Warnings {
			all = append(all, one.Path+" "+one.Code)
		}
		return all
	}
	if got := warnings(w.must(http.StatusCreated, "PUT", oneJob, private)); got != nil {
		t.Errorf("without a node: %v, want no warnings", got)
	}
	register := func(id run.NodeID, reach target.Reach) {
		t.Helper()
		if err := w.store.Register(t.Context(), dispatcher.Node{ID: id, Name: "n", Reach: reach}, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	register(1, target.Reach{EgressLoopback: true})
	if diff := cmp.Diff([]string{"/target/webhook/url node_egress"}, warnings(w.must(http.StatusOK, "GET", oneJob, ""))); diff != "" {
		t.Errorf("warnings of a job that was read (-want +got):\n%s", diff)
	}
	w.must(http.StatusOK, "PUT", oneApp, `{"bounds":{"egress":{"networks":["public","10.0.0.0/8"]}}}`, "If-Match: *")
	if got := warnings(w.must(http.StatusOK, "PUT", oneJob, private, "If-Match: *")); got != nil {
		t.Errorf("the bounds open the network: %v, want no warnings", got)
	}
}
