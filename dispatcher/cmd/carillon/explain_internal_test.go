package main

import (
	"testing"
	"time"
)

func TestTimesOfCommandsAreThoseOfTheTriggersClock(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 29, 12, 0, 0, 0, time.UTC) // Berlin skips 02:00 to 03:00 on that day
	day := func(date int, clock string) string {
		return time.Date(2026, 3, date, 0, 0, 0, 0, time.UTC).Format("2006-01-02T") + clock
	}
	if from, _, _, err := periodOf("06:00:05.587", now, "Europe/Berlin"); err != nil || from.UTC().Format("15:04:05.000") != "04:00:05.587" {
		t.Errorf("06:00:05.587: from %s, error %v, want its milliseconds", from, err)
	}
	for text, want := range map[string][2]string{ // from and until, in UTC
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
		from, until, _, err := periodOf(text, now, "Europe/Berlin")
		got := [2]string{from.UTC().Format("2006-01-02T15:04:05"), until.UTC().Format("2006-01-02T15:04:05")}
		if err != nil || got != want {
			t.Errorf("%s: %v, error %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "noon", "25:00", "06", "yesterday noon", "2026-02-30", "2026-03-28 24:00", "tomorrow"} {
		if _, _, _, err := periodOf(text, now, "Europe/Berlin"); err == nil {
			t.Errorf("%q is taken, want an error", text)
		}
	}
}
