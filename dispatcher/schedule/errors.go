package schedule

import (
	"fmt"
	"strconv"
	"strings"
)

// Codes of the problems that this package finds. They are part of the API: clients branch on them.
const (
	CodeCalendarCost    = "calendar_cost"     // a calendar that costs too much, or too many steps to a fire
	CodeCalendarRule    = "calendar_rule"     // a calendar rule that is not of exactly one kind
	CodeCronControl     = "cron_control"      // control, invisible or non-ASCII white space
	CodeCronDays        = "cron_days"         // quartz: not exactly one of the two day fields is ?
	CodeCronEmpty       = "cron_empty"        // nothing but white space
	CodeCronFields      = "cron_fields"       // wrong number of fields
	CodeCronHash        = "cron_hash"         // H without an identity to hash
	CodeCronMacro       = "cron_macro"        // unknown @name
	CodeCronName        = "cron_name"         // a word that is not a name in this field
	CodeCronNever       = "cron_never"        // well formed, but no date matches
	CodeCronRange       = "cron_range"        // a value outside its field, or a reversed range
	CodeCronStep        = "cron_step"         // a step that is missing, zero or too large
	CodeCronSyntax      = "cron_syntax"       // anything else that is malformed
	CodeCronTooLong     = "cron_too_long"     // more than 256 bytes
	CodeCronTZPrefix    = "cron_tz_prefix"    // TZ= inside the expression
	CodeEnum            = "enum"              // a dialect, gap or overlap that does not exist
	CodeJitterRange     = "jitter_range"      // a jitter that is negative or more than a day
	CodeRateMax         = "rate_max"          // an interval of more than 100 years
	CodeRateMin         = "rate_min"          // an interval of less than a second
	CodeRateSyntax      = "rate_syntax"       // an interval that is malformed
	CodeRepeatRange     = "repeat_range"      // a negative or too large repeat count
	CodeTimeInvalid     = "time_invalid"      // no such date or time
	CodeTimeRange       = "time_range"        // an instant outside the years 2000 to 2200
	CodeTimeZoneMissing = "time_zone_missing" // a local time without a zone
	CodeTZOffset        = "tz_offset"         // an offset where a zone is needed
	CodeTZUnknown       = "tz_unknown"        // not an IANA zone
	CodeWindowOrder     = "window_order"      // start_at after end_at
)

// Codes is the closed list of the values of Error.Code.
var Codes = []string{
	CodeCalendarCost, CodeCalendarRule, CodeCronControl, CodeCronDays, CodeCronEmpty, CodeCronFields, CodeCronHash,
	CodeCronMacro, CodeCronName,
	CodeCronNever, CodeCronRange, CodeCronStep, CodeCronSyntax, CodeCronTooLong, CodeCronTZPrefix,
	CodeEnum, CodeJitterRange, CodeRateMax, CodeRateMin, CodeRateSyntax, CodeRepeatRange, CodeTimeInvalid,
	CodeTimeRange, CodeTimeZoneMissing, CodeTZOffset, CodeTZUnknown, CodeWindowOrder,
}

// Error is one problem of a Spec.
type Error struct {
	Field   string // the field of Spec, in snake_case: expression, timezone, start_at ...
	Code    string // one of Codes
	Message string // the field, its text, the rule and a remedy, on one line
}

// Error returns the message, which names the field.
func (e Error) Error() string { return e.Message }

// Errors are all problems of a Spec, in the order of its fields. It is never empty.
type Errors []Error

// Error joins the messages with "; ".
func (e Errors) Error() string {
	parts := make([]string, len(e))
	for i := range e {
		parts[i] = e[i].Message
	}
	return strings.Join(parts, "; ")
}

// Never reports whether the only problem is that a well-formed expression matches no date
// (CodeCronNever). Tools that list fire times may show that as an empty list.
func (e Errors) Never() bool {
	return len(e) == 1 && e[0].Code == CodeCronNever
}

// add appends a problem of the Spec's field, which holds text.
func (e *Errors) add(field, text, code, format string, args ...any) {
	message := field + " " + quote(text) + ": " + fmt.Sprintf(format, args...)
	*e = append(*e, Error{Field: field, Code: code, Message: message})
}

// err returns e as an error, nil if there is no problem.
func (e Errors) err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// problem is a problem inside a text, before the field that holds the text is known.
type problem struct{ code, message string }

func problemf(code, format string, args ...any) *problem {
	return &problem{code: code, message: fmt.Sprintf(format, args...)}
}

// quote makes a value safe to show: escaped, and cut to 64 characters so that a hostile
// value cannot flood a log.
func quote(text string) string {
	const most = 64
	n := 0
	for i := range text {
		if n == most {
			return strconv.Quote(text[:i] + "…")
		}
		n++
	}
	return strconv.Quote(text)
}

// addInt is add for a field that holds a number.
func (e *Errors) addInt(field string, value int, code, format string, args ...any) {
	message := fmt.Sprintf("%s %d: ", field, value) + fmt.Sprintf(format, args...)
	*e = append(*e, Error{Field: field, Code: code, Message: message})
}
