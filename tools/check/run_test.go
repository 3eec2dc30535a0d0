package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A step waits for all children of this process, so no parallel test may start one.
func TestStepWithLeftoversFails(t *testing.T) {
	if err := adoptOrphans(); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		command, want string
		grace         time.Duration
	}{
		"nothing is left":            {command: "true"},
		"a file for a moment":        {command: `echo x >"$TMPDIR/a" && rm "$TMPDIR/a"`},
		"a temporary file":           {command: `mkdir "$TMPDIR/carillon-x"`, want: "directory for temporary files: carillon-x"},
		"a database in memory":       {command: `mkdir /dev/shm/carillon-pg-"${TMPDIR##*/}"-1`, want: "left behind in memory: "},
		"a new file in the checkout": {command: `echo x >dir/new`, want: "changed in the checkout: ?? dir/new"},
		"an ignored file there":      {command: `echo x >ignored`, want: "changed in the checkout: !! ignored"},
		"a changed file there":       {command: `echo y >file`, want: "changed in the checkout: M file"},
		"what make builds, in bin":   {command: `mkdir bin && echo x >bin/carillon`},
		"a process":                  {command: "sleep 1000 & true", want: "left running: "},
		"a process that soon ends":   {command: "sleep 0.1 & true", grace: time.Hour},
		"an orphan that ends meanwhile": {
			// The file holds "pid (name) state ppid"; the step's command is also a child of this process.
			command: `(true &); n=0; sleep 0.2; while grep -qs ") Z $PPID " /proc/[0-9]*/stat; do
				n=$((n + 1)); test $n -lt 300 || exit 1; sleep 0.1; done`,
		},
		"the command fails": {command: "exit 3", want: "exit status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat("/dev/shm"); err != nil && strings.Contains(tt.command, "/dev/shm") {
				t.Skip("SKIPPED: this system keeps no files in memory") // also with CI=true
			}
			dir := t.TempDir()
			for file, text := range map[string]string{"dir/old": "x", "file": "x", ".gitignore": "ignored\nbin\n"} {
				if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {
				"-c", "user.name=n", "-c", "user.email=e@example.com", "commit", "-qm", "x",
			}} {
				if out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
					t.Fatalf("git %v: %v\n%s", args, err, out)
				}
			}
			c := checker{root: dir, log: filepath.Join(t.TempDir(), "check.jsonl"), alone: true, grace: tt.grace}
			r, err := c.runOne(t.Context(), step{name: "one", command: []string{"sh", "-c", tt.command}})
			if got := errorText(err); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("error = %q, want %q", got, tt.want)
			}
			if r.OK != (tt.want == "") {
				t.Errorf("the record says ok = %t", r.OK)
			}
			var table bytes.Buffer
			if err := report(c.log, &table); err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(table.String(), " FAILED "); got == r.OK {
				t.Errorf("the report does not say whether it is ok:\n%s", &table)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
