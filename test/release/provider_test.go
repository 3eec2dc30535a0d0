package release_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/test/freeport"
	"github.com/carillon-dev/carillon/test/need"
)

// configuration declares a job that calls a receiver every second, with the release's provider.
const configuration = `
terraform {
  required_providers {
    carillon = {
      source  = "carillon-dev/carillon"
      version = "= %s"
    }
  }
}

resource "carillon_app" "shop" {
  name = "shop"
}

resource "carillon_job" "ring" {
  app  = carillon_app.shop.name
  name = "ring"

  target {
    webhook {
      url = "%s"
    }
  }

  trigger {
    name       = "second"
    expression = "rate(1s)"
  }
}
`

// installation makes a client install providers only from a directory.
const installation = `
provider_installation {
  filesystem_mirror {
    path = %q
  }
}
`

// TestReleaseInstallsAndFires follows a user without a network: unpack the archive, start a node on
// SQLite, install the provider from a mirror, apply a job.
func TestReleaseInstallsAndFires(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	dist := directory(t, built.snapshot)
	for _, name := range []string{"terraform", "tofu"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := need.Client(t, name)
			address, token := startProgram(t, programOf(t, dist, "carillon"))
			url, came := rings(t)

			dir := t.TempDir()
			rc := filepath.Join(dir, "client.rc")
			for file, text := range map[string]string{
				rc:                            fmt.Sprintf(installation, filepath.Join(dist, "mirror")),
				filepath.Join(dir, "main.tf"): fmt.Sprintf(configuration, version, url),
			} {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			environment := append(os.Environ(), "TF_CLI_CONFIG_FILE="+rc, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_INPUT=0",
				"CARILLON_ENDPOINT=http://"+address, "CARILLON_TOKEN="+token)
			for _, args := range [][]string{{"init", "-no-color"}, {"apply", "-auto-approve", "-no-color"}} {
				command := exec.CommandContext(t.Context(), client, args...)
				command.Dir, command.Env = dir, environment
				if out, err := command.CombinedOutput(); err != nil {
					t.Fatalf("%s %v: %v\n%s", name, args, err, out)
				}
			}
			select {
			case <-came:
			case <-time.After(time.Minute):
				t.Fatal("no webhook came")
			}
		})
	}
}

// startProgram starts a node on a new SQLite database and returns its address and a token.
func startProgram(t *testing.T, program string) (address, token string) {
	t.Helper()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	run := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), program, append(args, "--database", database)...).Output()
		if err != nil {
			t.Fatalf("carillon %v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	run("migrate")
	token = run("token", "create", "--name", "test")
	address = must[string](t)(freeport.Address(t.Context()))
	serve := exec.CommandContext(t.Context(), program, "serve", "--database", database, "--listen", address, "--egress-loopback")
	var logs lockedBuffer
	serve.Stderr = &logs
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = serve.Process.Kill()
		_ = serve.Wait()
		if t.Failed() {
			t.Logf("log of the node:\n%s", logs.String())
		}
	})
	awaitReady(t, address)
	return address, token
}
