package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/clientcert"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/oidctest"
	"github.com/carillon-dev/carillon/test/servers"
)

// secretiveAlerts are alerts that together have a marked value in every secret field.
func secretiveAlerts(at, certificate, key string) []alert.Alert {
	var alerts []alert.Alert
	add := func(name string, w target.AlertWebhook) {
		alert := alert.Alert{App: "canary", Name: name}
		alert.SetDefaults()
		alert.Missed = true
		alert.Destination.Webhook = &w
		alerts = append(alerts, alert)
	}
	hook := func(name string, auth *target.Auth) target.Webhook {
		return secretiveWebhook(at+"/alert/"+name, auth, certificate, key)
	}
	for name, auth := range secretiveAuths(at, key) {
		add(name, target.AlertWebhook{Webhook: hook(name, auth)})
	}
	whole := target.Secret{Value: input.NewSensitive(at + "/alert/" + mark + "-whole")}
	add("whole", target.AlertWebhook{Webhook: hook("", nil), SecretURL: &whole, Format: target.AlertFormatSlack})
	routing := target.Secret{Value: input.NewSensitive(mark + "-routing")}
	add("duty", target.AlertWebhook{Webhook: hook("duty", nil), RoutingKey: &routing, Format: target.AlertFormatPagerDuty})
	return alerts
}

// secretiveGroups are endpoint groups that together have a marked value in every secret field.
func secretiveGroups(at, certificate, key string) []target.EndpointGroup {
	var groups []target.EndpointGroup
	add := func(name string, w target.Webhook) *target.EndpointGroup {
		groups = append(groups, target.EndpointGroup{App: "canary", Name: name,
			EndpointGroupSpec: target.EndpointGroupSpec{Auth: w.Auth, Signing: w.Signing, TLS: w.TLS,
				Endpoints: map[string]target.StaticEndpoint{"a": {URL: at + "/group/" + name}}}})
		return &groups[len(groups)-1]
	}
	for name, auth := range secretiveAuths(at, key) {
		add(name, secretiveWebhook(at, auth, certificate, key))
	}
	executors := add("executors", target.Webhook{})
	executors.Kind = target.GroupXXLJob
	executors.AccessToken = &target.Secret{Value: input.NewSensitive(mark + "-executors")}
	return groups
}

// ofGroup returns a job with a group as its target.
func ofGroup(group target.EndpointGroup) dispatcher.Job {
	job := webhookJob("canary", "of-"+group.Name, "", nil)
	job.Target = target.Target{Group: &target.GroupTarget{Name: group.Name}}
	if job.Target.Group.SetDefaults(); group.Kind == target.GroupXXLJob {
		job.Target.Group.Method = ""
		job.Target.Group.XXLJob = &target.XXLJobRun{Handler: "demo"}
	}
	return job
}

// secretFields lists the fields of a type that are secrets, as JSON pointers with * for any key.
func secretFields(of reflect.Type, path string) (fields []string) {
	switch {
	case of == reflect.TypeFor[target.Secret]():
		return []string{path}
	case of.Kind() == reflect.Pointer:
		return secretFields(of.Elem(), path)
	case of.Kind() == reflect.Map, of.Kind() == reflect.Slice:
		return secretFields(of.Elem(), path+"/*")
	case of.Kind() == reflect.Struct && strings.Contains(of.PkgPath(), "carillon"):
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			below := path + "/" + name
			if of.Field(i).Anonymous && name == "" {
				below = path
			}
			fields = append(fields, secretFields(of.Field(i).Type, below)...)
		}
	}
	return fields
}

