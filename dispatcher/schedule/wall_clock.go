package schedule

import "strings"

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
