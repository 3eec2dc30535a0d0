package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/servers"
)

// managed returns references to a marked secret in each manager, by job.
func managed() map[string]string {
	return map[string]string{
		"awssm": "awssm:canary/api#token", "ssm": "ssm:/canary/token", "vault": "vault:secret/data/canary#token",
	}
}

// faults returns all ways in which a manager fails. Some responses echo secrets.
func faults() map[string]servers.Fault {
	return map[string]servers.Fault{
		"throttled":  {Status: http.StatusBadRequest, Code: "ThrottlingException"},
		"denied":     {Status: http.StatusForbidden, Code: "AccessDeniedException"},
		"gone":       {Status: http.StatusNotFound, Code: "ResourceNotFoundException"},
		"a proxy":    {Status: http.StatusBadGateway, Body: "<html>" + mark},
		"not JSON":   {Status: http.StatusOK, Body: mark},
		"wrong JSON": {Status: http.StatusOK, Body: `{"SecretString":["` + mark + `"],"Parameter":"` + mark + `","data":"` + mark + `"}`},
		"another key": {Status: http.StatusOK,
			Body: `{"SecretString":"{\"` + mark + `\":1}","Parameter":{"Value":""},"data":{"data":{"x":"` + mark + `"}}}`},
	}
}

// Nothing that the system writes contains a secret of a manager, the token for it, or a key that
// KMS has decrypted, whatever a manager responds and although the target echoes every request.
func TestNoSecretOfAManagerIsWrittenAnywhere(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		echo, sent := repeater(t)
		aws, vault := servers.NewAWS(t), servers.NewVault(t, mark+"-vault-token")
		aws.PutSecret("canary/api", `{"token":"`+mark+`-awssm"}`)
		aws.PutParameter("/canary/token", mark+"-ssm")
		vault.Put("secret/data/canary", map[string]any{"token": mark + "-vault"})
		keys, tokenFile := filepath.Join(t.TempDir(), "keys"), filepath.Join(t.TempDir(), "token")
		if _, errs, code := carillon(t, aws.Environment(), "secret", "key", "--kms="+kmsARNOfTest, "--out="+keys); code != 0 {
			t.Fatal(errs)
		}
		if err := os.WriteFile(tokenFile, []byte(mark+"-vault-token\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		token := newToken(t, database)
		n := startNodeWith(t, database, token, aws.Environment(), append(quick(), "--secret-keys-file="+keys, "--log-level=debug",
			"--secret-lifetime=1s", "--secret-keep=0s", "--vault-address="+vault.URL, "--vault-token-file="+tokenFile,
			"--secret-aws-role=arn:aws:iam::123456789012:role/{app}")...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "canary", AppSpec: access.AppSpec{Enabled: true, Bounds: &target.Bounds{
			Secrets: []string{"awssm:canary/*", "ssm:/canary/*", "vault:secret/data/canary"},
		}}}, client.Condition{}))
		var written strings.Builder
		attempt := func(job string) run.Attempt {
			r := must[run.Run](t)(n.RunJob(t.Context(), "canary", job))
			until(t, "an attempt of "+job, func() bool {
				r = must[run.Run](t)(n.Run(t.Context(), r.ID))
				return len(r.Attempts) > 0 && r.Attempts[0].Class != ""
			})
			text, _ := json.Marshal(r)
			shown, _, _ := n.commandWith("", "run", "show", r.ID)
			written.WriteString(string(text) + shown)
			return r.Attempts[0]
		}
		for name, reference := range managed() {
			job := webhookJob("canary", name, echo+"/"+name, nil)
			job.Target.Webhook.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Reference: reference}}}
			stored, _ := json.Marshal(must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{})))
			written.Write(stored)
			if got := attempt(name); got.Class != run.ClassHTTP5xx || !strings.Contains(sent(), mark+"-"+name) {
				t.Errorf("%s: attempt = %+v, want that the target got the secret and responded 500", name, got)
			}
		}
		for fault, f := range faults() {
			for _, operation := range []string{"GetSecretValue", "GetParameter"} {
				aws.Fail(operation, f)
			}
			vault.Fail(f)
			for name := range managed() {
				until(t, fault+" to fail "+name, func() bool { return attempt(name).Class == run.ClassSecret })
			}
		}
		for _, path := range []string{"/metrics", "/v1/apps/canary/jobs", "/v1/apps/canary/runs", "/v1/audit?limit=1000", "/v1/nodes"} {
			written.WriteString(n.get(t, path))
		}
		doctor, warnings, _ := carillon(t, append(aws.Environment(), "CARILLON_TOKEN="+token), "doctor", "--database="+database,
			"--secret-keys-file="+keys, "--vault-address="+vault.URL, "--vault-token-file="+tokenFile)
		n.terminate()
		written.WriteString(n.logs.String() + doctor + warnings)
		if written.WriteString(dump(t, database)); !strings.Contains(n.logs.String(), "secret cannot be read") {
			t.Error("the log does not tell that secrets cannot be read")
		}
		for _, secret := range append(marks(mark), token, servers.SecretAccessKey, "session-ASIA", "key-ASIA") {
			if at := strings.Index(written.String(), secret); at >= 0 {
				t.Errorf("%s is written: …%s…", secret, written.String()[max(0, at-300):at+40])
			}
		}
	})
}

