package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/oidctest"
)

// role is the response of the test's STS, in the notation of its API.
const role = `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
	<AccessKeyId>ASIAIOSFODNN7EXAMPLE</AccessKeyId><SecretAccessKey>` + mark + `-role-key</SecretAccessKey>
	<SessionToken>` + mark + `-role-session</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>`

// amazon is a server of STS, which returns credentials of roles, and Lambda, with functions that log them and fail.
func amazon(t *testing.T) (url string, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/invocations") {
			w.Header().Set("Content-Type", "text/xml")
			fmt.Fprintf(w, role, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
			return
		}
		if r.Header.Get("X-Amz-Security-Token") == mark+"-role-session" {
			calls.Add(1)
		}
		tail := "Authorization: " + r.Header.Get("Authorization") + "\nX-Amz-Security-Token: " + r.Header.Get("X-Amz-Security-Token")
		w.Header().Set("X-Amz-Function-Error", "Unhandled")
		w.Header().Set("X-Amz-Log-Result", base64.StdEncoding.EncodeToString([]byte(tail)))
		_, _ = io.WriteString(w, `{"errorMessage":"no such invoice"}`)
	}))
	t.Cleanup(server.Close)
	return server.URL, calls
}

// A role's credentials and a caller's credentials are not written anywhere, and neither is a secret
// in a refused change.
func TestNoCredentialIsWrittenAnywhere(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		aws, calls := amazon(t)
		token, issuer := newToken(t, database), oidctest.New(t)
		rules := filepath.Join(t.TempDir(), "rules.json")
		if err := os.WriteFile(rules, []byte(`{"rules":[{"claims":{"sub":"repo:acme/*"},"scopes":["read","write"]}]}`), 0o600); err != nil {
			t.Fatal(err)
		}
		n := startNodeWith(t, database, token, []string{
			"AWS_ENDPOINT_URL_LAMBDA=" + aws, "AWS_ENDPOINT_URL_STS=" + aws, "AWS_REGION=eu-west-1", "AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE",
			"AWS_SECRET_ACCESS_KEY=" + mark + "-node", "AWS_SESSION_TOKEN=" + mark + "-node", "AWS_CONFIG_FILE=" + os.DevNull,
			"AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
		}, append(quick(), "--log-level=debug", "--oidc-issuer="+issuer.URL, "--oidc-audience="+oidctest.Audience, "--oidc-claims="+rules)...)
		const function = "arn:aws:lambda:eu-west-1:123456789012:function:marked"
		const arn = "arn:aws:iam::123456789012:role/marked"
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "canary", AppSpec: access.AppSpec{Enabled: true, Bounds: &target.Bounds{
			Lambda: target.LambdaBounds{Functions: []string{function}, Roles: []string{arn}},
		}}}, client.Condition{}))
		job := webhookJob("canary", "function", "", nil)
		job.Target = target.Target{Lambda: &target.Lambda{}}
		job.Target.Lambda.SetDefaults()
		job.Target.Lambda.Function, job.Target.Lambda.AssumeRole = function, &target.AssumeRole{RoleARN: arn}
		must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
		r := must[run.Run](t)(n.RunJob(t.Context(), "canary", "function"))
		until(t, "an attempt", func() bool {
			r = must[run.Run](t)(n.Run(t.Context(), r.ID))
			return len(r.Attempts) > 0 && r.Attempts[0].Response != nil
		})
		var written strings.Builder
		if calls.Load() == 0 {
			t.Errorf("the function was not called with the credentials of the role: %+v", r.Attempts)
		}
		// Refused callers and refused changes: the requests of both contain secrets.
		claims := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"` + mark + `"}`))
		for _, bearer := range []string{"eyJhbGciOiJSUzI1NiJ9." + claims + "." + mark + "-signature", "carillon_" + mark, mark} {
			written.WriteString(n.send(t, http.MethodGet, "/v1/apps", bearer, "", http.StatusUnauthorized))
			written.WriteString(n.send(t, http.MethodPut, "/v1/apps/canary/jobs/x", bearer, "{}", http.StatusUnauthorized))
		}
		for body, status := range map[string]int{
			`{"target":{"webhook":{"url":"https://example.com/","auth":{"bearer":{"token":{"value":"` + mark + `\n"}}}}}}`:   422,
			`{"target":{"webhook":{"url":"https://example.com/","auth":{"bearer":{"token":{"value":"` + mark + `"}}}}}}`:     422, // there is no key
			`{"target":{"webhook":{"url":"https://ann:` + mark + `@example.com/"}}}`:                                         422,
			`{"target":{"webhook":{"url":"https://example.com/","auth":{"bearer":{"token":{"reference":"` + mark + `"}}}}}}`: 422,
		} {
			written.WriteString(n.send(t, http.MethodPut, "/v1/apps/canary/jobs/x", token, body, status))
		}
		// A caller with an accepted JSON Web Token makes one change that is accepted and one that is refused.
		jwt := issuer.Sign(jose.ES256, issuer.Claims("repo:acme/ops", time.Now(), map[string]any{"note": mark}))
		written.WriteString(n.send(t, http.MethodPut, "/v1/apps/canary/calendars/free", jwt, "{}", http.StatusCreated))
		written.WriteString(n.send(t, http.MethodPut, "/v1/apps/canary/jobs/x", jwt, `{"target":{}}`, http.StatusUnprocessableEntity))
		shown, _, _ := n.commandWith("", "run", "show", r.ID)
		text, _ := json.Marshal(r)
		written.WriteString(shown + string(text))
		for _, path := range []string{"/metrics", "/v1/apps/canary/jobs", "/v1/apps/canary/runs", "/v1/audit?limit=1000"} {
			written.WriteString(n.get(t, path))
		}
		n.terminate()
		dumped := dump(t, database)
		if !strings.Contains(dumped, "secret_reference") || !strings.Contains(dumped, "repo:acme/ops") {
			t.Error("the refusals, or the subject of the JSON Web Token, are not in the audit log")
		}
		written.WriteString(n.logs.String() + dumped)
		for _, secret := range append(marks(mark), append(strings.Split(jwt, ".")[1:], token)...) {
			if at := strings.Index(written.String(), secret); at >= 0 {
				t.Errorf("%s is written: …%s…", secret, written.String()[max(0, at-300):at+40])
			}
		}
	})
}

// send sends a request, requires a status, and returns the whole response.
func (n *process) send(t *testing.T, method, path, bearer, body string, status int) string {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, n.endpoint+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+bearer)
	q.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != status {
		t.Errorf("%s %s: %d, %v, want %d: %s", method, path, response.StatusCode, err, status, text)
	}
	return fmt.Sprint(response.Header) + string(text)
}
