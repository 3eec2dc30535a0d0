package schedule

import (
	"testing"
	"time"
)

// Noon is never skipped or repeated in these zones, so each day has exactly one, even where
// Go's bounds of a period are wrong (see timeZone.find).
func TestNoonComesEveryDayOfEveryYear(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{
		"Europe/Berlin", "America/New_York", "Australia/Sydney", "Australia/Lord_Howe", "America/Santiago", "Asia/Kolkata", "UTC",
	} {
		for _, overlap := range []Overlap{OverlapLast, OverlapFirst, OverlapBoth} {
			t.Run(zone+" "+string(overlap), func(t *testing.T) {
				t.Parallel()
				loc, known := Location(zone) // the program's rules, because hosts have others
				if !known {
					t.Fatalf("no zone %s", zone)
				}
				s, err := Parse(Spec{Expression: "0 0 12 * * ?", Timezone: zone, Overlap: overlap})
				if err != nil {
					t.Fatal(err)
				}
				at := time.Date(2030, 12, 31, 23, 0, 0, 0, loc)
				for year := 2031; year < 2099; year++ {
					for day := time.Date(year, 1, 1, 12, 0, 0, 0, loc); day.Year() == year; day = day.AddDate(0, 0, 1) {
						next, ok := s.Next(at)
						if !ok || !next.Equal(day) {
							t.Fatalf("Next(%s) = %s, %v, want %s", at, next, ok, day)
						}
						at = next
					}
				}
			})
		}
	}
}
