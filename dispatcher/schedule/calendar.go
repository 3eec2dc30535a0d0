package schedule

import (
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
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

// Bounds of one calendar as it is written.
const (
	maxRules     = 100
	maxDates     = 1000    // of a rule
	maxICalendar = 1 << 16 // bytes
)

// Bounds of a calendar and all calendars that it builds on, each counted once. They bound what it
// costs to check one instant, and the memory of a compiled calendar.
const (
	MaxCalendarTotal   = 50     // calendars, itself included
	maxRulesTotal      = 500    // rules
	maxCronRulesTotal  = 50     // rules with an expression, the costliest kind
	maxDatesTotal      = 10_000 // dates and events of all rules
	calendarCostRemedy = "merge some of them, or leave bases out"
)

// Calendar is a checked CalendarSpec. It is immutable and safe for concurrent use.
type Calendar struct {
	// own are the calendar's own rules; rules and dates are how many.
	own          layer
	rules, dates int
	// parts are the calendar and all that it builds on, each once.
	parts []*Calendar
	// layers are the rules of all parts, one layer for each zone.
	layers []layer
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
	return c, nil
}

// checkCost refuses a calendar that costs too much together with all that it builds on.
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

// excludedUntil reports whether an instant in Unix milliseconds is excluded, and an instant up to
// which all that follow are excluded as well.
func (c *Calendar) excludedUntil(t int64, steps int) (until int64, excluded bool, left int) {
	for i := range c.layers {
		if until, excluded, steps = c.layers[i].excludedUntil(floorDiv(t, 1000), steps); excluded {
			return until * 1000, true, steps
		}
	}
	return 0, false, steps
}

// excludedFrom reports whether an instant in Unix milliseconds is excluded, and an instant from
// which all up to this one are excluded as well.
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
