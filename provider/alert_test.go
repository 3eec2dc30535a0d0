package provider_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/test/need"
)

const alertDir = "testdata/alert/"

// A story: all problems of alerts are reported at once, at their lines.
func TestWrongAlertsAreReportedAtTheirLines(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	needTerraform(t)
	d := (&fixture{}).directory(t, contents(t, alertDir+"wrong.tf"), providerBlock(""))
	golden(t, alertDir+"wrong.txt", d.mustFail(t, []string{"validate"}))
}

// A story: one apply creates alerts, which are read back unchanged and imported. An operator's mute
// is no drift, but other changes outside of Terraform are.
func TestAlertStory(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, contents(t, alertDir+"main.tf"), providerBlock(""))
	golden(t, alertDir+"plan.txt", d.must(t, "plan"))
	mustSay(t, d.must(t, "apply", "-auto-approve"), "The alert selects no job: billing/on-call")
	mustChangeNothing(t, d)
	a, err := f.outside.Alert(t.Context(), "billing", "default")
	if err != nil || a.Failure.After != 2 || !a.Missed || a.LateAfter != input.Duration(5*time.Minute) || a.Recovery ||
		len(a.Mutes) != 2 || a.Retry.MaxAttempts != 5 || !a.IsDefault() {
		t.Errorf("alert = %+v, %v", a, err)
	}

	d.must(t, "state", "rm", "carillon_alert.default", "carillon_alert.on_call")
	d.must(t, "import", "carillon_alert.default", "billing/default")
	d.must(t, "import", "carillon_alert.on_call", "billing/on-call")
	d.must(t, "apply", "-auto-approve") // an import does not know value_version
	mustChangeNothing(t, d)

	if _, err := f.outside.MuteAlert(t.Context(), "billing", "default", alert.Mute{Reason: "a night off"}); err != nil {
		t.Fatal(err)
	}
	mustChangeNothing(t, d)
	if a, err = f.outside.Alert(t.Context(), "billing", "default"); err != nil || a.Muted == nil {
		t.Errorf("alert = %+v, %v, want it to stay muted", a, err)
	}

	a.Missed, a.Failure, a.LateAfter = false, nil, a.LateAfter*2
	if _, err := f.outside.PutAlert(t.Context(), a, client.Condition{Existing: true}); err != nil {
		t.Fatal(err)
	}
	golden(t, alertDir+"drift.txt", planOf(t, d.must(t, "plan")))
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
	if state := d.must(t, "state", "pull"); strings.Contains(state, "CANARY") {
		t.Error("the state has the routing key")
	}
	mustSay(t, d.must(t, "destroy", "-auto-approve"), "4 destroyed")
}

// The configuration that Terraform generates for imported alerts is valid, and keeps their stored secrets.
func TestGeneratedConfigurationOfAlerts(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	f.directory(t, contents(t, alertDir+"main.tf"), providerBlock("")).must(t, "apply", "-auto-approve")
	for alert, file := range map[string]string{"default": "generated_default.txt", "on-call": "generated_on_call.txt"} {
		d := f.directory(t, "import {\n to = carillon_alert.a\n id = \"billing/"+alert+"\"\n}\n", providerBlock(""))
		d.must(t, "plan", "-generate-config-out=generated.tf")
		golden(t, alertDir+file, contents(t, filepath.Join(d.path, "generated.tf")))
		mustSay(t, d.must(t, "apply", "-auto-approve"), "1 imported, 0 added, 0 changed, 0 destroyed")
		mustChangeNothing(t, d)
	}
}

// Problems that only the state or the app reveals are reported at plan.
func TestProblemsOfAlertsAreReportedAtPlan(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	main := contents(t, alertDir+"main.tf")
	d := f.directory(t, strings.Replace(main, "value         = \"CANARY-of-pagerduty-1234567890ab\"", "", 1), providerBlock(""))
	d.mustFail(t, []string{"plan"}, "destination.webhook.routing_key: secret is missing")
	d.rewrite(t, main)
	d.must(t, "apply", "-auto-approve")
	d.rewrite(t, strings.Replace(main, "https://events.pagerduty.com/", "https://evil.example/", 1))
	d.mustFail(t, []string{"plan"}, "destination.webhook.routing_key.value_version", "is not sent to")
	d.rewrite(t, strings.Replace(main, "bounds {\n", "bounds {\n egress {\n hosts = [\"a.example.com\"]\n }\n", 1))
	d.mustFail(t, []string{"plan"}, "The app may not call this host or port", `destination.webhook.url: host "alerts.example.com"`)
}

// Unknown values are checked as soon as they are known.
func TestUnknownValuesOfAlerts(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, `resource "terraform_data" "later" {
  input = { format = "template", late = "5m", schedule = "0 22 * * *" }
}

resource "carillon_app" "billing" {
  name = "billing"
}

resource "carillon_alert" "a" {
  app        = carillon_app.billing.name
  name       = "a"
  late_after = terraform_data.later.output.late

  mute {
    schedule = terraform_data.later.output.schedule
    duration = "1h"
  }
  destination {
    webhook {
      url    = "https://example.com/"
      format = terraform_data.later.output.format
      body   = "{\"text\": {{json .Title}}}"
    }
  }
}
`, providerBlock(""))
	d.must(t, "plan")
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
}

func TestAlertDataSource(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	f.directory(t, contents(t, alertDir+"main.tf"), providerBlock("")).must(t, "apply", "-auto-approve")
	if _, err := f.outside.MuteAlert(t.Context(), "billing", "on-call", alert.Mute{Reason: "a night off"}); err != nil {
		t.Fatal(err)
	}
	d := f.directory(t, `data "carillon_alert" "on_call" {
  app  = "billing"
  name = "on-call"
}

output "alert" {
  value = data.carillon_alert.on_call
}
`, providerBlock(""))
	d.must(t, "apply", "-auto-approve")
	mustSay(t, d.must(t, "output", "-json", "alert"), `"firing":0`,
		`"jobs":["nightly"]`, `"muted":true`, `"mute_reason":"a night off"`, `"revision":1`)
}
