package schedule

import (
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// fields is a cron expression as explicit sets.
type fields struct {
	second, minute, hour, month, year set
	days                              dayRule
	notes                             []Warning // found while parsing
}

// horizon is the last year in which an expression without years fires.
const horizon = 2199

// everyHour reports whether the hour field covers all 24 hours, in any notation.
func (f *fields) everyHour() bool { return f.hour == all(0, 23) }

// grammar holds the differences between the cron dialects.
type grammar struct {
	fields   []field // in the order of the text
	required int     // how many of them are required
	quartz   bool    // exactly one day field is ?; L, W and # are allowed
	plainL   bool    // L and nW are allowed, but not L-n, LW and L-nW
}

var (
	monthNames   = []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}
	weekdayNames = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}
)

// The names of the fields, as messages use them.
const (
	fieldSecond  = "second"
	fieldMinute  = "minute"
	fieldHour    = "hour"
	fieldDOM     = "day-of-month"
	fieldMonth   = "month"
	fieldWeekday = "weekday"
	fieldYear    = "year"
)

// quartzGrammar follows the documentation of Quartz 2.5's CronExpression.
var quartzGrammar = grammar{quartz: true, required: 6, fields: []field{
	{name: fieldSecond, low: 0, high: 59, wraps: true, bareStep: true, quartzNames: true},
	{name: fieldMinute, low: 0, high: 59, wraps: true, bareStep: true, quartzNames: true},
	{name: fieldHour, low: 0, high: 23, wraps: true, bareStep: true, quartzNames: true},
	{name: fieldDOM, low: 1, high: 31, wraps: true, bareStep: true, quartzNames: true, days: true},
	{name: fieldMonth, low: 1, high: 12, wraps: true, bareStep: true, quartzNames: true, names: monthNames, nameLow: 1},
	{
		name: fieldWeekday, low: 1, high: 7, wraps: true, bareStep: true, quartzNames: true,
		names: weekdayNames, nameLow: 1, days: true,
	},
	{name: fieldYear, low: firstYear, high: 2099, bareStep: true, quartzNames: true},
}}

// unixGrammar follows crontab(5) of Vixie cron, and accepts names in lists and ranges, and a/n.
var unixGrammar = grammar{required: 5, fields: []field{
	{name: fieldMinute, low: 0, high: 59},
	{name: fieldHour, low: 0, high: 23},
	{name: fieldDOM, low: 1, high: 31},
	{name: fieldMonth, low: 1, high: 12, names: monthNames, nameLow: 1},
	{name: fieldWeekday, low: 0, high: 7, names: weekdayNames},
}}

// awsGrammar follows the documentation of EventBridge Scheduler for cron(...). It is Quartz's
// grammar without seconds and without weekday steps. Ranges that wrap, as in MON-SUN and 20-2, are
// not documented, but EventBridge takes them, with Quartz's times.
var awsGrammar = grammar{quartz: true, plainL: true, required: 6, fields: []field{
	{name: fieldMinute, low: 0, high: 59, wraps: true, quartzNames: true},
	{name: fieldHour, low: 0, high: 23, wraps: true, quartzNames: true},
	{name: fieldDOM, low: 1, high: 31, wraps: true, quartzNames: true, days: true},
	{name: fieldMonth, low: 1, high: 12, wraps: true, quartzNames: true, names: monthNames, nameLow: 1},
	{
		name: fieldWeekday, low: 1, high: 7, wraps: true, quartzNames: true,
		names: weekdayNames, nameLow: 1, days: true, noSteps: true,
	},
	{name: fieldYear, low: firstYear, high: horizon, quartzNames: true},
}}

