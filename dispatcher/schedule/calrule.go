package schedule

import (
	"fmt"
	"strings"
	"time"
)

const daySeconds = 86_400

// compile checks a rule; errs gets its faults under path.
func (r CalendarRule) compile(errs *Errors, path string) localRule {
	var rules []localRule
	if r.Dates != nil {
		var d dateRule
		for i, text := range r.Dates {
			span, err := parseDates(text)
			errs.addFault(fmt.Sprintf("%s/dates/%d", path, i), text, err)
			d = append(d, span)
		}
		rules = append(rules, d)
	}
	if r.Weekdays != nil {
		text := strings.ToUpper(strings.Join(r.Weekdays, ","))
		var days dayRule
		err := unixGrammar.parseWeekday(&days, &unixGrammar.fields[4], token{text: text, column: 1})
		errs.addFault(path+"/weekdays", text, err)
		rules = append(rules, dayMatch(func(day time.Time) bool { return days.dow>>day.Weekday()&1 == 1 }))
	}
	if r.DaysOfMonth != nil {
		var days uint32
		for i, n := range r.DaysOfMonth {
			if n < 1 || n > 31 {
				errs.addInt(fmt.Sprintf("%s/days_of_month/%d", path, i), n, CodeCronRange, "not in 1-31")
				continue
			}
			days |= 1 << n
		}
		rules = append(rules, dayMatch(func(day time.Time) bool { return days>>day.Day()&1 == 1 }))
	}
	if r.From != "" || r.To != "" {
		from, err := timeOfDay(r.From, 0)
		errs.addFault(path+"/from", r.From, err)
		to, err := timeOfDay(r.To, daySeconds)
		errs.addFault(path+"/to", r.To, err)
		rules = append(rules, clockRule{from, to})
	}
	if r.Expression != "" {
		rules = append(rules, compileCronRule(errs, path+"/expression", r.Expression))
	}
	if r.ICalendar != "" {
		dates, err := parseICalendar(r.ICalendar)
		errs.addFault(path+"/icalendar", r.ICalendar, err)
		rules = append(rules, dates)
	}
	if len(rules) != 1 {
		errs.add(path, "", CodeCalendarRule,
			"a rule has exactly one of dates, weekdays, days_of_month, from and to, expression, icalendar; this has %d", len(rules))
		return nil
	}
	return rules[0]
}

// addFault adds what is wrong with a part of a calendar, if anything.
func (e *Errors) addFault(field, text string, err *fault) {
	if err != nil {
		e.add(field, text, err.code, "%s", err.message)
	}
}

// dayMatch matches whole local days.
type dayMatch func(day time.Time) bool

func (m dayMatch) span(local int64) (bool, int64, int64) {
	day := floorDiv(local, daySeconds) * daySeconds
	return m(time.Unix(day, 0).UTC()), day, day + daySeconds
}

// dates is a span of days, both ends included: of one time, as 20261225, or of every
// year, as 1225. A yearly span may pass the end of the year.
type dates struct {
	from, to int
	yearly   bool
}

type dateRule []dates

func (d dateRule) span(local int64) (bool, int64, int64) {
	return dayMatch(d.matches).span(local)
}

func (d dateRule) matches(day time.Time) bool {
	inYear := int(day.Month())*100 + day.Day()
	full := day.Year()*10_000 + inYear
	for _, s := range d {
		switch {
		case !s.yearly && s.from <= full && full <= s.to,
			s.yearly && s.from <= s.to && s.from <= inYear && inYear <= s.to,
			s.yearly && s.from > s.to && (inYear >= s.from || inYear <= s.to):
			return true
		}
	}
	return false
}

// parseDates reads a day or from/to.
func parseDates(text string) (dates, *fault) {
	fromText, toText, ranged := strings.Cut(text, "/")
	if !ranged {
		toText = fromText
	}
	from, yearly, err := parseDay(fromText)
	if err != nil {
		return dates{}, err
	}
	to, toYearly, err := parseDay(toText)
	switch {
	case err != nil:
		return dates{}, err
	case yearly != toYearly:
		return dates{}, faultf(CodeTimeInvalid, "write the year on both sides of / or on neither")
	case from > to && !yearly:
		return dates{}, faultf(CodeTimeInvalid, "%s is after %s", fromText, toText)
	}
	return dates{from, to, yearly}, nil
}

