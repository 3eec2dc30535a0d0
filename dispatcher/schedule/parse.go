package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// program is a checked expression. Schedules of the same text, dialect, zone and DST rules
// share it.
type program struct {
	dialect Dialect
	zone    string
	loc     *timeZone
	// source produces the instants. Dialects that count from an origin have bind instead, which creates the source.
	source source
	// delay is the period of a fixed delay, else 0.
	delay time.Duration
	bind  func(origin) source
	// meaning is the meaning of the expression, independent of its notation.
	meaning meaning
}

// origin is the instant from which a schedule counts, in Unix milliseconds.
type origin struct {
	at int64
	// inclusive is set if the origin itself may fire: a start may, an anchor may not.
	inclusive bool
	// anchor is the spec's anchor, even if the start is the origin.
	anchor int64
}

// first returns the number of the first fire, where a fire at the origin has number 0.
func (o origin) first() int64 {
	if o.inclusive {
		return 0
	}
	return 1
}

// source produces instants in Unix milliseconds.
type source interface {
	// next returns the first instant strictly after the given one. It may take the given steps, and returns how many
	// are left. A negative number means that it gave up on the way, at the instant that it returns.
	next(after int64, steps int) (at int64, left int, ok bool)
}

// Parse checks spec and returns its schedule. A non-nil error is input.Problems: every problem of the
// spec at once, in the order of its fields.
func Parse(spec Spec) (*Schedule, error) {
	p, errs := compile(spec)
	return finish(spec, p, errs)
}

// finish checks the fields that compile does not, and builds the schedule.
func finish(spec Spec, p *program, errs input.Problems) (*Schedule, error) {
	errs = slices.Clone(errs) // a cached program may share them
	var dialect Dialect
	if p != nil {
		dialect = p.dialect
	}
	spec.checkBounds(&errs, dialect)
	if p != nil && p.delay > 0 && spec.Calendar != nil && spec.OnExcluded != OnExcludedNextIncluded {
		report(&errs, "on_excluded", string(spec.OnExcluded), problemf(input.CodeEnum,
			"a fixed delay that skips an excluded fire never fires again; write %s", OnExcludedNextIncluded))
	}
	if err := asError(errs); err != nil {
		return nil, err
	}
	return newSchedule(spec, p), nil
}

// compile checks expression, dialect, zone and DST rules.
func compile(spec Spec) (*program, input.Problems) {
	var errs input.Problems
	text, err := clean(spec.Expression)
	if err == nil && spec.Dialect == "" {
		spec.Dialect, err = recognise(text)
	}
	loc, zoneErr := zone(spec.Timezone)
	p := &program{dialect: spec.Dialect, zone: spec.Timezone, loc: loc}
	if p.zone == "" {
		p.zone = "UTC"
	}
	var problems []*input.Problem
	if err != nil {
		problems = []*input.Problem{err}
	} else {
		problems = p.read(text, spec, loc)
	}
	for _, f := range problems {
		report(&errs, "expression", spec.Expression, f)
	}
	checkEnum(&errs, "dialect", spec.Dialect, DialectQuartz, DialectUnix, DialectAWS, DialectInterval,
		DialectCalendarInterval, DialectDailyInterval, DialectAt)
	checkEnum(&errs, "gap", spec.Gap, GapSkip, GapNext)
	checkEnum(&errs, "on_excluded", spec.OnExcluded, OnExcludedSkip, OnExcludedNextIncluded, OnExcludedNextDay, OnExcludedPreviousDay)
	checkEnum(&errs, "overlap", spec.Overlap, OverlapLast, OverlapFirst, OverlapBoth)
	report(&errs, "timezone", spec.Timezone, zoneErr)
	if errs != nil {
		return nil, errs
	}
	return p, nil
}

