package schedule

import (
	"regexp"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

const (
	minPeriod = time.Second
	maxPeriod = 100 * 365 * 24 * time.Hour
)

// parseInterval reads rate(...), delay(...) and @every ....
func parseInterval(text string) (period time.Duration, delay bool, err *input.Problem) {
	body, ok := strings.CutPrefix(text, "@every ")
	if !ok {
		if body, ok = strings.CutPrefix(text, "delay("); ok {
			delay = true
		} else {
			body, ok = strings.CutPrefix(text, "rate(")
		}
		if ok {
			body, ok = strings.CutSuffix(body, ")")
		}
	}
	body = strings.Trim(body, " \t")
	if !ok || body == "" {
		return 0, false, problemf(input.CodeRateSyntax,
			"not an interval; write rate(5 minutes), rate(1h30m), @every 30s or delay(30s)")
	}
	period, err = parsePeriod(body)
	return period, delay, err
}

// parsePeriod reads "5 minutes" and "1h30m" and checks the bounds.
func parsePeriod(body string) (time.Duration, *input.Problem) {
	period, err := readPeriod(body)
	switch {
	case err != nil:
		return 0, err
	case period < minPeriod:
		return 0, problemf(input.CodeRateMin, "the interval is less than the minimum of 1s")
	case period > maxPeriod:
		return 0, problemf(input.CodeRateMax, "the interval is more than the maximum of 100 years")
	case period%time.Millisecond != 0:
		return 0, problemf(input.CodeRateSyntax, "the interval is not a whole number of milliseconds")
	}
	return period, nil
}

// units are the units of elapsed time. A day always has 24 hours.
var units = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
}

// readPeriod reads "5 minutes" and "1h30m". On overflow it returns more than maxPeriod.
func readPeriod(body string) (time.Duration, *input.Problem) {
	if words := strings.Fields(body); len(words) == 2 && isNumber(words[0]) {
		unit, ok := units[strings.TrimSuffix(words[1], "s")]
		if !ok {
			return 0, problemf(input.CodeRateSyntax, "unit %q is unknown; write seconds, minutes, hours, days or weeks", words[1])
		}
		n := number(words[0])
		if n > int(maxPeriod/unit) {
			return maxPeriod + 1, nil
		}
		return time.Duration(n) * unit, nil
	}
	if isNumber(body) {
		return 0, problemf(input.CodeRateSyntax, "the interval has no unit; write %ss or %s seconds", body, body)
	}
	period, err := time.ParseDuration(body)
	if err == nil && body[0] != '+' {
		return period, nil
	}
	// A well-formed duration that overflows is too long, not malformed.
	if strings.Trim(body, "0123456789hms") == "" && body[0] <= '9' {
		return maxPeriod + 1, nil
	}
	return 0, problemf(input.CodeRateSyntax, "the interval is not understood; write it as 30s, 5m, 1h30m or 5 minutes")
}

// setElapsed lets p fire once per period, counted from the origin.
func (p *program) setElapsed(period time.Duration) {
	p.meaning = meaning{times: elapsedTimes{period.Milliseconds()}}
	p.bind = func(from origin) source {
		return interval{base: from.at, period: period.Milliseconds(), first: from.first()}
	}
}

// interval is base + k*period for k >= first, in Unix milliseconds.
type interval struct{ base, period, first int64 }

func (iv interval) next(after int64, steps int) (at int64, left int, ok bool) {
	k := max(iv.first, floorDiv(after-iv.base, iv.period)+1)
	return iv.base + k*iv.period, steps - 1, true
}

// count returns the number of instants in (a, b].
func (iv interval) count(a, b int64) int64 {
	low := max(iv.first-1, floorDiv(a-iv.base, iv.period))
	return max(0, floorDiv(b-iv.base, iv.period)-low)
}

