package schedule

import (
	"regexp"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// dailyPattern matches every N UNIT [from H:M[:S] [to H:M[:S]]] [on WEEKDAYS].
var dailyPattern = regexp.MustCompile(
	`(?i)^every +(\d+ +[a-z]+)(?: +from +(\S+))?(?: +to +(\S+))?(?: +on +(\S+))?$`)

// readDailyInterval reads "every 45 minutes from 9:00 to 17:00 on MON-FRI". Weekdays are
// written as in the quartz dialect, by name or 1-7 from Sunday.
func (p *program) readDailyInterval(text string, loc *timeZone) *input.Problem {
	m := dailyPattern.FindStringSubmatch(text)
	if m == nil {
		return problemf(input.CodeRateSyntax, "write it as every 45 minutes from 9:00 to 17:00 on MON-FRI")
	}
	s, err := parseStep(m[1])
	if err != nil {
		return err
	}
	unit := units[s.unit]
	if unit == 0 || unit > time.Hour {
		return problemf(input.CodeRateSyntax, "unit %q is not shorter than a day; write seconds, minutes or hours", s.unit)
	}
	if s.n > int64(24*time.Hour/unit) {
		return problemf(input.CodeRateMax, "the interval is more than the maximum of 24 hours")
	}
	d := &daily{zone: &zoned{zone: loc}, period: s.n * int64(unit/time.Second), to: 24*3600 - 1, days: everyWeekday}
	if d.from, err = timeOfDay(m[2], 0); err != nil {
		return err
	}
	if d.to, err = timeOfDay(m[3], 24*3600-1); err != nil {
		return err
	}
	if d.from > d.to {
		return problemf(input.CodeCronRange,
			"the time of day %s is after %s; a span cannot cross midnight, so use two triggers", m[2], m[3])
	}
	if m[4] != "" {
		var rule dayRule
		weekday := quartzGrammar.fields[5]
		days := token{text: strings.ToUpper(m[4]), column: strings.LastIndex(text, m[4]) + 1}
		if strings.ContainsAny(days.text, "?#H") || strings.HasSuffix(days.text, "L") {
			return problemf(input.CodeCronSyntax,
				"weekdays %q are not understood; write names, ranges and lists, such as MON-FRI", m[4])
		}
		if err := quartzGrammar.parseWeekday(&rule, &weekday, days); err != nil {
			return err
		}
		d.days = rule.dow
	}
	p.source, p.meaning = d, meaning{times: dailyTimes{d.period, d.from, d.to, d.days}, zoned: true}
	return nil
}

// timeOfDay reads H:M or H:M:S and returns seconds; for an empty text it returns absent.
func timeOfDay(text string, absent int64) (int64, *input.Problem) {
	if text == "" {
		return absent, nil
	}
	parts := strings.Split(text, ":")
	if len(parts) == 2 {
		parts = append(parts, "00")
	}
	var total int64
	for i, part := range parts {
		if i > 2 || len(part) > 2 || !isNumber(part) || number(part) > [...]int{23, 59, 59}[i] {
			return 0, problemf(input.CodeTimeInvalid, "%q is not a time of day; write 00:00 to 23:59:59", text)
		}
		total = total*60 + int64(number(part))
	}
	if len(parts) != 3 {
		return 0, problemf(input.CodeTimeInvalid, "%q is not a time of day; write 00:00 to 23:59:59", text)
	}
	return total, nil
}

// daily fires once per period between two times of day, on some weekdays. Within a day it counts
// elapsed time from the first fire, so on the day of a daylight saving change the fires are
// spaced as on any other day, but there are more or fewer of them. All values are in seconds.
type daily struct {
	zone     *zoned
	period   int64
	from, to int64 // times of day, both inclusive
	days     uint8 // bit w: weekday w, Sunday is 0
}

func (d *daily) next(after int64, steps int) (at int64, left int, ok bool) {
	from := floorDiv(after, 1000) + 1
	local := from + d.zone.periodAt(from).offset
	// The previous day may still be in progress if the clock was set back across midnight.
	day := floorDiv(local, 86_400) - 1
	for ; day*86_400 < lastInstant/1000 && steps >= 0; day++ {
		steps--
		const thursday = 4 // 1970-01-01
		if weekday := ((day+thursday)%7 + 7) % 7; d.days>>weekday&1 == 0 {
			continue
		}
		// A time in a gap counts as the end of the gap. A span that lies in the gap is empty.
		steps -= 2 * zoneSteps
		begin := d.zone.momentOf(day*86_400 + d.from)
		end := d.zone.momentOf(day*86_400 + d.to)
		at := begin.first
		if from > at {
			at += (from - at + d.period - 1) / d.period * d.period
		}
		if at < end.last || at == end.last && !end.gap {
			return at * 1000, steps, true
		}
	}
	return day * daySeconds * 1000, steps, false
}