// parse reads the fields of an expression in upper case. It returns all problems, at most one
// per field. H hashes identity.
func (g *grammar) parse(text, identity string) (fields, []*input.Problem) {
	f := fields{second: all(0, 0), year: all(0, horizon-firstYear)}
	f.days = dayRule{dom: everyDay, dow: everyWeekday}
	var problems []*input.Problem
	var dom, dow string
	for i, tok := range tokens(text) {
		var err *input.Problem
		tok.identity = hasher(identity)
		switch spec := &g.fields[i]; spec.name {
		case fieldDOM:
			dom = tok.text
			err = g.parseDOM(&f.days, spec, tok)
		case fieldWeekday:
			dow = tok.text
			err = g.parseWeekday(&f.days, spec, tok)
		default:
			if spec.name == fieldYear && tok.text == "*" {
				continue // as without the field
			}
			*f.set(spec.name), err = spec.parseSet(tok)
		}
		if err != nil {
			problems = append(problems, err)
			continue
		}
		f.notes = append(f.notes, g.fields[i].unevenSteps(tok)...)
	}
	if g.quartz {
		if err := oneQuestionMark(dom, dow); err != nil {
			problems = append(problems, err)
		}
	} else {
		f.days.either = dom[0] != '*' && dow[0] != '*'
		if dom != "*" && dow != "*" && !f.days.either {
			f.notes = append(f.notes, Warning{Code: input.WarnStarStep, Message: fmt.Sprintf(
				"day-of-month %s and weekday %s must both match because one begins with *, as in crontab; without it one is enough",
				dom, dow)})
		}
	}
	if problems == nil && !f.possible() {
		problems = append(problems, f.never())
	}
	return f, problems
}

// set is that of a field which is no day field.
func (f *fields) set(name string) *set {
	switch name {
	case fieldSecond:
		return &f.second
	case fieldMinute:
		return &f.minute
	case fieldHour:
		return &f.hour
	case fieldMonth:
		return &f.month
	}
	return &f.year
}

func oneQuestionMark(dom, dow string) *input.Problem {
	switch {
	case dom == "?" && dow == "?":
		return problemf(input.CodeCronDays, "both day fields are ?; write * for the day of month to fire on every day")
	case dom != "?" && dow != "?" && dow == "*":
		return problemf(input.CodeCronDays, "exactly one of the two day fields must be ?; write ? for the weekday")
	case dom != "?" && dow != "?" && dom == "*":
		return problemf(input.CodeCronDays, "exactly one of the two day fields must be ?; write ? for the day of month")
	case dom != "?" && dow != "?":
		return problemf(input.CodeCronDays, "both day fields are set; one must be ? (use two triggers to fire on either)")
	}
	return nil
}

// possible reports whether any date matches.
func (f *fields) possible() bool {
	_, _, ok := f.dayAfter(firstYear, time.January, 0, stepBudget)
	return ok
}

// never explains why no date matches.
func (f *fields) never() *input.Problem {
	const byHand = "; for a job that is only run by hand, leave the trigger out"
	if months := f.month.list(); len(months) == 1 {
		month := time.Month(months[0])
		if month == time.February && f.days.dom != 0 && f.days.dom&(1<<30-1) == 0 {
			return problemf(input.CodeCronNever,
				"February never has 30 days, so this never fires; write L for the last day of the month (quartz), or 28"+byHand)
		}
		return problemf(input.CodeCronNever,
			"%s has no such day in the given years, so this never fires; check day, month and year"+byHand, month)
	}
	return problemf(input.CodeCronNever,
		"no date matches in the given months and years, so this never fires; check day, month and year"+byHand)
}

// token is one white-space separated word of an expression.
type token struct {
	text     string
	column   int    // of its first byte, from 1
	identity hasher // hashed by H
}

// tokens returns the words of an expression, numbered from 0.
func tokens(text string) iter.Seq2[int, token] {
	return func(yield func(int, token) bool) {
		n, start := 0, -1
		for i := 0; i <= len(text); i++ {
			blank := i == len(text) || text[i] == ' ' || text[i] == '\t'
			switch {
			case blank && start >= 0:
				if !yield(n, token{text: text[start:i], column: start + 1}) {
					return
				}
				n, start = n+1, -1
			case !blank && start < 0:
				start = i
			}
		}
	}
}

func countTokens(text string) (n int) {
	for range tokens(text) {
		n++
	}
	return n
}

// macros are crontab's names for common expressions.
var macros = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

// macro expands a name such as @daily. Names are in lower case, as in crontab(5).
func macro(text string) (string, *input.Problem) {
	if expanded, ok := macros[text]; ok {
		return expanded, nil
	}
	if strings.HasPrefix(text, "@every") {
		return "", problemf(input.CodeCronMacro, "@every is an interval, which dialect %s does not have; omit dialect, or write %s",
			DialectUnix, DialectInterval)
	}
	advice := ""
	if text == "@reboot" {
		advice = "; a scheduler has no reboot"
	} else if _, ok := macros[strings.ToLower(text)]; ok {
		advice = "; did you mean " + strings.ToLower(text) + "?"
	}
	return "", problemf(input.CodeCronMacro,
		"unknown macro%s (allowed: @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually)", advice)
}
