package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

func TestOldZonesCauseAWarning(t *testing.T) {
	t.Parallel()
	built := schedule.BuiltInZones()
	newer, none := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(newer, "+VERSION"), []byte("2098b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	day := 24 * time.Hour
	for name, tt := range map[string]struct {
		age  time.Duration
		host string
		want []string // parts of the warnings
	}{
		"young":                         {119 * day, none, nil},
		"old":                           {121 * day, none, []string{"more than 120 days old"}},
		"older than the host's":         {day, newer, []string{"older than the host's 2098b; start with --zoneinfo " + newer}},
		"old and older than the host's": {121 * day, newer, []string{"older than the host's", "more than 120 days old"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := zonesWarnings(built.Released().Add(tt.age), tt.host)
			if len(got) != len(tt.want) {
				t.Fatalf("warnings %q, want %d", got, len(tt.want))
			}
			for i, part := range tt.want {
				if !strings.Contains(got[i], part) || !strings.Contains(got[i], built.Release()) {
					t.Errorf("warning %q, want %q and the release", got[i], part)
				}
				e := &examination{}
				e.warn("time zones", got[i])
				if f := e.findings[0]; !strings.Contains(f.Detail, built.Release()) || !strings.Contains(f.Action, "--zoneinfo") {
					t.Errorf("doctor finds %+v, want the release in the detail, and an action that names --zoneinfo", f)
				}
			}
		})
	}
}
