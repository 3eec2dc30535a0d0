package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
)

// billingFiles declare app billing as declareBilling does.
const billingFiles = `resource "carillon_app" "billing" {
  name = "billing"
}

resource "carillon_job" "invoices" {
  app  = carillon_app.billing.name
  name = "invoices"
  target {
    webhook {
      url = "%s"
    }
  }
  trigger {
    name       = "often"
    expression = "rate(2s)"
  }
  trigger {
    name       = "yearly"
    expression = "0 0 8 1 1 ?"
    timezone   = "Europe/Berlin"
  }
}
`

// declareBilling declares an app with one job that calls url, and returns the environment of commands.
func declareBilling(t *testing.T, url string) (n *process, env []string) {
	t.Helper()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	token := newToken(t, database)
	n = startNode(t, database, token)
	var app access.App
	app.SetDefaults()
	app.Name = "billing"
	must[access.App](t)(n.PutApp(t.Context(), app, client.Condition{Absent: true}))
	job := webhookJob("billing", "invoices", url, map[string]string{"often": "rate(2s)", "yearly": "0 0 8 1 1 ?"})
	yearly := job.Triggers["yearly"]
	yearly.Timezone = "Europe/Berlin"
	job.Triggers["yearly"] = yearly
	must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{Absent: true}))
	return n, []string{"CARILLON_ENDPOINT=" + n.endpoint, "CARILLON_TOKEN=" + token}
}

// directory returns a new directory with one Terraform file.
func directory(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLintExitCodeDependsOnFindings(t *testing.T) {
	t.Parallel()
	wrong := strings.Replace(fmt.Sprintf(billingFiles, "https://example.com/"), "timezone ", "timezon ", 1)
	gap := strings.Replace(fmt.Sprintf(billingFiles, "https://example.com/"), "0 0 8 1 1 ?", "0 30 2 * * ?", 1)
	for name, tt := range map[string]struct {
		dir  string
		args []string
		code int
		want string // in the output
	}{
		"a clean directory": {dir: directory(t, fmt.Sprintf(billingFiles, "https://example.com/"))},
		"a misspelt name": {dir: directory(t, wrong), code: exitNegative,
			want: `main.tf:20:5: trigger has no "timezon"; did you mean timezone? (hcl_unknown)`},
		"a warning":                 {dir: directory(t, gap), want: "main.tf:19:18: warning: daylight saving skips"},
		"a warning with --strict":   {dir: directory(t, gap), args: []string{"--strict"}, code: exitNegative, want: "(dst)"},
		"a missing directory":       {dir: filepath.Join(t.TempDir(), "nothing"), code: exitUsage},
		"a directory without files": {dir: t.TempDir(), code: exitUsage},
		"contents that terminals obey": {dir: directory(t, "resource \"carillon_app\" \"a\" {\n  name = \"\\u001b[31m\"\n \"\x1b[2J\" = 3\n}"),
			code: exitNegative, want: `\x1b`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, errs, code := carillon(t, nil, append([]string{"lint", tt.dir}, tt.args...)...)
			if code != tt.code || !strings.Contains(out, tt.want) || tt.want == "" && out != "" {
				t.Errorf("exit %d, want %d, and output\n%s%swant %q", code, tt.code, out, errs, tt.want)
			}
			if strings.Contains(out+errs, "\x1b") {
				t.Error("the output holds an escape character")
			}
		})
	}
}

