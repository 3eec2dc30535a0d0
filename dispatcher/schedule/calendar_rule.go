package schedule

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

const daySeconds = 86_400

// compile checks a rule, and adds it to l and its problems to errs under path. It returns how many dates the rule
// names.
func (r CalendarRule) compile(l *layer, errs *input.Problems, path string) (dates int) {
	given := 0
	var compile func()
	set := func(days daySet) {
		if r.Only {
			l.only = append(l.only, days)
			return
		}
		l.days.add(&days)
	}
	for _, kind := range []struct {
		given   bool
		compile func()
	}{
		{len(r.Dates) > 0, func() { set(compileDates(errs, path+"/dates", r.Dates)); dates = len(r.Dates) }},
		{len(r.Weekdays) > 0, func() {
			l.days.weekdays |= flip(r.Only, compileWeekdays(errs, path+"/weekdays", r.Weekdays), everyWeekday)
		}},
		{len(r.DaysOfMonth) > 0, func() {
			l.days.monthDays |= flip(r.Only, compileDaysOfMonth(errs, path+"/days_of_month", r.DaysOfMonth), everyDay)
		}},
		{r.From != "" || r.To != "", func() { l.times = append(l.times, compileClock(errs, path, r.From, r.To, r.Only)...) }},
		{r.Expression != "", func() {
			if wall := compileCronRule(errs, path+"/expression", r.Expression); wall != nil {
				l.crons = append(l.crons, newCronRule(wall, r.Only))
			}
		}},
		{r.ICalendar != "", func() {
			var days daySet
			days, dates = compileICalendar(errs, path+"/icalendar", r.ICalendar)
			set(days)
		}},
	} {
		if kind.given {
			given, compile = given+1, kind.compile
		}
	}
	if given != 1 {
		*errs = append(*errs, input.Problem{Path: "/" + path, Code: input.CodeCalendarRule, Message: fmt.Sprintf(
			"%s: a rule has exactly one of dates, weekdays, days_of_month, from and to, expression, icalendar; this one has %d",
			path, given)})
		return 0
	}
	compile()
	return dates
}

// flip returns the bits that are excluded: those of a rule or, if it is an only rule, all others.
func flip[B uint8 | uint32](only bool, matching, all B) B {
	if only {
		return all &^ matching
	}
	return matching
}

func compileDates(errs *input.Problems, path string, texts []string) (days daySet) {
	if n := len(texts); n > maxDates {
		reportInt(errs, path, n, problemf(input.CodeCalendarRule,
			"too many dates; a rule has at most %d, so split them into several rules", maxDates))
		return days
	}
	for i, text := range texts {
		err := days.parse(text)
		report(errs, fmt.Sprintf("%s/%d", path, i), text, err)
	}
	return days
}

// weekdayPattern allows no numbers, because cron dialects count Sunday as 0 or as 1.
var weekdayPattern = regexp.MustCompile(`^[A-Z]{3}(-[A-Z]{3})?$`)

func compileWeekdays(errs *input.Problems, path string, texts []string) (weekdays uint8) {
	for i, text := range texts {
		upper := strings.ToUpper(text)
		err := problemf(input.CodeCronName, "not a weekday; write MON, or a range such as MON-FRI")
		if weekdayPattern.MatchString(upper) {
			var days dayRule
			err = quartzGrammar.parseWeekday(&days, &quartzGrammar.fields[5], token{text: upper, column: 1})
			weekdays |= days.dow
		}
		report(errs, fmt.Sprintf("%s/%d", path, i), text, err)
	}
	return weekdays
}

func compileDaysOfMonth(errs *input.Problems, path string, numbers []int) (days uint32) {
	for i, n := range numbers {
		if n < 1 || n > 31 {
			reportInt(errs, fmt.Sprintf("%s/%d", path, i), n, problemf(input.CodeCronRange, "not in 1-31"))
			continue
		}
		days |= 1 << n
	}
	return days
}

// compileClock returns the excluded times of day.
func compileClock(errs *input.Problems, path, fromText, toText string, only bool) []stretch {
	from, err := timeOfDay(fromText, 0)
	report(errs, path+"/from", fromText, err)
	to, err := timeOfDay(toText, daySeconds)
	report(errs, path+"/to", toText, err)
	switch {
	case only && from == to: // the whole day is allowed
		return nil
	case only:
		from, to = to%daySeconds, from
		if to == 0 {
			to = daySeconds
		}
		if from == to%daySeconds {
			return nil
		}
	}
	if from < to {
		return []stretch{{from, to}}
	}
	return []stretch{{from, daySeconds}, {0, to}}
}

