package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/test/clientcert"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/oidctest"
)

func TestTokensAreManaged(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	n := startNode(t, database, newToken(t, database))
	works := func(secret string) bool {
		c := must[*client.Client](t)(client.New(n.endpoint, strings.TrimSpace(secret), client.Options{}))
		_, err := c.Nodes(t.Context())
		return err == nil
	}
	do := func(args ...string) (string, string, int) {
		return n.commandWith("", append([]string{"token"}, args...)...)
	}
	ok := func(args ...string) (stdout, stderr string) {
		t.Helper()
		out, errs, code := do(args...)
		if code != 0 {
			t.Fatalf("carillon token %s: exit %d: %s", strings.Join(args, " "), code, errs)
		}
		return out, errs
	}
	first, _ := ok("create", "--name=ci", "--scope=read", "--description=of a test", "--expires-in=720h")
	if !works(first) {
		t.Error("the new token does not work")
	}
	for _, where := range []string{"--endpoint=" + n.endpoint, "--database=" + database} {
		if _, errs, code := do("create", "--name=ci", "--scope=read", where); code != exitConflict || !strings.Contains(errs, `"ci" exists`) {
			t.Errorf("a second token of that name with %s: exit %d, %s", where, code, errs)
		}
	}
	second, errs := ok("rotate", "ci")
	if !works(first) || !works(second) || !strings.Contains(errs, "works until") {
		t.Errorf("rotation: old works %v, new works %v, want both; %s", works(first), works(second), errs)
	}
	third, _ := ok("rotate", "ci", "--overlap=0s")
	if !works(third) {
		t.Error("a rotation at once gives a secret that does not work")
	}
	until(t, "a rotation at once to end the old secrets", func() bool { return !works(first) && !works(second) })
	shown, _ := ok("show", "ci")
	list, _ := ok("list")
	for _, text := range []string{shown, list} {
		if !strings.Contains(text, "ci") || strings.Contains(text, strings.TrimSpace(third)) {
			t.Errorf("shown is %q, want the token without its secret", text)
		}
	}
	ok("revoke", "ci")
	if works(third) {
		t.Error("a revoked token works")
	}
	if _, _, code := do("revoke", "ci"); code != exitMissing {
		t.Errorf("revoking it again: exit %d, want %d", code, exitMissing)
	}
	if _, errs, code := do("revoke", "e2e"); code != exitConflict || !strings.Contains(errs, "carillon token create") {
		t.Errorf("revoking the last admin: exit %d, %s", code, errs)
	}
}

func TestBadTokenCommandsAreUsageErrors(t *testing.T) {
	t.Parallel()
	database := "--database=sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	for args, words := range map[string]string{
		"token list":                               "--token",
		"token create --name=ci":                   "--database URL",
		"token list --endpoint=http://127.0.0.1:1": "--token",
		"token create --name=ci --endpoint=http://127.0.0.1:1 " + database: "give one of them",
		"token create --name=a --expires-in=-1h " + database:               "--expires-in",
		"token rotate a --overlap=721h --token=x":                          "--overlap",
		"token list --token=x --client-cert=x":                             "--client-key",
		"token list --token=x --ca-cert=nothing.pem":                       "nothing.pem",
	} {
		if _, errs, code := carillon(t, nil, strings.Fields(args)...); code != exitUsage || !strings.Contains(errs, words) {
			t.Errorf("carillon %s: exit %d, %s, want %d and %q", args, code, errs, exitUsage, words)
		}
	}
}

