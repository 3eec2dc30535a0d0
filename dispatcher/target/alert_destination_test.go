package target

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

func destination(change func(w *AlertWebhook)) AlertDestination {
	w := &AlertWebhook{}
	w.SetDefaults()
	w.URL = "https://example.com/alerts"
	if change != nil {
		change(w)
	}
	return AlertDestination{Webhook: w}
}

func TestWrongDestinations(t *testing.T) {
	t.Parallel()
	value := func(text string) *Secret { return &Secret{Value: input.NewSensitive(text)} }
	for name, tt := range map[string]struct {
		change func(w *AlertWebhook)
		want   string // pointer and code of the only problem; empty if there is none
	}{
		"the defaults are valid":    {nil, ""},
		"an unknown format":         {func(w *AlertWebhook) { w.Format = "teams" }, "/webhook/format enum"},
		"a method without a body":   {func(w *AlertWebhook) { w.Method = "GET" }, "/webhook/method body_method"},
		"a body of another format":  {func(w *AlertWebhook) { w.Body = "{}" }, "/webhook/body alert_form"},
		"a template without a body": {func(w *AlertWebhook) { w.Format = AlertFormatTemplate }, "/webhook/body required"},
		"a template that quotes": {func(w *AlertWebhook) {
			w.Format, w.Body = AlertFormatTemplate, `{"text":{{json .Title}},"why":{{json .Error}},"count":{{.Count}},"all":{{json .Payload}}}`
		}, ""},
		"a template that does not quote": {func(w *AlertWebhook) {
			w.Format, w.Body = AlertFormatTemplate, `{"why":"{{.Error}}"}`
		}, "/webhook/body json_syntax"},
		"a template without a value": {func(w *AlertWebhook) {
			w.Format, w.Body = AlertFormatTemplate, `{"run":{{.Run}}}`
		}, "/webhook/body json_syntax"},
		"a template of plain text": {func(w *AlertWebhook) {
			w.Format, w.Body, w.Headers = AlertFormatTemplate, `{{.Title}}: {{.Error}}`, map[string]string{"content-type": "text/plain"}
		}, ""},
		"a field of jobs": {func(w *AlertWebhook) {
			w.Format, w.Body = AlertFormatTemplate, `{"next":{{json .NextFire}}}`
		}, "/webhook/body template_field"},
		"a header of many lines": {func(w *AlertWebhook) {
			w.Headers = map[string]string{"x-error": "{{.Error}}"}
		}, "/webhook/headers/x-error header_value"},
		"a callback": {func(w *AlertWebhook) { w.Callback = &CallbackPolicy{Timeout: input.Duration(time.Hour)} },
			"/webhook/callback alert_form"},
		"a CloudEvent for Slack": {func(w *AlertWebhook) {
			w.Format, w.CloudEvents = AlertFormatSlack, CloudEventsBinary
		}, "/webhook/cloud_events alert_form"},
		"the URL of Slack in plain text": {func(w *AlertWebhook) {
			w.URL = "https://hooks.slack.com/services/T0/B0/xyz"
		}, "/webhook/url alert_form"},
		"the host of Slack alone": {func(w *AlertWebhook) {
			w.Format, w.URL = AlertFormatSlack, "https://hooks.slack.com/"
		}, "/webhook/secret_url required"},
		"the URL of Slack as a secret": {func(w *AlertWebhook) {
			w.URL, w.SecretURL = "https://hooks.slack.com/", value("https://hooks.slack.com/services/T0/B0/xyz")
		}, ""},
		"a secret URL elsewhere": {func(w *AlertWebhook) {
			w.SecretURL = value("https://evil.example/x")
		}, "/webhook/secret_url/value secret_origin"},
		"an invalid secret URL": {func(w *AlertWebhook) { w.SecretURL = value("ftp://canary/") }, "/webhook/secret_url/value url_scheme"},
		"a template as secret URL": {func(w *AlertWebhook) {
			w.SecretURL = value("https://example.com/{{.Job}}")
		}, "/webhook/secret_url/value template_form"},
		"a signed secret URL": {func(w *AlertWebhook) {
			w.SecretURL, w.Auth = value("https://example.com/x"), &Auth{SigV4: &SigV4Auth{Service: "lambda", Region: "eu-central-1"}}
		}, "/webhook/auth alert_form"},
		"PagerDuty without a key":      {func(w *AlertWebhook) { w.Format = AlertFormatPagerDuty }, "/webhook/routing_key required"},
		"a key of another format":      {func(w *AlertWebhook) { w.RoutingKey = value("key") }, "/webhook/routing_key alert_form"},
		"a severity of another format": {func(w *AlertWebhook) { w.Severity = AlertInfo }, "/webhook/severity alert_form"},
		"an unknown severity": {func(w *AlertWebhook) {
			w.Format, w.RoutingKey, w.Severity = AlertFormatPagerDuty, value("key"), "bad"
		}, "/webhook/severity enum"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			var problems input.Problems
			if errors.As(destination(tt.change).Validate(), &problems) {
				for _, p := range problems {
					got = append(got, p.Path+" "+p.Code)
					if strings.Contains(p.Message, "xyz") || strings.Contains(p.Message, "evil") || strings.Contains(p.Message, "canary") {
						t.Errorf("problem repeats a secret: %s", p.Message)
					}
				}
			}
			if strings.Join(got, ", ") != tt.want {
				t.Errorf("problems are %v, want %q", problems, tt.want)
			}
		})
	}
}

