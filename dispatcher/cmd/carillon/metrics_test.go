package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// notAlways are the metrics that only some nodes have, with the flag or state that they need.
var notAlways = map[string]string{
	"carillon_task_protection":                             "--task-protection",
	"carillon_task_protection_errors_total":                "--task-protection",
	"carillon_tls_certificate_expiry_timestamp_seconds":    "--tls-cert",
	"carillon_tls_files_broken":                            "--tls-cert",
	"carillon_token_expiry_timestamp_seconds":              "a token that expires",
	"carillon_partitions_ahead":                            "a census",
	"carillon_target_certificate_expiry_timestamp_seconds": "a client certificate for a target",
}

// TestMetricsOfANodeAreThoseOfTheDocsRulesAndDashboards reads the metrics of a node over PostgreSQL
// that has fired, and compares them with all texts that name metrics.
func TestMetricsOfANodeAreThoseOfTheDocsRulesAndDashboards(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	live := liveMetrics(t)
	t.Run("reference", func(t *testing.T) {
		t.Parallel()
		ofJobs := parsed(t, live.jobs)
		if len(ofJobs) != 8 {
			t.Errorf("/metrics/jobs has %d families, want 8:\n%s", len(ofJobs), live.jobs)
		}
		maps.Copy(ofJobs, live.families)
		checkReference(t, ofJobs)
	})
	t.Run("promtool accepts them", func(t *testing.T) {
		t.Parallel()
		promtoolOn(t, live.text, "check", "metrics")
		promtoolOn(t, live.jobs, "check", "metrics")
	})
	t.Run("rules", func(t *testing.T) {
		t.Parallel()
		for _, expression := range expressionsOfRules(t) {
			checkExpression(t, "alerts.yml", expression, live.families)
		}
	})
	t.Run("dashboards", func(t *testing.T) {
		t.Parallel()
		var all []string
		for _, name := range []string{"service.json", "app.json"} {
			all = append(all, checkDashboard(t, name, live.families)...)
		}
		checkRest(t, all, live.families)
	})
}

// metricsOf has the metrics of a node.
type metricsOf struct {
	text     string
	jobs     string // from /metrics/jobs
	families map[string]*dto.MetricFamily
}

func liveMetrics(t *testing.T) metricsOf {
	t.Helper()
	database := pgtest.New(t)
	token := newToken(t, database)
	n := startNode(t, database, token, quick()...)
	t.Cleanup(n.terminate)
	receiver := newReceiver(t, nil)
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	job := webhookJob("shop", "report", receiver.URL, map[string]string{"often": "rate(1s)"})
	must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
	var m metricsOf
	until(t, "the node has counted an attempt and what there is", func() bool {
		m.text = n.get(t, "/metrics")
		const succeeded = `carillon_attempts_total{app="shop",state="succeeded"} `
		return strings.Contains(m.text, succeeded) && !strings.Contains(m.text, succeeded+"0") &&
			strings.Contains(m.text, `carillon_nodes{state="active"} 1`)
	})
	until(t, "the job has a success", func() bool {
		m.jobs = n.get(t, "/metrics/jobs?app=shop")
		return strings.Contains(m.jobs, `carillon_job_last_success_timestamp_seconds{app="shop",job="report"} `) &&
			strings.Contains(m.jobs, `carillon_job_latest_lateness_seconds{app="shop",job="report"} `)
	})
	m.families = parsed(t, m.text)
	return m
}

