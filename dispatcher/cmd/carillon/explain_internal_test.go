package main

import (
	"slices"
	"testing"
	"time"
)

func TestTimesOfCommandsAreThoseOfTheTriggersClock(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 29, 12, 0, 0, 0, time.UTC) // Berlin skips 02:00 to 03:00 on that day
	day := func(date int, clock string) string {
		return time.Date(2026, 3, date, 0, 0, 0, 0, time.UTC).Format("2006-01-02T") + clock
	}
	for text, want := range map[string][]string{ // from and until of each period, in UTC
		"06:00:05.587":              {day(29, "04:00:05.587"), day(29, "04:00:05.587")},
		"02:30":                     {day(29, "01:00:00"), day(29, "01:00:00")}, // skipped: the end of the gap
		"2026-10-25 02:30":          {"2026-10-25T00:30:00", "2026-10-25T00:30:00", "2026-10-25T01:30:00", "2026-10-25T01:30:00"},
		"2026-10-25":                {"2026-10-24T22:00:00", "2026-10-25T23:00:00"},
		"2026-03-28T06:00:00+01:00": {day(28, "05:00:00"), day(28, "05:00:00")},
		"06:00":                     {day(29, "04:00:00"), day(29, "04:00:00")},
		"06:00:05":                  {day(29, "04:00:05"), day(29, "04:00:05")},
		"today 06:00":               {day(29, "04:00:00"), day(29, "04:00:00")},
		"yesterday 06:00":           {day(28, "05:00:00"), day(28, "05:00:00")},
		"2026-03-28 06:00":          {day(28, "05:00:00"), day(28, "05:00:00")},
		"2026-03-28T06:00":          {day(28, "05:00:00"), day(28, "05:00:00")},
		"yesterday":                 {day(27, "23:00:00"), day(28, "23:00:00")},
		"today":                     {day(28, "23:00:00"), day(29, "22:00:00")},
		"2026-03-28":                {day(27, "23:00:00"), day(28, "23:00:00")},
		"2h ago":                    {day(29, "10:00:00"), "9999-12-31T00:00:00"},
		"2h":                        {day(29, "10:00:00"), "9999-12-31T00:00:00"},
	} {
		periods, err := periodsOf(text, now, "Europe/Berlin")
		var got []string
		for _, p := range periods {
			got = append(got, p.from.UTC().Format("2006-01-02T15:04:05.999"), p.until.UTC().Format("2006-01-02T15:04:05.999"))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, error %v, want %v", text, got, err, want)
		}
	}
	// On 2027-03-28 the clock of Beirut goes from 00:00 to 01:00.
	beirut, err := periodsOf("2027-03-28", now, "Asia/Beirut")
	if err != nil || beirut[0].from.UTC().Format("2006-01-02T15:04") != "2027-03-27T22:00" {
		t.Errorf("a day without midnight: %v, error %v, want it to begin at 2027-03-27T22:00Z", beirut, err)
	}
	for _, text := range []string{"", "noon", "25:00", "06", "yesterday noon", "2026-02-30", "2026-03-28 24:00", "tomorrow"} {
		if _, err := periodsOf(text, now, "Europe/Berlin"); err == nil {
			t.Errorf("%q is taken, want an error", text)
		}
	}
}