// Every secret field of the types that users declare must be covered by the canary tests.
func TestCanaryIsInEverySecretField(t *testing.T) {
	t.Parallel()
	certificate, key := clientcert.New(t)
	covered := map[string]bool{}
	plant := func(kind string, secrets map[string]target.Secret) {
		for path := range secrets {
			covered[kind+strings.NewReplacer("/secrets/a", "/secrets/*", "/secrets/b", "/secrets/*").Replace(path)] = true
		}
	}
	const at = "https://example.com"
	for _, job := range secretive(at, certificate, key) {
		plant("job", target.Secrets(job))
	}
	for _, alert := range secretiveAlerts(at, certificate, key) {
		plant("alert", target.Secrets(alert))
	}
	for _, group := range secretiveGroups(at, certificate, key) {
		plant("group", target.Secrets(group))
	}
	for kind, declared := range map[string]struct {
		of    reflect.Type
		least int
	}{
		"job": {reflect.TypeFor[dispatcher.Job](), 23}, "alert": {reflect.TypeFor[alert.Alert](), 11},
		"group": {reflect.TypeFor[target.EndpointGroup](), 10}, "app": {reflect.TypeFor[access.App](), 0},
	} {
		fields := secretFields(declared.of, kind)
		if len(fields) < declared.least {
			t.Errorf("found the secret fields %q, want %d or more", fields, declared.least)
		}
		for _, field := range fields {
			if !covered[field] && !strings.Contains(field, "/target/alert/") { // only alerts have that target
				t.Errorf("nothing in canary_test.go and canary_fields_test.go has a secret in %s", field)
			}
		}
	}
}

// Secrets of alerts and groups, callback tokens, the console's client secret at its issuer and
// session ids are not written anywhere, although the receivers echo every request.
func TestNoSecretOfAlertsGroupsAndPeopleIsWrittenAnywhere(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		echo, sent := repeater(t)
		spans, token := servers.NewCollector(t), newToken(t, database)
		certificate, key := clientcert.New(t)
		w := newCanaryNode(t, database, token, echo, spans.URL)
		var runs []run.Run
		for _, a := range secretiveAlerts(echo, certificate, key) {
			stored, err := json.Marshal(must[alert.Alert](t)(w.PutAlert(t.Context(), a, client.Condition{})))
			w.wrote(string(stored), err)
			runs = append(runs, must[run.Run](t)(w.TestAlert(t.Context(), "canary", a.Name)))
		}
		for _, group := range secretiveGroups(echo, certificate, key) {
			stored, err := json.Marshal(must[target.EndpointGroup](t)(w.PutGroup(t.Context(), group, client.Condition{})))
			w.wrote(string(stored), err)
			job := ofGroup(group)
			must[dispatcher.Job](t)(w.PutJob(t.Context(), job, client.Condition{}))
			runs = append(runs, must[run.Run](t)(w.RunJob(t.Context(), "canary", job.Name)))
		}
		long := longJob("canary", "long", echo+"/long", run.DefaultCallbackTimeout)
		must[dispatcher.Job](t)(w.PutJob(t.Context(), long, client.Condition{}))
		for _, run := range append(runs, must[run.Run](t)(w.RunJob(t.Context(), "canary", "long"))) {
			w.attempt(run)
		}
		secrets := append(marks(mark), strings.Split(key, "\n")[1], token)
		if callback := regexp.MustCompile(`Carillon-Callback-Token:\[(\S+)\]`).FindStringSubmatch(sent()); callback == nil {
			t.Error("no token of a callback was sent")
		} else {
			secrets = append(secrets, marks(callback[1])...)
		}
		secrets = append(secrets, w.signIn()...)
		for _, path := range []string{"/metrics", "/metrics/jobs", "/v1/apps/canary/alerts", "/v1/apps/canary/groups", "/v1/apps/canary/runs",
			"/v1/attention", "/v1/audit?limit=1000"} {
			w.wrote(w.get(t, path), nil)
		}
		w.terminate()
		w.wrote(w.logs.String()+dump(t, database), nil)
		for _, secret := range secrets {
			if at := strings.Index(w.written.String(), secret); at >= 0 {
				t.Errorf("%s is written: …%s…", secret, w.written.String()[max(0, at-300):at+40])
			}
			if spans.Holds(secret) {
				t.Errorf("%s is in a span", secret)
			}
		}
		if len(spans.Spans()) == 0 {
			t.Error("no span was exported")
		}
		for _, name := range []string{"token", "header", "query", "session", "env", "file", "client", "issued", "whole", "routing", "executors",
			"people"} {
			if !strings.Contains(sent(), mark+"-"+name) {
				t.Errorf("the %s did not reach its receiver: %s", name, sent())
			}
		}
	})
}

// canaryNode is a node with app canary, and everything that it has written.
type canaryNode struct {
	*process
	t       *testing.T
	written strings.Builder
	runs    []string // the ids of the runs that it has shown
}

