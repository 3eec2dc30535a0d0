package schedule

import (
	"fmt"
	"hash/fnv"
	"iter"
	"regexp"
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
	if problems == nil {
		if _, _, possible := f.dayAfter(firstYear, time.January, 0, stepBudget); !possible {
			problems = append(problems, f.never())
		}
	}
	return f, problems
}

// set returns the set of a field that is not a day field.
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

// byHand is advice for people who write a date that never comes on purpose.
const byHand = "; for a job that is only run by hand, leave the trigger out"

// never explains why no date matches.
func (f *fields) never() *input.Problem {
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

// readAWS parses cron(...), rate(...) and at(...) as EventBridge Scheduler documents them:
// https://docs.aws.amazon.com/scheduler/latest/UserGuide/schedule-types.html
// Times are local to the schedule's zone, or UTC without a zone.
func (p *program) readAWS(text string, spec Spec, loc *timeZone) []*input.Problem {
	kind, rest, _ := strings.Cut(text, "(")
	inner, closed := strings.CutSuffix(rest, ")")
	if !closed || strings.ContainsAny(inner, "()") && !UsesHash(inner) {
		return one(problemf(input.CodeCronSyntax,
			"not cron(...), rate(...) or at(...); write it as for EventBridge, such as cron(0 12 * * ? *)"))
	}
	switch kind {
	case "cron":
		return p.readCron(&awsGrammar, inner, spec, loc)
	case "rate":
		return one(p.readAWSRate(text, inner))
	case "at":
		if strings.ContainsAny(inner, "Z+.") || strings.Count(inner, "-") > 2 {
			return one(problemf(input.CodeTimeInvalid,
				"EventBridge takes a local time, yyyy-mm-ddThh:mm:ss; set timezone for its zone"))
		}
		if spec.Timezone == "" {
			spec.Timezone = "UTC"
		}
		at, err := readAt(text, spec, loc)
		p.source, p.meaning = at, meaning{times: at}
		return one(err)
	}
	return one(problemf(input.CodeCronSyntax, "%q is not cron, rate or at", kind))
}

// readAWSRate reads rate(n unit). EventBridge Scheduler takes rate(1 days) as well as rate(1 day), but no singular unit
// after another number.
func (p *program) readAWSRate(text, inner string) *input.Problem {
	value, unit, _ := strings.Cut(inner, " ")
	switch strings.TrimSuffix(unit, "s") {
	case "minute", "hour", "day":
	default:
		return problemf(input.CodeRateSyntax, "write rate(n unit) with minute, minutes, hour, hours, day or days")
	}
	if !strings.HasSuffix(unit, "s") && isNumber(value) && number(value) != 1 {
		return problemf(input.CodeRateSyntax, "the unit must agree with the number; write rate(%s %ss)", value, unit)
	}
	period, _, err := parseInterval(text)
	p.setElapsed(period)
	return err
}

// one returns a list with the problem, or nil if there is none.
func one(f *input.Problem) []*input.Problem {
	if f == nil {
		return nil
	}
	return []*input.Problem{f}
}

// hasher is the identity of a trigger. It chooses the value of H in cron fields and the delay of
// a fire, so that triggers with the same expression do not all fire at once. Each trigger gets
// the same value on every node and after every restart.
type hasher string

// sum hashes the identity together with the purpose of the hash.
func (h hasher) sum(purpose string) uint64 {
	sum := fnv.New64a()
	sum.Write([]byte(h))
	sum.Write([]byte{0})
	sum.Write([]byte(purpose))
	// The last bytes change little of FNV's low bits, so this adds murmur3's finaliser.
	x := sum.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// hashPattern finds H where a value may stand.
var hashPattern = regexp.MustCompile(`(?i)(^|[\s,(])H($|[\s,/()])`)

// UsesHash reports whether an expression contains H, so that its meaning depends on Spec.Identity.
func UsesHash(text string) bool { return hashPattern.MatchString(text) }

// hashed reads H and H(a-b), each with an optional step, as in Jenkins. Without a step, it
// chooses one value of the range. With a step, it chooses the first value, below the step.
func (it item) hashed(body string, step int, stepped bool) (low, high int, err *input.Problem) {
	if it.identity == "" {
		return 0, 0, problemf(input.CodeCronHash,
			"H in the %s field hashes the identity of a trigger; without one, write a number", it.name)
	}
	low, high = it.low, it.high
	switch {
	case it.name == fieldDOM:
		high = 28 // every month has it
	case it.name == fieldWeekday && it.low == 0:
		high = 6 // 7 is Sunday again
	case it.name == fieldYear:
		return 0, 0, it.malformed("H would choose a single year; write the years")
	}
	if body != "H" {
		inner, closed := strings.CutSuffix(body[len("H("):], ")")
		from, to, ranged := strings.Cut(inner, "-")
		if !closed || !ranged {
			return 0, 0, it.malformed("write H or H(" + it.example() + ")")
		}
		straight := *it.field
		straight.wraps = false
		if low, high, err = (item{&straight, it.token}).ends(from, to); err != nil {
			return 0, 0, err
		}
	}
	width := high - low + 1
	if stepped {
		width = min(width, step)
	}
	low += int(it.identity.sum(it.name) % uint64(width))
	if !stepped {
		high = low
	}
	return low, high, nil
}