// read parses text in p's dialect. loc is nil if the zone is itself a problem.
func (p *program) read(text string, spec Spec, loc *timeZone) []*input.Problem {
	switch p.dialect {
	case DialectQuartz:
		return p.readCron(&quartzGrammar, text, spec, loc)
	case DialectUnix:
		if strings.HasPrefix(text, "@") {
			expanded, err := macro(text)
			if err != nil {
				return one(err)
			}
			text = expanded
		}
		return p.readCron(&unixGrammar, text, spec, loc)
	case DialectAWS:
		return p.readAWS(text, spec, loc)
	case DialectInterval:
		period, delay, err := parseInterval(text)
		p.setElapsed(period)
		if delay {
			p.delay = period
			p.meaning = meaning{times: delayTimes{period.Milliseconds()}}
			// It fires at the start and, once the anchor is at or after the start, a pause after the anchor.
			p.bind = func(from origin) source {
				if from.inclusive && from.anchor < from.at {
					return single(from.at)
				}
				return single(from.anchor + period.Milliseconds())
			}
		}
		return one(err)
	case DialectCalendarInterval:
		return one(p.readCalendarInterval(text, spec, loc))
	case DialectDailyInterval:
		return one(p.readDailyInterval(text, loc))
	case DialectAt:
		at, err := readAt(text, spec, loc)
		p.source, p.meaning = at, meaning{times: at}
		return one(err)
	}
	return nil // an unknown dialect is reported by checkEnums
}

// readCron parses a cron expression and sets up its evaluation.
func (p *program) readCron(g *grammar, text string, spec Spec, loc *timeZone) []*input.Problem {
	if strings.HasPrefix(text, "cron(") {
		return one(problemf(input.CodeCronSyntax,
			"cron(...) belongs to dialect aws; omit dialect, or remove cron(...) and write the fields of this dialect"))
	}
	if n := countTokens(text); n < g.required || n > len(g.fields) {
		return one(g.wrongCount(text, n))
	}
	f, problems := g.parse(strings.ToUpper(text), spec.Identity)
	if problems != nil {
		return problems
	}
	overlap := spec.Overlap
	if overlap == "" {
		overlap = OverlapLast
		if f.everyHour() {
			overlap = OverlapBoth
		}
	}
	p.source = seconds{&zoned{wall: &wallClock{fields: f}, zone: loc, gap: spec.Gap, overlap: overlap}}
	days := f.days
	if days.either && (days.dom == everyDay || days.dow == everyWeekday) {
		days = dayRule{dom: everyDay, dow: everyWeekday}
	}
	times := cronTimes{f.second, f.minute, f.hour, f.month, f.year, days}
	p.meaning = meaning{times: times, gap: cmp.Or(spec.Gap, GapSkip), overlap: overlap, zoned: true}
	return nil
}

// seconds adapts a source of whole Unix seconds to milliseconds.
type seconds struct{ zoned *zoned }

func (s seconds) next(after int64, steps int) (at int64, left int, ok bool) {
	at, left, ok = s.zoned.next(floorDiv(after, 1000)+1, steps)
	return at * 1000, left, ok
}

// wrongCount reports a wrong number of fields, and the dialect that the text may be in.
func (g *grammar) wrongCount(text string, n int) *input.Problem {
	expected := fmt.Sprintf("expected %d fields", g.required)
	if g.required < len(g.fields) {
		expected = fmt.Sprintf("expected %d or %d fields", g.required, len(g.fields))
	}
	if dialect, err := recognise(text); err == nil {
		return problemf(input.CodeCronFields, "%s, found %d; this looks like dialect %s", expected, n, dialect)
	}
	return problemf(input.CodeCronFields, "%s, found %d", expected, n)
}

// readAt reads at(...) or a bare instant.
func readAt(text string, spec Spec, loc *timeZone) (single, *input.Problem) {
	inner, err := unwrapAt(text)
	if err != nil {
		return 0, err
	}
	local, err := parseInstant(inner)
	switch {
	case err != nil:
		return 0, err
	case local.offset == nil && spec.Timezone == "":
		return 0, problemf(input.CodeTimeZoneMissing,
			"a local time needs a zone; append Z or an offset such as +02:00, or set timezone")
	case loc == nil:
		return 0, nil
	}
	// A local time in a gap fires when the gap ends, because a one-shot schedule that never fires is useless. With GapSkip it
	// is an error.
	at, err := local.instant(loc, spec.Gap, spec.Overlap)
	if err == nil && input.OutOfRange(time.UnixMilli(int64(at))) {
		return 0, problemf(input.CodeTimeRange, "the year is not in %d-%d", input.FirstYear, input.LastYear)
	}
	return at, err
}

// maxText is the longest expression, in bytes.
const maxText = 256