// parseDay reads 2026-12-25, or 12-25 for every year.
func parseDay(text string) (day int, yearly bool, err *fault) {
	if at, err := time.Parse(time.DateOnly, text); err == nil {
		return at.Year()*10_000 + int(at.Month())*100 + at.Day(), false, nil
	}
	const leap = "2000-" // so that 02-29 is a day
	if at, err := time.Parse(time.DateOnly, leap+text); err == nil {
		return int(at.Month())*100 + at.Day(), true, nil
	}
	return 0, false, faultf(CodeTimeInvalid, "no such date; write 2026-12-25, or 12-25 for every year")
}

// clockRule matches times of day from (inclusive) to (exclusive), in seconds. The span
// passes midnight when to is not after from.
type clockRule struct{ from, to int64 }

func (c clockRule) span(local int64) (bool, int64, int64) {
	day := floorDiv(local, daySeconds) * daySeconds
	at := local - day
	inside := c.from <= at && at < c.to
	if c.to <= c.from {
		inside = at >= c.from || at < c.to
	}
	low, high := int64(0), int64(daySeconds)
	for _, edge := range []int64{c.from, c.to} {
		if edge <= at {
			low = max(low, edge)
		} else {
			high = min(high, edge)
		}
	}
	return inside, day + low, day + high
}

// cronRule matches the seconds of a cron expression.
type cronRule struct{ wall *wallClock }

// compileCronRule reads an expression of dialect unix or quartz.
func compileCronRule(errs *Errors, field, text string) localRule {
	p, faults := compile(Spec{Expression: text})
	for _, f := range faults {
		*errs = append(*errs, Error{Field: field, Code: f.Code, Message: field + ": " + f.Message})
	}
	if p == nil {
		return nil
	}
	cron, ok := p.source.(seconds)
	if !ok {
		errs.add(field, text, CodeCalendarRule, "a calendar's expression is cron, of dialect unix or quartz")
		return nil
	}
	return cronRule{cron.zoned.wall}
}

func (c cronRule) span(local int64) (bool, int64, int64) {
	next, ok := c.wall.next(local - 1)
	switch {
	case !ok:
		return false, local, lastInstant
	case next == local:
		return true, local, local + 1
	}
	return false, local, next
}

// parseICalendar reads the whole-day events of iCalendar text.
func parseICalendar(text string) (dateRule, *fault) {
	var out dateRule
	var event map[string]string
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		name, _, _ = strings.Cut(strings.ToUpper(name), ";")
		switch {
		case name == "BEGIN" && value == "VEVENT":
			event = map[string]string{}
		case name == "END" && value == "VEVENT":
			span, err := holiday(event)
			if err != nil {
				return nil, err
			}
			out = append(out, span)
			event = nil
		case event != nil:
			event[name] = value
		}
	}
	if out == nil {
		return nil, faultf(CodeTimeInvalid, "no VEVENT in it")
	}
	return out, nil
}

// holiday reads one event.
func holiday(event map[string]string) (dates, *fault) {
	const layout = "20060102"
	from, err := time.Parse(layout, event["DTSTART"])
	if err != nil {
		return dates{}, faultf(CodeTimeInvalid, "DTSTART %q is not a whole day such as 20261225", event["DTSTART"])
	}
	to := from
	if end, ok := event["DTEND"]; ok {
		if to, err = time.Parse(layout, end); err != nil || !to.After(from) {
			return dates{}, faultf(CodeTimeInvalid, "DTEND %q is not a whole day after DTSTART", end)
		}
		to = to.AddDate(0, 0, -1)
	}
	day := func(t time.Time) int { return int(t.Month())*100 + t.Day() }
	switch rule := event["RRULE"]; rule {
	case "":
		return dates{from: from.Year()*10_000 + day(from), to: to.Year()*10_000 + day(to)}, nil
	case "FREQ=YEARLY":
		return dates{from: day(from), to: day(to), yearly: true}, nil
	default:
		return dates{}, faultf(CodeTimeInvalid, "RRULE %q is not FREQ=YEARLY", rule)
	}
}
