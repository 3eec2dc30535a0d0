package provider_test

import (
	"archive/zip"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/clientcert"
	"github.com/carillon-dev/carillon/test/need"
)

// secretJob returns a job with secrets from an ephemeral variable.
func secretJob(version int) string {
	secret := func(value string) string {
		return fmt.Sprintf("value = %s\n value_version = %d", value, version)
	}
	return job(fmt.Sprintf(`target {
		webhook {
			url     = "https://example.com/hook"
			signing {
				secret {
					name = "a"
					%s
				}
				secret {
					name      = "b"
					reference = "env:SECRET_CRM_B"
				}
			}
			auth {
				sigv4 {
					service = "lambda"
					region = "eu-west-1"
					credentials {
						access_key_id = "AKIAIOSFODNN7EXAMPLE"
						secret_access_key {
							%s
						}
						session_token {
							%s
						}
					}
				}
			}
		}
	}
	`, secret(`"whsec_${base64encode("${var.canary} 0123456789 0123456789")}"`),
		secret(`"${var.canary}-key"`), secret(`"${var.canary}-token"`))+daily) + `
	variable "canary" {
		type      = string
		ephemeral = true
	}
	`
}

// stored returns the secrets of the job as a node gets them.
func (f *fixture) stored(t *testing.T) map[string]string {
	t.Helper()
	jobs, err := f.store.JobsByID(t.Context(), []int64{run.JobID("crm", "nightly")})
	if err != nil || len(jobs) != 1 {
		t.Fatalf("jobs = %v, %v", jobs, err)
	}
	values := map[string]string{}
	for path, secret := range target.Secrets(jobs[0].Target) {
		values[path[strings.LastIndex(path, "/")+1:]] = secret.Reference + secret.Value.Reveal()
	}
	return values
}

func TestSecretsAreSentByVersionAndNeverWrittenToDisk(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(secretJob(1)))
	file := filepath.Join(d.path, "file0.tf")
	var printed strings.Builder
	for _, step := range []struct {
		value          string
		version        int
		changes, holds string
	}{
		{"CANARY1", 1, "2 added", "CANARY1"},
		{"CANARY1", 1, "0 added, 0 changed", "CANARY1"},
		{"CANARY2", 1, "0 added, 0 changed", "CANARY1"},
		{"CANARY2", 2, "0 added, 1 changed", "CANARY2"},
	} {
		write(t, file, f.config(secretJob(step.version)))
		with := d.with("TF_VAR_canary=" + step.value)
		printed.WriteString(with.must(t, "plan", "-out=saved.plan"))
		printed.WriteString(with.must(t, "show", "-json", "saved.plan"))
		applied := with.must(t, "apply", "-auto-approve")
		mustSay(t, applied, step.changes)
		printed.WriteString(applied)
		got := f.stored(t)
		delete(got, "a") // the API has checked its format
		want := map[string]string{"b": "env:SECRET_CRM_B", "secret_access_key": step.holds + "-key", "session_token": step.holds + "-token"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s version %d: stored (-want +got):\n%s", step.value, step.version, diff)
		}
	}
	// Another attribute changes: the stored values stay.
	write(t, file, strings.Replace(f.config(secretJob(2)), "/hook", "/hook2", 1))
	d = d.with("TF_VAR_canary=CANARY3")
	printed.WriteString(d.must(t, "apply", "-auto-approve"))
	if got := f.stored(t)["session_token"]; got != "CANARY2-token" {
		t.Errorf("after another change: stored %q", got)
	}
	printed.WriteString(d.must(t, "state", "pull"))
	mustNotHold(t, "the output of terraform", printed.String())
	for name, text := range files(t, d.path) {
		mustNotHold(t, name, text)
	}
}

// auth returns a block auth with one kind of authentication.
func auth(kind string, lines ...string) string {
	return "auth {\n" + kind + " {\n" + strings.Join(lines, "\n") + "\n}\n}\n"
}

