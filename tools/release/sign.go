package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// sign signs the sums of the provider as the Terraform registry demands: a detached binary signature by an
// RSA or DSA key of gpg. CARILLON_GPG_PASSPHRASE is the passphrase of the key, if it has one.
func (r *release) sign(ctx context.Context) error {
	sums := filepath.Join(r.dist, r.providerProgram().title()+"_"+r.version+"_SHA256SUMS")
	args := []string{"--batch", "--yes", "--pinentry-mode", "loopback", "--passphrase-fd", "0", "--detach-sign",
		"--output", sums + ".sig", sums}
	if _, err := gpg(ctx, os.Getenv("CARILLON_GPG_PASSPHRASE"), args...); err != nil {
		return fmt.Errorf("sign %s: %w", filepath.Base(sums), err)
	}
	status, err := gpg(ctx, "", "--batch", "--status-fd", "1", "--verify", sums+".sig", sums)
	if err != nil {
		return fmt.Errorf("verify %s.sig: %w", filepath.Base(sums), err)
	}
	if err := registryKey(status); err != nil {
		return err
	}
	fmt.Fprintf(r.out, "dist/%s.sig\n", filepath.Base(sums))
	return nil
}

// registryKey checks the algorithm of the key in the status lines of gpg. The fields of VALIDSIG are in gpg's
// doc/DETAILS; the numbers are those of RFC 4880.
func registryKey(status string) error {
	for line := range strings.SplitSeq(status, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 9 || fields[1] != "VALIDSIG" {
			continue
		}
		if algorithm := fields[8]; algorithm != "1" && algorithm != "17" {
			return fmt.Errorf("key %s is neither RSA nor DSA (algorithm %s), and the Terraform registry takes no other", fields[2], algorithm)
		}
		return nil
	}
	return fmt.Errorf("gpg shows no valid signature: %s", status)
}

func gpg(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "gpg", args...)
	cmd.Stdin = strings.NewReader(input)
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("gpg: %w: %s", err, strings.TrimSpace(problem.String()))
	}
	return string(out), nil
}
