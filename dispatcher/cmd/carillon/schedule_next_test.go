package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/test/need"
)

func TestBatchPrintsALinePerQueryAndGoesOnAfterAnInvalidOne(t *testing.T) {
	t.Parallel()
	const from = "2026-03-27T12:00:00Z"
	for name, tt := range map[string]struct{ question, want string }{
		"quartz over a gap": {"quartz\t0 30 2 * * ?\tEurope/Berlin\t" + from + "\t3",
			"OK\t2026-03-28T01:30:00Z,2026-03-30T00:30:00Z,2026-03-31T00:30:00Z"},
		"the same with gap=next": {"quartz\t0 30 2 * * ?\tEurope/Berlin\t" + from + "\t2\tgap=next",
			"OK\t2026-03-28T01:30:00Z,2026-03-29T01:00:00Z"},
		"recognised without name": {"auto\t*/30 * * * *\t\t" + from + "\t2", "OK\t2026-03-27T12:30:00Z,2026-03-27T13:00:00Z"},
		"an end, then none": {"\t0 13 * * *\tUTC\t" + from + "\t3\tend=2026-03-28T13:00:00Z",
			"OK\t2026-03-27T13:00:00Z,2026-03-28T13:00:00Z,none"},
		"a repeat count": {"\trate(1h)\t\t" + from + "\t5\trepeat_count=2", "OK\t2026-03-27T13:00:00Z,2026-03-27T14:00:00Z,none"},
		"an interval from a start": {"interval\trate(1h)\t\t" + from + "\t2\tstart=2026-03-27T12:30:00Z",
			"OK\t2026-03-27T12:30:00Z,2026-03-27T13:30:00Z"},
		"a date that never comes": {"quartz\t0 0 0 30 2 ?\t\t" + from + "\t3", "OK\tnone"},
		"a calendar interval": {"calendar_interval\tevery 1 month\tUTC\t" + from +
			"\t2\tstart=2026-01-31T08:00:00Z\tpreserve_hour=true", "OK\t2026-03-31T08:00:00Z,2026-04-30T08:00:00Z"},
		"a minute out of range":     {"unix\t60 * * * *\t\t" + from + "\t3", "ERR\tcron_range\t"},
		"an unknown zone":           {"unix\t0 * * * *\tMars/Olympus\t" + from + "\t3", "ERR\ttz_unknown\t"},
		"an instant without a zone": {"unix\t0 * * * *\t\t2026-03-27T12:00:00\t3", "ERR\ttime_zone_missing\t"},
		"a count that is a word":    {"unix\t0 * * * *\t\t" + from + "\tthree", "ERR\tcount_range\t"},
		"an unknown option":         {"unix\t0 * * * *\t\t" + from + "\t3\tgaps=next", "ERR\tquery_unknown\t"},
		"too few columns":           {"unix\t0 * * * *", "ERR\trequired\t"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			next := "\nunix\t0 0 * * *\t\t2026-01-01T00:00:00Z\t1\n"
			if err := runBatch(strings.NewReader("# a comment\n\n"+tt.question+next), &out); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(out.String(), "\n")
			if !strings.HasPrefix(lines[0], tt.want) || strings.HasPrefix(tt.want, "OK") && lines[0] != tt.want {
				t.Errorf("answer %q, want %q", lines[0], tt.want)
			}
			if diff := cmp.Diff([]string{"OK\t2026-01-02T00:00:00Z", ""}, lines[1:]); diff != "" {
				t.Errorf("after it (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDSTReportNamesMovedSkippedAndRepeatedFires(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "triggers.tsv")
	lines := "skips\t\t30 2 * * *\tEurope/Berlin\n" +
		"moves\t\t30 2 * * *\tEurope/Berlin\tgap=next\n" +
		"doubles\tquartz\t0 30 2 * * ?\tEurope/Berlin\toverlap=both\n" +
		"calm\t\t30 12 * * *\tEurope/Berlin\n"
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := carillon(t, nil, "schedule", "dst-report", "--file", file, "--year", "2027")
	var got []string
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		got = append(got, fields[0]+" "+fields[len(fields)-2]+" "+fields[len(fields)-1])
	}
	want := []string{
		"TRIGGER EFFECT TRANSITION", "skips skipped 2027-03-28T01:00:00.000Z", "moves moved 2027-03-28T01:00:00.000Z",
		"doubles skipped 2027-03-28T01:00:00.000Z", "doubles doubled 2027-10-31T01:00:00.000Z",
	}
	if diff := cmp.Diff(want, got); diff != "" || code != 0 {
		t.Errorf("exit %d, report (-want +got):\n%s%s", code, diff, errs)
	}
	// Without a year the report covers the next 12 months, which contain each clock change of Berlin once.
	if out, errs, code := carillon(t, nil, "schedule", "dst-report", "--file", file); code != 0 || strings.Count(out, "\n") != len(want) {
		t.Errorf("exit %d, report of the next 12 months:\n%s%s", code, out, errs)
	}
}

func TestScheduleNextTakesACalendar(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"weekends.json": `{"timezone":"Europe/Berlin","rules":[{"weekdays":["SAT","SUN"]}]}`,
		"holidays.ics":  "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;VALUE=DATE:20270503\nEND:VEVENT\nEND:VCALENDAR\n",
		"bases.json":    `{"bases":["weekends"]}`, "wrong.json": `{"rule":[]}`, "never.json": `{"rules":[{"weekdays":["MO"]}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	next := func(args ...string) (string, string, int) {
		all := []string{"schedule", "next", "0 8 1 * *", "--timezone=Europe/Berlin", "--from=2027-04-02T00:00:00Z", "--count=1"}
		return carillon(t, nil, append(all, args...)...)
	}
	for _, tt := range []struct {
		calendar, on string
		want         string // the first fire, or a part of the message
		code         int
	}{
		{"", "", "2027-05-01T06:00:00.000Z", 0},
		{"weekends.json", "", "2027-06-01T06:00:00.000Z", 0},
		{"weekends.json", "next_day", "2027-05-03T06:00:00.000Z", 0},
		{"weekends.json", "previous_day", "2027-04-30T06:00:00.000Z", 0},
		{"holidays.ics", "next_day", "2027-05-01T06:00:00.000Z", 0},
		{"bases.json", "", "bases, which are calendars of an app", 2},
		{"wrong.json", "", "give the JSON of a calendar", 2},
		{"never.json", "", "MO", 2},
		{"weekends.json", "later", "not one of skip, next_included, next_day, previous_day", 2},
		{"nosuch", "", "say of which app with --app", 2},
		{"", "skip", "--on-excluded: needs --calendar", 2},
	} {
		args := []string{"--on-excluded=" + tt.on}
		if tt.calendar == "nosuch" {
			args = append(args, "--calendar="+tt.calendar)
		} else if tt.calendar != "" {
			args = append(args, "--calendar="+filepath.Join(dir, tt.calendar))
		}
		out, errs, code := next(args...)
		said := out
		if tt.code != 0 {
			said = errs
		}
		if code != tt.code || !strings.Contains(said, tt.want) {
			t.Errorf("%s, %s: exit %d, want %d and %q:\n%s%s", tt.calendar, tt.on, code, tt.code, tt.want, out, errs)
		}
	}
	lunch := filepath.Join(dir, "lunch.json")
	if err := os.WriteFile(lunch, []byte(`{"rules":[{"from":"12:00","to":"13:00"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := carillon(t, nil, "schedule", "next", "30 12 * * *", "--timezone=UTC", "--calendar="+lunch,
		"--on-excluded=previous_day", "--from=2026-12-01T13:00:00Z")
	if code == 0 || strings.Contains(out, "none") || !strings.Contains(errs, "steps") {
		t.Errorf("a search that is given up: exit %d, %q, %q; want an error, and not that there is no fire", code, out, errs)
	}
	if _, errs, _ := carillon(t, nil, "schedule", "next", "0 8 1 * *"); !strings.Contains(errs, "note: without --timezone, times are in UTC") {
		t.Errorf("without a zone:\n%s", errs)
	}
	if _, errs, _ := carillon(t, nil, "schedule", "next", "rate(5m)"); strings.Contains(errs, "note") {
		t.Errorf("of an interval:\n%s", errs)
	}
}

func TestScheduleNextTakesACalendarOfAnApp(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	n := startNode(t, database, newToken(t, database))
	must[access.App](t)(n.PutApp(t.Context(), access.App{
		Name: "crm", AppSpec: access.AppSpec{Enabled: true, Defaults: &dispatcher.JobDefaults{Timezone: "Europe/Berlin"}},
	}, client.Condition{}))
	must[dispatcher.Calendar](t)(n.PutCalendar(t.Context(), dispatcher.Calendar{
		App: "crm", Name: "weekends",
		CalendarSpec: dispatcher.CalendarSpec{Timezone: "Europe/Berlin", Rules: []schedule.CalendarRule{{Weekdays: []string{"SAT", "SUN"}}}},
	}, client.Condition{}))
	must[dispatcher.Calendar](t)(n.PutCalendar(t.Context(),
		dispatcher.Calendar{App: "crm", Name: "business",
			CalendarSpec: dispatcher.CalendarSpec{Bases: []string{"weekends"}}}, client.Condition{}))
	api := []string{"CARILLON_ENDPOINT=" + n.endpoint, "CARILLON_TOKEN=" + n.token}
	out, errs, code := carillon(t, api, "schedule", "next", "0 8 1 * *", "--from=2027-04-02T00:00:00Z", "--count=1", "--app=crm",
		"--calendar=business", "--on-excluded=next_day")
	if !strings.HasPrefix(out, "2027-05-03T06:00:00.000Z") || code != 0 || strings.Contains(errs, "note") {
		t.Errorf("exit %d:\n%s%s", code, out, errs)
	}
	if _, errs, code := carillon(t, api, "schedule", "next", "0 8 1 * *", "--app=crm", "--calendar=nosuch"); code != 2 ||
		!strings.Contains(errs, "nosuch") {
		t.Errorf("a calendar that is none: exit %d:\n%s", code, errs)
	}
}
