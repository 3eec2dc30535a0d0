package tfconfig_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/tfconfig"
)

// watched is an app with alerts, as a server has it.
func watched() tfconfig.Content {
	var app access.App
	app.SetDefaults()
	app.Name = "billing"
	var standard, every alert.Alert
	standard.SetDefaults()
	standard.App, standard.Name, standard.Failure = "billing", "channel", &alert.Failures{After: 1}
	standard.Destination.Webhook = &target.AlertWebhook{}
	standard.Destination.Webhook.SetDefaults()
	standard.Destination.Webhook.URL = "https://hooks.slack.com/"
	standard.Destination.Webhook.Format, standard.Destination.Webhook.SecretURL = "slack", &target.Secret{Stored: true}
	every.SetDefaults()
	from := time.Date(2027, 12, 24, 0, 0, 0, 0, time.UTC)
	to := from.AddDate(0, 0, 3)
	every.App, every.Name, every.Description = "billing", "9-every", "all of ${it}"
	every.Jobs, every.Labels = []string{"nightly"}, input.Labels{"tier": "critical"}
	every.Failure = &alert.Failures{After: 3, RepeatEvery: 10}
	every.Missed, every.Recovery, every.LateAfter = true, false, input.Duration(5*time.Minute)
	every.Objective, every.Blocked = true, true
	every.OverrunAfter, every.NoSuccessFor = input.Duration(2*time.Hour), input.Duration(26*time.Hour)
	every.Mutes = []alert.MuteWindow{
		{Schedule: "0 22 * * *", Duration: input.Duration(8 * time.Hour), Timezone: "Europe/Berlin"}, {From: &from, To: &to},
	}
	every.Retry.MaxAttempts = 5
	every.Destination.Webhook = &target.AlertWebhook{RoutingKey: &target.Secret{Reference: "file:billing/pagerduty"}, Severity: "info"}
	every.Destination.Webhook.SetDefaults()
	every.Destination.Webhook.URL, every.Destination.Webhook.Format = "https://events.pagerduty.com/v2/enqueue", "pagerduty"
	topic := standard
	topic.Name = "topic"
	topic.Destination = target.AlertDestination{SNS: &target.AlertTopic{TopicARN: "arn:aws:sns:eu-central-1:123456789012:on-call"}}
	topic.Destination.SNS.SetDefaults()
	return tfconfig.Content{App: app, Alerts: []alert.Alert{every, standard, topic}}
}

func TestWrittenAlertsAreCleanAndEqual(t *testing.T) {
	t.Parallel()
	dir, text := written(t, watched())
	golden(t, filepath.Join("testdata", "alerts", "billing.tf"), text)
	if found := lint(t, dir); strings.Count(found, "\n") != 1 || !strings.Contains(found, `no file declares job "nightly"`) {
		t.Errorf("lint:\n%swant that the job is not declared", found)
	}
	if found := compare(t, dir, watched()); len(found) > 0 {
		t.Errorf("differences %+v, want none", found)
	}
}

func TestCompareNamesDifferencesInAlerts(t *testing.T) {
	t.Parallel()
	dir, _ := written(t, watched())
	server := watched()
	until := time.Now()
	server.Alerts[0].Muted, server.Alerts[0].Firing = &alert.Mute{Until: &until}, 3 // files declare neither
	server.Alerts[0].Failure.After, server.Alerts[0].LateAfter = 4, 0
	server.Alerts[0].Mutes = server.Alerts[0].Mutes[:1]
	server.Alerts[1].Destination.Webhook.Format = "carillon"
	server.Alerts = append(server.Alerts, alert.Alert{App: "billing", Name: "old"})
	var got []string
	for _, d := range compare(t, dir, server) {
		got = append(got, string(d.Change)+" "+d.Name)
		for _, a := range d.Attributes {
			got = append(got, a.Path)
		}
	}
	want := []string{
		"changed billing/9-every", "failure.after", "late_after", "mute[1]", "changed billing/channel", "destination.webhook.format",
		"only_on_server billing/old",
	}
	if !slices.Equal(got, want) {
		t.Errorf("differences\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Problems are reported at their line, and values that depend on unknown ones are not judged.
func TestLintKnowsTheRulesOfAlerts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := `
variable "v" {}
resource "carillon_alert" "wrong" {
  app        = "billing"
  name       = "wrong"
  late_after = "1ms"
  destination {
    webhook {
      url    = "https://hooks.slack.com/services/T/B/canary"
      format = "slak"
    }
  }
}
resource "carillon_alert" "unknown" {
  app    = "billing"
  name   = "unknown"
  missed = var.v
  destination {
    webhook {
      url    = "https://example.com/"
      format = var.v
      body   = "{}"
      routing_key {
        reference = "env:SECRET_BILLING"
      }
    }
  }
}
`
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	found := lint(t, dir)
	for _, want := range []string{":6:", "duration 1ms is less", ":9:", "anyone who knows this URL", ":10:", "did you mean slack?"} {
		if !strings.Contains(found, want) {
			t.Errorf("lint says\n%s, want %q in it", found, want)
		}
	}
	if strings.Count(strings.TrimSpace(found), "\n") != 2 || strings.Contains(found, "canary") {
		t.Errorf("lint says\n%s, want three lines without the URL", found)
	}
}

func TestLintNamesUndeclaredJobsOfAlerts(t *testing.T) {
	t.Parallel()
	const app = "resource \"carillon_app\" \"a\" { name = \"shop\" }\n"
	const job = "resource \"carillon_job\" \"j\" {\n app = \"shop\"\n name = %s\n" +
		" target {\n webhook { url = \"https://example.com/\" }\n}\n}\n"
	const alert = "resource \"carillon_alert\" \"a\" {\n app = \"shop\"\n name = \"a\"\n" +
		" jobs = [\"orders\", \"order\"]\n missed = true\n" +
		" destination {\n webhook { url = \"https://example.com/\" }\n}\n}\n"
	for name, tt := range map[string]struct{ text, want string }{
		"all are declared": {app + fmt.Sprintf(job, `"orders"`) + alert, "main.tf:12:20: carillon_alert.a: warning: " +
			"no file declares job \"order\" of app shop; declare it, or check the name; did you mean orders? (alert_job_unknown)\n"},
		"an unknown name":            {"variable \"v\" {}\n" + app + fmt.Sprintf(job, "var.v") + alert, ""},
		"another module has the app": {fmt.Sprintf(job, `"orders"`) + alert, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if found := lint(t, dir); found != tt.want {
				t.Errorf("found\n%swant\n%s", found, tt.want)
			}
		})
	}
}