func TestLintPrintsProblemsAsJSON(t *testing.T) {
	t.Parallel()
	dir := directory(t, "resource \"carillon_app\" \"a\" {\n  nam = \"a\"\n}")
	out, _, code := carillon(t, nil, "lint", "-o", "json", dir)
	var list struct {
		Items []struct {
			File, Code, Resource string
			Line, Column         int
			Warning              bool
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != exitNegative {
		t.Fatalf("exit %d, %v:\n%s", code, err, out)
	}
	if len(list.Items) != 1 {
		t.Fatalf("problems %+v, want one: what was meant is not missing, too", list.Items)
	}
	if one := list.Items[0]; one.Code != "hcl_unknown" || one.Line != 2 || one.Column != 3 || one.Resource != "carillon_app.a" {
		t.Errorf("problem %+v, want the unknown name with its place", one)
	}
}

func TestDiffShowsWhatAnApplyWouldChange(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	n, env := declareBilling(t, "http://127.0.0.1:1/")
	text := fmt.Sprintf(billingFiles, "http://127.0.0.1:1/")
	if out, errs, code := carillon(t, env, "diff", directory(t, text)); code != 0 || out != "" {
		t.Errorf("diff of the same: exit %d\n%s%s", code, out, errs)
	}
	text = strings.Replace(text, "0 0 8 1 1 ?", "0 0 9 1 1 ?", 1)
	other := webhookJob("billing", "other", "http://127.0.0.1:1/", nil)
	must[dispatcher.Job](t)(n.PutJob(t.Context(), other, client.Condition{Absent: true}))
	dir := directory(t, text+"resource \"carillon_calendar\" \"h\" {\n  app  = \"billing\"\n  name = \"h\"\n}\n")
	out, errs, code := carillon(t, env, "diff", dir)
	want := `+ calendar billing/h (DIR/main.tf:23): only in the files
~ job billing/invoices (DIR/main.tf:5): different
    trigger["yearly"].expression: server "0 0 8 1 1 ?", files "0 0 9 1 1 ?"
- job billing/other: only on the server
`
	if got := strings.ReplaceAll(out, dir, "DIR"); got != want || code != exitNegative {
		t.Errorf("exit %d and\n%s%s\nwant exit 1 and\n%s", code, got, errs, want)
	}
	if out, _, code := carillon(t, env, "diff", "-o", "jsonl", dir); code != exitNegative || strings.Count(out, "\n") != 3 ||
		!strings.Contains(out, `"path":"trigger[\"yearly\"].expression","server":"0 0 8 1 1 ?","files":"0 0 9 1 1 ?"`) {
		t.Errorf("exit %d and\n%s\nwant three lines of JSON", code, out)
	}
	if _, errs, code := carillon(t, []string{env[0], "CARILLON_TOKEN=wrong"}, "diff", dir); code != exitRefused {
		t.Errorf("without a valid token: exit %d, want %d\n%s", code, exitRefused, errs)
	}
}

func TestNextMergesTheFiresOfAllJobsAndMarksHeldOnes(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	n, env := declareBilling(t, "http://127.0.0.1:1/")
	hourly := webhookJob("billing", "hourly", "http://127.0.0.1:1/", map[string]string{"h": "0 0 * * * ?"})
	h := hourly.Triggers["h"]
	h.Timezone = "UTC"
	hourly.Triggers["h"] = h
	must[dispatcher.Job](t)(n.PutJob(t.Context(), hourly, client.Condition{Absent: true}))
	must[dispatcher.Job](t)(n.PauseJob(t.Context(), client.Pausable{App: "billing", Job: "hourly"}, dispatcher.PauseRequest{},
		client.Condition{}))
	out, errs, code := carillon(t, env, "next", "billing", "--for", "3h", "--each", "2", "--timezone", "Europe/Berlin", "-o", "jsonl")
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, errs)
	}
	var held, more int
	last := time.Time{}
	for line := range strings.Lines(out) {
		var fire upcoming
		if err := json.Unmarshal([]byte(line), &fire); err != nil {
			t.Fatal(err)
		}
		if fire.At.Before(last) {
			t.Errorf("%s comes after %s", fire.At, last)
		}
		last = fire.At
		if fire.Job == "hourly" && fire.Held == "the job is paused" {
			held++
		}
		more += fire.More
	}
	// rate(2s) fires 5400 times in three hours, and an hourly schedule three times, one of them in More.
	if held != 2 || more < 5390 || more > 5405 || strings.Count(out, "\n") != 4 {
		t.Errorf("%d fires of the paused job and %d more, want 2 and some 5400:\n%s", held, more, out)
	}
	table, _, _ := carillon(t, env, "next", "billing", "--for", "3h", "--timezone", "Europe/Berlin")
	if !strings.HasPrefix(table, "Europe/Berlin") || !strings.Contains(table, "the job is paused") {
		t.Errorf("table:\n%s", table)
	}
	if _, errs, code := carillon(t, env, "next", "billing/nosuch"); code != exitMissing || !strings.Contains(errs, "billing/nosuch") {
		t.Errorf("an unknown job: exit %d, %s", code, errs)
	}
	if _, errs, code := carillon(t, env, "next", "nosuch"); code != exitMissing {
		t.Errorf("next of an app that does not exist: exit %d, want %d\n%s", code, exitMissing, errs)
	}
	if _, _, code := carillon(t, env, "next", "billing", "--timezone", "Mars/Olympus"); code != exitUsage {
		t.Errorf("next in a zone that does not exist: exit %d, want %d", code, exitUsage)
	}
}

func TestTailShowsAttemptsAsTheyEnd(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	r := newReceiver(t, nil)
	n, env := declareBilling(t, r.URL)
	metrics := must[access.IssuedToken](t)(n.PutToken(t.Context(),
		access.APIToken{Name: "metrics",
			TokenSpec: access.TokenSpec{Scopes: []access.Scope{access.ScopeMetrics}}}, client.Condition{Absent: true}))
	if _, errs, code := carillon(t, []string{env[0], "CARILLON_TOKEN=" + metrics.Secret}, "tail", "billing"); code != exitRefused {
		t.Errorf("tail without scope read: exit %d, want %d\n%s", code, exitRefused, errs)
	}
	if _, errs, code := carillon(t, env, "tail", "nosuch"); code != exitMissing {
		t.Errorf("tail of an app that does not exist: exit %d, want %d\n%s", code, exitMissing, errs)
	}
	var out lockedBuffer
	command := exec.Command(filepath.Join(binaries, "carillon"), "tail", "billing/invoices")
	command.Env = append(os.Environ(), env...)
	command.Stdout, command.Stderr = &out, &out
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill() })
	until(t, "three fires in the output of tail", func() bool { return strings.Count(out.String(), "billing/invoices/often") >= 3 })
	must[run.Run](t)(n.RunJob(t.Context(), "billing", "invoices"))
	until(t, "the manual run in the output of tail", func() bool { return strings.Contains(out.String(), "billing/invoices (manual)") })
	if err := command.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("tail ended with %v after an interrupt, want exit code 0\n%s", err, out.String())
	}
	seen := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		if !strings.Contains(line, " scheduled ") || !strings.HasSuffix(line, " ms late  204\n") || seen[line] {
			t.Errorf("line %q, want a fire that was not shown before, as carillon dev shows it", line)
		}
		seen[line] = true
	}
}
