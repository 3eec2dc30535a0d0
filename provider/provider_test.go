package provider_test

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/test/clientcert"
	"github.com/carillon-dev/carillon/test/need"
)

func TestInvalidProviderBlocksAreRefused(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	unset := []string{"CARILLON_ENDPOINT=", "CARILLON_TOKEN="}
	for name, tt := range map[string]struct {
		arguments   string
		environment []string
		wants       []string
	}{
		"nothing set": {"", unset, []string{
			"Missing endpoint of the Carillon provider", "environment variable CARILLON_ENDPOINT",
			"Missing token of the Carillon provider", "environment variable CARILLON_TOKEN", "carillon token create",
		}},
		"no scheme": {`endpoint = "localhost:8080"`, nil, []string{
			`The endpoint "localhost:8080" is not a URL. Write it as https://host:8080.`,
		}},
		"no URL":        {`endpoint = "::"`, nil, []string{`The endpoint "::" is not a URL`, "(provider_endpoint)"}},
		"wrong scheme":  {`endpoint = "ftp://host"`, nil, []string{`has the scheme "ftp"; it must be http or https`}},
		"no host":       {`endpoint = "https:///v1"`, nil, []string{"has no host"}},
		"query":         {`endpoint = "https://host/?a=b"`, nil, []string{"has a query or fragment"}},
		"password":      {"", []string{"CARILLON_ENDPOINT=https://me:hunter2@host"}, []string{"contains a user name or password"}},
		"from variable": {"", []string{"CARILLON_ENDPOINT=nonsense"}, []string{`The endpoint "nonsense" is not a URL`}},
		"token with line break": {"", []string{"CARILLON_TOKEN=hunter2\n"}, []string{
			"The token contains a space, a line break or another character",
		}},
		"wrong token": {"", []string{"CARILLON_TOKEN=hunter2"}, []string{"does not accept the token (401)", "carillon token create"}},
		"no duration": {`retry_for = "soon"`, nil, []string{"Invalid retry_for of the Carillon provider", "give a duration such as 30s"}},
		"too long":    {`retry_for = "2h"`, nil, []string{"2h is outside the range from 0s to 1h"}},
		"unreachable": {"endpoint = \"http://127.0.0.1:1\"\n retry_for = \"0s\"", nil, []string{
			"cannot be reached (provider_endpoint)", "Check that a dispatcher is running at http://127.0.0.1:1 and that this is the right endpoint.",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := f.directory(t, providerBlock(tt.arguments), `data "carillon_nodes" "all" {}`).with(tt.environment...)
			output := d.mustFail(t, []string{"plan"}, tt.wants...)
			if strings.Contains(output, "hunter2") {
				t.Errorf("the output shows a secret:\n%s", output)
			}
		})
	}
}

func TestPlainHTTPToAnotherMachineGivesAWarning(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	for endpoint, warns := range map[string]bool{
		"http://192.0.2.1": true, "http://[2001:db8::1]:8080": true,
		"https://192.0.2.1": false, "http://localhost:1": false, "http://[::1]:1": false, "http://127.9.9.9:1": false,
	} {
		output := f.directory(t, providerBlock(""), app).with("CARILLON_ENDPOINT="+endpoint).must(t, "plan")
		if got := strings.Contains(output, "The token is sent unencrypted"); got != warns {
			t.Errorf("plan with %s warns: %v, want %v", endpoint, got, warns)
		}
	}
}

// A plan that creates everything reads no state, so its own first request has to find what is wrong with the provider block.
func TestFirstPlanFailsAtWrongEndpointOrToken(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	for name, tt := range map[string]struct {
		environment string
		wants       []string
	}{
		"wrong token":    {"CARILLON_TOKEN=carillon_wrong", []string{"does not accept the token (401)", "carillon token create"}},
		"wrong path":     {"CARILLON_ENDPOINT=" + f.endpoint + "/v1", []string{"is not the base URL of a dispatcher's API", "Leave out the"}},
		"wrong scheme":   {"CARILLON_ENDPOINT=" + strings.Replace(f.endpoint, "http", "https", 1), []string{"HTTP response to HTTPS client"}},
		"another server": {"CARILLON_ENDPOINT=" + another(t), []string{"does not come from Carillon (provider_endpoint)"}},
	} {
		d := f.directory(t, providerBlock(""), job(hook+daily)).with(tt.environment)
		output := d.mustFail(t, []string{"plan"}, tt.wants...)
		if n := strings.Count(output, "Error: "); n != 1 {
			t.Errorf("%s: the plan has %d errors, want one:\n%s", name, n, output)
		}
	}
}

