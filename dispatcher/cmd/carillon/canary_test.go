package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/clientcert"
	"github.com/carillon-dev/carillon/test/need"
)

// mark is part of every secret of the test. Its letters look the same in URLs and in JSON.
const mark = "LINNET"

// marks returns a text in all the notations in which it could be written.
func marks(text string) []string {
	all := []string{text, hex.EncodeToString([]byte(text)), strings.ToUpper(hex.EncodeToString([]byte(text)))}
	for before := range 3 { // bytes of the text in front of it
		encoded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + text))
		all = append(all, encoded[(before*8+5)/6:(before+len(text))*8/6])
	}
	return all
}

// secretiveAuths are all kinds of auth, with a marked value in each secret field, by job.
func secretiveAuths(url, key string) map[string]*target.Auth {
	value := func(name string) target.Secret {
		return target.Secret{Value: input.NewSensitive(mark + "-" + name)}
	}
	token, client, clientKey := value("session"), value("client"), target.Secret{Value: input.NewSensitive(key)}
	return map[string]*target.Auth{
		"basic":  {Basic: &target.BasicAuth{Username: "ann", Password: value("password")}},
		"bearer": {Bearer: &target.BearerAuth{Token: value("token")}},
		"header": {APIKey: &target.APIKeyAuth{Header: "X-Api-Key", Key: value("header")}},
		"query":  {APIKey: &target.APIKeyAuth{Query: "key", Key: value("query &=")}},
		"env":    {Bearer: &target.BearerAuth{Token: target.Secret{Reference: "env:SECRET_MARKED"}}},
		"file":   {Bearer: &target.BearerAuth{Token: target.Secret{Reference: "file:canary/marked"}}},
		"sigv4": {SigV4: &target.SigV4Auth{Service: "lambda", Region: "eu-west-1", Credentials: &target.AWSCredentials{
			AccessKeyID: "AKIAIOSFODNN7EXAMPLE", SecretAccessKey: value("secret"), SessionToken: &token,
		}}},
		"oauth2": {OAuth2: &target.OAuth2Auth{TokenURL: url + "/token", ClientID: "ann", ClientSecret: &client}},
		"posted": {OAuth2: &target.OAuth2Auth{TokenURL: url + "/token", ClientID: "ann", ClientSecret: &client,
			ClientAuth: target.ClientAuthPost}},
		"jwt": {OAuth2: &target.OAuth2Auth{TokenURL: url + "/token", ClientID: "ann", PrivateKey: &clientKey,
			ClientAuth: target.ClientAuthPrivateKeyJWT, Algorithm: target.AlgorithmES256}},
		"refused": {OAuth2: &target.OAuth2Auth{TokenURL: url + "/no-token", ClientID: "ann", ClientSecret: &client}},
	}
}

// secretiveWebhook has marked secrets for signing, and the key of a client certificate.
func secretiveWebhook(url string, auth *target.Auth, certificate, key string) target.Webhook {
	var w target.Webhook
	w.SetDefaults()
	w.URL, w.Auth = url, auth
	w.Signing = &target.Signing{Secrets: map[string]target.Secret{
		"a": {Value: input.NewSensitive("whsec_" + base64.StdEncoding.EncodeToString([]byte(mark+" 0123456789 0123456789 0123456789")))},
		"b": {Value: input.NewSensitive("whsk_" + base64.StdEncoding.EncodeToString([]byte(mark+" 0123456789 0123456789 012")))},
	}}
	w.TLS = &target.TLS{ClientCertificate: certificate, ClientKey: &target.Secret{Value: input.NewSensitive(key)}}
	return w
}

// secretive are jobs that together have a marked value in every secret field, including targets that follow them.
func secretive(url, certificate, key string) map[string]dispatcher.Job {
	jobs := map[string]dispatcher.Job{}
	for name, auth := range secretiveAuths(url, key) {
		job := webhookJob("canary", name, "", nil)
		job.Retry = run.Retry{MaxAttempts: 1, Base: run.DefaultBase, Cap: run.DefaultCap, MaxAge: run.DefaultMaxAge}
		job.Target.Webhook = new(secretiveWebhook(url+"/"+name, auth, certificate, key))
		follow := func(path string) *dispatcher.Follow {
			to := &target.FollowWebhook{URL: url + path + name, Signing: job.Target.Webhook.Signing}
			return &dispatcher.Follow{FollowDestination: target.FollowDestination{Webhook: to}}
		}
		job.OnSuccess, job.OnFailure, job.OnMisfire = follow("/on_success/"), follow("/on_failure/"), follow("/on_misfire/")
		jobs[name] = job
	}
	function := webhookJob("canary", "function", "", nil)
	function.Target = target.Target{Lambda: &target.Lambda{}}
	function.Target.Lambda.SetDefaults()
	function.Target.Lambda.Function = "marked"
	jobs["function"] = function
	return jobs
}