// clean makes the checks that all dialects share, and strips outer blanks.
func clean(text string) (string, *input.Problem) {
	if len(text) > maxText {
		return "", problemf(input.CodeCronTooLong, "expression has %d bytes; the maximum is %d", len(text), maxText)
	}
	if !utf8.ValidString(text) {
		return "", problemf(input.CodeCronControl, "expression is not valid UTF-8")
	}
	for i, r := range text {
		if r != '\t' && (r < ' ' || r >= 0x7f) {
			return "", unprintable(r, i+1)
		}
	}
	text = strings.Trim(text, " \t")
	if text == "" {
		return "", problemf(input.CodeCronEmpty, "expression is empty; write one such as 0 2 * * * or rate(5 minutes)")
	}
	if name, _, found := strings.Cut(text, "="); found && (strings.EqualFold(name, "TZ") || strings.EqualFold(name, "CRON_TZ")) {
		return "", problemf(input.CodeCronTZPrefix, "a zone cannot be part of the expression; use the timezone field")
	}
	return text, nil
}

// unprintable describes a character that no dialect allows.
func unprintable(r rune, column int) *input.Problem {
	switch {
	case r == '\n' || r == '\r':
		return problemf(input.CodeCronControl, "line break at column %d; write one expression", column)
	case unicode.IsSpace(r):
		return problemf(input.CodeCronControl, "non-ASCII space U+%04X at column %d; write a plain space", r, column)
	case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
		return problemf(input.CodeCronControl, "invisible character U+%04X at column %d; remove it", r, column)
	}
	return problemf(input.CodeCronSyntax, "%q at column %d is not ASCII", r, column)
}

// forms are the beginnings of dialects, and texts within them. The first match decides.
var forms = []struct {
	beginning, within string
	dialect           Dialect
}{
	{"@every ", "", DialectInterval}, {"rate(", "", DialectInterval}, {"delay(", "", DialectInterval},
	{"cron(", "", DialectAWS}, {"at(", "", DialectAt}, {"@", "", DialectUnix},
	{"every ", " from ", DialectDailyInterval}, {"every ", " on ", DialectDailyInterval}, {"every ", "", DialectCalendarInterval},
}

// recognise returns the dialect of a text from clean.
func recognise(text string) (Dialect, *input.Problem) {
	for _, form := range forms {
		if strings.HasPrefix(text, form.beginning) && strings.Contains(text, form.within) {
			return form.dialect, nil
		}
	}
	if len(text) > 4 && isNumber(text[:4]) && text[4] == '-' && strings.ContainsRune(text, ':') {
		return DialectAt, nil
	}
	switch n := countTokens(text); n {
	case 5:
		return DialectUnix, nil
	case 6, 7:
		return DialectQuartz, nil
	default:
		wrong := problemf(input.CodeCronFields, "expected 5 fields (unix) or 6 or 7 (quartz), found %d", n)
		if name := "@" + strings.ToLower(text); macros[name] != "" {
			wrong.Message += "; did you mean " + name + "?"
		}
		return "", wrong
	}
}

// invalid are all problems of a Spec or CalendarSpec, in the order of its fields: input.Problems, but as a text without their
// paths, because each message begins with its field.
type invalid struct{ input.Problems }

// Error joins the messages with "; ".
func (e invalid) Error() string {
	lines := make([]string, len(e.Problems))
	for i, problem := range e.Problems {
		lines[i] = problem.Message
	}
	return strings.Join(lines, "; ")
}

func (e invalid) Unwrap() error { return e.Problems }

// asError returns problems as an error, nil if there are none.
func asError(problems input.Problems) error {
	if len(problems) == 0 {
		return nil
	}
	return invalid{problems}
}

// Never reports whether the only problem is that a well-formed expression matches no date
// (input.CodeCronNever). Tools that list fire times may show that as an empty list.
func Never(err error) bool {
	var problems input.Problems
	return errors.As(err, &problems) && len(problems) == 1 && problems[0].Code == input.CodeCronNever
}

// report appends the problem of a field that holds text, unless it is nil.
func report(problems *input.Problems, field, text string, problem *input.Problem) {
	if problem != nil {
		problems.Add("/"+field, problem.Code, "%s %s: %s", field, input.Echo(text), problem.Message)
	}
}

// reportInt is report for a field that holds a number.
func reportInt(problems *input.Problems, field string, value int, problem *input.Problem) {
	problems.Add("/"+field, problem.Code, "%s %d: %s", field, value, problem.Message)
}

// problemf is a problem of a value, before the field that holds it is known.
func problemf(code, format string, args ...any) *input.Problem {
	return &input.Problem{Code: code, Message: fmt.Sprintf(format, args...)}
}