// Each field that can hold a secret is stored, but Terraform and the provider write it to no file.
func TestNoKindOfSecretIsWrittenToDisk(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	certificate, key := clientcert.New(t)
	token := `{ value = "${var.canary}-token" }`
	config := app + `
	variable "canary" {
		type      = string
		ephemeral = true
	}
	variable "key" {
		type      = string
		ephemeral = true
	}
	`
	kinds := map[string]string{
		"basic":  auth("basic", `username = "ann"`, "password "+token),
		"bearer": auth("bearer", "token "+token),
		"header": auth("api_key", `header = "X-Key"`, "key "+token),
		"query":  auth("api_key", `query = "key"`, "key "+token),
		"sigv4": auth("sigv4", `service = "lambda"`, `region = "eu-west-1"`,
			"credentials {", `access_key_id = "AKIAIOSFODNN7EXAMPLE"`, "secret_access_key "+token, "}"),
		"oauth2": auth("oauth2", `token_url = "https://login.example.com/token"`, `client_id = "crm"`, `scopes = ["a", "b"]`,
			`audience = "https://example.com"`, "client_secret "+token),
		"jwt": auth("oauth2", `token_url = "https://login.example.com/token"`, `client_id = "crm"`, `client_auth = "private_key_jwt"`,
			`algorithm = "ES256"`, `key_id = "1"`, "private_key { value = var.key }"),
		"hmac": `signing {
			secret {
				name  = "a"
				value = "whsec_${base64encode("${var.canary} 0123456789 0123456789")}"
			}
		}`,
		"ed": `signing {
			secret {
				name  = "a"
				value = "whsk_${base64encode("${var.canary}56789 0123456789 01234567")}"
			}
		}`,
		"tls": fmt.Sprintf(`tls {
			client_certificate = %q
			client_key { value = var.key }
		}`, certificate),
	}
	for name, attributes := range kinds {
		config += fmt.Sprintf(`
			resource "carillon_job" %q {
			  app    = carillon_app.a.name
			  name   = %q
			  target {
			    webhook {
			      url = "https://example.com/"
			      %s
			    }
			  }
			  %s
			}
		`, name, name, attributes, daily)
	}
	d := f.directory(t, f.config(config))
	d = d.with("TF_VAR_canary=CANARY1", "TF_VAR_key="+key, "TF_LOG_PROVIDER=TRACE", "TF_LOG_PATH="+filepath.Join(d.path, "provider.log"))
	printed := d.must(t, "plan", "-out=saved.plan") + d.must(t, "show", "-json", "saved.plan") +
		d.must(t, "apply", "saved.plan") + d.must(t, "plan", "-detailed-exitcode") +
		d.must(t, "state", "pull") + d.must(t, "show", "-json")
	broken := strings.ReplaceAll(f.config(config), `"https://example.com/"`, `"ftp://example.com/"`)
	write(t, filepath.Join(d.path, "file0.tf"), broken)
	output, err := d.terraform(t, "plan")
	if err == nil {
		t.Errorf("a plan with invalid URLs succeeded:\n%s", output)
	}
	mustNotHold(t, "the output of terraform", printed+output, strings.Split(key, "\n")[1])
	for name, text := range files(t, d.path) {
		mustNotHold(t, name, text, strings.Split(key, "\n")[1])
	}
	for name := range kinds {
		jobs, err := f.store.JobsByID(t.Context(), []int64{run.JobID("crm", name)})
		if err != nil || len(jobs) != 1 || len(target.Secrets(jobs[0].Target)) != 1 {
			t.Fatalf("%s: jobs = %v, %v", name, jobs, err)
		}
		for path, secret := range target.Secrets(jobs[0].Target) {
			if secret.Value.Reveal() == "" {
				t.Errorf("%s: %s is not stored", name, path)
			}
		}
	}
}

// After the URL's host has changed, the values must be sent again, and the plan says so.
func TestStoredSecretsAreNotSentToAnotherHost(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(secretJob(1))).with("TF_VAR_canary=CANARY1")
	file := filepath.Join(d.path, "file0.tf")
	d.must(t, "apply", "-auto-approve")
	moved := func(version int) string {
		return strings.Replace(f.config(secretJob(version)), "https://example.com/", "https://example.org/", 1)
	}
	write(t, file, moved(1))
	output := d.mustFail(t, []string{"plan"}, "(secret_origin)",
		"target.webhook.auth.sigv4.credentials.session_token.value_version", `target.webhook.signing.secret["a"].value_version`,
		`given for "https://example.com" and is not sent to "https://example.org"`, "with another value_version")
	if n := strings.Count(output, "(secret_origin)"); n != 3 {
		t.Errorf("%d errors, want one for each of three values:\n%s", n, output)
	}
	if got := f.stored(t)["session_token"]; got != "CANARY1-token" {
		t.Errorf("stored %q", got)
	}
	write(t, file, moved(2))
	mustSay(t, d.with("TF_VAR_canary=CANARY2").must(t, "apply", "-auto-approve"), "0 added, 1 changed")
	if got := f.stored(t)["session_token"]; got != "CANARY2-token" {
		t.Errorf("after the move: stored %q", got)
	}
	// Renaming keeps the job, its values and their host.
	renamed := strings.NewReplacer(`"nightly"`, `"daily"`)
	write(t, file, renamed.Replace(moved(2)))
	mustSay(t, d.with("TF_VAR_canary=CANARY3").must(t, "apply", "-auto-approve"), "0 added, 1 changed")
	if got := f.stored(t)["session_token"]; got != "CANARY2-token" {
		t.Errorf("after the rename: stored %q", got)
	}
	write(t, file, renamed.Replace(f.config(secretJob(2))))
	d.mustFail(t, []string{"plan"}, "(secret_origin)")
}

