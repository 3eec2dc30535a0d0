package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// thirdParty is the name of the file with the licences of the modules that a program is linked
// from. Most licences require that.
const thirdParty = "THIRD_PARTY_LICENSES"

// licenseFile matches names of files with terms. APLv2 is a licence of gorhill/cronexpr, which also
// offers GPLv3; NOTICE names the one that Carillon uses.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|copyright|aplv2)([-.].*)?$`)

// licenses returns the path of a file with the licences of a program's modules, in full.
func (r *release) licenses(ctx context.Context, prog program, binary string) (string, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return "", err
	}
	root, err := r.goTool(ctx, "env", "GOROOT")
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s is linked from the following modules of Go.\n", prog.title())
	if err := appendLicenses(&out, "Go and its standard library, "+info.GoVersion, strings.TrimSpace(root)); err != nil {
		return "", err
	}
	list := []string{"list", "-m", "-f", "{{.Dir}}"}
	for _, dep := range info.Deps {
		list = append(list, dep.Path)
	}
	dirs, err := r.goTool(ctx, list...)
	if err != nil {
		return "", err
	}
	for i, dir := range strings.Fields(dirs) {
		if err := appendLicenses(&out, info.Deps[i].Path+" "+info.Deps[i].Version, dir); err != nil {
			return "", err
		}
	}
	path := filepath.Join(filepath.Dir(binary), prog.title()+"."+thirdParty)
	return path, os.WriteFile(path, out.Bytes(), 0o644)
}

// appendLicenses adds the licence files of a module's directory.
func appendLicenses(out *bytes.Buffer, title, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("licences of %s: %w", title, err)
	}
	found := false
	for _, e := range entries {
		if e.IsDir() || !licenseFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(out, "\n%s\n%s (%s)\n%[1]s\n\n%s\n", strings.Repeat("=", 78), title, e.Name(), bytes.TrimSpace(text))
	}
	if !found {
		return fmt.Errorf("%s has no licence in %s", title, dir)
	}
	return nil
}

// goTool runs the go command in the root and returns its output.
func (r *release) goTool(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env, cmd.Stderr = r.root, append(os.Environ(), "GOFLAGS=", "GOWORK=off"), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", args[0], err)
	}
	return string(out), nil
}
