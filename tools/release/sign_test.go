package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// These tests set GNUPGHOME, so they do not run in parallel.

const signed = "terraform-provider-carillon_1.2.3_SHA256SUMS"

// keyring creates a gpg home with one key, and returns a directory with sums to sign.
func keyring(t *testing.T, algorithm, passphrase string) (dist string) {
	t.Helper()
	if _, err := exec.LookPath("gpg"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("gpg is not installed; on Debian: apt-get install -y gnupg")
		}
		t.Skip("SKIPPED: gpg is not installed") // not with CI=true
	}
	home, err := os.MkdirTemp("", "gpg-") // the path of the agent's socket is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GNUPGHOME", home)
	t.Cleanup(func() {
		_ = exec.Command("gpgconf", "--kill", "gpg-agent").Run()
		_ = os.RemoveAll(home)
	})
	_, err = gpg(t.Context(), passphrase, "--batch", "--pinentry-mode", "loopback", "--passphrase-fd", "0",
		"--quick-generate-key", "Test <test@example.com>", algorithm, "sign", "1d")
	if err != nil {
		t.Fatal(err)
	}
	dist = t.TempDir()
	if err := os.WriteFile(filepath.Join(dist, signed), []byte("00  file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dist
}

func signIn(t *testing.T, dist string) error {
	t.Helper()
	return run(t.Context(), []string{"sign", "-version", "1.2.3", "-dist", dist}, io.Discard)
}

func TestSignatureVerifiesAsTheRegistryDoesIt(t *testing.T) {
	for name, passphrase := range map[string]string{"without a passphrase": "", "with a passphrase": "opens the key"} {
		t.Run(name, func(t *testing.T) {
			dist := keyring(t, "rsa3072", passphrase)
			t.Setenv("CARILLON_GPG_PASSPHRASE", passphrase)
			if err := signIn(t, dist); err != nil {
				t.Fatal(err)
			}
			sums, signature := filepath.Join(dist, signed), filepath.Join(dist, signed+".sig")
			if out, err := exec.Command("gpg", "--verify", signature, sums).CombinedOutput(); err != nil {
				t.Errorf("gpg --verify: %v\n%s", err, out)
			}
			if text, err := os.ReadFile(signature); err != nil || bytes.Contains(text, []byte("BEGIN PGP")) {
				t.Errorf("the signature is armored, want it binary: %v", err)
			}
			if err := os.WriteFile(sums, []byte("11  file\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if exec.Command("gpg", "--verify", signature, sums).Run() == nil {
				t.Error("gpg --verify takes sums that have changed")
			}
		})
	}
}

func TestSigningRefusesAKeyThatTheRegistryDoesNotTake(t *testing.T) {
	dist := keyring(t, "ed25519", "")
	if err := signIn(t, dist); err == nil || !strings.Contains(err.Error(), "neither RSA nor DSA") {
		t.Errorf("signing with ed25519: %v", err)
	}
}

func TestSigningFailsWithoutSums(t *testing.T) {
	dist := keyring(t, "rsa2048", "")
	if err := os.Remove(filepath.Join(dist, signed)); err != nil {
		t.Fatal(err)
	}
	if err := signIn(t, dist); err == nil || !strings.Contains(err.Error(), signed) {
		t.Errorf("signing nothing: %v", err)
	}
}