// The secret of a client is sent to its token endpoint, so another endpoint needs the value again.
func TestClientSecretsAreNotSentToAnotherTokenEndpoint(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	config := func(tokenURL string, version int) string {
		return f.config(job(fmt.Sprintf(`target {
			webhook {
				url = "https://example.com/hook"
				%s
			}
		}
		`, auth("oauth2", fmt.Sprintf("token_url = %q", tokenURL), `client_id = "crm"`, "client_secret {", "value = var.canary",
			fmt.Sprintf("value_version = %d", version), "}"))+daily) + `
		variable "canary" {
			type      = string
			ephemeral = true
		}
		`)
	}
	d := f.directory(t, config("https://login.example.com/token", 1)).with("TF_VAR_canary=CANARY1")
	file := filepath.Join(d.path, "file0.tf")
	d.must(t, "apply", "-auto-approve")
	d.must(t, "plan", "-detailed-exitcode")
	write(t, file, config("https://login.example.com/v2/token", 1))
	mustSay(t, d.with("TF_VAR_canary=CANARY2").must(t, "apply", "-auto-approve"), "0 added, 1 changed")
	write(t, file, config("https://login.example.org/token", 1))
	d.mustFail(t, []string{"plan"}, "(secret_origin)", "target.webhook.auth.oauth2.client_secret.value_version",
		`"https://example.com https://login.example.org"`)
	if got := f.stored(t)["client_secret"]; got != "CANARY1" {
		t.Errorf("stored %q", got)
	}
	write(t, file, config("https://login.example.org/token", 2))
	mustSay(t, d.with("TF_VAR_canary=CANARY3").must(t, "apply", "-auto-approve"), "0 added, 1 changed")
	if got := f.stored(t)["client_secret"]; got != "CANARY3" {
		t.Errorf("after the move: stored %q", got)
	}
	write(t, file, strings.Replace(config("https://login.example.org/token", 2), `client_id = "crm"`, `client_id = "crm"
		scopes = []`, 1))
	d.mustFail(t, []string{"plan"}, "target.webhook.auth.oauth2.scopes", "empty list")
}

func mustNotHold(t *testing.T, what, text string, more ...string) {
	t.Helper()
	for _, canary := range append(more, "CANARY", "Q0FOQVJZ") {
		if at := strings.Index(text, canary); at >= 0 {
			t.Errorf("%s holds a secret: …%s", what, text[max(0, at-200):at+20])
		}
	}
}

// files returns the texts of all files below a directory. A plan is an archive of files.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		texts[path] = string(text)
		if err == nil && filepath.Ext(path) == ".plan" {
			err = unpack(path, texts)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// unpack adds the files in an archive to texts.
func unpack(path string, texts map[string]string) error {
	archive, err := zip.OpenReader(path)
	if err != nil {
		return err
	}
	defer archive.Close()
	for _, file := range archive.File {
		text, err := fs.ReadFile(archive, file.Name)
		if err != nil {
			return err
		}
		texts[filepath.Join(path, file.Name)] = string(text)
	}
	return nil
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestInvalidSecretsAreRefusedAtPlan(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	for attributes, says := range map[string]string{
		auth("bearer", "token {}"): "(required)",
		auth("bearer", "token {", `value = "x"`, `reference = "env:SECRET_X"`, "}"): "(secret_form)",
		auth("bearer", `token { reference = "CANARY" }`):                            "(secret_reference)",
		auth("bearer", `token { reference = "vault:secret/billing@0" }`):            "version \"0\" is not the number",
		auth("bearer", `token { reference = "awssm:a b#@c d" }`):                    "version \"c d\" is not a",
		`auth {}`: "(auth_form)",
		"signing {\n secret {\n  name = \"a\"\n  value = \"CANARY\"\n }\n}": "(secret_form)",
		`cloud_events = "both"`: "(enum)",
	} {
		output, err := f.directory(t, f.config(job(webhook(attributes)))).terraform(t, "plan")
		if err == nil || !strings.Contains(output, says) {
			t.Errorf("plan of %s = %v, want an error with %s:\n%s", attributes, err, says, output)
		}
		// Terraform itself prints the line of the configuration with the mistake.
		for line := range strings.SplitSeq(attributes, "\n") {
			output = strings.ReplaceAll(output, line, "")
		}
		mustNotHold(t, attributes, output)
	}
}
