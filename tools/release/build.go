package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// program is one of the programs of a release.
type program struct{ name, pkg string }

// title returns the name without a version.
func (p program) title() string {
	title, _, _ := strings.Cut(p.name, "_v")
	return title
}

func carillonProgram() program { return program{"carillon", "./dispatcher/cmd/carillon"} }

func benchProgram() program { return program{"carillon-bench", "./test/bench"} }

// providerProgram is named as Terraform expects the program in a provider's archive.
func (r *release) providerProgram() program {
	return program{"terraform-provider-carillon_v" + r.version, "./provider/cmd/terraform-provider-carillon"}
}

// programs returns the programs to build for a platform. The benchmark is for Linux, where nodes run.
func (r *release) programs(p platform) []program {
	if p.os == "linux" {
		return []program{carillonProgram(), benchProgram(), r.providerProgram()}
	}
	return []program{carillonProgram(), r.providerProgram()}
}

// binary returns the path of a program for a platform. The first call builds it.
//
// It stamps the version and nothing of the machine: -trimpath removes the paths, and without cgo
// the result does not depend on a C compiler.
func (r *release) binary(ctx context.Context, p platform, prog program) (string, error) {
	path := filepath.Join(r.work, p.os+"_"+p.arch, prog.name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X main.version="+r.version, "-o", path, prog.pkg)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOOS="+p.os, "GOARCH="+p.arch)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build %s for %s: %w", prog.name, p, err)
	}
	return path, nil
}
