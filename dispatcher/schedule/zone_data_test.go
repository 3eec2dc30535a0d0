package schedule_test

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Governments changed these rules in 2026. The offsets are those of release 2026f.
func TestRulesOf2026(t *testing.T) {
	t.Parallel()
	const noon = "0 12 * * *"
	for name, tt := range map[string]struct{ zone, expression, after, want string }{
		"British Columbia stays on -07":           {"America/Vancouver", noon, "2026-11-28T00:00:00Z", "2026-11-28T19:00:00Z"},
		"an alias follows":                        {"Canada/Pacific", noon, "2026-11-28T00:00:00Z", "2026-11-28T19:00:00Z"},
		"Alberta stays on -06":                    {"America/Edmonton", noon, "2026-11-28T00:00:00Z", "2026-11-28T18:00:00Z"},
		"an alias of Alberta":                     {"Canada/Mountain", noon, "2026-11-28T00:00:00Z", "2026-11-28T18:00:00Z"},
		"Yellowknife follows Alberta":             {"America/Yellowknife", noon, "2026-11-28T00:00:00Z", "2026-11-28T18:00:00Z"},
		"Inuvik follows Alberta":                  {"America/Inuvik", noon, "2026-11-28T00:00:00Z", "2026-11-28T18:00:00Z"},
		"Manitoba stays on -05":                   {"America/Winnipeg", noon, "2026-11-28T00:00:00Z", "2026-11-28T17:00:00Z"},
		"an alias of Manitoba":                    {"Canada/Central", noon, "2026-11-28T00:00:00Z", "2026-11-28T17:00:00Z"},
		"northwestern Ontario follows Manitoba":   {"America/Rainy_River", noon, "2026-11-28T00:00:00Z", "2026-11-28T17:00:00Z"},
		"Cuba does not fall back in 2026":         {"America/Havana", noon, "2026-11-28T00:00:00Z", "2026-11-28T16:00:00Z"},
		"an alias of Cuba":                        {"Cuba", noon, "2026-11-28T00:00:00Z", "2026-11-28T16:00:00Z"},
		"Cuba falls back in 2027":                 {"America/Havana", noon, "2027-11-08T00:00:00Z", "2027-11-08T17:00:00Z"},
		"Morocco is on +00 since September":       {"Africa/Casablanca", noon, "2026-11-28T00:00:00Z", "2026-11-28T12:00:00Z"},
		"Morocco was on +01 before":               {"Africa/Casablanca", noon, "2026-09-19T00:00:00Z", "2026-09-19T11:00:00Z"},
		"Western Sahara follows Morocco":          {"Africa/El_Aaiun", noon, "2026-11-28T00:00:00Z", "2026-11-28T12:00:00Z"},
		"Moldova springs forward with its region": {"Europe/Chisinau", "30 2 * * *", "2027-03-28T00:00:00Z", "2027-03-28T00:30:00Z"},
		"unchanged rules stay":                    {"Europe/Berlin", noon, "2026-11-28T00:00:00Z", "2026-11-28T11:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := schedule.Parse(schedule.Spec{Expression: tt.expression, Timezone: tt.zone})
			if err != nil {
				t.Fatal(err)
			}
			after, err := time.Parse(time.RFC3339, tt.after)
			if err != nil {
				t.Fatal(err)
			}
			if next, _ := s.Next(after); next.Format(time.RFC3339) != tt.want {
				t.Errorf("%s in %s after %s: %s, want %s", tt.expression, tt.zone, tt.after, next.Format(time.RFC3339), tt.want)
			}
		})
	}
}

// hostZones is Debian's copy of the database. CARILLON_ZONEINFO names another one.
func hostZones() string {
	if dir := os.Getenv("CARILLON_ZONEINFO"); dir != "" {
		return dir
	}
	return "/usr/share/zoneinfo"
}

// Debian builds its zone files from the same release with other means.
func TestZonesAgreeWithDebian(t *testing.T) {
	t.Parallel()
	dir := hostZones()
	release, _, err := schedule.ReleaseOf(os.DirFS(dir))
	switch {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatalf("Debian's package tzdata: %v", err)
	case err != nil:
		t.Skipf("SKIPPED: Debian's package tzdata: %v", err) // with CI=true it has failed above
	}
	built := schedule.BuiltInZones()
	if release != built.Release() {
		// A mirror may lag behind. The weekly workflow compares with the newest.
		t.Skipf("SKIPPED: %s has release %s and not %s", dir, release, built.Release()) // also with CI=true
	}
	for _, name := range built.Names() {
		data, err := os.ReadFile(filepath.Join(dir, name)) //nolint:gosec // a zone of the built-in archive
		if err != nil {
			t.Errorf("zone %s: %v", name, err)
			continue
		}
		host, err := time.LoadLocationFromTZData(name, data)
		if err != nil {
			t.Fatalf("zone %s of %s: %v", name, dir, err)
		}
		ours, _ := built.Location(name)
		sameOffsets(t, ours, host)
	}
}

