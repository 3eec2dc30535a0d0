package schedule

import (
	"fmt"
	"math"
	"time"
)

// CalendarSpec is a set of exclusions as a user writes it: holidays, freezes, opening hours.
type CalendarSpec struct {
	// Timezone is the IANA name of the zone for the days and times of the rules; empty means UTC.
	Timezone string
	// Rules exclude instants. An instant is included if no rule excludes it. At most 100.
	Rules []CalendarRule
	// Bases are calendars whose exclusions also apply.
	Bases []*Calendar
}

// CalendarRule matches instants by exactly one of its kinds. It excludes the instants that
// match, or with Only, those that do not. It is also the JSON form of a rule.
type CalendarRule struct {
	// Only reverses the rule: it allows only the instants that match.
	Only bool `json:"only,omitempty"`
	// Dates are days: 2026-12-25, every year 12-25, or from/to, both inclusive:
	// 2026-12-24/2027-01-02 or 12-24/01-02.
	Dates []string `json:"dates,omitempty"`
	// Weekdays are MON, TUE, WED, THU, FRI, SAT and SUN, and ranges such as MON-FRI.
	Weekdays []string `json:"weekdays,omitempty"`
	// DaysOfMonth are 1 to 31.
	DaysOfMonth []int `json:"days_of_month,omitempty"`
	// From (inclusive) and To (exclusive) are times of day such as 22:00 and 06:00. The span
	// crosses midnight if To is not after From. An empty one means midnight.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Expression is a cron expression of dialect unix or quartz; it matches the second
	// from each of its local times.
	Expression string `json:"expression,omitempty"`
	// ICalendar is iCalendar text (RFC 5545). Of its VEVENTs, DTSTART, DTEND (exclusive) and
	// RRULE:FREQ=YEARLY are read. Events must be whole days.
	ICalendar string `json:"icalendar,omitempty"`
}

// Bounds of calendars, which limit the cost of checking an instant.
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
	// span reports whether a local time matches, and a stretch [from, until) around it in
	// which every local time gives the same result.
	span(local int64) (matches bool, from, until int64)
}

// NewCalendar checks spec. A non-nil error is Errors, with fields such as rules/0/dates/1.
func NewCalendar(spec CalendarSpec) (*Calendar, error) {
	var errs Errors
	loc, err := zone(spec.Timezone)
	if err != nil {
		errs.add("timezone", spec.Timezone, err.code, "%s", err.message)
	}
	if len(spec.Rules) > maxRules {
		errs.addInt("rules", len(spec.Rules), CodeCalendarRule,
			"too many rules; a calendar has at most %d, so move some into base calendars", maxRules)
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

// Includes reports whether the calendar allows a fire at t.
func (c *Calendar) Includes(t time.Time) bool {
	included, _, _ := c.span(floorMilli(t))
	return included
}

// span reports whether an instant in Unix milliseconds is included, and a stretch
// [from, until) around it in which every instant gives the same result.
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
