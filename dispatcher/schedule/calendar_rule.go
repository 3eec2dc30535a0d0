package schedule

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

const daySeconds = 86_400

// compile checks a rule and adds its problems to errs under path.
func (r CalendarRule) compile(errs *Errors, path string) localRule {
	given := 0
	var compile func() localRule
	for _, kind := range []struct {
		given   bool
		compile func() localRule
	}{
		{len(r.Dates) > 0, func() localRule { return compileDates(errs, path+"/dates", r.Dates) }},
		{len(r.Weekdays) > 0, func() localRule { return compileWeekdays(errs, path+"/weekdays", r.Weekdays) }},
		{len(r.DaysOfMonth) > 0, func() localRule { return compileDaysOfMonth(errs, path+"/days_of_month", r.DaysOfMonth) }},
		{r.From != "" || r.To != "", func() localRule { return compileClock(errs, path, r.From, r.To) }},
		{r.Expression != "", func() localRule { return compileCronRule(errs, path+"/expression", r.Expression) }},
		{r.ICalendar != "", func() localRule { return compileICalendar(errs, path+"/icalendar", r.ICalendar) }},
	} {
		if kind.given {
			given, compile = given+1, kind.compile
		}
	}
	if given != 1 {
		*errs = append(*errs, Error{Field: path, Code: CodeCalendarRule, Message: fmt.Sprintf(
			"%s: a rule has exactly one of dates, weekdays, days_of_month, from and to, expression, icalendar; this one has %d",
			path, given)})
		return nil
	}
	return compile()
}

func compileDates(errs *Errors, path string, texts []string) localRule {
	if n := len(texts); n > maxDates {
		errs.addInt(path, n, CodeCalendarRule,
			"too many dates; a rule has at most %d, so split them into several rules", maxDates)
		return nil
	}
	var rule dateRule
	for i, text := range texts {
		span, err := parseDates(text)
		errs.addProblem(fmt.Sprintf("%s/%d", path, i), text, err)
		rule = append(rule, span)
	}
	return rule
}

// weekdayPattern allows no numbers, because cron dialects count Sunday as 0 or as 1.
var weekdayPattern = regexp.MustCompile(`^[A-Z]{3}(-[A-Z]{3})?$`)

func compileWeekdays(errs *Errors, path string, texts []string) localRule {
	var weekdays uint8
	for i, text := range texts {
		upper := strings.ToUpper(text)
		err := problemf(CodeCronName, "not a weekday; write MON, or a range such as MON-FRI")
		if weekdayPattern.MatchString(upper) {
			var days dayRule
			err = unixGrammar.parseWeekday(&days, &unixGrammar.fields[4], token{text: upper, column: 1})
			weekdays |= days.dow
		}
		errs.addProblem(fmt.Sprintf("%s/%d", path, i), text, err)
	}
	return dayMatch(func(day time.Time) bool { return weekdays>>day.Weekday()&1 == 1 })
}

func compileDaysOfMonth(errs *Errors, path string, numbers []int) localRule {
	var days uint32
	for i, n := range numbers {
		if n < 1 || n > 31 {
			errs.addInt(fmt.Sprintf("%s/%d", path, i), n, CodeCronRange, "not in 1-31")
			continue
		}
		days |= 1 << n
	}
	return dayMatch(func(day time.Time) bool { return days>>day.Day()&1 == 1 })
}

func compileClock(errs *Errors, path, fromText, toText string) localRule {
	from, err := timeOfDay(fromText, 0)
	errs.addProblem(path+"/from", fromText, err)
	to, err := timeOfDay(toText, daySeconds)
	errs.addProblem(path+"/to", toText, err)
	return clockRule{from, to}
}

func compileICalendar(errs *Errors, path, text string) localRule {
	if n := len(text); n > maxICalendar {
		errs.addInt(path, n, CodeCalendarRule,
			"too many bytes; the maximum is %d, so split the text into several rules", maxICalendar)
		return nil
	}
	dates, err := parseICalendar(text)
	errs.addProblem(path, text, err)
	return dates
}

// addProblem adds the problem of a part of a calendar, unless it is nil.
func (e *Errors) addProblem(field, text string, err *problem) {
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

// dates is a span of days, both ends included. It is either of one year, written as 20261225, or
// yearly, written as 1225. A yearly span may cross the end of the year.
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
func parseDates(text string) (dates, *problem) {
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
		return dates{}, problemf(CodeTimeInvalid, "write the year on both sides of / or on neither")
	case from > to && !yearly:
		return dates{}, problemf(CodeTimeInvalid, "%s is after %s", fromText, toText)
	}
	return dates{from, to, yearly}, nil
}

// parseDay reads 2026-12-25, or 12-25 for every year.
func parseDay(text string) (day int, yearly bool, err *problem) {
	if at, err := time.Parse(time.DateOnly, text); err == nil {
		if OutOfRange(at) {
			return 0, false, problemf(CodeTimeRange, "the year is not in %d-%d; for every year, write %s",
				FirstYear, LastYear, at.Format("01-02"))
		}
		return at.Year()*10_000 + int(at.Month())*100 + at.Day(), false, nil
	}
	const leap = "2000-" // a leap year, so that 02-29 is valid
	if at, err := time.Parse(time.DateOnly, leap+text); err == nil {
		return int(at.Month())*100 + at.Day(), true, nil
	}
	return 0, false, problemf(CodeTimeInvalid, "no such date; write 2026-12-25, or 12-25 for every year")
}

// clockRule matches times of day from (inclusive) to (exclusive), in seconds. The span
// crosses midnight if to is not after from.
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
	p, problems := compile(Spec{Expression: text})
	for _, f := range problems {
		*errs = append(*errs, Error{Field: field, Code: f.Code, Message: field + ": " + f.Message})
	}
	if p == nil {
		return nil
	}
	cron, ok := p.source.(seconds)
	if !ok {
		errs.add(field, text, CodeCalendarRule, "a calendar rule takes a cron expression of dialect unix or quartz")
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
func parseICalendar(text string) (dateRule, *problem) {
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
		return nil, problemf(CodeTimeInvalid, "the text contains no VEVENT")
	}
	return out, nil
}

// holiday reads the days of one event.
func holiday(event map[string]string) (dates, *problem) {
	const layout = "20060102"
	from, err := time.Parse(layout, event["DTSTART"])
	if err != nil {
		return dates{}, problemf(CodeTimeInvalid, "DTSTART %q is not a whole day such as 20261225", event["DTSTART"])
	}
	to := from
	if end, ok := event["DTEND"]; ok {
		if to, err = time.Parse(layout, end); err != nil || !to.After(from) {
			return dates{}, problemf(CodeTimeInvalid, "DTEND %q is not a whole day after DTSTART", end)
		}
		to = to.AddDate(0, 0, -1)
	}
	day := func(t time.Time) int { return int(t.Month())*100 + t.Day() }
	switch rule := event["RRULE"]; rule {
	case "":
		if OutOfRange(from) || OutOfRange(to) {
			return dates{}, problemf(CodeTimeRange, "the year of DTSTART %s or DTEND is not in %d-%d", event["DTSTART"], FirstYear, LastYear)
		}
		return dates{from: from.Year()*10_000 + day(from), to: to.Year()*10_000 + day(to)}, nil
	case "FREQ=YEARLY":
		return dates{from: day(from), to: day(to), yearly: true}, nil
	default:
		return dates{}, problemf(CodeTimeInvalid, "RRULE %q is not FREQ=YEARLY", rule)
	}
}
