package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		"a zone that is none":       {"unix\t0 * * * *\tMars/Olympus\t" + from + "\t3", "ERR\ttz_unknown\t"},
		"an instant without a zone": {"unix\t0 * * * *\t\t2026-03-27T12:00:00\t3", "ERR\ttime_zone_missing\t"},
		"a count that is a word":    {"unix\t0 * * * *\t\t" + from + "\tthree", "ERR\tcount_range\t"},
		"an option that is none":    {"unix\t0 * * * *\t\t" + from + "\t3\tgaps=next", "ERR\tquery_unknown\t"},
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
		"TRIGGER EFFECT TRANSITION", "skips skipped 2027-03-28T01:00:00Z", "moves moved 2027-03-28T01:00:00Z",
		"doubles skipped 2027-03-28T01:00:00Z", "doubles doubled 2027-10-31T01:00:00Z",
	}
	if diff := cmp.Diff(want, got); diff != "" || code != 0 {
		t.Errorf("exit %d, report (-want +got):\n%s%s", code, diff, errs)
	}
}
