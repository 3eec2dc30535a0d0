package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

// benchCommand runs one command line of the program.
func benchCommand(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(t.Context(), args, strings.NewReader(""), &out, &errs)
	return out.String(), errs.String(), code
}

func TestBenchPrintsOneObjectALine(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	out, errs, code := benchCommand(t, "fire", "--database", database, "--seconds", "1", "--rounds", "1", "--json")
	var result struct {
		Bench, Unit           string
		Value, Ceiling, Ratio float64
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil || code != 0 {
		t.Fatalf("exit %d: %v\n%s%s", code, err, out, errs)
	}
	if result.Bench != "fire" || result.Unit != "fires/s" || result.Value <= 0 || result.Ceiling <= 0 || result.Ratio <= 0 {
		t.Errorf("got %s", out)
	}
}

func TestBenchNamesAllInvalidArguments(t *testing.T) {
	t.Parallel()
	_, errs, code := benchCommand(t, "fires", "--database", "mysql://db", "--seconds", "0", "--rounds", "101")
	for _, want := range []string{
		`no benchmark "fires"; there are store, fire`, "--seconds: 0 is not between 1 and 3600",
		"--rounds: 101 is not between 1 and 100", "--database (CARILLON_DATABASE) is not postgres://",
	} {
		if !strings.Contains(errs, want) {
			t.Errorf("standard error lacks %q:\n%s", want, errs)
		}
	}
	if code != exitUsage {
		t.Errorf("exit %d, want %d", code, exitUsage)
	}
}

func TestBenchExplainsItsFlags(t *testing.T) {
	t.Parallel()
	out, errs, code := benchCommand(t, "--help")
	if code != 0 || !strings.Contains(out, "--peer-cmd") || !strings.Contains(out, "[<bench> ...]") || strings.Contains(out, "as-node") {
		t.Errorf("exit %d:\n%s%s", code, out, errs)
	}
}
