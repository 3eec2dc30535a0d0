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

// table reads the rows of a file in testdata, each with the given number of columns.
func table(t *testing.T, name string, columns int) map[string][]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		row := strings.Split(line, "\t")
		if len(row) != columns {
			t.Fatalf("%s:%d has %d columns, want %d", name, n, len(row), columns)
		}
		rows[name+":"+strconv.Itoa(n)] = row
	}
	return rows
}

func TestSchedulesFireAtTimesComputedByHand(t *testing.T) {
	t.Parallel()
	for where, row := range table(t, "fires.tsv", 6) {
		spec := schedule.Spec{Dialect: schedule.Dialect(row[0]), Expression: row[1], Timezone: row[2], Anchor: instant(t, row[3])}
		for option := range strings.FieldsSeq(row[4]) {
			setOption(t, &spec, option)
		}
		want := strings.Split(row[5], ",")
		for i, text := range want {
			if text != "none" {
				want[i] = instant(t, text).UTC().Format(time.RFC3339Nano)
			}
		}
		s, err := schedule.Parse(spec)
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		var got []string
		for at := instant(t, row[3]); len(got) < len(want); {
			next, ok := s.Next(at)
			if !ok {
				got = append(got, "none")
				break
			}
			got = append(got, next.Format(time.RFC3339Nano))
			at = next
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s in %s, %s (-want +got):\n%s", where, row[1], row[2], row[4], diff)
		}
	}
}

func setOption(t *testing.T, spec *schedule.Spec, option string) {
	t.Helper()
	key, value, _ := strings.Cut(option, "=")
	switch key {
	case "start":
		spec.StartAt = instant(t, value)
	case "end":
		spec.EndAt = instant(t, value)
	case "repeat_count":
		spec.RepeatCount, _ = strconv.Atoi(value)
	case "gap":
		spec.Gap = schedule.Gap(value)
	case "overlap":
		spec.Overlap = schedule.Overlap(value)
	case "skip_day":
		spec.Gap = schedule.GapSkip
	case "drift_hour":
		spec.DriftHour = true
	default:
		t.Fatalf("option %s is unknown", option)
	}
}

func TestInvalidSchedulesAreRejectedWithTheirCode(t *testing.T) {
	t.Parallel()
	for where, row := range table(t, "problems.tsv", 4) {
		_, err := schedule.Parse(schedule.Spec{Dialect: schedule.Dialect(row[0]), Expression: row[1], Timezone: row[2]})
		var problems input.Problems
		if !errors.As(err, &problems) || problems[0].Code != row[3] {
			t.Errorf("%s: %q is refused with %v, want %s", where, row[1], problems, row[3])
		}
	}
}
