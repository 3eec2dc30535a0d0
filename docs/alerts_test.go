package docs_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

const monitor = "docs/how-to/monitor.md"

// promtool finds the program, which CI has and other machines may lack.
func promtool(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, "tools", "promtool.sh")).Output()
	if err != nil {
		need.Missing(t, fmt.Sprintf("no promtool; tools/promtool.sh: %v", err))
	}
	return strings.TrimSpace(string(out))
}

func TestAlertsAreValidAndRing(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	program := promtool(t)
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		command := exec.CommandContext(t.Context(), program, args...)
		command.Dir = filepath.Join(root, "examples", "prometheus")
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

var (
	alertName = regexp.MustCompile(`(?m)^ +- alert: (\w+)$`)
	runbook   = regexp.MustCompile(`(?m)^ +runbook: monitor\.md#([a-z-]+)$`)
	console   = regexp.MustCompile(`(?m)^ +console: "\{\{ \$externalLabels.carillon_console \}\}/console/[^"]*"$|` +
		`(?m)^ +console: '\{\{ \$externalLabels.carillon_console \}\}/console/`)
	family  = regexp.MustCompile(`carillon_[a-z_]+`)
	ringing = regexp.MustCompile(`alertname: (\w+)\n +exp_alerts:\n +- exp_labels`)
	quiet   = regexp.MustCompile(`\{eval_time: [0-9a-z]+, alertname: (\w+)\}`)
)

// consoleLabel is the external label that says where the console is.
const consoleLabel = "carillon_console"

// alwaysRings is the alert that is never quiet.
const alwaysRings = "CarillonWatchdog"

func TestEachPrometheusAlertHasASectionAndATest(t *testing.T) {
	t.Parallel()
	rules, tests, text := page(t, "examples/prometheus/alerts.yml"), page(t, "examples/prometheus/alerts_test.yml"), page(t, monitor)
	names, sections := alertName.FindAllStringSubmatch(rules, -1), runbook.FindAllStringSubmatch(rules, -1)
	if len(names) < 10 || len(names) != len(sections) {
		t.Fatalf("%d alerts and %d runbooks, want the same number, ten or more", len(names), len(sections))
	}
	if consoles := console.FindAllString(rules, -1); len(consoles) != len(names) {
		t.Errorf("%d alerts and %d links to the console, want the same number", len(names), len(consoles))
	}
	rings, silent := alertsIn(ringing, tests), alertsIn(quiet, tests)
	for _, name := range names {
		if !strings.Contains(text, "`"+name[1]+"`") {
			t.Errorf("%s does not name the alert %s", monitor, name[1])
		}
		if !rings[name[1]] {
			t.Errorf("alerts_test.yml does not show that %s rings", name[1])
		}
		if !silent[name[1]] && name[1] != alwaysRings {
			t.Errorf("alerts_test.yml does not show when %s is quiet", name[1])
		}
	}
	for _, section := range sections {
		if !anchors(text)[section[1]] {
			t.Errorf("%s has no section %q", monitor, section[1])
		}
	}
}

// alertsIn returns the alerts that an expression finds in a text.
func alertsIn(expression *regexp.Regexp, text string) map[string]bool {
	all := map[string]bool{}
	for _, match := range expression.FindAllStringSubmatch(text, -1) {
		all[match[1]] = true
	}
	return all
}

// A metric that is renamed leaves an alert that never rings.
func TestAlertsUseOnlyDocumentedMetrics(t *testing.T) {
	t.Parallel()
	reference := page(t, "docs/reference/metrics.md")
	for _, name := range family.FindAllString(page(t, "examples/prometheus/alerts.yml"), -1) {
		name = strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
		if name != consoleLabel && !strings.Contains(reference, "`"+name+"`") {
			t.Errorf("examples/prometheus/alerts.yml uses %s, which docs/reference/metrics.md does not list", name)
		}
	}
}

func TestMonitorNamesEveryMetricOrItsGroup(t *testing.T) {
	t.Parallel()
	text := page(t, monitor)
	listed := regexp.MustCompile("(?m)^\\| `(carillon_[a-z_]+)`").FindAllStringSubmatch(page(t, "docs/reference/metrics.md"), -1)
	if len(listed) < 15 {
		t.Fatalf("docs/reference/metrics.md lists %d metrics, want fifteen or more", len(listed))
	}
	for _, metric := range listed {
		if !strings.Contains(text, "`"+metric[1]+"`") {
			t.Errorf("%s does not say what to do with %s", monitor, metric[1])
		}
	}
}

// The alarms of the modules are keys of a map.
var alarmKey = regexp.MustCompile(`(?m)^    ([a-z-]+) = \{$`)

func TestEachAlarmOfTheModulesHasASection(t *testing.T) {
	t.Parallel()
	keys := alarmKey.FindAllStringSubmatch(page(t, "terraform/modules/alarms/main.tf"), -1)
	if len(keys) != 5 {
		t.Fatalf("terraform/modules/alarms has %d alarms, want five", len(keys))
	}
	text := page(t, monitor)
	for _, key := range keys {
		if !anchors(text)[key[1]] || !strings.Contains(text, "`NAME-"+key[1]+"`") {
			t.Errorf("%s has no section for the alarm %s, or its table does not name it", monitor, key[1])
		}
	}
}
