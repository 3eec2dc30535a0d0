package schedule

import (
	"fmt"
	"math"
	"time"
)

// CalendarSpec is a set of exclusions as a user writes it: holidays, freezes, opening hours.
type CalendarSpec struct {
	// Timezone is the IANA name of the zone in which the rules' days and times are meant;
	// empty means UTC.
	Timezone string
	// Rules exclude instants. An instant is included when no rule excludes it. At most 100.
	Rules []CalendarRule
	// Bases are calendars whose exclusions hold too.
	Bases []*Calendar
}

// CalendarRule matches instants by exactly one of its kinds. What matches is excluded; with
// Only, everything else is. It is also the wire form of a rule.
type CalendarRule struct {
	// Only turns the rule round: only what matches is allowed.
	Only bool `json:"only,omitempty"`
	// Dates are days: 2026-12-25, every year 12-25, or from/to, both inclusive:
	// 2026-12-24/2027-01-02 or 12-24/01-02.
	Dates []string `json:"dates,omitempty"`
	// Weekdays are MON, TUE, WED, THU, FRI, SAT and SUN, and ranges such as MON-FRI.
	Weekdays []string `json:"weekdays,omitempty"`
	// DaysOfMonth are 1 to 31.
	DaysOfMonth []int `json:"days_of_month,omitempty"`
	// From (inclusive) and To (exclusive) are times of day such as 22:00 and 06:00; the span
	// passes midnight when To is not after From. One that is left out is midnight.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Expression is a cron expression of dialect unix or quartz; it matches the second
	// from each of its local times.
	Expression string `json:"expression,omitempty"`
	// ICalendar is iCalendar text (RFC 5545), of whose VEVENTs DTSTART, DTEND (exclusive) and
	// RRULE:FREQ=YEARLY are read; events must be whole days.
	ICalendar string `json:"icalendar,omitempty"`
}

// Bounds of calendars: what an instant is compared with must not grow without end.
const (
	maxRules     = 100
	maxDates     = 1000    // of a rule
	maxICalendar = 1 << 16 // bytes
)

// Calendar is a checked CalendarSpec. It is immutable and safe for concurrent use.
type Calendar struct {
	zone  *zoned
	rules []calendarRule
	bases []*Calendar
}

// calendarRule is a checked rule. span is in local seconds.
type calendarRule struct {
	only bool
	rule localRule
}

// localRule matches local times, in seconds as if they were UTC.
type localRule interface {
	// span tells whether a local time matches, and a stretch [from, until) around it in
	// which all do as it does.
	span(local int64) (matches bool, from, until int64)
}

// NewCalendar checks spec. The error, if any, is Errors, with fields such as rules/0/dates/1.
func NewCalendar(spec CalendarSpec) (*Calendar, error) {
	var errs Errors
	loc, err := zone(spec.Timezone)
	if err != nil {
		errs.add("timezone", spec.Timezone, err.code, "%s", err.message)
	}
	if len(spec.Rules) > maxRules {
		errs.addInt("rules", len(spec.Rules), CodeCalendarRule, "so many rules; the maximum is %d: put them into calendars that this one builds on", maxRules)
		return nil, errs
	}
	c := &Calendar{zone: &zoned{zone: loc}, bases: spec.Bases}
	for i, r := range spec.Rules {
		c.rules = append(c.rules, calendarRule{r.Only, r.compile(&errs, fmt.Sprintf("rules/%d", i))})
	}
	if err := errs.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// Includes tells whether the calendar allows a fire at t.
func (c *Calendar) Includes(t time.Time) bool {
	included, _, _ := c.span(floorMilli(t))
	return included
}

// span tells whether an instant in Unix milliseconds is included, and a stretch
// [from, until) around it in which all are as it is.
func (c *Calendar) span(t int64) (included bool, from, until int64) {
	second := floorDiv(t, 1000)
	p := c.zone.periodAt(second)
	from, until = math.MinInt64/2, math.MaxInt64/2
	for _, r := range c.rules {
		matches, low, high := r.rule.span(second + p.offset)
		low, high = max(low-p.offset, p.start)*1000, min(high-p.offset, p.end)*1000
		if matches != r.only {
			return false, low, high
		}
		from, until = max(from, low), min(until, high)
	}
	for _, base := range c.bases {
		included, low, high := base.span(t)
		if !included {
			return false, low, high
		}
		from, until = max(from, low), min(until, high)
	}
	return true, from, until
}
