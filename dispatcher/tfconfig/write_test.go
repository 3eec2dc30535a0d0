package tfconfig_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/tfconfig"
)

// content is an app as a server has it.
func content(t *testing.T) tfconfig.Content {
	t.Helper()
	var app access.App
	app.SetDefaults()
	app.Name, app.Description = "finance", "pays ${bills}\n\u202e"
	job := dispatcher.Job{App: "finance", Name: "9-nightly"}
	job.SetDefaults()
	job.Retry.MaxAttempts = 5
	job.Acknowledge = []string{"moved_hour"}
	job.Payload = []byte(`{"sum":1.50,"with space":[1,null,"${x}"]}`)
	w := &target.Webhook{}
	w.SetDefaults()
	w.URL, w.Headers = "https://example.com/", map[string]string{"X-A": "b"}
	w.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Stored: true}}}
	job.Target.Webhook = w
	job.Triggers = map[string]dispatcher.Trigger{}
	for name, s := range map[string]dispatcher.Schedule{
		"berlin":   {Expression: "0 30 8 * * ?", Timezone: "Europe/Berlin", Calendar: "closed", OnExcluded: "next_included"},
		"interval": {Expression: "rate(5m)"},
		"both":     {Expression: "0 0 12 * * ?", Timezone: "UTC", Overlap: "both"},
	} {
		trigger := dispatcher.Trigger{TriggerSpec: dispatcher.TriggerSpec{Schedule: s}}
		trigger.SetDefaults()
		job.Triggers[name] = trigger
	}
	// A server stores definitions with all defaults.
	calendars := []dispatcher.Calendar{
		{App: "finance", Name: "closed",
			CalendarSpec: dispatcher.CalendarSpec{Bases: []string{"holidays"}, Rules: []schedule.CalendarRule{{Weekdays: []string{"SAT", "SUN"}}}}},
		{App: "finance", Name: "holidays",
			CalendarSpec: dispatcher.CalendarSpec{Timezone: "Europe/Berlin", Rules: []schedule.CalendarRule{{Dates: []string{"12-25"}}}}},
	}
	stored, _, err := dispatcher.Apply(nil, job, dispatcher.Prior{}, dispatcher.CompileCalendars(calendars), now)
	if err != nil {
		t.Fatal(err)
	}
	return tfconfig.Content{App: app, Calendars: calendars, Jobs: []dispatcher.Job{stored}}
}

// written writes an app into a directory of its own, and returns the directory and the text.
func written(t *testing.T, c tfconfig.Content) (dir, text string) {
	t.Helper()
	var b bytes.Buffer
	if err := c.Write(&b); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, b.String()
}

func TestWriteLeavesDefaultsOutAndEscapes(t *testing.T) {
	t.Parallel()
	_, text := written(t, content(t))
	golden(t, filepath.Join("testdata", "write", "finance.tf"), text)
	if strings.Contains(text, "\u202e") {
		t.Error("the file holds control characters")
	}
}

func TestWrittenFilesAreCleanAndEqual(t *testing.T) {
	t.Parallel()
	c := content(t)
	dir, _ := written(t, c)
	if found := lint(t, dir); found != "" {
		t.Errorf("lint:\n%s", found)
	}
	if found := compare(t, dir, c); len(found) > 0 {
		t.Errorf("differences %+v, want none", found)
	}
}

func TestRespeltValuesAreEqual(t *testing.T) {
	t.Parallel()
	c := content(t)
	start := time.Date(2026, 12, 23, 23, 0, 0, 0, time.UTC)
	for name, trigger := range c.Jobs[0].Triggers {
		trigger.StartAt, trigger.EndAt = &start, new(start.AddDate(1, 0, 0))
		c.Jobs[0].Triggers[name] = trigger
	}
	for i := range c.Calendars {
		c.Calendars[i].Timezone = "UTC"
	}
	dir, text := written(t, c)
	respelt := strings.NewReplacer("2026-12-23T23:00:00Z", "2026-12-24T00:00:00+01:00", "2027-12-23T23:00:00Z",
		"2027-12-23T18:00:00-05:00", "  timezone    = \"UTC\"\n", "", "  timezone = \"UTC\"\n", "").Replace(text)
	if !strings.Contains(respelt, "+01:00") || len(respelt) >= len(text)+100 {
		t.Fatalf("nothing was respelt:\n%s", text)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(respelt), 0o600); err != nil {
		t.Fatal(err)
	}
	if found := compare(t, dir, c); len(found) > 0 {
		t.Errorf("differences %+v, want none, of\n%s", found, respelt)
	}
}

