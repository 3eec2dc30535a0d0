package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Nodes send notifications and deliveries for an app, like the requests of its jobs.
const (
	within     = `"url":"https://in.example.com/"`
	elsewhere  = "arn:aws:%s:eu-central-1:999999999999:appb-%s"
	signedPart = `"auth":{"sigv4":{"service":"execute-api","region":"us-east-1"}}`
)

// outsideTargets are targets that are outside the bounds of app appa by default, or once its egress is bounded; each
// with the pointer and code of the problem, and the bounds that allow it.
var outsideTargets = map[string]struct{ target, problem, allowed string }{
	"host": {`"webhook":{"url":"https://out.example.com/"}`, "/webhook/url bound_egress", `{}`},
	"port": {`"webhook":{"url":"https://in.example.com:9/"}`, "/webhook/url bound_egress", `{}`},
	"key": {`"webhook":{` + within + `,"signing":{"secrets":{"v1":{"reference":"env:SECRET_APPB_KEY"}}}}`,
		"/webhook/signing/secrets/v1/reference bound_secret", `{"secrets":["env:SECRET_*"]}`},
	"topic": {fmt.Sprintf(`"sns":{"topic_arn":"`+elsewhere+`"}`, "sns", "told"), "/sns/topic_arn bound_topic",
		`{"sns":{"topics":["*"]}}`},
}

// outsideFollows are those that only a follower has.
var outsideFollows = map[string]struct{ target, problem, allowed string }{
	"function": {`"lambda":{"function":"arn:aws:lambda:eu-central-1:999999999999:function:appb"}`, "/lambda/function bound_function",
		`{"lambda":{"functions":["*"]}}`},
	"dead-letter queue": {fmt.Sprintf(`"sqs":{"queue_arn":"`+elsewhere+`"}`, "sqs", "dead"), "/sqs/queue_arn bound_queue",
		`{"sqs":{"queues":["*"]}}`},
}

// outsideAlerts are those that only an alert has.
var outsideAlerts = map[string]struct{ target, problem, allowed string }{
	"token endpoint": {`"webhook":{` + within + `,"auth":{"oauth2":{"token_url":"https://out.example.com/","client_id":"a",
		"client_secret":{"reference":"env:SECRET_APPA_KEY"}}}}`, "/webhook/auth/oauth2/token_url bound_egress", `{}`},
	"secret": {`"webhook":{` + within + `,"auth":{"bearer":{"token":{"reference":"env:SECRET_APPB_KEY"}}}}`,
		"/webhook/auth/bearer/token/reference bound_secret", `{"secrets":["env:SECRET_*"]}`},
	"signature": {`"webhook":{` + within + `,` + signedPart + `}`, "/webhook/auth/sigv4 bound_signing",
		`{"sign_as_node":[{"service":"execute-api","hosts":["*.example.com"]}]}`},
	"secret URL": {`"webhook":{` + within + `,"secret_url":{"reference":"env:SECRET_APPB_URL"}}`,
		"/webhook/secret_url/reference bound_secret", `{"secrets":["env:SECRET_*"]}`},
	"routing key": {`"webhook":{` + within + `,"format":"pagerduty","routing_key":{"reference":"file:appb/key"}}`,
		"/webhook/routing_key/reference bound_secret", `{"secrets":["file:*"]}`},
}

// narrow are bounds that allow no secret of others, no signature and nothing of AWS, and one host.
const narrow = `{"bounds":{"egress":{"hosts":["in.example.com"],"ports":[443]}}}`

// T2, T3 and T4 for messages about runs: outside the bounds they are refused, and once the bounds are narrowed, the
// operator learns which ones break.
func TestMessagesAboutRunsAreWithinTheBoundsOfTheApp(t *testing.T) {
	t.Parallel()
	for event, form := range map[string]string{
		"alert":      `{"failure":{},"destination":{%s}}`,
		"on_success": `{"target":{"webhook":{` + within + `}},"on_success":{%s}}`,
		"on_failure": `{"target":{"webhook":{` + within + `}},"on_failure":{%s}}`,
		"on_misfire": `{"target":{"webhook":{` + within + `}},"on_misfire":{%s}}`,
	} {
		path, at, more := appA+"/jobs/told", "/"+event, outsideFollows
		if event == "alert" {
			path, at, more = appA+"/alerts/told", "/destination", outsideAlerts
		}
		for _, kinds := range []map[string]struct{ target, problem, allowed string }{outsideTargets, more} {
			for kind, tt := range kinds {
				t.Run(event+" with another "+kind, func(t *testing.T) {
					t.Parallel()
					w, operator := tenants(t)
					body, problem := fmt.Sprintf(form, tt.target), at+tt.problem
					w.must(http.StatusOK, "PUT", appA, narrow, operator)
					w.do("PUT", path, body).refused(http.StatusUnprocessableEntity, problem)
					w.must(http.StatusOK, "PUT", appA, `{"bounds":`+tt.allowed+`}`, operator)
					w.must(http.StatusCreated, "PUT", path, body)
					app := into[access.App](w.must(http.StatusOK, "PUT", appA, narrow, operator))
					if got := broken(app.Breaks, event == "alert"); !slices.Equal(got, []string{"told " + problem}) {
						t.Errorf("narrower bounds break %q, want %q", got, "told "+problem)
					}
					w.do("PUT", path, body).refused(http.StatusUnprocessableEntity, problem)
				})
			}
		}
	}
}

// broken returns the parts of alerts or jobs of an app that a change of bounds breaks, as "name pointer code".
func broken(breaks *access.Breaks, alerts bool) (all []string) {
	if breaks == nil {
		return nil
	}
	add := func(name string, problems []input.Problem) {
		for _, p := range problems {
			all = append(all, name+" "+p.Path+" "+p.Code)
		}
	}
	if alerts {
		for _, alert := range breaks.Alerts {
			add(alert.Alert, alert.Problems)
		}
		return all
	}
	for _, job := range breaks.Jobs {
		add(job.Job, job.Problems)
	}
	return all
}
