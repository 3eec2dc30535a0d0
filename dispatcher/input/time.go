package input

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
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

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

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

// FirstYear and LastYear bound the years, in UTC, of all instants in input. An instant outside of them is a typing
// error, or a number that was taken for a time.
const (
	FirstYear = 2000
	LastYear  = 2200
)

// OutOfRange reports whether an instant is outside FirstYear to LastYear.
func OutOfRange(t time.Time) bool {
	year := t.UTC().Year()
	return year < FirstYear || year > LastYear
}

const day = 24 * time.Hour

// Bounds of the durations that users write, and of App.Retention, with its default. History is removed by whole days,
// so a retention of less than a day is impossible.
const (
	MinDuration      = 100 * time.Millisecond
	MaxDuration      = day
	MinRetention     = day
	MaxRetention     = 10 * 365 * day
	DefaultRetention = Duration(30 * day)
)

// Duration is a length of time, read and written as Go writes it ("30s", "1h30m0s"); days are read as well.
// It is the wire form of every duration; the zero value means "not given".
type Duration time.Duration

// ParseDuration reads "30s", "1m30s", "250ms", "30d" and "1d12h"; a day has 24 hours. It refuses ambiguous notations: a
// bare number, weeks, ISO 8601. The error is a *Problem without a path.
func ParseDuration(text string) (Duration, error) {
	problem := func(code, message string) (Duration, error) {
		return 0, &Problem{Code: code, Message: message}
	}
	switch {
	case text == "":
		return problem(CodeDurationEmpty, "duration is empty; write it with a unit, such as 30s")
	case strings.Trim(text, "0123456789") == "":
		return problem(CodeDurationUnit, "duration "+Echo(text)+" has no unit; for seconds, end it with s")
	case text[0] == 'P' || text[0] == 'p':
		return problem(CodeDurationSyntax, "duration "+Echo(text)+" is ISO 8601, which is not accepted; write it as 1h30m or 5s")
	case strings.HasSuffix(text, "w"):
		return problem(CodeDurationUnit, "duration "+Echo(text)+" uses weeks; the units are ms, s, m, h and d (a week is 7d)")
	}
	days, rest, hasDays := strings.Cut(text, "d")
	if !hasDays {
		days, rest = "0", text
	}
	if days == "" || strings.Trim(days, "0123456789") != "" || !isDuration(rest) {
		return problem(CodeDurationSyntax, "duration "+Echo(text)+" is not understood; write it as 250ms, 30s, 5m, 1h30m, 30d or 1d12h, "+
			"days first and whole, without sign or space and with units in lower case")
	}
	n, noDays := strconv.ParseInt(days, 10, 64)
	d, noRest := time.ParseDuration(cmp.Or(rest, "0s"))
	if noDays != nil || noRest != nil || n > (math.MaxInt64-int64(d))/int64(day) {
		return problem(CodeDurationMax, "duration "+Echo(text)+" is more than a duration can be, 106751 days")
	}
	return Duration(d) + Duration(n)*Duration(day), nil
}

// isDuration reports whether time.ParseDuration reads text, without signs, and with digits on both sides of a point.
// It allows units below a millisecond because Duration.String writes them.
func isDuration(text string) bool {
	for text != "" {
		unit := strings.TrimLeft(text, "0123456789")
		if after, fraction := strings.CutPrefix(unit, "."); fraction && unit != text {
			text, unit = after, strings.TrimLeft(after, "0123456789")
		}
		rest := strings.TrimLeft(unit, "hmsuµn")
		if unit == text || !slices.Contains([]string{"h", "m", "s", "ms", "us", "µs", "ns"}, strings.TrimSuffix(unit, rest)) {
			return false
		}
		text = rest
	}
	return true
}

// Std returns d as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String writes d as Go does.
func (d Duration) String() string { return time.Duration(d).String() }

// Rounded writes d for people: in whole seconds from one second on.
func (d Duration) Rounded() string {
	unit := time.Millisecond
	if d.Std().Abs() >= time.Second {
		unit = time.Second
	}
	return d.Std().Round(unit).String()
}

// MarshalText writes d as Go does: "30s".
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalJSON is the inverse of MarshalText, also for negative durations, because a node's clock may be behind.
// ParseDuration reads durations that people write.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	behind, negative := strings.CutPrefix(text, "-")
	if err := d.UnmarshalText([]byte(behind)); err != nil {
		return err
	}
	if negative {
		*d = -*d
	}
	return nil
}

// UnmarshalText applies ParseDuration.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := ParseDuration(string(text))
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}

// CheckRange reports a duration outside [low, high] under path.
func (d Duration) CheckRange(problems *Problems, path string, low, high time.Duration) {
	switch {
	case d.Std() < low:
		problems.Add(path, CodeDurationMin, "duration %s is less than the minimum of %s", d, low)
	case d.Std() > high:
		problems.Add(path, CodeDurationMax, "duration %s is more than the maximum of %s", d, high)
	}
}
