package invoke_test

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// ofTransport are headers that the connection adds; they are not part of the job.
var ofTransport = []string{"Accept-Encoding", "Connection", "Content-Length"}

func TestShownRequestIsTheSentOneWithMaskedSecrets(t *testing.T) {
	t.Parallel()
	i := withSecrets(t, map[string]string{"password": "canary", "token": "canary", "key": "canary",
		"sign": "whsec_Y2FuYXJ5LWluLXRoZS1jb2FsLW1pbmUhIQ=="})
	url, requests := recorder(t)
	for name, change := range map[string]func(w *target.Webhook){
		"plain": func(*target.Webhook) {},
		"a get": func(w *target.Webhook) { w.Method, w.URL = "GET", url+"/in?a=b&c=%20d" },
		"templates": func(w *target.Webhook) {
			w.URL, w.Method, w.Body = url+"/{{.Job}}/{{.Attempt}}?at={{.Run}}", "PUT", `{"of": {{json .App}}, "on": "{{.Kind}}"}`
			w.Headers = map[string]string{"X-Of": "{{.App}}/{{.Job}}", "Cookie": "canary"}
		},
		"basic": func(w *target.Webhook) {
			w.Auth = &target.Auth{Basic: &target.BasicAuth{Username: "ann", Password: secretFile("password")}}
		},
		"bearer and trace": func(w *target.Webhook) {
			w.Auth, w.TraceContext = &target.Auth{Bearer: &target.BearerAuth{Token: secretFile("token")}}, true
		},
		"key in a header": func(w *target.Webhook) {
			w.Auth = &target.Auth{APIKey: &target.APIKeyAuth{Header: "x-shop-key", Key: secretFile("key")}}
		},
		"key in the query": func(w *target.Webhook) {
			w.URL, w.Auth = url+"/?a=b", &target.Auth{APIKey: &target.APIKeyAuth{Query: "key", Key: secretFile("key")}}
		},
		"signed": func(w *target.Webhook) {
			w.Signing = &target.Signing{Secrets: map[string]target.Secret{"primary": secretFile("sign")}}
		},
	} {
		call := callTo(url+"/in", "POST", ample)
		call.Payload = json.RawMessage(`{"n": 9007199254740993}`)
		change(call.Target.Webhook)
		var err error
		if call.Templates, err = call.Target.Templates(); err != nil {
			t.Fatal(err)
		}
		o := i.Invoke(t.Context(), call)
		if o.State != run.Succeeded {
			t.Fatalf("%s: outcome %+v", name, o)
		}
		shown := i.Show(call, nil, time.Now())
		wantSame(t, name, url, shown, <-requests)
		if text, _ := json.Marshal(shown); strings.Contains(string(text), "canary") || shown.Problem != "" {
			t.Errorf("%s: a secret or a problem is shown: %s", name, text)
		}
	}
}

func TestShownNotificationIsTheSentOneWithMaskedSecrets(t *testing.T) {
	t.Parallel()
	i := withSecrets(t, nil)
	url, requests := recorder(t)
	for name, change := range map[string]func(w *target.AlertWebhook){
		"carillon": func(*target.AlertWebhook) {},
		"slack":    func(w *target.AlertWebhook) { w.Format = target.AlertFormatSlack },
		"pagerduty": func(w *target.AlertWebhook) {
			w.Format, w.RoutingKey = target.AlertFormatPagerDuty, secretOf("canary")
		},
		"template": func(w *target.AlertWebhook) { w.Format, w.Body = target.AlertFormatTemplate, "{{.AlertJob}}" },
	} {
		call := alertTo(url+"/", change)
		if o := i.Invoke(t.Context(), call); o.State != run.Succeeded {
			t.Fatalf("%s: outcome %+v", name, o)
		}
		shown, sent := i.Show(call, nil, time.Now()), <-requests
		sent.body = []byte(strings.ReplaceAll(string(sent.body), "canary", target.Mask))
		wantSame(t, name, url, shown, sent)
		if text, _ := json.Marshal(shown); strings.Contains(string(text), "canary") || shown.Problem != "" {
			t.Errorf("%s: a secret or a problem is shown: %s", name, text)
		}
	}
}

// wantSame compares the shown request with the received one.
func wantSame(t *testing.T, name, server string, shown target.ShownRequest, sent received) {
	t.Helper()
	if to := strings.ReplaceAll(shown.URL, target.Mask, "canary"); to != server+sent.url.RequestURI() {
		t.Errorf("%s: the URL is shown as %s, sent was %s", name, shown.URL, sent.url)
	}
	if shown.Method != sent.method || shown.Body != string(sent.body) {
		t.Errorf("%s: shown is %s with %q, sent was %s with %q", name, shown.Method, shown.Body, sent.method, sent.body)
	}
	names := map[string]bool{}
	for _, header := range shown.Headers {
		names[http.CanonicalHeaderKey(header.Name)] = true
		got := strings.Join(sent.header.Values(header.Name), ", ")
		switch {
		case header.Masked:
			kept, _, _ := strings.Cut(header.Value, target.Mask)
			if got == "" || got == header.Value || !strings.HasPrefix(got, kept) {
				t.Errorf("%s: header %s is shown as %q, sent was %q", name, header.Name, header.Value, got)
			}
		case header.Name == "Webhook-Timestamp": // of the attempt, and of now
		case header.Value != got:
			t.Errorf("%s: header %s is shown as %q, sent was %q", name, header.Name, header.Value, got)
		}
	}
	for _, header := range slices.Sorted(maps.Keys(sent.header)) {
		if !names[header] && !slices.Contains(ofTransport, header) {
			t.Errorf("%s: header %s was sent as %q and is not shown", name, header, sent.header.Values(header))
		}
	}
}

func TestShownEventIsTheSentOne(t *testing.T) {
	t.Parallel()
	s := newAWS(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) })
	i := s.invoker()
	call := invocation(func(l *target.Lambda) { l.ClientContext = json.RawMessage(`{"custom":{"a":"b"}}`) })
	if o := i.Invoke(t.Context(), call); o.State != run.Succeeded {
		t.Fatalf("outcome %+v", o)
	}
	shown, r := i.Show(call, nil, time.Now()), s.invokes[0]
	given, err := base64.StdEncoding.DecodeString(r.Header.Get("X-Amz-Client-Context"))
	if err != nil || shown.ClientContext != string(given) {
		t.Errorf("the client context is shown as %s, sent was %s (%v)", shown.ClientContext, given, err)
	}
	if shown.Body != s.bodies[0] || shown.Problem != "" {
		t.Errorf("the event is shown as %s (%s), sent was %s", shown.Body, shown.Problem, s.bodies[0])
	}
	if shown.Invocation != r.Header.Get("X-Amz-Invocation-Type") || !strings.Contains(r.URL.Path, "/"+shown.Function+"/") {
		t.Errorf("shown are %s and %s, sent was %s to %s", shown.Function, shown.Invocation, r.Header.Get("X-Amz-Invocation-Type"), r.URL.Path)
	}
}