// parsed parses metrics and returns their families by name.
func parsed(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// repository returns the path of a file of the repository.
func repository(parts ...string) string {
	return filepath.Join(append([]string{"..", "..", ".."}, parts...)...)
}

// promtoolOn runs promtool with an input, and fails if it finds a problem.
func promtoolOn(t *testing.T, input string, args ...string) {
	t.Helper()
	if out, err := promtool(t, input, args...); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// promtool runs promtool with an input, and returns its output.
func promtool(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	program, err := exec.CommandContext(t.Context(), repository("tools", "promtool.sh")).Output()
	if err != nil {
		need.Missing(t, fmt.Sprintf("no promtool; tools/promtool.sh: %v", err))
	}
	command := exec.CommandContext(t.Context(), strings.TrimSpace(string(program)), args...)
	command.Stdin = strings.NewReader(input)
	out, err := command.CombinedOutput()
	return string(out), err
}

// valuesOf returns the values of a label in a family; nil without the label.
func valuesOf(family *dto.MetricFamily, label string) []string {
	var values []string
	for _, metric := range family.GetMetric() {
		for _, pair := range metric.GetLabel() {
			if pair.GetName() == label {
				values = append(values, pair.GetValue())
			}
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// openLabels have values that no page can list.
var openLabels = []string{"app", "job", "version", "zones", "go"}

var metricRow = regexp.MustCompile("(?m)^\\| `(carillon_[a-z_]+)` \\| ([a-z]+) \\| ([^|]*)\\|")

// checkReference compares the families with the rows of docs/reference/metrics.md.
func checkReference(t *testing.T, families map[string]*dto.MetricFamily) {
	t.Helper()
	rows := map[string][]string{}
	for _, row := range metricRow.FindAllStringSubmatch(reference(t, "metrics.md"), -1) {
		rows[row[1]] = row[2:]
	}
	for name, family := range families {
		if !strings.HasPrefix(name, "carillon_") {
			continue
		}
		row, listed := rows[name]
		if !listed {
			t.Errorf("docs/reference/metrics.md does not explain `%s`", name)
			continue
		}
		if kind := strings.ToLower(family.GetType().String()); row[0] != kind {
			t.Errorf("%s is a %s, and docs/reference/metrics.md has it as a %s", name, kind, row[0])
		}
		for _, pair := range family.GetMetric()[0].GetLabel() {
			label := pair.GetName()
			if !strings.Contains(row[1], "`"+label+"`") {
				t.Errorf("docs/reference/metrics.md does not list the label %s of %s", label, name)
			}
			for _, value := range valuesOf(family, label) {
				if !slices.Contains(openLabels, label) && !strings.Contains(row[1], "as above") && value != "" &&
					!strings.Contains(row[1], "`"+value+"`") {
					t.Errorf("docs/reference/metrics.md does not list the value %s of the label %s of %s", value, label, name)
				}
			}
		}
	}
	for name := range rows {
		if families[name] == nil && notAlways[name] == "" {
			t.Errorf("docs/reference/metrics.md lists %s, which the node does not serve", name)
		}
	}
}

var (
	selector = regexp.MustCompile(`\b(carillon_[a-z_]+)(\{[^}]*\})?`)
	matcher  = regexp.MustCompile(`([a-z]+)(=~|=)"([^"]*)"`)
	grouping = regexp.MustCompile(`\bby \(([a-z, ]+)\)`)
	part     = regexp.MustCompile(`_(bucket|count|sum)$`)
)

// familiesIn returns the families that an expression names.
func familiesIn(expression string, families map[string]*dto.MetricFamily) []string {
	var names []string
	for _, found := range selector.FindAllStringSubmatch(expression, -1) {
		name := found[1]
		if short := part.ReplaceAllString(name, ""); families[name] == nil && families[short] != nil {
			name = short
		}
		names = append(names, name)
	}
	return names
}

// checkExpression checks that the metrics, labels and values of an expression exist.
func checkExpression(t *testing.T, where, expression string, families map[string]*dto.MetricFamily) {
	t.Helper()
	names := familiesIn(expression, families)
	for i, found := range selector.FindAllStringSubmatch(expression, -1) {
		family := families[names[i]]
		if family == nil {
			if notAlways[names[i]] == "" {
				t.Errorf("%s: %s names %s, which no node serves", where, expression, names[i])
			}
			continue
		}
		for _, match := range matcher.FindAllStringSubmatch(found[2], -1) {
			if match[1] == "le" || match[1] == "job" || match[3] == "$app" {
				continue
			}
			for wanted := range strings.SplitSeq(match[3], "|") {
				if !slices.Contains(valuesOf(family, match[1]), wanted) {
					t.Errorf("%s: %s: %s has no series with %s=%q", where, expression, names[i], match[1], wanted)
				}
			}
		}
	}
	for _, group := range grouping.FindAllStringSubmatch(expression, -1) {
		for label := range strings.SplitSeq(group[1], ", ") {
			has := slices.ContainsFunc(names, func(name string) bool { return families[name] == nil || valuesOf(families[name], label) != nil })
			if label != "le" && label != "instance" && !has {
				t.Errorf("%s: %s groups by %s, which none of its metrics has", where, expression, label)
			}
		}
	}
}

// expressionsOfRules returns the expressions of the alerting rules.
func expressionsOfRules(t *testing.T) []string {
	t.Helper()
	text := must[[]byte](t)(os.ReadFile(repository("examples", "prometheus", "alerts.yml")))
	rule := regexp.MustCompile(`(?ms)^ +expr: (.*?)\n +(?:for|labels|- record|- alert):`)
	var all []string
	for _, found := range rule.FindAllStringSubmatch(string(text), -1) {
		all = append(all, found[1])
	}
	if len(all) < 20 {
		t.Fatalf("alerts.yml has %d expressions, want twenty or more", len(all))
	}
	return all
}

// dashboard has the tested parts of a Grafana dashboard.
type dashboard struct {
	UID        string
	Templating struct{ List []struct{ Name, Type string } }
	Panels     []struct {
		ID         int
		Type       string
		Title      string
		Datasource struct{ UID string }
		Targets    []struct {
			Datasource   struct{ UID string }
			Expr         string
			LegendFormat string
		}
	}
}

// checkDashboard checks a dashboard, and returns its expressions.
func checkDashboard(t *testing.T, name string, families map[string]*dto.MetricFamily) (expressions []string) {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal(must[[]byte](t)(os.ReadFile(repository("examples", "grafana", name))), &d); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if list := d.Templating.List; len(list) == 0 || list[0].Name != "datasource" || list[0].Type != "datasource" {
		t.Errorf("%s has no variable for the data source", name)
	}
	ids := map[int]bool{}
	rules := "groups:\n- name: dashboard\n  rules:\n"
	for _, panel := range d.Panels {
		if ids[panel.ID] {
			t.Errorf("%s: the id %d is used twice", name, panel.ID)
		}
		ids[panel.ID] = true
		if panel.Type != "row" && (panel.Datasource.UID != "${datasource}" || len(panel.Targets) == 0) {
			t.Errorf("%s: panel %s has no expression, or a data source that is no variable", name, panel.Title)
		}
		for n, target := range panel.Targets {
			if target.Datasource.UID != "${datasource}" {
				t.Errorf("%s: panel %s asks a data source that is no variable", name, panel.Title)
			}
			checkExpression(t, name, target.Expr, families)
			expressions = append(expressions, target.Expr)
			expression := must[[]byte](t)(json.Marshal(strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")))
			rules += fmt.Sprintf("  - record: panel:%d:%d\n    expr: %s\n", panel.ID, n, expression)
		}
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	promtoolOn(t, "", "check", "rules", file)
	return expressions
}

// checkRest checks that each metric is in a dashboard, or in the list of other metrics in docs/how-to/monitor.md.
func checkRest(t *testing.T, expressions []string, families map[string]*dto.MetricFamily) {
	t.Helper()
	page := string(must[[]byte](t)(os.ReadFile(repository("docs", "how-to", "monitor.md"))))
	_, list, found := strings.Cut(page, "Not in the dashboards:")
	list, _, ends := strings.Cut(list, "\n\n")
	if !found || !ends {
		t.Fatal("docs/how-to/monitor.md has no list of the metrics that are not in the dashboards")
	}
	shown := familiesIn(strings.Join(expressions, " "), families)
	for name := range families {
		if strings.HasPrefix(name, "carillon_") && slices.Contains(shown, name) == strings.Contains(list, "`"+name+"`") {
			t.Errorf("%s is to be in a dashboard or in the list of docs/how-to/monitor.md, and not in both", name)
		}
	}
}
