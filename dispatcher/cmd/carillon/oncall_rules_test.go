package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A record has the metrics of a fleet as Prometheus would scrape them, and lets promtool evaluate the project's rules.
type record struct {
	every   time.Duration // between two scrapes
	scrapes []scraped
}

// scraped has the samples of all nodes at one time, by series with the label instance.
type scraped struct {
	at      time.Time
	samples map[string]string
}

// due reports whether the next scrape is to be made.
func (r *record) due(now time.Time) bool {
	return len(r.scrapes) == 0 || now.Sub(r.scrapes[len(r.scrapes)-1].at) >= r.every
}

// add scrapes the nodes, by name.
func (r *record) add(t *testing.T, now time.Time, nodes map[string]*process) {
	t.Helper()
	one := scraped{at: now, samples: map[string]string{}}
	for name, n := range nodes {
		for series, value := range scrape(t, n) {
			labels := strings.Replace(series, "{", fmt.Sprintf(`{job="carillon",instance=%q,`, name), 1)
			one.samples[strings.Replace(labels, ",}", "}", 1)] = value
		}
	}
	r.scrapes = append(r.scrapes, one)
}

const (
	// calmBefore is how long the first values were there before the record, as far as the rules can see.
	calmBefore = 20 * time.Minute
	// lastingAfter is for how long a record is continued, so that a rule with "for" fires.
	lastingAfter = 70 * time.Minute
	// recent is the number of scrapes whose growth a record goes on with.
	recent = 5
)

// ringing returns the rules that fire at some time of the record. With lasting, the record goes on as it ends: gauges
// keep their values, and counters grow as in the latest scrapes.
func (r *record) ringing(t *testing.T, lasting bool) map[string]bool {
	t.Helper()
	series := map[string]bool{}
	for _, one := range r.scrapes {
		for name := range one.samples {
			series[name] = true
		}
	}
	file := newRulesFile(t, r.every)
	for name := range series {
		if family, _, _ := strings.Cut(name, "{"); strings.Contains(file.rules, family) {
			file.add(name, r.values(name, lasting))
		}
	}
	length := calmBefore + time.Duration(len(r.scrapes))*r.every
	if lasting {
		length += lastingAfter
	}
	return file.ringing(t, length)
}

// values are the samples of a series, in the notation of promtool.
func (r *record) values(name string, lasting bool) string {
	var out strings.Builder
	first, there := r.scrapes[0].samples[name]
	repeated := func(value, growth string, times time.Duration) {
		fmt.Fprintf(&out, " %s%sx%d", value, growth, times/r.every)
	}
	if there {
		repeated(r.shown(name, first), "", calmBefore)
	} else {
		repeated("_", "", calmBefore)
	}
	last := there
	for _, one := range r.scrapes[1:] {
		value, there := one.samples[name]
		switch {
		case there:
			fmt.Fprint(&out, " ", r.shown(name, value))
		case last:
			fmt.Fprint(&out, " stale")
		default:
			fmt.Fprint(&out, " _")
		}
		last = there
	}
	if lasting && last {
		latest := r.scrapes[len(r.scrapes)-1].samples[name]
		repeated(r.shown(name, latest), r.growth(name), lastingAfter)
	}
	return out.String()
}

// shown is a value as of the beginning of the series: promtool starts at the Unix epoch.
func (r *record) shown(name, value string) string {
	if family, _, _ := strings.Cut(name, "{"); !strings.HasSuffix(family, "_timestamp_seconds") {
		return value
	}
	at, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return value
	}
	return fmt.Sprint(int64(at) - r.scrapes[0].at.Add(-calmBefore).Unix())
}

var counter = regexp.MustCompile(`_(total|count|sum|bucket)\{`)

// growth is by how much a counter grew from scrape to scrape lately, as the step of a repetition.
func (r *record) growth(name string) string {
	last := len(r.scrapes) - 1
	from := max(0, last-recent)
	before, _ := strconv.ParseFloat(r.scrapes[from].samples[name], 64) // a new counter began at 0
	now, err := strconv.ParseFloat(r.scrapes[last].samples[name], 64)
	if err != nil || from == last || now < before || !counter.MatchString(name) {
		return ""
	}
	return fmt.Sprintf("+%g", (now-before)/float64(last-from))
}

// rulesFile is a test of promtool over the project's rules.
type rulesFile struct {
	rules string
	text  strings.Builder
}

func newRulesFile(t *testing.T, interval time.Duration) *rulesFile {
	t.Helper()
	rules := must[string](t)(filepath.Abs(repository("examples", "prometheus", "alerts.yml")))
	f := rulesFile{rules: string(must[[]byte](t)(os.ReadFile(rules)))}
	fmt.Fprintf(&f.text, "rule_files: [%s]\nevaluation_interval: 15s\ntests:\n  - interval: %s\n    input_series:\n", rules, interval)
	return &f
}

func (f *rulesFile) add(series, values string) {
	fmt.Fprintf(&f.text, "      - series: '%s'\n        values: '%s'\n", series, strings.TrimSpace(values))
}

var rung = regexp.MustCompile(`alertname="(\w+)"`)

// ringing evaluates the rules over the series, and returns those that fire at some time after calmBefore: until then, a
// counter above 0 is new for them.
func (f *rulesFile) ringing(t *testing.T, length time.Duration) map[string]bool {
	t.Helper()
	// The watchdog always fires, so promtool always shows what it got.
	fmt.Fprintf(&f.text, "    promql_expr_test:\n      - expr: 'max by (alertname) (max_over_time(ALERTS{alertstate=\"firing\"}[%s]))'\n"+
		"        eval_time: %s\n        exp_samples: []\n", length-calmBefore, length)
	name := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(name, []byte(f.text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := promtool(t, "", "test", "rules", name)
	_, got, found := strings.Cut(out, "got: ")
	if !found || !strings.Contains(got, "CarillonWatchdog") {
		t.Fatalf("promtool evaluated nothing: %.2000s", out)
	}
	firing := map[string]bool{}
	for _, parts := range rung.FindAllStringSubmatch(got, -1) {
		if parts[1] != "CarillonWatchdog" {
			firing[parts[1]] = true
		}
	}
	return firing
}