// sameOffsets compares all periods of the years 2000 to 2040, in both directions.
func sameOffsets(t *testing.T, a, b *time.Location) {
	t.Helper()
	until := time.Date(2041, 1, 1, 0, 0, 0, 0, time.UTC)
	for at := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC); at.Before(until); {
		name, offset := at.In(a).Zone()
		if otherName, other := at.In(b).Zone(); offset != other || name != otherName {
			t.Errorf("%s at %s: %s %d and %s %d", a, at, name, offset, otherName, other)
			return
		}
		// The next instant at which either changes, an hour on at least: ZoneBounds may return an end before its argument.
		next := until
		for _, loc := range []*time.Location{a, b} {
			if _, end := at.In(loc).ZoneBounds(); !end.IsZero() && end.Before(next) {
				next = end.UTC()
			}
		}
		if !next.After(at) {
			next = at.Add(time.Hour)
		}
		at = next
	}
}

// zoneDir is a zoneinfo directory with all zones of the program, made from its own archive.
func zoneDir(t *testing.T) fstest.MapFS {
	t.Helper()
	content, err := os.ReadFile("zoneinfo.zip")
	if err != nil {
		t.Fatal(err)
	}
	archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	dir := fstest.MapFS{}
	for _, file := range archive.File {
		data, err := fs.ReadFile(archive, file.Name)
		if err != nil {
			t.Fatal(err)
		}
		dir[file.Name] = &fstest.MapFile{Data: data}
	}
	return dir
}

func TestPackedDirectory(t *testing.T) {
	t.Parallel()
	released := time.Date(2027, 1, 15, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		change func(fstest.MapFS)
		want   string // part of the error; empty if it is read
	}{
		"complete":                          {func(fstest.MapFS) {}, ""},
		"without old names, which it lists": {func(dir fstest.MapFS) { delete(dir, "US/Pacific") }, ""},
		"with copies and settings of the host": {func(dir fstest.MapFS) {
			dir["localtime"], dir["right/UTC"], dir["posix/UTC"] = dir["UTC"], dir["UTC"], dir["UTC"]
		}, ""},
		"without its release":  {func(dir fstest.MapFS) { delete(dir, "tzdata.zi") }, "release is unknown"},
		"with another release": {func(dir fstest.MapFS) { dir["tzdata.zi"].Data = []byte("# version latest\n") }, `"latest" is not the name`},
		"without a zone":       {func(dir fstest.MapFS) { delete(dir, "Asia/Tokyo") }, "lacks 1 zones that this program knows, such as Asia/T"},
		"with a broken zone":   {func(dir fstest.MapFS) { dir["Asia/Tokyo"].Data = dir["Asia/Tokyo"].Data[:60] }, "zone Asia/Tokyo: malformed"},
		"with leap seconds": {func(dir fstest.MapFS) {
			data := bytes.Clone(dir["Asia/Tokyo"].Data)
			data[31] = 27
			dir["Asia/Tokyo"].Data = data
		}, "counts leap seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := zoneDir(t)
			delete(dir, "+VERSION")
			dir["tzdata.zi"] = &fstest.MapFile{Data: []byte("# version 2027a\nL America/Los_Angeles US/Pacific\n")}
			tt.change(dir)
			archive, err := schedule.PackZones(dir, released)
			var zones *schedule.Zones
			if err == nil {
				zones, err = schedule.OpenZones(archive)
			}
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want %q", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if zones.Release() != "2027a" || !zones.Released().Equal(released) {
				t.Errorf("release %s of %s, want 2027a of %s", zones.Release(), zones.Released(), released)
			}
			if got, want := len(zones.Names()), len(schedule.BuiltInZones().Names()); got != want {
				t.Errorf("%d zones, want %d", got, want)
			}
			if again, _ := schedule.PackZones(dir, released); !bytes.Equal(again, archive) {
				t.Error("a second archive of the same directory differs")
			}
		})
	}
}
