package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
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

// A story: the steps of the page about secrets, in order. Its configuration is valid, the secret of each
// manager is sent, a rotation costs one attempt, a failing manager costs none, and a denial ends the calls.
func TestStorySecretsComeFromTheirManagers(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	page, err := os.ReadFile("../../../docs/how-to/store-secrets.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## From a manager of secrets")
	section, _, _ = strings.Cut(section, "\n## ")
	dir, config := t.TempDir(), ""
	for n, block := range strings.Split(section, "```hcl\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		config += block
		if n > 1 {
			t.Fatal("the section has more blocks than the story has steps")
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := carillon(t, nil, "lint", dir); code != 0 || !strings.Contains(config, "carillon_job") {
		t.Fatalf("the configuration of the page is refused: exit %d: %s%s", code, out, errs)
	}

	aws, vault := servers.NewAWS(t), servers.NewVault(t, "")
	put := func(token string) {
		aws.PutSecret("billing/api", fmt.Sprintf(`{"token":%q}`, token))
		vault.Put("secret/data/billing", map[string]any{"token": token})
	}
	put("first-token")
	aws.Allow(func(s servers.Session, _, _ string) bool {
		return s.Role == "arn:aws:iam::123456789012:role/carillon-billing" && s.Tags[target.SessionTagApp] == "billing"
	})
	vault.Allow(func(role, _ string) bool { return role == "carillon-billing" })
	account := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(account, []byte(servers.ServiceAccount), 0o600); err != nil {
		t.Fatal(err)
	}
	var token atomic.Value
	token.Store("first-token")
	to := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token.Load().(string) {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(to.Close)
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	n := startNodeWith(t, database, newToken(t, database), aws.Environment(), append(quick(), "--secret-lifetime=2s",
		"--vault-address="+vault.URL, "--vault-auth=kubernetes", "--vault-role=carillon-{app}", "--vault-token-file="+account,
		"--secret-aws-role=arn:aws:iam::123456789012:role/carillon-{app}")...)
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "billing", AppSpec: access.AppSpec{Enabled: true, Bounds: &target.Bounds{
		Secrets: []string{"awssm:billing/*", "vault:secret/data/billing"},
	}}}, client.Condition{}))
	references := []string{"awssm:billing/api#token", "vault:secret/data/billing#token"}
	for i, reference := range references {
		if !strings.Contains(section, reference) {
			t.Errorf("the page does not show %s", reference)
		}
		job := webhookJob("billing", fmt.Sprint("invoice", i), to.URL, nil)
		job.Retry.SetDefaults()
		job.Retry.Base, job.Retry.Cap = input.Duration(input.MinDuration), input.Duration(input.MinDuration)
		job.Target.Webhook.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Reference: reference}}}
		must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
	}
	// attempts runs a job and returns the classes of its attempts, empty for success.
	attempts := func(i int) (classes []run.Class) {
		r := must[run.Run](t)(n.RunJob(t.Context(), "billing", fmt.Sprint("invoice", i)))
		until(t, "the run to end", func() bool {
			r = must[run.Run](t)(n.Run(t.Context(), r.ID))
			return r.State == run.Succeeded || r.State == run.Failed ||
				len(r.Attempts) > 0 && r.Attempts[0].Class == run.ClassSecret
		})
		for _, a := range r.Attempts {
			classes = append(classes, a.Class)
		}
		return classes
	}
	for i, reference := range references {
		if got := attempts(i); len(got) != 1 || got[0] != "" {
			t.Errorf("%s: attempts = %q, want success", reference, got)
		}
	}
	token.Store("second-token")
	put("second-token")
	for i, reference := range references {
		if got := attempts(i); len(got) > 2 || got[len(got)-1] != "" || len(got) == 2 && got[0] != run.ClassSecretReplaced {
			t.Errorf("%s: attempts after the rotation = %q, want one refusal at most and then success", reference, got)
		}
	}
	away := servers.Fault{Status: http.StatusServiceUnavailable, Code: "ServiceUnavailable"}
	aws.Fail("GetSecretValue", away)
	vault.Fail(away)
	until(t, "the node to notice that the managers are away", func() bool {
		for i, reference := range references {
			if got := attempts(i); len(got) != 1 || got[0] != "" {
				t.Fatalf("%s: attempts while the manager is away = %q, want success", reference, got)
			}
		}
		return strings.Count(n.logs.String(), "secret cannot be read") >= 2 &&
			n.metric(t, `carillon_secret_reads_total{result="unreachable",source="vault"}`) > 0 &&
			n.metric(t, `carillon_secret_reads_total{result="unreachable",source="awssm"}`) > 0
	})
	if text := n.get(t, "/metrics"); !strings.Contains(text, `carillon_secret_reads_total{result="denied",source="awssm"} 0`) {
		t.Error("the metrics tell of a denial while the manager is away")
	}
	aws.Fail("GetSecretValue", servers.Fault{Status: http.StatusBadRequest, Code: "AccessDeniedException"})
	vault.Fail(servers.Fault{Status: http.StatusForbidden})
	for i, reference := range references {
		until(t, "the denial of "+reference, func() bool { return attempts(i)[0] == run.ClassSecret })
	}
}
