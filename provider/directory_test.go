package provider_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// directory is a Terraform working directory that uses the built provider. plugin-testing does not
// show warnings and the texts of errors, so these tests run the command.
type directory struct {
	path   string
	client string // terraform or tofu
	env    []string
}

// directory creates a directory with these configuration files. Its environment has the fixture's
// endpoint and token.
func (f *fixture) directory(t *testing.T, files ...string) directory {
	t.Helper()
	binary, err := providerBinary()
	if err != nil {
		t.Fatal(err)
	}
	d := directory{path: t.TempDir(), client: f.client.path}
	if d.client == "" {
		d.client = needTerraform(t)
	}
	rc := filepath.Join(d.path, "terraform.rc")
	write := map[string]string{
		rc: fmt.Sprintf("provider_installation {\n dev_overrides {\n \"carillon-dev/carillon\" = %q\n }\n direct {}\n}\n", binary),
	}
	for i, text := range files {
		write[filepath.Join(d.path, fmt.Sprintf("file%d.tf", i))] = text
	}
	for file, text := range write {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+rc, "TF_IN_AUTOMATION=1", "TF_INPUT=0",
		"XDG_CACHE_HOME="+d.path,
		"CARILLON_ENDPOINT="+f.endpoint, "CARILLON_TOKEN="+f.token)
	return d
}

// rewrite replaces the first configuration file.
func (d directory) rewrite(t *testing.T, text string) {
	t.Helper()
	write(t, filepath.Join(d.path, "file0.tf"), text)
}

// with returns d with additional environment variables, which override existing ones.
func (d directory) with(environment ...string) directory {
	d.env = append(slices.Clip(d.env), environment...)
	return d
}

// terraform runs one command and returns its whole output.
func (d directory) terraform(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), d.client, append(arguments, "-no-color")...)
	command.Dir, command.Env = d.path, d.env
	output, err := command.CombinedOutput()
	return string(output), err
}

// must is terraform, but a failure ends the test.
func (d directory) must(t *testing.T, arguments ...string) string {
	t.Helper()
	output, err := d.terraform(t, arguments...)
	if err != nil {
		t.Fatalf("terraform %v: %v\n%s", arguments, err, output)
	}
	return output
}

// mustFail fails the test unless terraform fails and prints all of wants.
func (d directory) mustFail(t *testing.T, arguments []string, wants ...string) string {
	t.Helper()
	output, err := d.terraform(t, arguments...)
	if err == nil {
		t.Errorf("terraform %v succeeded:\n%s", arguments, output)
	}
	mustSay(t, output, wants...)
	return output
}

// mustSay fails the test unless output contains all of wants, whatever the line breaks.
func mustSay(t *testing.T, output string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !words(want).MatchString(output) {
			t.Errorf("want %q in:\n%s", want, fromErrors(output))
		}
	}
}

// fromErrors returns the part of Terraform's output from its first error on, or all of it: the plan of sixty jobs before
// it is longer than what a check prints of a failure.
func fromErrors(output string) string {
	if _, after, failed := strings.Cut(output, "Error: "); failed {
		return "Error: " + after
	}
	return output
}

// words matches text, whatever the line breaks.
func words(text string) *regexp.Regexp {
	parts := strings.Fields(text)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(strings.Join(parts, `\s+`))
}
