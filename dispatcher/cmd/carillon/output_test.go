package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

func TestTextIsMadePlain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Größe 1 → 2, 你好":       "Größe 1 → 2, 你好",
		"a\x1b[2Jb\x07":         `a\x1b[2Jb\x07`,
		"a\nb\tc\r":             `a\nb\tc\x0d`,
		"x\u009b31m\u007f":      `x\x9b31m\x7f`,
		"file\u202etxt\u2066":   `file\u202etxt\u2066`,
		"zero\u200bwidth\ufeff": `zero\u200bwidth\ufeff`,
		"tag\U000e0041 \u2028":  `tag\U000e0041 \u2028`,
		"not UTF-8: \x9b end":   "not UTF-8: \ufffd end",
	} {
		if got := plain(text); got != want {
			t.Errorf("plain(%q) = %q, want %q", text, got, want)
		}
		document, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		safe := plainJSON(string(document))
		var again, original string
		if err := json.Unmarshal([]byte(safe), &again); err != nil {
			t.Errorf("plainJSON(%s) = %s: %v", document, safe, err)
		}
		_ = json.Unmarshal(document, &original) // it was just created
		if again != original || strings.ContainsFunc(safe, input.UnsafeToShow) {
			t.Errorf("plainJSON(%s) = %s, which is another value or not plain", document, safe)
		}
	}
}

func TestTablesLineUp(t *testing.T) {
	t.Parallel()
	table := newTable("NAME\tSTATE\tNOTE")
	table.add("größer", stateCell("failed"), "")
	table.add("a\x1b", stateCell("ok"), "b\nc")
	var out strings.Builder
	if err := table.show(console{out: &out}); err != nil {
		t.Fatal(err)
	}
	want := "NAME    STATE   NOTE\ngrößer  failed\na\\x1b   ok      b\\nc\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

// Colours appear only on a terminal, and only if the user wants them.
func TestColoursAreOnlyOnATerminal(t *testing.T) {
	t.Parallel()
	if got := stateCell("failed").text(true); got != "\x1b[31mfailed\x1b[0m" {
		t.Errorf("on a terminal, failed is %q", got)
	}
	if got := stateCell("strange\x1b").text(true); got != `strange\x1b` {
		t.Errorf("on a terminal, a state that nobody knows is %q", got)
	}
	if hasColours(&strings.Builder{}) {
		t.Error("a buffer has colours")
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if hasColours(file) {
		t.Error("a file has colours")
	}
}

// Bash asks the script for completions, as if a person pressed the tab key.
func TestCompletionInBash(t *testing.T) {
	t.Parallel()
	script, errs, code := carillon(t, nil, "completion", "bash")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for line, want := range map[string]string{
		"carillon ver":                     "verify version",
		"carillon run re":                  "retry",
		"carillon run list --fail":         "--failed",
		"carillon --version run can":       "cancel",
		"carillon completion ":             "bash zsh fish",
		"carillon context set x --token-f": "--token-from --token-file",
	} {
		words := strings.Split(line, " ")
		shell := exec.CommandContext(t.Context(), "bash", "-c", script+`
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_carillon
echo "${COMPREPLY[*]}"`, "bash")
		shell.Args = append(shell.Args, words...)
		out, err := shell.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%q completes to %q, %v, want %q", line, got, err, want)
		}
	}
	for _, other := range []string{"zsh", "fish"} {
		out, errs, code := carillon(t, nil, "completion", other)
		if code != 0 || !strings.Contains(out, "retry") || !strings.Contains(out, "carillon") {
			t.Errorf("completion %s: exit %d: %s%s", other, code, out, errs)
		}
	}
}
