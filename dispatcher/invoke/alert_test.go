package invoke_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// alertTo is a call that delivers a notification to a webhook.
func alertTo(url string, change func(w *target.AlertWebhook)) target.Call {
	call := callTo(url, "POST", ample)
	w := &target.AlertWebhook{Webhook: *call.Target.Webhook}
	w.Headers = nil
	change(w)
	at := call.Key.ScheduledAt
	call.Payload, _ = json.Marshal(target.AlertNotification{
		App: "demo", Alert: "on-call", Job: "ping", Condition: target.AlertFailure, Transition: target.AlertFiring,
		At: at, Since: at, Count: 1,
		Error: "status <503>\nand \"more\"",
	})
	call.Installation = "db"
	call.Job, call.Trigger = "on-call.alert", ""
	call.Target = target.Target{Alert: &target.AlertDestination{Webhook: w}}
	call.Templates, _ = call.Target.Templates()
	return call
}

// echo responds with the whole request: it is the worst receiver of a secret.
func echo(t *testing.T, got *[]string) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*got = []string{r.URL.RequestURI(), string(body)}
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "no %s%s %s %s %s", r.Host, r.URL.RequestURI(), r.URL.Path, r.URL, body)
	}))
	t.Cleanup(server.Close)
	return server
}

func secretOf(text string) *target.Secret {
	return &target.Secret{Value: input.NewSensitive(text)}
}

func TestNotificationsAreSentInTheirFormat(t *testing.T) {
	t.Parallel()
	for format, tt := range map[target.AlertFormat]struct {
		change func(w *target.AlertWebhook)
		want   []string // parts of the body
	}{
		target.AlertFormatCarillon: {func(*target.AlertWebhook) {}, []string{`"app":"demo"`, `"transition":"firing"`,
			`"installation":"db"`, `"job":"https://ops.example.com/console/apps/demo/jobs/ping"`}},
		target.AlertFormatSlack: {func(*target.AlertWebhook) {}, []string{
			`"text":"🔴 Job demo/ping failed"`, `status \u0026lt;503\u0026gt;\nand \"more\"`,
			`\u003chttps://ops.example.com/console/apps/demo/jobs/ping|Job\u003e`}},
		target.AlertFormatPagerDuty: {func(w *target.AlertWebhook) { w.RoutingKey = secretOf("integration") }, []string{
			`"routing_key":"integration"`, `"event_action":"trigger"`, `"severity":"error"`, `"dedup_key":"carillon/db/demo/on-call/ping/failure"`,
			`"client_url":"https://ops.example.com/console/apps/demo/jobs/ping"`}},
		target.AlertFormatTemplate: {func(w *target.AlertWebhook) {
			w.Body = `{"about":{{json .Job}},"why":{{json .Error}},"see":{{json .JobURL}}}`
		}, []string{
			`{"about":"ping","why":"status \u003c503\u003e\nand \"more\"","see":"https://ops.example.com/console/apps/demo/jobs/ping"}`}},
	} {
		t.Run(string(format), func(t *testing.T) {
			t.Parallel()
			var got []string
			server := echo(t, &got)
			call := alertTo(server.URL+"/hook?job={{.Job}}", func(w *target.AlertWebhook) {
				w.Format = format
				tt.change(w)
			})
			i := invoke.New(invoke.Options{Egress: web.Egress{Loopback: true}, Console: &url.URL{Scheme: "https", Host: "ops.example.com"}})
			t.Cleanup(i.Close)
			i.Invoke(t.Context(), call)
			if len(got) != 2 || got[0] != "/hook?job=ping" {
				t.Fatalf("request is %q", got)
			}
			for _, part := range tt.want {
				if !strings.Contains(got[1], part) {
					t.Errorf("body is %s, want %s in it", got[1], part)
				}
			}
			if !json.Valid([]byte(got[1])) {
				t.Errorf("body is no JSON: %s", got[1])
			}
		})
	}
}

func TestSecretsOfAlertsAreNotStored(t *testing.T) {
	t.Parallel()
	var got []string
	server := echo(t, &got)
	call := alertTo(server.URL, func(w *target.AlertWebhook) {
		w.Format, w.RoutingKey = target.AlertFormatPagerDuty, secretOf("canary-routing-key")
		w.SecretURL = secretOf(server.URL + "/services/canary-path?canary=query")
	})
	outcome := newInvoker(t).Invoke(t.Context(), call)
	if len(got) != 2 || got[0] != "/services/canary-path?canary=query" || !strings.Contains(got[1], "canary-routing-key") {
		t.Fatalf("request is %q, want the secrets in it", got)
	}
	text, _ := json.Marshal(outcome)
	if strings.Contains(string(text), "canary") || outcome.Response == nil || outcome.HTTPStatus != http.StatusInternalServerError {
		t.Errorf("outcome is %s, want one without the secrets", text)
	}
}

func TestSecretURLsLeadNowhereElse(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"another host": "https://canary.example/x", "no URL": "canary", "another scheme": "gopher://127.0.0.1/canary",
	} {
		var got []string
		server := echo(t, &got)
		call := alertTo(server.URL, func(w *target.AlertWebhook) { w.SecretURL = secretOf(text) })
		outcome := newInvoker(t).Invoke(t.Context(), call)
		if len(got) > 0 || outcome.Class != run.ClassSecret || !outcome.NotSent || strings.Contains(outcome.Error, "canary") {
			t.Errorf("%s: outcome is %+v after request %q, want none and no secret in the error", name, outcome, got)
		}
	}
	refused := alertTo("http://127.0.0.1:1/", func(w *target.AlertWebhook) {
		w.SecretURL, w.Timeout = secretOf("http://127.0.0.1:1/canary"), input.Duration(time.Minute)
	})
	outcome := newInvoker(t).Invoke(t.Context(), refused)
	if outcome.Class != run.ClassConnectRefused || strings.Contains(outcome.Error, "canary") {
		t.Errorf("outcome is %+v, want a refused connection and no secret in the error", outcome)
	}
}
