package input

import (
	"fmt"
	"regexp"
	"time"
)

var zonelessPattern = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?$`)

// ParseInstant reads a time as RFC 3339 with a zone, and returns it in UTC, truncated to whole
// milliseconds, as both databases store it. The error is a *Problem without a path.
func ParseInstant(text string) (time.Time, error) {
	if zonelessPattern.MatchString(text) {
		return time.Time{}, &Problem{Code: CodeTimeZoneMissing,
			Message: "time " + Echo(text) + " has no zone; end it with Z or an offset such as +02:00"}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, &Problem{Code: CodeTimeInvalid,
			Message: "time " + Echo(text) + " is not an instant; write it as 2026-05-01T10:00:00Z"}
	}
	if OutOfRange(t) {
		return time.Time{}, &Problem{Code: CodeTimeRange, Message: fmt.Sprintf("time %s is outside the years %d to %d",
			Echo(text), FirstYear, LastYear)}
	}
	return t.UTC().Truncate(time.Millisecond), nil
}

// FormatInstant writes a time as RFC 3339 in UTC with milliseconds.
func FormatInstant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// SameInstant reports whether two optional times are the same instant, or both missing.
func SameInstant(a, b *time.Time) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Equal(*b)
}

// WholeMillis returns an instant as it is stored, in UTC and in whole milliseconds; nil stays nil.
func WholeMillis(at *time.Time) *time.Time {
	if at == nil {
		return nil
	}
	return new(time.UnixMilli(at.UnixMilli()).UTC())
}

// FirstYear and LastYear are the years, in UTC, of the instants that may be named anywhere. An instant outside of them
// is a slip of the pen, or a number that was taken for a time.
const (
	FirstYear = 2000
	LastYear  = 2200
)

// OutOfRange reports whether an instant is outside FirstYear to LastYear.
func OutOfRange(t time.Time) bool {
	year := t.UTC().Year()
	return year < FirstYear || year > LastYear
}