// nth returns the n-th instant strictly after a time, counted from 1.
func (iv interval) nth(after, n int64) int64 {
	return iv.base + (max(iv.first-1, floorDiv(after-iv.base, iv.period))+n)*iv.period
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

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

// step is a length on the calendar. Seconds, minutes and hours are elapsed time.
type step struct {
	n    int64
	unit string // second, minute, hour, day, week, month or year
}

// length returns the step in days or in months; the other is 0.
func (s step) length() (days, months int64) {
	switch s.unit {
	case "day":
		return s.n, 0
	case "week":
		return 7 * s.n, 0
	case "year":
		return 0, 12 * s.n
	}
	return 0, s.n
}

// onCalendar reports whether the step is counted on the calendar, and not in elapsed time.
func (s step) onCalendar() bool { return s.unit != "second" && s.unit != "minute" && s.unit != "hour" }

// maxSteps is the most of each unit, about 100 years.
var maxSteps = map[string]int{
	"second": 3_153_600_000, "minute": 52_560_000, "hour": 876_000,
	"day": 36_500, "week": 5_200, "month": 1_200, "year": 100,
}

// parseStep reads "3 months" and "1 DAY".
func parseStep(text string) (step, *input.Problem) {
	words := strings.Fields(strings.ToLower(text))
	if len(words) != 2 || !isNumber(words[0]) {
		return step{}, problemf(input.CodeRateSyntax, "write every n unit, such as every 3 months")
	}
	s := step{unit: strings.TrimSuffix(words[1], "s")}
	most, ok := maxSteps[s.unit]
	if !ok {
		return step{}, problemf(input.CodeRateSyntax,
			"unit %q is unknown; write seconds, minutes, hours, days, weeks, months or years", words[1])
	}
	n, exact := integer(words[0])
	switch {
	case n < 1:
		return step{}, problemf(input.CodeRateMin, "the interval must be at least 1 %s", s.unit)
	case !exact || n > most:
		return step{}, problemf(input.CodeRateMax, "the interval is more than the maximum of 100 years")
	}
	s.n = int64(n)
	return s, nil
}

// readCalendarInterval reads "every n unit".
func (p *program) readCalendarInterval(text string, spec Spec, loc *timeZone) *input.Problem {
	body, ok := strings.CutPrefix(text, "every ")
	if !ok {
		return problemf(input.CodeRateSyntax, "write every n unit, such as every 3 months")
	}
	s, err := parseStep(body)
	if err != nil {
		return err
	}
	if !s.onCalendar() {
		p.setElapsed(time.Duration(s.n) * units[s.unit])
		return nil
	}
	overlap := spec.Overlap
	if overlap == "" {
		overlap = OverlapFirst
	}
	days, months := s.length()
	p.meaning = meaning{times: calendarTimes{days, months}, gap: spec.Gap, overlap: overlap, zoned: true}
	if overlap == OverlapBoth { // a step fires once
		p.meaning.overlap = OverlapLast
	}
	p.bind = func(from origin) source {
		z := &zoned{zone: loc}
		offset := z.periodAt(floorDiv(from.at, 1000)).offset
		if spec.DriftHour {
			z.zone = newTimeZone(time.FixedZone("", int(offset)))
		}
		return &calendarInterval{
			step: s, zone: z, gap: spec.Gap, overlap: overlap, first: from.first(),
			begin: time.UnixMilli(from.at + offset*1000).UTC(),
		}
	}
	return nil
}

// calendarInterval is begin + k steps on the local calendar, for k >= first. Every instant is
// counted from begin, not from the previous one, so that the 31st stays the 31st: a shorter
// month uses its last day, and the next month is unaffected.
type calendarInterval struct {
	step    step
	zone    *zoned
	gap     Gap
	overlap Overlap
	first   int64
	begin   time.Time // local time of the origin, as if it were UTC
}

// next starts one step before the estimate from elapsed time. Jumps of the local clock and the
// different lengths of months never amount to more than one step.
func (c *calendarInterval) next(after int64, steps int) (at int64, left int, ok bool) {
	local := time.UnixMilli(after + c.zone.periodAt(floorDiv(after, 1000)).offset*1000).UTC()
	var k int64
	if days, months := c.step.length(); days > 0 {
		k = floorDiv(local.Unix()-c.begin.Unix(), days*daySeconds)
	} else {
		k = floorDiv(int64(local.Year()-c.begin.Year())*12+int64(local.Month()-c.begin.Month()), months)
	}
	for k = max(c.first, k-1); ; k++ {
		at, exists := c.instant(k)
		if steps -= zoneSteps; at > lastInstant || steps < 0 {
			return at, steps, false
		}
		if exists && at > after {
			return at, steps, true
		}
	}
}

// instant returns the k-th instant in Unix milliseconds. It does not exist if its local time lies
// in a gap and the rule is GapSkip.
func (c *calendarInterval) instant(k int64) (at int64, exists bool) {
	local := c.local(k)
	m := c.zone.momentOf(local.Unix())
	millis := local.UnixMilli() - local.Unix()*1000
	switch {
	case m.gap && c.gap == GapSkip:
		return m.first * 1000, false
	case m.gap && c.gap == GapNext:
		return m.first * 1000, true
	case m.gap: // later by the length of the gap, as in Quartz
		return m.shifted*1000 + millis, true
	}
	return m.pick(c.overlap)*1000 + millis, true
}

// local returns the local time of the k-th instant, before daylight saving applies.
func (c *calendarInterval) local(k int64) time.Time {
	days, months := c.step.length()
	if days > 0 {
		return c.begin.AddDate(0, 0, int(k*days))
	}
	months = int64(c.begin.Month()) - 1 + k*months
	year, month := c.begin.Year()+int(floorDiv(months, 12)), time.Month(months%12+1)
	day := min(c.begin.Day(), monthLength(year, month))
	h, m, s := c.begin.Clock()
	return time.Date(year, month, day, h, m, s, c.begin.Nanosecond(), time.UTC)
}