// another starts a server that is not Carillon's.
func another(t *testing.T) string {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	return server.URL
}

func TestFirstPlanWithoutNodeSaysThatNothingWasChecked(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, providerBlock(""), job(hook+daily)).with("CARILLON_ENDPOINT=http://127.0.0.1:1")
	output := d.must(t, "plan")
	mustSay(t, output, "2 to add", "Nothing was checked against Carillon", "No node could be reached", "unless this apply starts it")
	if n := strings.Count(output, "Nothing was checked"); n != 1 {
		t.Errorf("the plan has %d such warnings, want one:\n%s", n, output)
	}
}

func TestProviderShowsClientCertificate(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f, ca, dir := newFixture(t), clientcert.NewAuthority(t), t.TempDir()
	server := httptest.NewUnstartedServer(api.New(f.store, api.Options{Logger: slog.New(slog.DiscardHandler), ClientCertificates: true}))
	pair, err := tls.X509KeyPair(ca.Issue(1, time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: ca.Pool(), ClientAuth: tls.VerifyClientCertIfGiven}
	server.StartTLS()
	t.Cleanup(server.Close)
	cert, key := ca.Issue(2, time.Now().Add(time.Hour))
	for name, text := range map[string][]byte{"ca": ca.PEM(), "cert": cert, "key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := func(arguments string, environment ...string) directory {
		return f.directory(t, providerBlock(arguments), app).with(append(environment, "CARILLON_ENDPOINT="+server.URL)...)
	}
	trusts := "CARILLON_CA_CERT=" + filepath.Join(dir, "ca")
	mustSay(t, at("", trusts, "CARILLON_CLIENT_CERT="+filepath.Join(dir, "cert"), "CARILLON_CLIENT_KEY="+filepath.Join(dir, "key")).
		must(t, "plan"), "1 to add")
	shown := at(fmt.Sprintf("ca_cert = %q\nclient_cert = %q\nclient_key = %q", ca.PEM(), cert, key))
	shown.must(t, "apply", "-auto-approve")
	at("").mustFail(t, []string{"plan"}, "certificate signed by unknown authority")
	at("", trusts).mustFail(t, []string{"plan"}, "a client certificate of an authority in --client-ca is needed",
		"set client_cert and client_key")
	at("", "CARILLON_CLIENT_CERT="+filepath.Join(dir, "cert")).mustFail(t, []string{"plan"}, "client_cert and client_key go together")
	output := at(fmt.Sprintf("client_cert = %q\nclient_key = %q", key, key)).mustFail(t, []string{"plan"}, "client_cert the text")
	if strings.Contains(output, "PRIVATE KEY-----\n") {
		t.Errorf("the output shows a key:\n%s", output)
	}
}

func TestEndpointMayBeUnknownAtPlan(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	later := providerBlock("endpoint = terraform_data.endpoint.output") + `
		resource "terraform_data" "endpoint" {
		  input = "` + f.endpoint + `"
		}
	`
	d := f.directory(t, later, app)
	mustSay(t, d.must(t, "plan"), "2 to add")
	d.must(t, "apply", "-auto-approve")
	if _, err := f.outside.App(t.Context(), "crm"); err != nil {
		t.Error(err)
	}
	f.directory(t, later, `data "carillon_nodes" "all" {}`).mustFail(t, []string{"plan"},
		"The Carillon provider is not configured yet", "The endpoint of the provider block is known only after apply")
}

func TestReadOnlyTokenIsReported(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	token := f.newToken(t, access.APIToken{ID: "reader", Name: "reader",
		TokenSpec: access.TokenSpec{Scopes: []access.Scope{access.ScopeRead}}})
	f.directory(t, providerBlock(""), app).with("CARILLON_TOKEN="+token).mustFail(t, []string{"apply", "-auto-approve"},
		"The token does not allow this (403)", `Could not create app "crm"`, "the scopes read and write")
}

func TestTokenIsNotWrittenToState(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(job(hook+daily))+`
		data "carillon_nodes" "all" {}
		data "carillon_runs" "all" {
		  app = carillon_job.j.app
		}
	`)
	output := d.must(t, "apply", "-auto-approve")
	state := contents(t, filepath.Join(d.path, "terraform.tfstate"))
	if !strings.Contains(state, "crm/nightly") || strings.Contains(state, f.token) || strings.Contains(output, f.token) {
		t.Errorf("the state must name the job and neither state nor output the token:\n%s\n%s", output, state)
	}
}

