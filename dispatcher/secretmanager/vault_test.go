package secretmanager_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/carillon-dev/carillon/dispatcher/secretmanager"
	"github.com/carillon-dev/carillon/test/servers"
)

func vaultClient(server *servers.Vault, login secretmanager.VaultLogin) *secretmanager.Vault {
	return secretmanager.NewVault(secretmanager.VaultOptions{
		Address: server.URL + "/", Login: login,
		Client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	})
}

const path = "secret/data/billing"

func TestSecretsOfVaultAreReadByVersion(t *testing.T) {
	t.Parallel()
	server := servers.NewVault(t, "root-token")
	server.Put(path, map[string]any{"token": "old"})
	server.Put(path, map[string]any{"token": "new", "n": 1})
	v := vaultClient(server, secretmanager.VaultToken{Token: "root-token"})
	for version, want := range map[string]string{"": `{"n":1,"token":"new"}`, "1": `{"token":"old"}`} {
		if got, err := v.Secret(t.Context(), "", path, version, time.Now()); err != nil || got != want {
			t.Errorf("version %q = %s, %v, want %s", version, got, err, want)
		}
	}
}

func TestErrorsOfVaultHaveKinds(t *testing.T) {
	t.Parallel()
	server := servers.NewVault(t, "root-token")
	server.Put(path, map[string]any{"token": "t"})
	server.Put("secret/data/deleted", map[string]any{"token": "t"})
	server.Delete("secret/data/deleted")
	v := vaultClient(server, secretmanager.VaultToken{Token: "root-token"})
	other := vaultClient(server, secretmanager.VaultToken{Token: "wrong"})
	for name, tt := range map[string]struct {
		client *secretmanager.Vault
		path   string
		fault  servers.Fault
		want   secretmanager.Kind
	}{
		"denied":               {other, path, servers.Fault{}, secretmanager.Denied},
		"missing":              {v, "secret/data/none", servers.Fault{}, secretmanager.Missing},
		"deleted":              {v, "secret/data/deleted", servers.Fault{}, secretmanager.Missing},
		"an engine of another": {v, path, servers.Fault{Status: 200, Body: `{"data":{"token":"t"}}`}, secretmanager.Missing},
		"sealed":               {v, path, servers.Fault{Status: 503, Code: "Vault is sealed"}, secretmanager.Unreachable},
		"standby":              {v, path, servers.Fault{Status: 307}, secretmanager.Unreachable},
		"replica behind":       {v, path, servers.Fault{Status: 412, Code: "required index state not present"}, secretmanager.Unreachable},
		"disaster recovery":    {v, path, servers.Fault{Status: 472}, secretmanager.Unreachable},
		"not JSON":             {v, path, servers.Fault{Status: 200, Body: "<html>"}, secretmanager.Unreachable},
		"throttled":            {v, path, servers.Fault{Status: 429, Code: "request rate quota exceeded"}, secretmanager.Throttled},
		"a bad request":        {v, path, servers.Fault{Status: 400, Code: "namespace"}, secretmanager.Unusable},
		"slow":                 {v, path, servers.Fault{Slow: true}, secretmanager.Unreachable},
	} {
		server.Fail(tt.fault)
		ctx, cancel := context.WithCancel(t.Context())
		if tt.fault.Slow {
			cancel()
		}
		_, err := tt.client.Secret(ctx, "", tt.path, "", time.Now())
		cancel()
		var e *secretmanager.Error
		if !errors.As(err, &e) || e.Kind != tt.want {
			t.Errorf("%s: error = %v, want kind %d", name, err, tt.want)
		}
	}
	server.Close()
	if _, err := v.Secret(t.Context(), "", path, "", time.Now()); !secretmanager.IsTemporary(err) {
		t.Errorf("error of a server that is down = %v, want a temporary one", err)
	}
}

// logins are the auth methods that give tokens to roles.
func logins(t *testing.T) map[string]secretmanager.VaultLogin {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(servers.ServiceAccount+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := aws.Config{
		Region:      "eu-central-1",
		Credentials: credentials.NewStaticCredentialsProvider(servers.AccessKeyID, servers.SecretAccessKey, ""),
	}
	global := config
	global.Region = ""
	load := func(config aws.Config) func(context.Context) (aws.Config, error) {
		return func(context.Context) (aws.Config, error) { return config, nil }
	}
	return map[string]secretmanager.VaultLogin{
		"kubernetes":           secretmanager.VaultKubernetes{Mount: "kubernetes", File: file},
		"aws":                  secretmanager.VaultAWS{Mount: "aws", ServerID: servers.ServerID, Config: load(config)},
		"aws without a region": secretmanager.VaultAWS{Mount: "aws", ServerID: servers.ServerID, Config: load(global)},
	}
}

// A role logs in once until its token is about to expire or was revoked, and each role has a token of its own.
func TestRolesLogInToVaultOnce(t *testing.T) {
	t.Parallel()
	for name, login := range logins(t) {
		server := servers.NewVault(t, "")
		server.Put(path, map[string]any{"token": "t"})
		server.Allow(func(role, _ string) bool { return role == "app-a" })
		v, now := vaultClient(server, login), time.Now()
		read := func(role string, after time.Duration) error {
			_, err := v.Secret(t.Context(), role, path, "", now.Add(after))
			return err
		}
		for _, after := range []time.Duration{0, 0, 39 * time.Minute} { // the lease is an hour
			if err := read("app-a", after); err != nil || server.Logins("app-a") != 1 {
				t.Fatalf("%s: %v after %d logins, want one", name, err, server.Logins("app-a"))
			}
		}
		if name == "kubernetes" { // AWS would refuse the old signature
			if err := read("app-a", 41*time.Minute); err != nil || server.Logins("app-a") != 2 {
				t.Errorf("%s: %v after %d logins, want a second before the token ends", name, err, server.Logins("app-a"))
			}
		}
		before := server.Logins("app-a")
		server.Revoke()
		if err := read("app-a", 0); err != nil || server.Logins("app-a") != before+1 {
			t.Errorf("%s: %v after %d more logins, want one because the token was revoked", name, err, server.Logins("app-a")-before)
		}
		var e *secretmanager.Error
		if err := read("app-b", 0); !errors.As(err, &e) || e.Kind != secretmanager.Denied {
			t.Errorf("%s: error of another role = %v, want it denied", name, err)
		}
		if err := read("unknown", 0); !errors.As(err, &e) || e.Kind != secretmanager.Denied || !strings.Contains(err.Error(), "login") {
			t.Errorf("%s: error of an unknown role = %v, want the login denied", name, err)
		}
	}
}

func TestTokenFilesAreReadForEachRequest(t *testing.T) {
	t.Parallel()
	server := servers.NewVault(t, "first")
	server.Put(path, map[string]any{"token": "t"})
	file := filepath.Join(t.TempDir(), "token")
	v := vaultClient(server, secretmanager.VaultToken{File: file})
	if _, err := v.Secret(t.Context(), "", path, "", time.Now()); !secretmanager.IsTemporary(err) {
		t.Errorf("error without the file = %v, want a temporary one", err)
	}
	for _, token := range []string{"first", "second\n"} {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		server.Revoke()
		server.Accept(strings.TrimSpace(token))
		if _, err := v.Secret(t.Context(), "", path, "", time.Now()); err != nil {
			t.Errorf("token %s: %v", token, err)
		}
	}
}