func TestDestinationHasOneKind(t *testing.T) {
	t.Parallel()
	both := destination(nil)
	both.SNS = &AlertTopic{TopicARN: "arn:aws:sns:eu-central-1:123456789012:on-call", Timeout: DefaultTimeout}
	for want, d := range map[string]AlertDestination{
		"/webhook": {}, "/sns": both, "/sns/topic_arn": {SNS: &AlertTopic{TopicARN: "on-call", Timeout: DefaultTimeout}},
	} {
		var problems input.Problems
		if !errors.As(d.Validate(), &problems) || len(problems) != 1 || problems[0].Path != want {
			t.Errorf("problems are %v, want one of %s", problems, want)
		}
	}
}

func TestSecretsOfDestinations(t *testing.T) {
	t.Parallel()
	d := destination(func(w *AlertWebhook) {
		w.Format, w.RoutingKey, w.SecretURL = AlertFormatPagerDuty, &Secret{Value: input.NewSensitive("k")},
			&Secret{Value: input.NewSensitive("u")}
		w.Auth = &Auth{Bearer: &BearerAuth{Token: Secret{Value: input.NewSensitive("b")}}}
	})
	want := []string{"/webhook/auth/bearer/token", "/webhook/routing_key", "/webhook/secret_url"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(Secrets(d)))); diff != "" {
		t.Errorf("secrets (-want +got):\n%s", diff)
	}
	kept := map[string]Secret{}
	for path := range Secrets(d) {
		kept[path] = Secret{Stored: true}
	}
	stored := WithSecrets(d, kept)
	if text, _ := json.Marshal(stored); strings.Contains(string(text), "redacted") || !stored.Webhook.RoutingKey.Stored {
		t.Errorf("with stored secrets it is %s", text)
	}
	if d.Webhook.RoutingKey.Stored {
		t.Error("WithSecrets has changed the original")
	}
	if err := stored.CheckKept(stored); err != nil {
		t.Errorf("secrets cannot be kept at the same origin: %v", err)
	}
	moved := *stored.Webhook
	moved.URL = "https://evil.example/"
	var problems input.Problems
	if err := (AlertDestination{Webhook: &moved}).CheckKept(stored); !errors.As(err, &problems) || len(problems) != 3 ||
		problems[1].Path != "/webhook/routing_key/stored" {
		t.Errorf("error is %v, want a problem for each secret", err)
	}
	if text, _ := json.Marshal(d); strings.Contains(string(text), `"value":"k"`) {
		t.Errorf("JSON has the secret: %s", text)
	}
	if text, _ := json.Marshal(ForWire(d)); !strings.Contains(string(text), `"value":"k"`) {
		t.Errorf("JSON for the wire has no secret: %s", text)
	}
}