func TestNotFoundFromAProxyRemovesNothing(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, providerBlock(""), job(hook+daily))
	d.must(t, "apply", "-auto-approve")
	proxy := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(proxy.Close)
	d.with("CARILLON_ENDPOINT="+proxy.URL).mustFail(t, []string{"apply", "-auto-approve"}, "The response does not come from Carillon")
	mustSay(t, d.must(t, "state", "list"), "carillon_job.j")
	mustSay(t, d.must(t, "plan"), "No changes.")
}

// A wrong endpoint that returns success for every request must not make a plan create, replace or
// destroy anything.
func TestSuccessFromAnotherServerRemovesNothing(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, providerBlock(""), job(hook+daily))
	d.must(t, "apply", "-auto-approve")
	for name, response := range map[string]http.HandlerFunc{
		"an empty 200": func(http.ResponseWriter, *http.Request) {},
		"a 204":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"{}": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte("{}"))
		},
		"another app and job": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"app":"other","name":"other","revision":1}`))
		},
	} {
		other := httptest.NewServer(response)
		t.Cleanup(other.Close)
		output := d.with("CARILLON_ENDPOINT="+other.URL).mustFail(t, []string{"plan"}, "The response does not come from Carillon")
		if strings.Contains(output, "to add") {
			t.Errorf("%s: a plan was made:\n%s", name, output)
		}
	}
	mustSay(t, d.must(t, "plan"), "No changes.")
}

func TestQuickstartIsAppliedChangedAndDestroyed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var files []string
	for _, name := range []string{"main.tf", "variables.tf", "outputs.tf"} {
		files = append(files, contents(t, filepath.Join(examplesDir, "quickstart", name)))
	}
	d := f.directory(t, files...)
	mustSay(t, d.must(t, "apply", "-auto-approve"), "4 added", `"quickstart/heartbeat" = "http://127.0.0.1:8089/heartbeat"`)
	d.must(t, "plan", "-detailed-exitcode")
	variables := []string{
		"-var=receiver_url=http://127.0.0.1:9", "-var=heartbeat_expression=@every 3s", "-var=one_shot_at=2099-01-01T00:00:00Z",
	}
	mustSay(t, d.must(t, append([]string{"apply", "-auto-approve"}, variables...)...), "1 added, 3 changed")
	d.must(t, append([]string{"plan", "-detailed-exitcode"}, variables...)...)
	got, err := f.outside.Job(t.Context(), "quickstart", "heartbeat")
	if err != nil || got.Target.Webhook.URL != "http://127.0.0.1:9/heartbeat" || got.Triggers["often"].Expression != "@every 3s" {
		t.Errorf("heartbeat after the change = %+v, %v", got, err)
	}
	mustSay(t, d.must(t, "destroy", "-auto-approve"), "5 destroyed")
	if _, err := f.outside.App(t.Context(), "quickstart"); err == nil {
		t.Error("the app is still there")
	}
}

func TestExamplesAreValid(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	files, err := filepath.Glob(filepath.Join(examplesDir, "[drf]*s", "*", "*.tf"))
	if err != nil || len(files) == 0 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, file := range files {
		f.directory(t, providerBlock(""), contents(t, file)).must(t, "validate")
	}
	if _, err := os.Stat(filepath.Join(examplesDir, "provider", "provider.tf")); err != nil {
		t.Error(err)
	}
	f.directory(t, contents(t, filepath.Join(examplesDir, "provider", "provider.tf"))).must(t, "validate")
}