func compare(t *testing.T, dir string, c tfconfig.Content) []tfconfig.Difference {
	t.Helper()
	module, err := tfconfig.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	found, err := module.Compare(map[string]tfconfig.Content{c.App.Name: c})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestCompareNamesEachDifferingValue(t *testing.T) {
	t.Parallel()
	declared := content(t)
	dir, _ := written(t, declared)
	server := content(t)
	server.App.Enabled = false
	server.Calendars[1].Rules[0].Dates = []string{"12-26"}
	job := &server.Jobs[0]
	job.Target.Webhook.Timeout = input.Duration(time.Minute)
	job.Target.Webhook.Headers = map[string]string{"X-A": "c", "X-B": "d"}
	job.Payload = []byte(`{"sum":2}`)
	berlin := job.Triggers["berlin"]
	berlin.Expression = "0 30 9 * * ?"
	job.Triggers["berlin"] = berlin
	delete(job.Triggers, "both")
	server.Jobs = append(server.Jobs, dispatcher.Job{App: "finance", Name: "old"})

	var got []string
	for _, d := range compare(t, dir, server) {
		got = append(got, string(d.Change)+" "+d.Name)
		for _, a := range d.Attributes {
			got = append(got, a.Path)
		}
	}
	want := []string{"changed finance", "enabled", "changed finance/holidays", "rule[0].dates", "changed finance/9-nightly", "payload",
		`target.webhook.headers["X-A"]`, `target.webhook.headers["X-B"]`, "target.webhook.timeout", `trigger["berlin"].expression`,
		`trigger["both"]`, "only_on_server finance/old"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("differences\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCompareLeavesOutUnknownValues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := `
variable "url" {}
variable "name" {}
resource "carillon_job" "a" {
  app         = "finance"
  name        = "9-nightly"
  acknowledge = ["moved_hour"]
  target {
    webhook {
      url     = var.url
      headers = { "X-A" = var.url }
      auth {
        bearer {
          token { value = var.url }
        }
      }
    }
  }
  payload = jsonencode({ sum = var.url })
  retry { max_attempts = 5 }
  dynamic "trigger" {
    for_each = var.url
    content {
      name       = trigger.key
      expression = trigger.value
    }
  }
}
resource "carillon_job" "b" {
  app  = "finance"
  name = var.name
  target {
    lambda { function = "f" }
  }
}
resource "carillon_job" "c" {
  count = var.name == "" ? 0 : 1
  app   = "finance"
  name  = "c"
  target {
    lambda { function = "f" }
  }
}
`
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	found := compare(t, dir, content(t))
	if len(found) != 2 || found[0].Change != tfconfig.NotCompared || found[0].Resource != "carillon_job.b" ||
		found[1].Change != tfconfig.NotCompared || found[1].Resource != "carillon_job.c[?]" {
		t.Errorf("differences %+v, want only that jobs b and c are not compared", found)
	}
}

// withDefaults gives the app of a content defaults, as a server has them after its jobs were declared with them.
func withDefaults(t *testing.T) tfconfig.Content {
	t.Helper()
	c := content(t)
	retry := run.Retry{}
	retry.SetDefaults()
	retry.MaxAttempts = 5
	c.App.Defaults = &dispatcher.JobDefaults{Timezone: "Europe/Berlin", Retry: &retry, Headers: map[string]string{"x-a": "b"},
		MisfirePolicy: dispatcher.Skip}
	return c
}

func TestWriteLeavesOutDefaultsOfTheApp(t *testing.T) {
	t.Parallel()
	_, text := written(t, withDefaults(t))
	for _, absent := range []string{"max_attempts", "X-A"} { // the defaults have them
		if strings.Contains(strings.SplitN(text, "carillon_job", 2)[1], absent) {
			t.Errorf("the job has %s, which its app gives it:\n%s", absent, text)
		}
	}
	if n := strings.Count(text, `misfire_policy = "fire_once"`) + strings.Count(text, `misfire_policy  = "fire_once"`) +
		strings.Count(text, `misfire_policy   = "fire_once"`); n != 3 {
		t.Errorf("%d triggers say fire_once, want 3, because the app would give them another policy:\n%s", n, text)
	}
}

func TestCompareFillsInDefaultsOfTheApp(t *testing.T) {
	t.Parallel()
	server := withDefaults(t)
	job := &server.Jobs[0]
	for name, trigger := range job.Triggers {
		if trigger.MisfirePolicy = dispatcher.Skip; name != "berlin" {
			delete(job.Triggers, name)
			continue
		}
		job.Triggers[name] = trigger
	}
	job.Target.Webhook.Headers = map[string]string{"x-a": "b"}
	job.Target.Webhook.Auth, job.Payload = nil, nil
	dir := t.TempDir()
	text := `
resource "carillon_job" "a" {
  app         = "finance"
  name        = "9-nightly"
  acknowledge = ["moved_hour"]
  target {
    webhook { url = "https://example.com/" }
  }
  trigger {
    name        = "berlin"
    expression  = "0 30 8 * * ?"
    calendar    = "closed"
    on_excluded = "next_included"
  }
}
`
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if found := compare(t, dir, server); len(found) > 0 {
		t.Errorf("differences %+v, want none", found)
	}
	// The app is not in these files, so its default may give the zone.
	if found := lint(t, dir); !strings.Contains(found, "warning: timezone is missing") {
		t.Errorf("lint found\n%swant a warning of the zone", found)
	}
}
