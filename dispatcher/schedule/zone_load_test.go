package schedule_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Nodes on hosts with different zone files must fire at the same time. Go looks in ZONEINFO
// first.
func TestZoneFilesOfTheHostAreIgnored(t *testing.T) {
	dir := t.TempDir()
	tokyo := filepath.Join(dir, "Asia", "Tokyo")
	if err := os.MkdirAll(filepath.Dir(tokyo), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tokyo, []byte(utcZone), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ZONEINFO", dir)
	if doctored, err := time.LoadLocation("Asia/Tokyo"); err != nil || time.Unix(0, 0).In(doctored).Hour() != 0 {
		t.Fatalf("time.LoadLocation does not read the changed zone (%v); this test proves nothing", err)
	}
	s, err := schedule.Parse(schedule.Spec{Expression: "0 9 * * *", Timezone: "Asia/Tokyo"})
	if err != nil {
		t.Fatal(err)
	}
	if next, _ := s.Next(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)); next.Hour() != 0 {
		t.Errorf("09:00 in Tokyo is %v, want 00:00 UTC", next)
	}
}

// utcZone is a zone file (RFC 8536) of UTC.
const utcZone = "" +
	("TZif" + "\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
		"\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" +
		"\x00\x00\x00\x00" + "\x00\x00\x00\x01" + "\x00\x00\x00\x04" +
		"\x00\x00\x00\x00" + "\x00" + "\x00" + "UTC\x00")