// BAD_INPUTS: a certificate without its key, or one that cannot be read, ends the process with exit code 2.
func TestBadFlagsOfTLSAndOIDCAreUsageErrors(t *testing.T) {
	t.Parallel()
	ca := clientcert.NewAuthority(t)
	cert, key := ca.Issue(1, time.Now().AddDate(-1, 0, 0)) // an expired one only causes a warning
	_, other := ca.Issue(2, time.Now())
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tls := "--tls-cert=" + file("cert", cert) + " --tls-key=" + file("key", key)
	good := file("good.json", []byte(`{"rules":[{"claims":{"sub":"a"},"scopes":["read"]}]}`))
	people := "--oidc-issuer=https://a.test --oidc-client-id=x --oidc-claims=" + good
	at := " --console-url=https://ops.test/carillon"
	for flags, words := range map[string]string{
		tls: "",
		people + at + " --oidc-scopes=groups --oidc-client-secret-file=" + file("secret", []byte("hunter2\n")): "",
		people:                              "--console-url",
		people + " --oidc-audience=y" + at:  "",
		people + at + " --oidc-scopes=a\"b": "--oidc-scopes",
		people + at + " --oidc-client-secret-file=" + dir + "/none":                     "--oidc-client-secret-file",
		people + at + " --oidc-client-secret-file=" + file("blank", []byte("\n")):       "is empty",
		people + at + " --oidc-client-secret=hunter2 --oidc-client-secret-file=" + good: "exclude each other",
		"--oidc-client-secret=hunter2":                                                  "--oidc-client-id",
		"--console-url=https://me:hunter2@ops.test":                                     "--console-url",
		"--console-url=/ops":                "--console-url",
		"--trace-url=https://traces.test/t": "{trace_id}", "--trace-url=javascript:{trace_id}": "--trace-url",
		"--trace-url=https://traces.test/t?id={trace_id}":                               "",
		"--console-url=http://ops.test/a?b":                                             "--console-url",
		tls + " --client-ca=" + file("ca", cert) + " --client-auth=optional":            "",
		"--tls-cert=" + file("cert", cert):                                              "--tls-key",
		"--tls-cert=" + file("cert", cert) + " --tls-key=" + dir + "/none":              "none",
		"--tls-cert=" + file("cert", cert) + " --tls-key=" + file("other", other):       "does not match",
		"--tls-cert=" + file("empty", nil) + " --tls-key=" + file("key", key):           "--tls-cert",
		tls + " --client-ca=" + file("empty", nil):                                      "holds no certificate",
		tls + " --client-auth=require":                                                  "--client-ca",
		tls + " --client-ca=" + file("ca", cert) + " --client-auth=maybe":               "maybe",
		"--client-ca=" + file("ca", cert):                                               "--tls-cert",
		"--oidc-issuer=https://a.test --oidc-audience=x --oidc-claims=" + good:          "",
		"--oidc-issuer=https://a.test --oidc-audience=x":                                "--oidc-claims",
		"--oidc-issuer=http://a.test --oidc-audience=x --oidc-claims=" + good:           "https",
		"--oidc-issuer=https://a.test --oidc-audience=x --oidc-claims=" + dir + "/none": "none",
		"--oidc-issuer=https://a.test --oidc-audience=x --oidc-claims=" + file("bad.json",
			[]byte(`{"rules":[{"claims":{"sub":"*"},"scopes":["read"]}]}`)): "/rules/0/claims",
	} {
		args := append([]string{"serve", "--check", "--database=sqlite:" + dir + "/carillon.db"}, strings.Fields(flags)...)
		out, errs, code := carillon(t, nil, args...)
		if words == "" && code != 0 || words != "" && (code != exitUsage || !strings.Contains(errs, words)) {
			t.Errorf("serve --check %s: exit %d, %s%s, want %q", flags, code, out, errs, words)
		}
	}
}

// A pipeline uses a node that has client certificates and an issuer.
func TestNodeServesPipelineWithoutAStoredToken(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	from, ca := oidctest.New(t), clientcert.NewAuthority(t)
	cert, key := ca.Issue(1, time.Now().AddDate(0, 0, 7))
	mine, secret := ca.Issue(2, time.Now().AddDate(0, 0, 7))
	database := "sqlite:" + dir + "/carillon.db"
	authorities := file("ca", ca.PEM())
	n := startNode(t, database, newToken(t, database), "--oidc-issuer="+from.URL, "--oidc-audience="+oidctest.Audience,
		"--oidc-claims="+file("rules.json", []byte(`{"rules":[{"claims":{"sub":"repo:acme/*"},"scopes":["admin"]}]}`)))
	jwt := from.Sign(jose.ES384, from.Claims("repo:acme/ops:ref:refs/heads/main", time.Now(), nil))
	n.token = jwt
	if out, errs, code := n.commandWith("", "token", "list"); code != 0 || !strings.Contains(out, "e2e") {
		t.Errorf("carillon token list with a JSON Web Token: exit %d, %s%s", code, out, errs)
	}
	if logs := n.logs.String(); strings.Contains(logs, strings.Split(jwt, ".")[1]) {
		t.Error("the log holds the claims of a token")
	}
	n.terminate()

	database = "sqlite:" + dir + "/secure.db"
	secure := launchNode(t, database, newToken(t, database), nil,
		"--tls-cert="+file("cert", cert), "--tls-key="+file("key", key), "--client-ca="+authorities)
	address := strings.TrimPrefix(secure.endpoint, "http://")
	until(t, "a probe without a client certificate to pass", func() bool {
		_, _, code := carillon(t, nil, "probe", "readyz", "--timeout=1m", "--listen="+address, "--tls-cert="+filepath.Join(dir, "cert"))
		return code == 0
	})
	until(t, "a warning that the certificate expires within 14 days", func() bool {
		return strings.Contains(secure.logs.String(), "certificate of the API expires at")
	})
	list := func(flags ...string) (string, int) {
		command := exec.CommandContext(t.Context(), filepath.Join(binaries, "carillon"), append([]string{"token", "list"}, flags...)...)
		command.Env = append(os.Environ(), "CARILLON_ENDPOINT=https://"+address, "CARILLON_TOKEN="+secure.token)
		out, _ := command.CombinedOutput()
		return string(out), command.ProcessState.ExitCode()
	}
	if out, code := list("--ca-cert="+authorities, "--client-cert="+file("mine", mine), "--client-key="+file("secret", secret)); code != 0 {
		t.Errorf("with a client certificate: exit %d, %s", code, out)
	}
	if out, code := list("--ca-cert=" + authorities); code != exitRefused || !strings.Contains(out, "client certificate") {
		t.Errorf("without a client certificate: exit %d, %s", code, out)
	}
}