const kmsARNOfTest = "arn:aws:kms:eu-central-1:123456789012:key/1234abcd"

// Keys that KMS has encrypted work like others: rewrap moves secrets from a key in a file to one of
// KMS. Without KMS no node starts, and the error says whether waiting helps.
func TestKeysOfKMSReplaceKeysOfFiles(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		echo, _ := repeater(t)
		aws := servers.NewAWS(t)
		keys, token := filepath.Join(t.TempDir(), "keys"), newToken(t, database)
		write := func(lines ...string) {
			if err := os.WriteFile(keys, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		plain, _, _ := carillon(t, nil, "secret", "key")
		sealed, errs, code := carillon(t, aws.Environment(), "secret", "key", "--kms", kmsARNOfTest)
		if code != 0 || !strings.HasPrefix(sealed, "kms:"+kmsARNOfTest+":") {
			t.Fatalf("secret key --kms: exit %d: %s%s", code, sealed, errs)
		}
		write(plain)
		n := startNodeWith(t, database, token, aws.Environment(), append(quick(), "--secret-keys-file="+keys)...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "a", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		job := webhookJob("a", "j", echo, nil)
		job.Target.Webhook.Auth = &target.Auth{
			Bearer: &target.BearerAuth{Token: target.Secret{Value: input.NewSensitive("stored-token")}},
		}
		must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
		n.terminate()

		write(sealed, plain)
		out, errs, code := carillon(t, aws.Environment(), "secret", "rewrap", "--database="+database, "--secret-keys-file="+keys)
		if code != 0 || !strings.HasPrefix(out, "secrets encrypted with key ") {
			t.Fatalf("rewrap: exit %d: %s%s", code, out, errs)
		}
		write(sealed)
		n = startNodeWith(t, database, token, aws.Environment(), append(quick(), "--secret-keys-file="+keys)...)
		r := must[run.Run](t)(n.RunJob(t.Context(), "a", "j"))
		until(t, "the target to get the secret", func() bool {
			r = must[run.Run](t)(n.Run(t.Context(), r.ID))
			return len(r.Attempts) > 0 && r.Attempts[0].Class == run.ClassHTTP5xx
		})
		n.terminate()
		if decrypted := aws.Calls("Decrypt"); decrypted != 2 {
			t.Errorf("KMS decrypted %d times, want once for rewrap and once for the start", decrypted)
		}

		serve := func(env []string, args ...string) (string, int) {
			_, errs, code := carillon(t, env, append([]string{"serve", "--database=" + database, "--listen=127.0.0.1:0"}, args...)...)
			return errs, code
		}
		aws.Fail("Decrypt", servers.Fault{Status: 400, Code: "AccessDeniedException"})
		errs, code = serve(aws.Environment(), "--secret-keys-file="+keys)
		if code != exitUsage || !strings.Contains(errs, "--secret-keys-file") || !strings.Contains(errs, "AccessDeniedException") {
			t.Errorf("denied: exit %d: %s, want %d that names the flag", code, errs, exitUsage)
		}
		if _, code := serve(append(aws.Environment(), "CARILLON_SECRET_KEYS="+strings.TrimSpace(sealed)), "--check"); code != 0 {
			t.Errorf("--check: exit %d, want 0 without a call of KMS", code)
		}
		for _, wrong := range []string{"kms:", "kms:" + kmsARNOfTest, "kms:arn:aws:kms:x:AAAA", "kms:" + kmsARNOfTest + ":?"} {
			if errs, code := serve(append(aws.Environment(), "CARILLON_SECRET_KEYS="+plain+","+wrong), "--check"); code != exitUsage ||
				!strings.Contains(errs, "key 2: ") || strings.Contains(errs, strings.TrimSpace(plain)) {
				t.Errorf("%s: exit %d: %s, want %d that names the second key", wrong, code, errs, exitUsage)
			}
		}
	})
}
