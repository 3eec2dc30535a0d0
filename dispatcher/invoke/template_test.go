package invoke_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// templatedCall returns a call to address with templates.
func templatedCall(t *testing.T, address string, change func(*target.Webhook)) target.Call {
	t.Helper()
	call := callTo(address, "POST", ample)
	call.Payload = json.RawMessage(`{"a": "<1>"}`)
	call.PreviousFire, call.NextFire = call.Key.ScheduledAt.Add(-time.Hour), call.Key.ScheduledAt.Add(time.Hour)
	change(call.Target.Webhook)
	var err error
	if call.Templates, err = call.Target.Templates(); err != nil {
		t.Fatal(err)
	}
	return call
}

func TestTemplatesAreFilledInBeforeSigning(t *testing.T) {
	t.Parallel()
	secret := symmetric('s', 32)
	i := withSecrets(t, map[string]string{"s": secret})
	address, requests := recorder(t)
	call := signedBy(templatedCall(t, address, func(w *target.Webhook) {
		w.URL += `/{{date "%Y/%m" .ScheduledAt}}/{{.Job}}?from={{.PreviousFire}}&p={{json .Payload}}`
		w.Headers = map[string]string{"X-Run": "{{.Run}}", "X-Plain": "{}", "Content-Type": "text/x-{{.Kind}}"}
		w.Body = "{{.ScheduledAt}}/{{.NextFire}} {{.Attempt}}"
	}), "s")
	if o := i.Invoke(t.Context(), call); o.State != run.Succeeded {
		t.Fatalf("outcome = %+v", o)
	}
	got := <-requests
	query := got.url.Query()
	say := map[string]string{
		"path": got.url.EscapedPath(), "from": query.Get("from"), "p": query.Get("p"), "body": string(got.body),
		"X-Run": got.header.Get("X-Run"), "X-Plain": got.header.Get("X-Plain"), "Content-Type": got.header.Get("Content-Type"),
	}
	want := map[string]string{
		"path": "/2026%2F05/ping", "from": "2026-05-01T09:00:00.000Z", "p": `{"a":"<1>"}`,
		"body":  "2026-05-01T10:00:00.000Z/2026-05-01T11:00:00.000Z 2",
		"X-Run": call.Key.String(), "X-Plain": "{}", "Content-Type": "text/x-schedule",
	}
	if diff := cmp.Diff(want, say); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	library, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := library.Verify(got.body, got.header); err != nil {
		t.Errorf("the signature is not that of what was sent: %v", err)
	}
}

func TestBodyTemplateBecomesTheDataOfACloudEvent(t *testing.T) {
	t.Parallel()
	address, requests := recorder(t)
	call := templatedCall(t, address, func(w *target.Webhook) {
		w.Headers, w.CloudEvents, w.Body = nil, target.CloudEventsStructured, `{"since":{{json .PreviousFire}}}`
	})
	if o := newInvoker(t).Invoke(t.Context(), call); o.State != run.Succeeded {
		t.Fatalf("outcome = %+v", o)
	}
	var event struct{ Data json.RawMessage }
	err := json.Unmarshal((<-requests).body, &event)
	if err != nil || string(event.Data) != `{"since":"2026-05-01T09:00:00.000Z"}` {
		t.Errorf("data = %s (%v)", event.Data, err)
	}
}

// A template may fail with the values of a run. Then nothing is sent, and the error contains no part of the payload.
func TestFailedTemplatesAreNotSent(t *testing.T) {
	t.Parallel()
	address, requests := recorder(t)
	i := newInvoker(t)
	for name, change := range map[string]func(*target.Webhook){
		"URL":    func(w *target.Webhook) { w.URL += "/{{json .Payload}}" },
		"header": func(w *target.Webhook) { w.Headers = map[string]string{"X-A": "{{json .Payload}}"} },
		"body":   func(w *target.Webhook) { w.Body = strings.Repeat("{{json .Payload}}", 32) },
		"event": func(w *target.Webhook) {
			w.CloudEvents, w.Body = target.CloudEventsStructured, "{{json .Payload}},"
		},
	} {
		call := templatedCall(t, address, change)
		call.Payload = json.RawMessage(`"` + strings.Repeat("hunter2", 2000) + `"`)
		o := i.Invoke(t.Context(), call)
		if o.State != run.Failed || o.Class != run.ClassTemplate || o.Class.Repeatable(0) ||
			!o.Class.NeverSent() {
			t.Errorf("%s: outcome = %+v, want a failure of class template that is not repeated", name, o)
		}
		if len(o.Error) == 0 || len(o.Error) > 1024 || strings.Contains(o.Error, "hunter2") {
			t.Errorf("%s: error = %q", name, o.Error)
		}
	}
	if n := len(requests); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}
