package tfconfig_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/tfconfig"
)

// chain is an app with jobs that follow one another, as a server has it.
func chain(t *testing.T) tfconfig.Content {
	t.Helper()
	var app access.App
	app.SetDefaults()
	app.Name = "shop"
	webhook := func(url string) target.Target {
		w := &target.Webhook{}
		w.SetDefaults()
		w.URL = url
		return target.Target{Webhook: w}
	}
	c := tfconfig.Content{App: app}
	for _, name := range []string{"9-report", "load"} {
		job := dispatcher.Job{App: "shop", Name: name}
		job.SetDefaults()
		job.Target = webhook("https://example.com/" + name)
		if name == "load" {
			told := &target.FollowWebhook{URL: "https://oncall.example.com",
				Signing: &target.Signing{Secrets: map[string]target.Secret{"v1": {Stored: true}}}}
			job.OnSuccess = &dispatcher.Follow{Jobs: []string{"9-report", "of-another-module"}, Payload: dispatcher.FollowResult}
			job.OnFailure = &dispatcher.Follow{Jobs: []string{"9-report"}, FollowDestination: target.FollowDestination{Webhook: told}}
			job.OnMisfire = &dispatcher.Follow{Alert: "on-call",
				FollowDestination: target.FollowDestination{Lambda: &target.FollowLambda{Function: "missed"}}}
		}
		job, _, err := dispatcher.Apply(nil, job, dispatcher.Prior{}, nil, now)
		if err != nil {
			t.Fatal(err)
		}
		c.Jobs = append(c.Jobs, job)
	}
	return c
}

func TestWrittenFollowsAreEqual(t *testing.T) {
	t.Parallel()
	c := chain(t)
	dir, text := written(t, c)
	golden(t, filepath.Join("testdata", "follows", "shop.tf"), text)
	if found := compare(t, dir, c); len(found) > 0 {
		t.Errorf("differences %+v, want none", found)
	}
}

func TestCompareNamesDifferencesInFollows(t *testing.T) {
	t.Parallel()
	dir, _ := written(t, chain(t))
	server := chain(t)
	load := &server.Jobs[1]
	load.OnSuccess.Jobs, load.OnSuccess.Payload = load.OnSuccess.Jobs[:1], dispatcher.FollowOwn
	load.OnFailure.Webhook.URL += "/failed"
	load.OnMisfire = nil
	server.Jobs[0].OnFailure = &dispatcher.Follow{Jobs: []string{"load"}, Payload: dispatcher.FollowOwn}
	var got []string
	for _, d := range compare(t, dir, server) {
		got = append(got, string(d.Change)+" "+d.Name)
		for _, a := range d.Attributes {
			got = append(got, a.Path)
		}
	}
	want := []string{
		"changed shop/9-report", "on_failure",
		"changed shop/load", "on_failure.webhook.url", "on_misfire", "on_success.jobs", "on_success.payload",
	}
	if !slices.Equal(got, want) {
		t.Errorf("differences\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestLintKnowsTheRulesOfFollows(t *testing.T) {
	t.Parallel()
	golden(t, filepath.Join("testdata", "lint_follows", "problems.txt"), lint(t, filepath.Join("testdata", "lint_follows")))
}

// Values that depend on unknown ones are not judged.
func TestLintOfFollowsIgnoresUnknownValues(t *testing.T) {
	t.Parallel()
	resource := func(label, name, follows string) string {
		const target = " target {\n webhook { url = \"https://example.com/\" }\n}\n"
		return fmt.Sprintf("resource \"carillon_job\" %q {\n app = \"shop\"\n name = %s\n%s%s}\n", label, name, target, follows)
	}
	named := resource("n", `"named"`, "")
	for name, text := range map[string]string{
		"a list":    resource("j", `"j"`, "on_success { jobs = var.v }\n"),
		"a name":    resource("j", `"j"`, "on_success { jobs = [var.v, \"named\"] }\n"),
		"a payload": resource("j", `"j"`, "on_success {\n jobs = [\"named\"]\n payload = var.v\n}\n"),
		"a webhook": resource("j", `"j"`, "on_success {\n dynamic \"webhook\" {\n for_each = var.v\n content { url = var.v }\n }\n}\n"),
		"the name of another": resource("j", `"j"`, "on_success { jobs = [\"unknown\"] }\n") +
			resource("u", "var.v", "on_failure { jobs = [\"j\"] }\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			text := "variable \"v\" {}\nresource \"carillon_app\" \"a\" { name = \"shop\" }\n" + named + text
			if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if found := lint(t, dir); found != "" {
				t.Errorf("found\n%swant nothing", found)
			}
		})
	}
}
