package schedule

import "math/bits"

// cronRule excludes the seconds of a cron expression or, with only, all others.
type cronRule struct {
	wall *wallClock
	only bool
	// unit is a second, a minute, an hour or a day: the longest in which the expression matches all
	// seconds or none.
	unit int64
}

func newCronRule(wall *wallClock, only bool) cronRule {
	f := &wall.fields
	c := cronRule{wall: wall, only: only, unit: 1}
	for _, part := range []struct {
		full bool
		unit int64
	}{{f.second == all(0, 59), 60}, {f.minute == all(0, 59), 3600}, {f.everyHour(), daySeconds}} {
		if !part.full {
			break
		}
		c.unit = part.unit
	}
	return c
}

// excludedUntil is layer.localUntil for this rule.
func (c *cronRule) excludedUntil(local int64, steps int) (until int64, excluded bool, left int) {
	next, left, ok := c.wall.next(local-1, steps)
	switch matches := ok && next == local; {
	case left < 0 || matches == c.only:
		return 0, false, left
	case !matches && !ok:
		return lastSecond, true, left
	case !matches:
		return next, true, left
	case c.unit < daySeconds:
		return floorDiv(local, c.unit)*c.unit + c.unit, true, left
	}
	// Whole days match: the run ends with them, or with the month.
	m, dom := monthOf(floorDiv(local, daySeconds))
	run := bits.TrailingZeros32(^(c.days(&m) >> dom))
	return (m.first + int64(min(dom+run, m.length+1)-1)) * daySeconds, true, left - 1
}

// excludedFrom is layer.localFrom for this rule.
func (c *cronRule) excludedFrom(local int64, steps int) (from int64, excluded bool, left int) {
	next, left, ok := c.wall.next(local-1, steps)
	switch matches := ok && next == local; {
	case left < 0 || matches == c.only:
		return 0, false, left
	case matches && c.unit < daySeconds:
		return floorDiv(local, c.unit) * c.unit, true, left
	case matches:
		m, dom := monthOf(floorDiv(local, daySeconds))
		run := bits.LeadingZeros32(^(c.days(&m) << (31 - dom)))
		return (m.first + int64(dom-run)) * daySeconds, true, left - 1
	}
	last, left, ok := c.wall.previous(local, left)
	if !ok {
		return firstSecond, left >= 0, left
	}
	return last + 1, true, left
}

// days returns the days of a month on which the expression matches, as bits 1 to 31.
func (c *cronRule) days(m *monthDays) uint32 {
	f := &c.wall.fields
	if !f.year.has(m.year-firstYear) || !f.month.has(int(m.month)) {
		return 0
	}
	return f.days.mask(m.year, m.month)
}
