package schedule_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// row is one line of a vector file, by column name.
type row map[string]string

// vectors reads a file of the shared vectors. Other schedulers computed them, and they are kept
// outside this repository. Without them the test is skipped.
func vectors(t *testing.T, name string) []row {
	t.Helper()
	dir := os.Getenv("CARILLON_VECTORS")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "vectors")
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("SKIPPED: NO VECTORS at %s; set CARILLON_VECTORS to their directory", dir) // also with CI=true
	}
	if err != nil {
		t.Fatalf("read vectors: %v", err)
	}
	var columns []string
	var rows []row
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# columns: "); ok {
			columns = strings.Split(rest, "\t")
		}
		if line == "" || line[0] == '#' {
			continue
		}
		r := row{}
		for i, value := range strings.Split(line, "\t") {
			r[columns[i]] = value
		}
		if !r.outdated() {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		t.Fatalf("%s holds no vectors", name)
	}
	return rows
}

// rulesSince are the days from which zones have other rules than in release 2025b, the release of the vectors.
var rulesSince = map[string]string{
	"Africa/Casablanca": "2026-09-20", "Africa/El_Aaiun": "2026-09-20", "America/Havana": "2026-11-01",
	"America/Vancouver": "2026-11-01", "America/Edmonton": "2026-11-01", "America/Winnipeg": "2026-11-01",
	"Europe/Chisinau": "2022-01-01",
}

// outdated reports whether a row has an instant at which its zone has other rules now.
func (r row) outdated() bool {
	since, changed := rulesSince[r["zone"]]
	if !changed {
		return false
	}
	for _, value := range r {
		for text := range strings.SplitSeq(value, ",") {
			if at, err := time.Parse(time.RFC3339Nano, text); err == nil && at.Format(time.DateOnly) >= since {
				return true
			}
		}
	}
	return false
}

// want returns the expected times in a policy column, where "=" refers to the oracle's.
func (r row) want(column, oracle string) string {
	if r[column] == "=" {
		return r[oracle]
	}
	return r[column]
}

// fires writes the first n instants after r's from, as the vectors write them. A schedule
// that Parse rejects because it never fires has none.
func (r row) fires(t *testing.T, spec schedule.Spec) string {
	t.Helper()
	s, err := schedule.Parse(spec)
	if schedule.Never(err) {
		return "none"
	}
	if err != nil {
		return "ERROR: " + err.Error()
	}
	n, err := strconv.Atoi(r["n"])
	if err != nil {
		t.Fatalf("%s: n: %v", r["id"], err)
	}
	at := instant(t, r["from"])
	var got []string
	for range n {
		next, ok := s.Next(at)
		if !ok {
			got = append(got, "none")
			break
		}
		got = append(got, next.Format(time.RFC3339Nano))
		at = next
	}
	return strings.Join(got, ",")
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatalf("instant: %v", err)
	}
	return at
}

// policies are the option columns that quartz and unix vectors share.
var policies = map[string]schedule.Spec{
	"recommended": {},
	"once_later":  {Gap: schedule.GapSkip, Overlap: schedule.OverlapLast},
	"once_first":  {Gap: schedule.GapSkip, Overlap: schedule.OverlapFirst},
	"literal":     {Gap: schedule.GapSkip, Overlap: schedule.OverlapBoth},
}

func TestQuartzVectorsGiveTheExpectedTimes(t *testing.T) {
	t.Parallel()
	for _, r := range vectors(t, "vectors.tsv") {
		for column, spec := range policies {
			spec.Expression, spec.Dialect, spec.Timezone = r["expr"], schedule.DialectQuartz, r["zone"]
			if diff := cmp.Diff(r.want(column, "quartz"), r.fires(t, spec)); diff != "" {
				t.Errorf("%s %q in %s, %s (-want +got):\n%s", r["id"], r["expr"], r["zone"], column, diff)
			}
		}
		if f := strings.Fields(r["expr"]); !strings.Contains(f[1]+f[2], "*") {
			spec := schedule.Spec{
				Expression: r["expr"], Timezone: r["zone"], Gap: schedule.GapNext, Overlap: schedule.OverlapFirst,
			}
			if diff := cmp.Diff(r.want("cronie", "quartz"), r.fires(t, spec)); diff != "" {
				t.Errorf("%s %q in %s, cronie (-want +got):\n%s", r["id"], r["expr"], r["zone"], diff)
			}
		}
	}
}

func TestUnixVectorsGiveTheExpectedTimes(t *testing.T) {
	t.Parallel()
	for _, r := range vectors(t, "unix.tsv") {
		for column, spec := range policies {
			spec.Expression, spec.Dialect, spec.Timezone = r["expr"], schedule.DialectUnix, r["zone"]
			if diff := cmp.Diff(r.want(column, "expected"), r.fires(t, spec)); diff != "" {
				t.Errorf("%s %q in %s, %s (-want +got):\n%s", r["id"], r["expr"], r["zone"], column, diff)
			}
		}
		if f := strings.Fields(r["expr"]); !strings.Contains(f[0]+f[1], "*") {
			spec := schedule.Spec{
				Expression: r["expr"], Timezone: r["zone"], Gap: schedule.GapNext, Overlap: schedule.OverlapFirst,
			}
			if diff := cmp.Diff(r["expected"], r.fires(t, spec)); diff != "" {
				t.Errorf("%s %q in %s, cronie (-want +got):\n%s", r["id"], r["expr"], r["zone"], diff)
			}
		}
	}
}

