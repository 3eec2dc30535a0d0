package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
)

// lintPage lints the first configuration block of a page, after adding an app with that name, and returns the page.
func lintPage(t *testing.T, page, app string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/how-to/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```hcl\n")
	block, _, _ = strings.Cut(block, "```")
	dir := t.TempDir()
	config := fmt.Sprintf("resource \"carillon_app\" %q {\n  name = %q\n}\n", app, app) + block
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := carillon(t, nil, "lint", dir); code != 0 || !strings.Contains(config, "carillon_job") {
		t.Fatalf("the configuration of %s is refused: exit %d: %s%s", page, code, out, errs)
	}
	return string(text)
}

// commandsOf runs the commands of the shell blocks of a page, and returns their output.
func (n *process) commandsOf(t *testing.T, page string) (printed []string) {
	t.Helper()
	for _, block := range strings.Split(page, "```sh\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for line := range strings.Lines(block) {
			args := strings.Fields(strings.ReplaceAll(line, "'", ""))
			if len(args) == 0 {
				continue
			}
			out, errs, code := n.commandWith("", args[1:]...)
			if code != 0 {
				t.Fatalf("%s: exit %d: %s", line, code, errs)
			}
			printed = append(printed, out)
		}
	}
	return printed
}

// A story: the steps of the page about carried states, in order. A run returns a cursor as on the
// page, the next run gets it, and an operator sets another one and clears it.
func TestStoryStateIsCarriedFromRunToRun(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	page := lintPage(t, "carry-state.md", "shop")
	_, response, _ := strings.Cut(page, "```json\n")
	response, _, _ = strings.Cut(response, "```")
	var given []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given = append(given, r.Header.Get(run.HeaderState))
		_, _ = fmt.Fprint(w, response)
	}))
	defer server.Close()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	n := startNode(t, database, newToken(t, database), quick()...)
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	job := webhookJob("shop", "import", server.URL, nil)
	job.ConcurrencyPolicy, job.CarryState = run.ConcurrencyQueue, true
	must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
	var last run.Run
	for range 2 {
		id := must[run.Run](t)(n.RunJob(t.Context(), "shop", "import")).ID
		until(t, "the run to end", func() bool {
			last = must[run.Run](t)(n.Run(t.Context(), id))
			return last.EndedAt != nil
		})
	}
	if want := `{"cursor":4723}`; len(given) != 2 || given[0] != "" || given[1] != want {
		t.Errorf("the runs were given %q, want nothing and then %s", given, want)
	}
	if a := last.Attempts[0]; a.Response == nil || string(a.Response.State) != `{"cursor":4723}` {
		t.Errorf("attempt %+v, want the state that it returned", a)
	}
	printed := n.commandsOf(t, page)
	for i, want := range []string{`{"cursor":4723}`, `{"cursor":4000}`, "null"} {
		if i >= len(printed) || !strings.Contains(printed[i], want) {
			t.Errorf("the commands print %q, want %s in number %d", printed, want, i)
		}
	}
	if state := must[run.CarriedState](t)(n.CarriedState(t.Context(), "shop", "import")); state.Revision != 4 {
		t.Errorf("state %+v, want revision 4: two runs, one set and one cleared it", state)
	}
}

// A story: the steps of the page about objectives, in order, with a yearly job that has not fired late yet.
func TestStoryObjectiveIsMeasured(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	page := lintPage(t, "set-objectives.md", "billing")
	r := newReceiver(t, nil)
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	n := startNode(t, database, newToken(t, database), quick()...)
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "billing", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	job := webhookJob("billing", "invoices", r.URL, map[string]string{"often": "0 0 12 1 1 ?"})
	job.Objective = &dispatcher.Objective{Within: input.Duration(1e9), Of: "99.9%"}
	must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
	for i, printed := range n.commandsOf(t, page) {
		if !strings.Contains(printed, "99.9% within 1s") || !strings.Contains(printed, "100%") {
			t.Errorf("command %d prints %q, want the objective and a whole budget", i, printed)
		}
	}
}
