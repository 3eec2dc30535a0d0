package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/test/need"
)

func TestDefaultsOfAnAppAreSetAndFillJobs(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	dir := t.TempDir()
	database := "sqlite:" + filepath.Join(dir, "carillon.db")
	n := startNode(t, database, newToken(t, database))
	env := []string{"CARILLON_ENDPOINT=" + n.endpoint, "CARILLON_TOKEN=" + n.token}
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "books",
		AppSpec: access.AppSpec{Enabled: true, Description: "stays"}}, client.Condition{}))
	defaults := func(content string) (string, string, int) {
		t.Helper()
		file := filepath.Join(dir, "defaults.json")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return carillon(t, env, "app", "defaults", "books", "--set", "@"+file)
	}
	out, errs, code := defaults(`{"timezone":"Europe/Berlin","retry":{"max_attempts":7},"misfire_policy":"skip"}`)
	if code != 0 || !strings.Contains(out, `"Europe/Berlin"`) || !strings.Contains(out, `"5s"`) {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	job := webhookJob("books", "report", "https://example.com/", map[string]string{"t": "0 8 1 * *"})
	trigger := job.Triggers["t"]
	trigger.Timezone, trigger.MisfirePolicy = "", ""
	job.Triggers["t"] = trigger
	stored := must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
	if got := stored.Triggers["t"]; got.Timezone != "Europe/Berlin" || got.MisfirePolicy != dispatcher.Skip || stored.Retry.MaxAttempts != 7 {
		t.Errorf("the job is %+v with %+v", stored, got)
	}
	for content, want := range map[string]string{
		`{"timezone":"CEST"}`: "CEST", `{"zone":"UTC"}`: "unknown field", `{}{}`: "more than one JSON value",
	} {
		if _, errs, code := defaults(content); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, %q, want %q", content, code, errs, want)
		}
	}
	if out, errs, code := defaults(`{}`); code != 0 || strings.TrimSpace(out) != "{}" {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	app := must[access.App](t)(n.App(t.Context(), "books"))
	if app.Defaults != nil || app.Description != "stays" {
		t.Errorf("without defaults the app is %+v", app)
	}
}