// newCanaryNode starts a node that exports spans and has a console with an issuer.
func newCanaryNode(t *testing.T, database, token, echo, spans string) *canaryNode {
	t.Helper()
	dir, issuer := t.TempDir(), oidctest.New(t)
	handle := func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/.well-known/openid-configuration" {
			return false
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": issuer.URL, "jwks_uri": issuer.URL + "/keys",
			"authorization_endpoint": issuer.URL + "/authorize", "token_endpoint": echo + "/no-token"})
		return true
	}
	issuer.Handle.Store(&handle)
	made, _, _ := carillon(t, nil, "secret", "key")
	if err := os.Mkdir(filepath.Join(dir, "canary"), 0o700); err != nil {
		t.Fatal(err)
	}
	others := t.TempDir() // no job may read it
	rules, keys := filepath.Join(others, "rules.json"), filepath.Join(others, "keys")
	for file, text := range map[string]string{
		keys: made, filepath.Join(dir, "canary", "marked"): mark + "-file",
		rules: `{"rules":[{"claims":{"sub":"repo:acme/*"},"scopes":["read"]}]}`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := startNodeWith(t, database, token, []string{
		"SECRET_MARKED=" + mark + "-env", "CARILLON_OIDC_CLIENT_SECRET=" + mark + "-people", "OTEL_EXPORTER_OTLP_ENDPOINT=" + spans,
	}, append(quick(), "--secret-keys-file="+keys, "--secret-dir="+dir, "--log-level=debug", "--callback-url=http://127.0.0.1:1",
		"--console-url=http://127.0.0.1:1", "--oidc-issuer="+issuer.URL, "--oidc-client-id=console", "--oidc-claims="+rules)...)
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "canary", AppSpec: access.AppSpec{Enabled: true,
		Bounds: &target.Bounds{Secrets: []string{"env:SECRET_MARKED", "file:canary/*"}}}}, client.Condition{}))
	return &canaryNode{process: n, t: t}
}

// wrote records a text.
func (w *canaryNode) wrote(text string, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	w.written.WriteString(text)
}

// attempt waits until the first attempt of a run is over, and records all views of the run.
func (w *canaryNode) attempt(r run.Run) {
	w.t.Helper()
	w.runs = append(w.runs, r.ID)
	until(w.t, "an attempt of "+r.Job, func() bool {
		r = must[run.Run](w.t)(w.Run(w.t.Context(), r.ID))
		return len(r.Attempts) > 0 && r.Attempts[0].Class != ""
	})
	text, err := json.Marshal(r)
	w.wrote(string(text), err)
	shown, errs, code := w.commandWith("", "run", "show", r.ID)
	if w.wrote(shown, nil); code != 0 {
		w.t.Errorf("run show: exit %d: %s", code, errs)
	}
	if !strings.HasSuffix(r.Job, ".alert") { // the request of a notification is not shown
		w.wrote(w.get(w.t, "/v1/runs/"+r.ID+"/request"), nil)
	}
}

// signIn signs in to the console, records pages, and fails to sign in at the issuer. It returns the session's secrets.
func (w *canaryNode) signIn() (secrets []string) {
	w.t.Helper()
	v := visitConsole(w.t, w.process)
	for _, cookie := range v.Jar.Cookies(must[*url.URL](w.t)(url.Parse(v.console))) {
		if cookie.Name == "carillon" {
			secrets = append(secrets, marks(cookie.Value)...)
		}
	}
	if len(secrets) == 0 {
		w.t.Error("the session has no cookie")
	}
	pages := []string{"apps/canary/runs", "apps/canary/jobs/long", "apps/canary/alerts/bearer", "apps/canary/groups/bearer", "audit"}
	for _, id := range w.runs {
		pages = append(pages, "runs/"+id)
	}
	for _, at := range pages {
		page := v.get(at)
		if w.wrote(page.text, nil); page.status != http.StatusOK {
			w.t.Errorf("page %s: status %d", at, page.status)
		}
	}
	to := must[*url.URL](w.t)(url.Parse(v.get("login/oidc").location))
	refused := v.get("login/callback?code=" + mark + "-code&state=" + to.Query().Get("state"))
	if w.wrote(refused.text, nil); refused.status < http.StatusBadRequest {
		w.t.Errorf("login: status %d, want it refused, as the issuer did", refused.status)
	}
	return secrets
}