func TestTemplatesOfAlertsAreFilledIn(t *testing.T) {
	t.Parallel()
	d := destination(func(w *AlertWebhook) {
		w.Format, w.URL = AlertFormatTemplate, "https://example.com/{{.App}}?job={{.Job}}"
		w.Headers = map[string]string{"x-alert": "{{.Alert}} {{.Transition}}"}
		w.Body = `{"m":{{json .Title}},"c":{{.Count}},"e":{{json .Error}},"t":"{{date "%H:%M" .Since}}","by":{{json .By}}}`
	})
	n := failureNotification()
	n.Error = "a \"quote\"\n"
	templates, err := d.Target().Templates()
	if err != nil {
		t.Fatal(err)
	}
	call := Call{App: "payments", Job: "on-call.alert", Target: Target{Webhook: &d.Webhook.Webhook}, Templates: templates, Notification: &n,
		Key: run.Key{ScheduledAt: time.Now()}}
	url, headers, body, err := call.Request()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"https://example.com/payments?job=settle", "on-call firing",
		`{"m":"Job payments/settle failed","c":1,"e":"a \"quote\"\n","t":"02:01","by":null}`}
	if diff := cmp.Diff(want, []string{url, headers["x-alert"], string(body)}); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

func TestTopicsGetAttributesForFilters(t *testing.T) {
	t.Parallel()
	d := AlertDestination{SNS: &AlertTopic{TopicARN: "arn:aws:sns:eu-central-1:123456789012:on-call.fifo"}}
	d.SNS.SetDefaults()
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	templates, err := d.Target().Templates()
	if err != nil {
		t.Fatal(err)
	}
	n := failureNotification()
	n.Transition, n.By = AlertAcknowledged, strings.Repeat("{{ü}}\n", 80)
	input, _ := json.Marshal(n)
	call := Call{
		App: "payments", Job: "on-call.alert", Target: Target{SNS: d.SNS.SNS()}, Templates: templates, Notification: &n, Payload: input,
		Key: run.Key{ScheduledAt: time.Now()}, EventID: "evt_1",
	}
	m, err := call.Message()
	if err != nil {
		t.Fatal(err)
	}
	delete(m.Attributes, AttributeCarillon)
	want := map[string]string{
		"carillon_app": "payments", "carillon_alert": "on-call", "carillon_job": "settle", "carillon_condition": "failure",
		"carillon_transition": "acknowledged",
	}
	if diff := cmp.Diff(want, m.Attributes); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(m.Subject, "Alert on-call of job payments/settle (failure) was acknowledged by {{ü}}") ||
		len([]rune(m.Subject)) > maxSubject || strings.Contains(m.Subject, "\n") {
		t.Errorf("subject is %q", m.Subject)
	}
	if m.Body != string(input) || m.GroupID != "payments/on-call.alert" || m.DeduplicationID != "evt_1" {
		t.Errorf("message is %+v", m)
	}
	n = AlertNotification{App: "payments", Alert: "on-call", Transition: AlertTest}
	if m, err = call.Message(); err != nil || m.Subject != "Test of alert payments/on-call" {
		t.Errorf("test is %+v, %v", m, err)
	}
}

func TestDestinationsAreWithinTheBoundsOfTheApp(t *testing.T) {
	t.Parallel()
	role := &AssumeRole{RoleARN: "arn:aws:iam::123456789012:role/other"}
	others := &AlertTopic{TopicARN: "arn:aws:sns:eu-central-1:123456789012:others", AssumeRole: role}
	for name, tt := range map[string]struct {
		destination AlertDestination
		want        string
	}{
		"a topic": {AlertDestination{SNS: others}, "/sns/topic_arn"},
		"a host":  {destination(nil), "/webhook/url"},
		"a secret": {destination(func(w *AlertWebhook) {
			w.SecretURL = &Secret{Reference: "env:SECRET_OTHER"}
		}), "/webhook/secret_url/reference"},
	} {
		bounds := Bounds{Egress: EgressBounds{Hosts: []string{"a.example"}}}.WithDefaults("payments")
		var problems input.Problems
		if err := bounds.CheckDestination("payments", tt.destination); !errors.As(err, &problems) || problems[0].Path != tt.want {
			t.Errorf("%s: error is %v, want one of %s", name, err, tt.want)
		}
	}
}
