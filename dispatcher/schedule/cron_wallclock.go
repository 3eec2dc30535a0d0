package schedule

import (
	"math/bits"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorhill/cronexpr"
)

// wallClock finds the next local time that a cron expression describes. Local times are
// seconds since 1970-01-01T00:00:00 on the wall clock, as if it were UTC.
//
// wallClock finds the matching days itself, from sets and the lengths of months, because
// cronexpr does not support Quartz's L-n, W and # or years after 2099. It uses cronexpr only to
// find the next time within a day.
//
// Only this file uses gorhill/cronexpr. That library is correct about wall-clock arithmetic, but
// it steps backwards in zones with daylight saving, panics on reversed ranges, and changes the
// expression in Next. Therefore it gets sorted lists of validated numbers, times in UTC only,
// and a copy of the expression for each call.
type wallClock struct {
	fields fields
	// times is built at first use, so that checking an expression does not pay for it.
	times    timesOfDay
	building sync.Once
}

// timesOfDay holds the hours, minutes and seconds of an expression.
type timesOfDay struct {
	expr  *cronexpr.Expression
	first int64 // the first time of a day, in seconds
}

// next returns the first matching local time strictly after the given one. It looks at each month
// at most once, so the 230 years that an expression can name bound its cost. Each month is a step.
func (w *wallClock) next(after int64, steps int) (at int64, left int, ok bool) {
	w.building.Do(w.build)
	day := floorDiv(after+1, daySeconds) * daySeconds
	year, month, dom := time.Unix(day, 0).UTC().Date()
	f := w.fields
	if steps -= cronSteps; f.year.has(year-firstYear) && f.month.has(int(month)) && f.days.mask(year, month)>>dom&1 == 1 {
		if second, ok := w.times.next(after - day); ok {
			return day + second, steps, true
		}
	}
	day, steps, ok = w.fields.dayAfter(year, month, dom, steps)
	return day + w.times.first, steps, ok
}

// previous returns the last matching local time strictly before the given one, but none before 1970.
func (w *wallClock) previous(before int64, steps int) (at int64, left int, ok bool) {
	high := before
	for back := int64(1); !ok; back *= 4 {
		low := max(before-back, -1)
		if at, steps, ok = w.next(low, steps); ok && at < before {
			break
		}
		if ok = false; low == -1 || steps < 0 {
			return 0, steps, false
		}
		high = low + 1
	}
	// The last match is in [at, high): nothing was found from the low of the search before on.
	for high = max(high, at+1); steps >= 0; {
		next, left, more := w.next(at, steps)
		if steps = left; !more || next >= before {
			return at, steps, true
		}
		at = next
		middle := at + (high-at)/2
		if next, steps, more = w.next(middle, steps); more && next < before {
			at = next
		} else {
			high = middle
		}
	}
	return at, steps, false
}

func (w *wallClock) build() {
	f := &w.fields
	lists := [...]string{csv(f.second, 0, 59), csv(f.minute, 0, 59), csv(f.hour, 0, 23), "*", "*", "*", "*"}
	w.times.expr = cronexpr.MustParse(strings.Join(lists[:], " "))
	w.times.first, _ = w.times.next(-1) // no set is empty
}

// next returns the first matching second of a day after the given one, which may be -1.
func (t timesOfDay) next(after int64) (int64, bool) {
	const noDayInParticular = 1_000_000_000 / daySeconds * daySeconds
	expr := *t.expr
	second := expr.Next(time.Unix(noDayInParticular+after, 0).UTC()).Unix() - noDayInParticular
	return second, second < daySeconds
}

// dayAfter returns the beginning of the first matching day after the given one.
func (f *fields) dayAfter(year int, month time.Month, dom, steps int) (at int64, left int, found bool) {
	from := int(month)
	for y, ok := f.year.next(year - firstYear); ok && steps >= 0; y, ok = f.year.next(y + 1) {
		if y+firstYear != year {
			from, dom = 1, 0
		}
		for m, ok := f.month.next(from); ok; m, ok = f.month.next(m + 1) {
			days := f.days.mask(y+firstYear, time.Month(m))
			steps--
			if m == from {
				days &^= 1<<(dom+1) - 1
			}
			if days != 0 {
				first := time.Date(y+firstYear, time.Month(m), bits.TrailingZeros32(days), 0, 0, 0, 0, time.UTC)
				return first.Unix(), steps, true
			}
		}
	}
	return 0, steps, false
}

// yearStart returns the first second of a year.
func yearStart(year int) int64 {
	y := int64(year - 1)
	const daysBefore1970 = 719_162
	return (y*365 + y/4 - y/100 + y/400 - daysBefore1970) * 86_400
}

// csv writes a set of numbers from low to high in the notation of cronexpr.
func csv(s set, low, high int) string {
	if s == all(low, high) {
		return "*" // cheaper to parse than the list
	}
	var parts []string
	for _, v := range s.list() {
		parts = append(parts, strconv.Itoa(v))
	}
	return strings.Join(parts, ",")
}

// WallClock reports whether an expression means the wall clock of a zone, so that it has other fires in another zone:
// cron expressions, local times, parts of days, and steps of days and longer on the calendar. The dialect may be empty.
// A text that no dialect reads means no clock.
func WallClock(expression string, dialect Dialect) bool {
	text, wrong := clean(expression)
	if wrong == nil && dialect == "" {
		dialect, wrong = recognise(text)
	}
	if wrong != nil {
		return false
	}
	switch dialect {
	case DialectQuartz, DialectUnix, DialectDailyInterval:
		return true
	case DialectAWS:
		return strings.HasPrefix(text, "cron(") || strings.HasPrefix(text, "at(")
	case DialectCalendarInterval:
		s, wrong := parseStep(strings.TrimPrefix(text, "every "))
		return wrong == nil && s.onCalendar()
	case DialectAt:
		inner, wrong := unwrapAt(text)
		if wrong != nil {
			return false
		}
		local, wrong := parseInstant(inner)
		return wrong == nil && local.offset == nil
	}
	return false
}
