package schedule

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// instantPattern is RFC 3339 with an optional offset. Only the shape is checked here.
var instantPattern = regexp.MustCompile(`^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?$`)

// localInstant is a date and time as written: local, or an instant if it has an offset.
type localInstant struct {
	wall   time.Time // the digits, as if they were UTC; whole milliseconds
	offset *time.Duration
}

// parseInstant reads an RFC 3339 date and time, whose offset may be missing.
func parseInstant(text string) (localInstant, *input.Problem) {
	m := instantPattern.FindStringSubmatch(text)
	if m == nil {
		return localInstant{}, problemf(input.CodeTimeInvalid,
			"not a date and time; write 2026-05-01T10:00:00Z, or 2026-05-01T10:00:00+02:00")
	}
	var n [6]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1]) // digits by the pattern
	}
	if n[5] == 60 {
		return localInstant{}, problemf(input.CodeTimeInvalid, "leap seconds cannot be scheduled; seconds go up to 59")
	}
	millis, _ := strconv.Atoi((m[7] + "000")[:3])
	wall := time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], millis*int(time.Millisecond), time.UTC)
	// time.Date normalises, so a date or time that does not exist comes back as another one.
	if wall.Format("2006-01-02T15:04:05") != text[:19] {
		return localInstant{}, problemf(input.CodeTimeInvalid, "no such date or time; check month, day, hour, minute and second")
	}
	out := localInstant{wall: wall}
	switch zone := m[8]; {
	case zone == "":
	case zone == "Z":
		out.offset = new(time.Duration)
	default:
		hours, _ := strconv.Atoi(zone[1:3])
		minutes, _ := strconv.Atoi(zone[4:])
		if hours > 23 || minutes > 59 {
			return localInstant{}, problemf(input.CodeTimeInvalid, "no such offset: %s", zone)
		}
		offset := time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
		if zone[0] == '-' {
			offset = -offset
		}
		out.offset = &offset
	}
	return out, nil
}

// unwrapAt returns the text inside at(...), or the text itself.
func unwrapAt(text string) (string, *input.Problem) {
	inner, ok := strings.CutPrefix(text, "at(")
	if !ok {
		return text, nil
	}
	inner, ok = strings.CutSuffix(inner, ")")
	if !ok {
		return "", problemf(input.CodeTimeInvalid, "the closing parenthesis is missing")
	}
	return inner, nil
}

// single is one instant in Unix milliseconds.
type single int64

func (s single) next(after int64, steps int) (at int64, left int, ok bool) {
	return int64(s), steps - 1, int64(s) > after
}

// resolve returns the instant in Unix milliseconds. A local time in a gap fires when the gap
// ends, because a one-shot schedule that never fires is useless. With GapSkip it is an error.
func (l localInstant) resolve(loc *timeZone, gap Gap, overlap Overlap) (single, *input.Problem) {
	at, err := l.instant(loc, gap, overlap)
	if err == nil && input.OutOfRange(time.UnixMilli(int64(at))) {
		return 0, problemf(input.CodeTimeRange, "the year is not in %d-%d", input.FirstYear, input.LastYear)
	}
	return at, err
}

func (l localInstant) instant(loc *timeZone, gap Gap, overlap Overlap) (single, *input.Problem) {
	if l.offset != nil {
		return single(l.wall.Add(-*l.offset).UnixMilli()), nil
	}
	m := (&zoned{zone: loc}).momentOf(l.wall.Unix())
	switch {
	case m.gap && gap == GapSkip:
		return 0, problemf(input.CodeCronNever,
			"this local time does not exist in %s because the clock skips it; omit gap to fire when the gap ends", loc.loc)
	case m.gap:
		return single(m.first * 1000), nil
	}
	return single(m.pick(overlap)*1000 + l.wall.UnixMilli()%1000), nil
}
