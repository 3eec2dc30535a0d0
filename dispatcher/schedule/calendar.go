package schedule

import (
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// CalendarSpec is a set of exclusions as a user writes it: holidays, freezes, opening hours.
type CalendarSpec struct {
	// Timezone is the IANA name of the zone for the days and times of the rules; empty means UTC.
	Timezone string
	// Rules exclude instants. An instant is included if no rule excludes it. At most 100.
	Rules []CalendarRule
	// Bases are calendars with exclusions that also apply.
	Bases []*Calendar
}

// CalendarRule matches instants by exactly one of its kinds. It excludes the instants that
// match, or with Only, those that do not. It is also the JSON form of a rule.
type CalendarRule struct {
	// Only reverses the rule: it allows only the instants that match.
	Only bool `json:"only,omitempty"`
	// Dates are days: 2026-12-25, every year 12-25, or from/to, both inclusive:
	// 2026-12-24/2027-01-02 or 12-24/01-02.
	Dates []string `json:"dates,omitempty" schema:"max=1000"`
	// Weekdays are MON, TUE, WED, THU, FRI, SAT and SUN, and ranges such as MON-FRI.
	Weekdays []string `json:"weekdays,omitempty"`
	// DaysOfMonth are 1 to 31.
	DaysOfMonth []int `json:"days_of_month,omitempty" schema:"each_max=31,each_min=1"`
	// From (inclusive) and To (exclusive) are times of day such as 22:00 and 06:00. The span
	// crosses midnight if To is not after From. An empty one means midnight.
	From string `json:"from,omitempty"`
	// Time of day such as 06:00, exclusive. If it is not after from, the period passes midnight.
	To string `json:"to,omitempty"`
	// Expression is a cron expression of dialect unix or quartz; it matches the second
	// from each of its local times.
	Expression string `json:"expression,omitempty" schema:"max=256"`
	// ICalendar is iCalendar text (RFC 5545). DTSTART, DTEND (exclusive) and RRULE:FREQ=YEARLY of its VEVENTs are
	// read. Events must be whole days.
	ICalendar string `json:"icalendar,omitempty" schema:"max=65536"`
}

// Bounds of one calendar as it is written.
const (
	maxRules     = 100
	maxDates     = 1000    // of a rule
	maxICalendar = 1 << 16 // bytes
)

// Bounds of a calendar and all calendars that it builds on, each counted once. They bound the cost of checking one
// instant, and the memory of a compiled calendar.
const (
	MaxCalendarTotal   = 50     // calendars, itself included
	maxRulesTotal      = 500    // rules
	maxCronRulesTotal  = 50     // rules with an expression, the costliest kind
	maxDatesTotal      = 10_000 // dates and events of all rules
	calendarCostRemedy = "merge some of them, or leave bases out"
)

// Calendar is a checked CalendarSpec. It is immutable and safe for concurrent use.
type Calendar struct {
	// own are the calendar's own rules; rules and dates are their numbers.
	own          layer
	rules, dates int
	// parts are the calendar and all calendars that it builds on, each once.
	parts []*Calendar
	// layers are the rules of all parts, one layer for each zone.
	layers []layer
	// atMinutes returns a calendar that decides about full minutes as this one does. Its rules with an expression match
	// whole minutes rather than one second of each, so that it has fewer stretches.
	atMinutes func() *Calendar
}

// NewCalendar checks spec. A non-nil error is input.Problems, with fields such as rules/0/dates/1.
func NewCalendar(spec CalendarSpec) (*Calendar, error) {
	var errs input.Problems
	loc, err := zone(spec.Timezone)
	report(&errs, "timezone", spec.Timezone, err)
	if len(spec.Rules) > maxRules {
		reportInt(&errs, "rules", len(spec.Rules), problemf(input.CodeCalendarRule,
			"too many rules; a calendar has at most %d, so move some into base calendars", maxRules))
		return nil, errs
	}
	c := &Calendar{own: layer{zone: loc}, rules: len(spec.Rules)}
	for i, r := range spec.Rules {
		c.dates += r.compile(&c.own, &errs, fmt.Sprintf("rules/%d", i))
	}
	c.parts = []*Calendar{c}
	for _, base := range spec.Bases {
		for _, part := range base.parts {
			if !slices.Contains(c.parts, part) {
				c.parts = append(c.parts, part)
			}
		}
		if len(c.parts) > MaxCalendarTotal {
			break // the message says "more than"
		}
	}
	c.checkCost(&errs)
	if err := asError(errs); err != nil {
		return nil, err
	}
	c.layers = mergeLayers(c.parts)
	c.atMinutes = sync.OnceValue(func() *Calendar {
		whole := &Calendar{layers: slices.Clone(c.layers)}
		for i := range whole.layers {
			whole.layers[i].crons = slices.Clone(c.layers[i].crons)
			for j, rule := range whole.layers[i].crons {
				if f := rule.wall.fields; f.second.has(0) {
					f.second = all(0, 59)
					whole.layers[i].crons[j] = newCronRule(&wallClock{fields: f}, rule.only)
				}
			}
		}
		return whole
	})
	return c, nil
}

// checkCost refuses a calendar that costs too much together with its bases.
func (c *Calendar) checkCost(errs *input.Problems) {
	var rules, crons, dates int
	for _, part := range c.parts {
		rules, crons, dates = rules+part.rules, crons+len(part.own.crons), dates+part.dates
	}
	for _, total := range []struct {
		n, most int
		what    string
	}{
		{len(c.parts), MaxCalendarTotal, "calendars"},
		{rules, maxRulesTotal, "rules"},
		{crons, maxCronRulesTotal, "rules with an expression"},
		{dates, maxDatesTotal, "dates"},
	} {
		if total.n > total.most {
			*errs = append(*errs, input.Problem{Path: "/bases", Code: input.CodeCalendarCost, Message: fmt.Sprintf(
				"the calendar and all that it builds on come to at least %d %s; the maximum is %d, so %s",
				total.n, total.what, total.most, calendarCostRemedy)})
		}
	}
}

// Includes reports whether the calendar allows a fire at t.
func (c *Calendar) Includes(t time.Time) bool {
	_, excluded, _ := c.excludedUntil(floorMilli(t), stepBudget)
	return !excluded
}

// excludedUntil reports whether an instant in Unix milliseconds is excluded, and an instant up to which all later
// ones are excluded as well.
func (c *Calendar) excludedUntil(t int64, steps int) (until int64, excluded bool, left int) {
	for i := range c.layers {
		if until, excluded, steps = c.layers[i].excludedUntil(floorDiv(t, 1000), steps); excluded {
			return until * 1000, true, steps
		}
	}
	return 0, false, steps
}

// excludedFrom reports whether an instant in Unix milliseconds is excluded, and an instant from which all earlier
// ones are excluded as well.
func (c *Calendar) excludedFrom(t int64, steps int) (from int64, excluded bool, left int) {
	for i := range c.layers {
		if from, excluded, steps = c.layers[i].excludedFrom(floorDiv(t, 1000), steps); excluded {
			return from * 1000, true, steps
		}
	}
	return 0, false, steps
}

// nextExcluded returns the first excluded instant at or after t, but none after limit; both in Unix milliseconds.
func (c *Calendar) nextExcluded(t, limit int64, steps int) (at int64, left int) {
	for second := floorDiv(t, 1000); second*1000 < limit && steps >= 0; {
		until := int64(lastSecond)
		for i := range c.layers {
			var excluded bool
			if _, excluded, steps = c.layers[i].excludedUntil(second, steps); excluded {
				return max(t, second*1000), steps
			}
			var open int64
			open, steps = c.layers[i].includedUntil(second, steps)
			until = min(until, open)
		}
		second = until
	}
	return limit, steps
}

// cronRule excludes the seconds of a cron expression or, with only, all others.
type cronRule struct {
	wall *wallClock
	only bool
	// unit is a second, a minute, an hour or a day: the longest in which the expression matches all
	// seconds or none.
	unit int64
}

func newCronRule(wall *wallClock, only bool) cronRule {
	f := &wall.fields
	c := cronRule{wall: wall, only: only, unit: 1}
	for _, part := range []struct {
		full bool
		unit int64
	}{{f.second == all(0, 59), 60}, {f.minute == all(0, 59), 3600}, {f.everyHour(), daySeconds}} {
		if !part.full {
			break
		}
		c.unit = part.unit
	}
	return c
}

// excludedUntil is layer.localUntil for this rule.
func (c *cronRule) excludedUntil(local int64, steps int) (until int64, excluded bool, left int) {
	next, left, ok := c.wall.next(local-1, steps)
	switch matches := ok && next == local; {
	case left < 0 || matches == c.only:
		return 0, false, left
	case !matches && !ok:
		return lastSecond, true, left
	case !matches:
		return next, true, left
	case c.unit < daySeconds:
		return floorDiv(local, c.unit)*c.unit + c.unit, true, left
	}
	// Whole days match: the run ends with them, or with the month.
	m, dom := monthOf(floorDiv(local, daySeconds))
	run := bits.TrailingZeros32(^(c.days(&m) >> dom))
	return (m.first + int64(min(dom+run, m.length+1)-1)) * daySeconds, true, left - 1
}

// excludedFrom is layer.localFrom for this rule.
func (c *cronRule) excludedFrom(local int64, steps int) (from int64, excluded bool, left int) {
	next, left, ok := c.wall.next(local-1, steps)
	switch matches := ok && next == local; {
	case left < 0 || matches == c.only:
		return 0, false, left
	case matches && c.unit < daySeconds:
		return floorDiv(local, c.unit) * c.unit, true, left
	case matches:
		m, dom := monthOf(floorDiv(local, daySeconds))
		run := bits.LeadingZeros32(^(c.days(&m) << (31 - dom)))
		return (m.first + int64(dom-run)) * daySeconds, true, left - 1
	}
	last, left, ok := c.wall.previous(local, left)
	if !ok {
		return firstSecond, left >= 0, left
	}
	return last + 1, true, left
}

// days returns the days of a month on which the expression matches, as bits 1 to 31.
func (c *cronRule) days(m *monthDays) uint32 {
	f := &c.wall.fields
	if !f.year.has(m.year-firstYear) || !f.month.has(int(m.month)) {
		return 0
	}
	return f.days.mask(m.year, m.month)
}

// daySet is a set of days. spans are days from 1970-01-01 on.
type daySet struct {
	weekdays  uint8      // bit w: weekday w, Sunday is 0
	monthDays uint32     // bit d: day d of every month
	yearly    [13]uint32 // bit d: day d of that month in every year
	spans     []stretch
}

func (s *daySet) empty() bool {
	return s.weekdays == 0 && s.monthDays == 0 && len(s.spans) == 0 && s.yearly == [13]uint32{}
}

// add adds the days of another set. The spans have to be merged then.
func (s *daySet) add(other *daySet) {
	s.weekdays |= other.weekdays
	s.monthDays |= other.monthDays
	for m := range s.yearly {
		s.yearly[m] |= other.yearly[m]
	}
	s.spans = append(s.spans, other.spans...)
}

// addYearly adds the days from one to another of every year, both written as 1225. The span crosses
// the end of the year if it ends before it begins.
func (s *daySet) addYearly(from, to int) {
	if from > to {
		s.addYearly(from, 1231)
		s.addYearly(101, to)
		return
	}
	for m := from / 100; m <= to/100; m++ {
		low, high := 1, 31
		if m == from/100 {
			low = from % 100
		}
		if m == to/100 {
			high = to % 100
		}
		s.yearly[m] |= uint32(1<<(high+1) - 1<<low)
	}
}

// mask returns the days of a month that are in the set, as bits 1 to 31. Bits past its end may be set.
func (s *daySet) mask(m *monthDays) uint32 {
	days := s.monthDays | s.yearly[m.month]
	if s.weekdays != 0 {
		const thursday = 4 // 1970-01-01
		first := ((m.first+thursday)%7 + 7) % 7
		for w := range int64(7) {
			if s.weekdays>>w&1 == 1 {
				days |= 0b10000001000000100000010000001 << (1 + (w-first+7)%7)
			}
		}
	}
	if len(s.spans) == 0 {
		return days
	}
	end := m.first + int64(m.length)
	for i := sort.Search(len(s.spans), func(i int) bool { return m.first < s.spans[i].until }); i < len(s.spans); i++ {
		span := s.spans[i]
		if span.from >= end {
			break
		}
		low, high := max(span.from-m.first, 0)+1, min(span.until-m.first, int64(m.length))
		days |= uint32(1<<(high+1) - 1<<low)
	}
	return days
}

// OnExcluded is a rule for fires that the calendar excludes.
type OnExcluded string

// The rules for excluded fires.
const (
	OnExcludedSkip         OnExcluded = "skip"          // the fire does not happen
	OnExcludedNextIncluded OnExcluded = "next_included" // it happens at the next included instant
	// It happens at its own time of day, on the next or previous day on which the calendar allows that time.
	OnExcludedNextDay     OnExcluded = "next_day"
	OnExcludedPreviousDay OnExcluded = "previous_day"
)

// MovesByDays reports whether excluded fires move to another day and keep their time of day.
func (o OnExcluded) MovesByDays() bool { return o == OnExcludedNextDay || o == OnExcludedPreviousDay }

// excluding applies a calendar to a source.
type excluding struct {
	source   source
	calendar *Calendar
	move     bool  // next_included rather than skip
	start    int64 // fires before start do not move past it
}

func (x excluding) next(after int64, steps int) (at int64, left int, ok bool) {
	if x.move {
		return x.nextMoved(after, steps)
	}
	for after <= lastInstant {
		if at, steps, ok = x.source.next(after, steps); !ok || steps < 0 {
			return at, steps, false
		}
		var until int64
		if until, ok, steps = x.calendar.excludedUntil(at, steps); steps < 0 {
			return at, steps, false
		} else if !ok {
			return at, steps, true
		}
		after = until - 1
	}
	return after, steps, false
}

// nextMoved is next with each excluded fire moved to the end of its excluded stretch. If after
// lies in an excluded stretch, an earlier fire of that stretch is still to come.
func (x excluding) nextMoved(after int64, steps int) (at int64, left int, ok bool) {
	from, excluded, left := x.stretch(after, steps)
	if excluded && left >= 0 {
		at, left, ok = x.source.next(max(from, x.start)-1, left)
		if ok && at <= after {
			return x.included(after, left)
		}
	}
	if left < 0 {
		return after, left, false
	}
	if at, left, ok = x.source.next(after, left); !ok || left < 0 {
		return at, left, false
	}
	return x.included(at, left)
}

// stretch returns the beginning of the excluded stretch that contains t, or an instant before all fires.
func (x excluding) stretch(t int64, steps int) (from int64, excluded bool, left int) {
	from, excluded, left = x.calendar.excludedFrom(t, steps)
	for excluded && from > max(x.start, 0) && left >= 0 { // no source has instants before 1970
		earlier, more, rest := x.calendar.excludedFrom(from-1, left)
		if left = rest; !more {
			break
		}
		from = earlier
	}
	return from, excluded, left
}

// included returns the first included instant at or after t.
func (x excluding) included(t int64, steps int) (at int64, left int, ok bool) {
	for t <= lastInstant && steps >= 0 {
		until, excluded, left := x.calendar.excludedUntil(t, steps)
		if steps = left; !excluded {
			break
		}
		t = until
	}
	return t, steps, t <= lastInstant && steps >= 0
}