func TestInvalidVectorsAreRejectedWithFieldTextAndCode(t *testing.T) {
	t.Parallel()
	for name, dialect := range map[string]schedule.Dialect{
		"invalid.tsv":      schedule.DialectQuartz,
		"lenient.tsv":      schedule.DialectQuartz,
		"unix-invalid.tsv": schedule.DialectUnix,
		"aws-invalid.tsv":  schedule.DialectAWS,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, r := range vectors(t, name) {
				if r["expr"] == "rate(1 days)" { // rules of EventBridge refuse it, but EventBridge Scheduler takes it
					continue
				}
				_, err := schedule.Parse(schedule.Spec{Expression: r["expr"], Dialect: dialect})
				var problems input.Problems
				if !errors.As(err, &problems) {
					t.Errorf("%s: %q is accepted, want a problem", r["id"], r["expr"])
					continue
				}
				t.Logf("%s\t%v", r["id"], err)
				for _, f := range problems {
					if f.Path != "/expression" || f.Code == input.CodeCronNever ||
						!strings.Contains(f.Message, strconv.Quote(r["expr"])) {
						t.Errorf("%s: %q: got field %s, code %s, message %q", r["id"], r["expr"], strings.TrimPrefix(f.Path, "/"), f.Code, f.Message)
					}
				}
			}
		})
	}
}

func TestExpectationsOfQuartzTestsHold(t *testing.T) {
	t.Parallel()
	for _, r := range vectors(t, "quartz-tests.tsv") {
		s, err := schedule.Parse(schedule.Spec{Expression: r["expr"], Dialect: schedule.DialectQuartz})
		switch r["kind"] {
		case "valid":
			if got := strconv.FormatBool(err == nil); got != r["expected"] {
				t.Errorf("%s: %q valid: got %s, want %s", r["id"], r["expr"], got, r["expected"])
			}
		case "satisfied":
			at := instant(t, r["instant"])
			next, ok := s.Next(at.Add(-time.Millisecond))
			if got := strconv.FormatBool(ok && next.Equal(at)); got != r["expected"] {
				t.Errorf("%s: %q at %s: got %s, want %s", r["id"], r["expr"], r["instant"], got, r["expected"])
			}
		case "next":
			r["n"], r["from"] = strconv.Itoa(strings.Count(r["expected"], ",")+1), r["instant"]
			if diff := cmp.Diff(r["expected"], r.fires(t, schedule.Spec{Expression: r["expr"]})); diff != "" {
				t.Errorf("%s: %q (-want +got):\n%s", r["id"], r["expr"], diff)
			}
		default:
			t.Errorf("%s: unknown kind %q", r["id"], r["kind"])
		}
	}
}

func TestAWSVectorsGiveTheExpectedTimes(t *testing.T) {
	t.Parallel()
	for _, r := range vectors(t, "aws.tsv") {
		for column, spec := range policies {
			spec.Expression, spec.Dialect, spec.Timezone = r["expr"], schedule.DialectAWS, r["zone"]
			if r["start"] != "-" {
				spec.StartAt = instant(t, r["start"])
			}
			if diff := cmp.Diff(r.want(column, "oracle"), r.fires(t, spec)); diff != "" {
				t.Errorf("%s %q in %s, %s (-want +got):\n%s", r["id"], r["expr"], r["zone"], column, diff)
			}
		}
	}
}

// quartzProblems are rows in which Quartz contradicts its own documentation, with our first
// instant instead. The filter that the README of the vectors describes has missed them.
var quartzProblems = map[string]struct{ why, first string }{
	"c0367": {"Quartz skips the day only when asked from within the hour before the gap", "2012-09-29T14:00:00Z"},
	"c0388": {"Quartz keeps the hour but loses the minute where the clock jumps by 30 minutes", "2029-10-04T15:47:00Z"},
	"d0202": {"Quartz skips the day after a day whose span lies in a gap", "2027-03-15T06:10:00Z"},
}

// checkQuartz compares with Quartz, or with quartzProblems if Quartz is wrong.
func (r row) checkQuartz(t *testing.T, spec schedule.Spec) {
	t.Helper()
	got := r.fires(t, spec)
	if problem, ok := quartzProblems[r["id"]]; ok {
		if first, _, _ := strings.Cut(got, ","); first != problem.first || got == r["quartz"] {
			t.Errorf("%s %q in %s: first is %s, want %s: %s",
				r["id"], spec.Expression, spec.Timezone, first, problem.first, problem.why)
		}
		return
	}
	if diff := cmp.Diff(r["quartz"], got); diff != "" {
		t.Errorf("%s %q in %s (-want +got):\n%s", r["id"], spec.Expression, r["zone"], diff)
	}
}

func TestCalendarIntervalVectorsGiveTheExpectedTimes(t *testing.T) {
	t.Parallel()
	for _, r := range vectors(t, "calinterval.tsv") {
		spec := schedule.Spec{
			Expression: "every " + r["interval"] + " " + r["unit"], Dialect: schedule.DialectCalendarInterval,
			Timezone: r["zone"], StartAt: instant(t, r["start"]), DriftHour: r["preserve"] == "false",
		}
		if r["skip"] == "true" {
			spec.Gap = schedule.GapSkip
		}
		r.checkQuartz(t, spec)
	}
}

func TestDailyIntervalVectorsGiveTheExpectedTimes(t *testing.T) {
	t.Parallel()
	for _, r := range vectors(t, "dailyinterval.tsv") {
		spec := schedule.Spec{
			Expression: "every " + r["interval"] + " " + r["unit"] + " from " + r["startTOD"],
			Dialect:    schedule.DialectDailyInterval, Timezone: r["zone"], StartAt: instant(t, r["start"]),
		}
		if r["endTOD"] != "-" {
			spec.Expression += " to " + r["endTOD"]
		}
		if r["days"] != "*" {
			spec.Expression += " on " + r["days"]
		}
		if r["end"] != "-" {
			spec.EndAt = instant(t, r["end"])
		}
		r.checkQuartz(t, spec)
	}
}
