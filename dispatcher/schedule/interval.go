package schedule

import (
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

const (
	minPeriod = time.Second
	maxPeriod = 100 * 365 * 24 * time.Hour
)

// parseInterval reads rate(...), delay(...) and @every ....
func parseInterval(text string) (period time.Duration, delay bool, err *input.Problem) {
	body, ok := strings.CutPrefix(text, "@every ")
	if !ok {
		if body, ok = strings.CutPrefix(text, "delay("); ok {
			delay = true
		} else {
			body, ok = strings.CutPrefix(text, "rate(")
		}
		if ok {
			body, ok = strings.CutSuffix(body, ")")
		}
	}
	body = strings.Trim(body, " \t")
	if !ok || body == "" {
		return 0, false, problemf(input.CodeRateSyntax,
			"not an interval; write rate(5 minutes), rate(1h30m), @every 30s or delay(30s)")
	}
	period, err = parsePeriod(body)
	return period, delay, err
}

// parsePeriod reads "5 minutes" and "1h30m" and checks the bounds.
func parsePeriod(body string) (time.Duration, *input.Problem) {
	period, err := readPeriod(body)
	switch {
	case err != nil:
		return 0, err
	case period < minPeriod:
		return 0, problemf(input.CodeRateMin, "the interval is less than the minimum of 1s")
	case period > maxPeriod:
		return 0, problemf(input.CodeRateMax, "the interval is more than the maximum of 100 years")
	case period%time.Millisecond != 0:
		return 0, problemf(input.CodeRateSyntax, "the interval is not a whole number of milliseconds")
	}
	return period, nil
}

// units are the units of elapsed time. A day always has 24 hours.
var units = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
}

// readPeriod reads "5 minutes" and "1h30m". On overflow it returns more than maxPeriod.
func readPeriod(body string) (time.Duration, *input.Problem) {
	if words := strings.Fields(body); len(words) == 2 && isNumber(words[0]) {
		unit, ok := units[strings.TrimSuffix(words[1], "s")]
		if !ok {
			return 0, problemf(input.CodeRateSyntax, "unit %q is unknown; write seconds, minutes, hours, days or weeks", words[1])
		}
		n := number(words[0])
		if n > int(maxPeriod/unit) {
			return maxPeriod + 1, nil
		}
		return time.Duration(n) * unit, nil
	}
	if isNumber(body) {
		return 0, problemf(input.CodeRateSyntax, "the interval has no unit; write %ss or %s seconds", body, body)
	}
	period, err := time.ParseDuration(body)
	if err == nil && body[0] != '+' {
		return period, nil
	}
	// A well-formed duration that overflows is too long, not malformed.
	if strings.Trim(body, "0123456789hms") == "" && body[0] <= '9' {
		return maxPeriod + 1, nil
	}
	return 0, problemf(input.CodeRateSyntax, "the interval is not understood; write it as 30s, 5m, 1h30m or 5 minutes")
}

// setElapsed lets p fire once per period, counted from the origin.
func (p *program) setElapsed(period time.Duration) {
	p.bind, p.meaning = elapsed(period), meaning{times: elapsedTimes{period.Milliseconds()}}
}

// elapsed returns a source that fires once per period, counted from the origin.
func elapsed(period time.Duration) func(origin) source {
	return func(from origin) source {
		return interval{base: from.at, period: period.Milliseconds(), first: from.first()}
	}
}

// delayed returns a source that fires at the start. Once the anchor is at or after the start, it
// fires a pause after the anchor.
func delayed(pause time.Duration) func(origin) source {
	return func(from origin) source {
		if from.inclusive && from.anchor < from.at {
			return single(from.at)
		}
		return single(from.anchor + pause.Milliseconds())
	}
}

// interval is base + k*period for k >= first, in Unix milliseconds.
type interval struct{ base, period, first int64 }

func (iv interval) next(after int64, steps int) (at int64, left int, ok bool) {
	k := max(iv.first, floorDiv(after-iv.base, iv.period)+1)
	return iv.base + k*iv.period, steps - 1, true
}

// count returns the number of instants in (a, b].
func (iv interval) count(a, b int64) int64 {
	low := max(iv.first-1, floorDiv(a-iv.base, iv.period))
	return max(0, floorDiv(b-iv.base, iv.period)-low)
}

// nth returns the n-th instant strictly after a time, counted from 1.
func (iv interval) nth(after, n int64) int64 {
	return iv.base + (max(iv.first-1, floorDiv(after-iv.base, iv.period))+n)*iv.period
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