// repeater is a target that echoes and records every request. As Lambda it returns the logs of
// functions.
func repeater(t *testing.T) (url string, sent func() string) {
	t.Helper()
	var mu sync.Mutex
	var all strings.Builder
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		body, _ := io.ReadAll(r.Body) // a body that is no form
		text := fmt.Sprintf("%s %v %v %s\n", r.URL, r.Header, r.PostForm, body)
		mu.Lock()
		all.WriteString(text)
		mu.Unlock()
		if strings.HasSuffix(r.URL.Path, "/invocations") {
			w.Header().Set("X-Amz-Function-Error", "Unhandled")
			w.Header().Set("X-Amz-Log-Result", base64.StdEncoding.EncodeToString([]byte("password="+mark+"-log Authorization: Bearer "+mark+"-log")))
			_, _ = io.WriteString(w, `{"errorMessage":"no such invoice"}`)
			return
		}
		if r.URL.Path == "/token" {
			_, _ = io.WriteString(w, `{"access_token":"`+mark+`-issued","token_type":"Bearer","expires_in":3600}`)
			return
		}
		if r.URL.Path == "/no-token" {
			w.WriteHeader(http.StatusUnauthorized)
			said, _ := json.Marshal(map[string]string{"error": "invalid_client", "error_description": r.Header.Get("Authorization")})
			_, _ = w.Write(said)
			return
		}
		w.Header().Set("Location", r.URL.String())
		w.Header().Set("X-Request-Id", r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"))
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() string {
		mu.Lock()
		defer mu.Unlock()
		return all.String()
	}
}

// refusals returns the responses of a node to changes of a job with invalid values.
func (n *process) refusals(t *testing.T, job dispatcher.Job) string {
	t.Helper()
	if job.Target.Webhook == nil {
		return ""
	}
	long := job
	long.Description = strings.Repeat("x", 2000)
	_, tooLong := n.PutJob(t.Context(), long, client.Condition{})
	kept, wrong := target.Secrets(job.Target), target.Secrets(job.Target)
	stored := 0
	for path, secret := range kept {
		if wrong[path] = (target.Secret{Value: input.NewSensitive("\n" + mark)}); secret.Reference == "" {
			kept[path] = target.Secret{Stored: true}
			stored++
		}
	}
	job.Target = target.WithSecrets(job.Target, wrong)
	_, malformed := n.PutJob(t.Context(), job, client.Condition{})
	job.Target = target.WithSecrets(job.Target, kept)
	job.Target.Webhook.URL = "https://example.com/"
	_, moved := n.PutJob(t.Context(), job, client.Condition{Existing: true})
	var refused *client.Error
	if !errors.As(moved, &refused) || refused.Status != http.StatusUnprocessableEntity ||
		len(refused.Problems) != stored || refused.Problems[0].Code != input.CodeSecretOrigin {
		t.Errorf("moved to another host: %v, want secret_origin of %d secrets", moved, stored)
	}
	if tooLong == nil || malformed == nil {
		t.Errorf("refusals = %v, %v, want both", tooLong, malformed)
	}
	return fmt.Sprint(tooLong, malformed, moved)
}

// Nothing that the system writes contains a secret, although the target echoes every request.
func TestNoSecretIsWrittenAnywhere(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		echo, sent := repeater(t)
		certificate, key := clientcert.New(t)
		token := newToken(t, database)
		dir := t.TempDir()
		keys := filepath.Join(t.TempDir(), "keys")
		if err := os.Mkdir(filepath.Join(dir, "canary"), 0o700); err != nil {
			t.Fatal(err)
		}
		made, _, _ := carillon(t, nil, "secret", "key")
		for file, text := range map[string]string{keys: made, filepath.Join(dir, "canary", "marked"): mark + "-file"} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		n := startNodeWith(t, database, token, []string{
			"SECRET_MARKED=" + mark + "-env", "AWS_ENDPOINT_URL_LAMBDA=" + echo, "AWS_REGION=eu-west-1", "AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE",
			"AWS_SECRET_ACCESS_KEY=" + mark + "-aws", "AWS_SESSION_TOKEN=" + mark + "-aws", "AWS_CONFIG_FILE=" + os.DevNull,
			"AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
		}, append(quick(), "--secret-keys-file="+keys, "--secret-dir="+dir, "--log-level=debug")...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "canary", AppSpec: access.AppSpec{Enabled: true,
			Bounds: &target.Bounds{Secrets: []string{"env:SECRET_MARKED", "file:canary/*"},
				Lambda: target.LambdaBounds{Functions: []string{"marked"}}}}}, client.Condition{}))
		var written strings.Builder
		jobs := secretive(echo, certificate, key)
		for name, job := range jobs {
			stored, err := json.Marshal(must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{})))
			written.Write(stored)
			fmt.Fprint(&written, err, n.refusals(t, job))
			r := must[run.Run](t)(n.RunJob(t.Context(), "canary", name))
			until(t, "an attempt of "+name, func() bool {
				r = must[run.Run](t)(n.Run(t.Context(), r.ID))
				return len(r.Attempts) > 0 && (r.Attempts[0].Response != nil || r.Attempts[0].Class == run.ClassOAuth2)
			})
			if job.Target.Lambda != nil && !strings.Contains(r.Attempts[0].Response.LogTail, "***") {
				t.Errorf("answer = %+v, want the log without what looks like a secret", r.Attempts[0].Response)
			}
			text, _ := json.Marshal(r)
			written.Write(text)
			shown, _, code := n.commandWith("", "run", "show", r.ID)
			if written.WriteString(shown); code != 0 ||
				job.Target.Webhook != nil && !strings.Contains(shown, "[redacted]") ||
				name != "refused" && !strings.Contains(shown, "first byte") {
				t.Errorf("run show: exit %d:\n%s", code, shown)
			}
		}
		until(t, "a request of what follows a failure", func() bool { return strings.Contains(sent(), "/on_failure/bearer") })
		for _, path := range []string{"/metrics", "/v1/apps/canary/jobs", "/v1/apps/canary/runs",
			"/v1/apps/canary/verify", "/v1/audit?limit=1000", "/v1/nodes", "/openapi.json"} {
			written.WriteString(n.get(t, path))
		}
		log, _, _ := n.audit(t, "--output=jsonl", "--since=2000-01-01T00:00:00Z")
		for _, shown := range []string{"hash:", `"refused":"secret_origin"`} {
			if written.WriteString(log); !strings.Contains(log, shown) {
				t.Errorf("the audit log does not show %s:\n%s", shown, log)
			}
		}
		n.terminate()
		written.WriteString(n.logs.String())
		dumped := dump(t, database)
		if written.WriteString(dumped); !strings.Contains(dumped, "[redacted]") {
			t.Error("the dump holds no response")
		}
		for _, secret := range append(marks(mark), strings.Split(key, "\n")[1], token, strings.TrimSpace(made)) {
			if at := strings.Index(written.String(), secret); at >= 0 {
				t.Errorf("%s is written: …%s…", secret, written.String()[max(0, at-300):at+40])
			}
		}
		for _, name := range []string{"token", "header", "query", "session", "env", "file", "aws",
			"client", "issued"} { // base64 hides the password
			if !strings.Contains(sent(), mark+"-"+name) {
				t.Errorf("the %s did not reach the target: %s", name, sent())
			}
		}
		// Without the key, no node starts.
		if _, errs, code := carillon(t, nil, "serve", "--database", database,
			"--listen=127.0.0.1:0"); code != exitUsage || !strings.Contains(errs, "--secret-keys-file") {
			t.Errorf("without the key: exit %d: %s, want %d that names the flag", code, errs, exitUsage)
		}
	})
}

// get reads a route of the API.
func (n *process) get(t *testing.T, path string) string {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.endpoint+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+n.token)
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %d, %v", path, response.StatusCode, err)
	}
	return string(text)
}

// dump returns the whole content of a database.
func dump(t *testing.T, database string) string {
	t.Helper()
	var all strings.Builder
	if path, ok := strings.CutPrefix(database, "sqlite:"); ok {
		files, err := filepath.Glob(path + "*")
		if err != nil || len(files) == 0 {
			t.Fatalf("files of %s: %v, %v", path, files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
		return all.String()
	}
	c, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	texts := func(query string) []string {
		rows, err := c.Query(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for _, table := range texts(`SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()`) {
		for _, row := range texts(`SELECT CAST(t AS text) FROM ` + pgx.Identifier{table}.Sanitize() + ` AS t`) {
			all.WriteString(row)
		}
	}
	return all.String()
}