func compileICalendar(errs *input.Problems, path, text string) (days daySet, events int) {
	if n := len(text); n > maxICalendar {
		reportInt(errs, path, n, problemf(input.CodeCalendarRule,
			"too many bytes; the maximum is %d, so split the text into several rules", maxICalendar))
		return days, 0
	}
	days, events, err := parseICalendar(text)
	report(errs, path, text, err)
	return days, events
}

// parse adds a day or from/to.
func (s *daySet) parse(text string) *input.Problem {
	fromText, toText, ranged := strings.Cut(text, "/")
	if !ranged {
		toText = fromText
	}
	from, yearly, err := parseDay(fromText)
	if err != nil {
		return err
	}
	to, toYearly, err := parseDay(toText)
	switch {
	case err != nil:
		return err
	case yearly != toYearly:
		return problemf(input.CodeTimeInvalid, "write the year on both sides of / or on neither")
	case from.After(to) && !yearly:
		return problemf(input.CodeTimeInvalid, "%s is after %s", fromText, toText)
	case yearly:
		s.addYearly(monthAndDay(from), monthAndDay(to))
	default:
		s.addDays(from, to)
	}
	return nil
}

// addDays adds the days from one to another, both included.
func (s *daySet) addDays(from, to time.Time) {
	s.spans = append(s.spans, stretch{floorDiv(from.Unix(), daySeconds), floorDiv(to.Unix(), daySeconds) + 1})
}

// monthAndDay returns 25 December as 1225.
func monthAndDay(t time.Time) int { return int(t.Month())*100 + t.Day() }

// parseDay reads 2026-12-25, or 12-25 for every year, as a day of a leap year.
func parseDay(text string) (day time.Time, yearly bool, err *input.Problem) {
	if at, err := time.Parse(time.DateOnly, text); err == nil {
		if input.OutOfRange(at) {
			return at, false, problemf(input.CodeTimeRange, "the year is not in %d-%d; for every year, write %s",
				input.FirstYear, input.LastYear, at.Format("01-02"))
		}
		return at, false, nil
	}
	const leap = "2000-" // a leap year, so that 02-29 is valid
	if at, err := time.Parse(time.DateOnly, leap+text); err == nil {
		return at, true, nil
	}
	return time.Time{}, false, problemf(input.CodeTimeInvalid, "no such date; write 2026-12-25, or 12-25 for every year")
}

// compileCronRule reads an expression of dialect unix or quartz.
func compileCronRule(errs *input.Problems, field, text string) *wallClock {
	p, problems := compile(Spec{Expression: text})
	for _, f := range problems {
		*errs = append(*errs, input.Problem{Path: "/" + field, Code: f.Code, Message: field + ": " + f.Message})
	}
	if p == nil {
		return nil
	}
	cron, ok := p.source.(seconds)
	if !ok {
		report(errs, field, text, problemf(input.CodeCalendarRule, "a calendar rule takes a cron expression of dialect unix or quartz"))
		return nil
	}
	return cron.zoned.wall
}

// parseICalendar reads the whole-day events of iCalendar text.
func parseICalendar(text string) (days daySet, events int, err *input.Problem) {
	var event map[string]string
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		name, _, _ = strings.Cut(strings.ToUpper(name), ";")
		switch {
		case name == "BEGIN" && value == "VEVENT":
			event = map[string]string{}
		case name == "END" && value == "VEVENT":
			if err := days.addHoliday(event); err != nil {
				return days, events, err
			}
			events++
			event = nil
		case event != nil:
			event[name] = value
		}
	}
	if events == 0 {
		return days, 0, problemf(input.CodeTimeInvalid, "the text contains no VEVENT")
	}
	return days, events, nil
}

func (s *daySet) addHoliday(event map[string]string) *input.Problem {
	const layout = "20060102"
	from, err := time.Parse(layout, event["DTSTART"])
	if err != nil {
		return problemf(input.CodeTimeInvalid, "DTSTART %s is not a whole day such as 20261225", input.Echo(event["DTSTART"]))
	}
	to := from
	if end, ok := event["DTEND"]; ok {
		if to, err = time.Parse(layout, end); err != nil || !to.After(from) {
			return problemf(input.CodeTimeInvalid, "DTEND %s is not a whole day after DTSTART", input.Echo(end))
		}
		to = to.AddDate(0, 0, -1)
	}
	switch rule := event["RRULE"]; rule {
	case "":
		if input.OutOfRange(from) || input.OutOfRange(to) {
			return problemf(input.CodeTimeRange, "the year of DTSTART %s or DTEND is not in %d-%d",
				event["DTSTART"], input.FirstYear, input.LastYear)
		}
		s.addDays(from, to)
	case "FREQ=YEARLY":
		s.addYearly(monthAndDay(from), monthAndDay(to))
	default:
		return problemf(input.CodeTimeInvalid, "RRULE %s is not FREQ=YEARLY", input.Echo(rule))
	}
	return nil
}
