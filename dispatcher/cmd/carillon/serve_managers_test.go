package main

import (
	"encoding/base64"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWrongFlagsOfManagersAreReportedTogether(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	database := "--database=sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	const address = "--vault-address=https://vault.test:8200"
	for name, tt := range map[string]struct {
		args []string
		says []string // empty if they are accepted
	}{
		"a token":     {[]string{address, "--vault-token-file=" + file}, nil},
		"Kubernetes":  {[]string{address, "--vault-auth=kubernetes", "--vault-role=carillon-{app}"}, nil},
		"AWS":         {[]string{address, "--vault-auth=aws", "--vault-role=r", "--vault-mount=a/b", "--vault-server-id=v"}, nil},
		"authorities": {[]string{address, "--vault-token=t", "--vault-ca=base64:" + base64.StdEncoding.EncodeToString(authority)}, nil},
		"invalid authorities": {
			[]string{address, "--vault-token=t", "--vault-ca=base64:LINNET"}, []string{"--vault-ca (CARILLON_VAULT_CA): illegal base64 data"},
		},
		"a role of AWS": {[]string{"--secret-aws-role=arn:aws:iam::123456789012:role/path/carillon-{app}", "--secret-keep=0s"}, nil},
		"all at once": {
			[]string{"--secret-lifetime=0s", "--secret-keep=25h", "--secret-aws-role=carillon", "--vault-address=vault:8200",
				"--vault-mount=/a/", "--vault-role=r", "--vault-ca=" + file},
			[]string{
				"--secret-lifetime: 0s is not between 1s and 1h",
				"--secret-keep: 25h0m0s is not between 0s and 24h",
				`--secret-aws-role (CARILLON_SECRET_AWS_ROLE): "carillon" is not the ARN of a role, such as ` +
					"arn:aws:iam::123456789012:role/carillon-{app}",
				"--vault-address (CARILLON_VAULT_ADDRESS): it is not a URL such as https://vault:8200, without user and query " +
					"(not shown: it may hold a password)",
				`--vault-mount (CARILLON_VAULT_MOUNT): "/a/" is not a path such as kubernetes`,
				"--vault-auth=token needs --vault-token (CARILLON_VAULT_TOKEN) or --vault-token-file, and not both",
				"--vault-role is for --vault-auth=kubernetes and aws: a token has its policies already",
				"holds no certificate in PEM",
			},
		},
		"no address": {
			[]string{"--vault-role=r", "--vault-token=LINNET"}, []string{"--vault-role needs --vault-address", "--vault-token needs"},
		},
		"no role": {
			[]string{address, "--vault-auth=aws", "--vault-token=LINNET"},
			[]string{"--vault-auth=aws needs --vault-role", "--vault-token is for"},
		},
		"a password in it": {[]string{"--vault-address=https://me:LINNET@vault.test", "--vault-token=t"}, []string{"it is not a URL"}},
	} {
		_, out, code := carillon(t, []string{"CARILLON_ENV_FILE="}, append([]string{"serve", "--check", database}, tt.args...)...)
		if (code == 0) != (tt.says == nil) || strings.Contains(out, "LINNET") {
			t.Errorf("%s: exit %d: %s", name, code, out)
		}
		for _, text := range tt.says {
			if !strings.Contains(out, text) {
				t.Errorf("%s: %s\nwant it to say %s", name, out, text)
			}
		}
	}
}
