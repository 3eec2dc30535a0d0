package schedule

import (
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

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

// onCalendar tells whether the step is counted on the calendar, and not in elapsed time.
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
