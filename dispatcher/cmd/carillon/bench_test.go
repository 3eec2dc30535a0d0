package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

func TestBenchPrintsOneObjectALine(t *testing.T) {
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	out, errs, code := carillon(t, nil, "bench", "fire", "--database", database, "--seconds", "1", "--rounds", "1", "--json")
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

func TestBenchNamesAllFaultsOfItsArguments(t *testing.T) {
	t.Parallel()
	_, errs, code := carillon(t, nil, "bench", "fires", "--database", "mysql://db", "--seconds", "0", "--rounds", "101")
	for _, want := range []string{`no benchmark "fires"; there are store, fire`, "--seconds: 0 is not between 1 and 3600", "--rounds: 101 is not between 1 and 100", "mysql"} {
		if !strings.Contains(errs, want) {
			t.Errorf("standard error lacks %q:\n%s", want, errs)
		}
	}
	if code == 0 {
		t.Error("exit 0")
	}
}
