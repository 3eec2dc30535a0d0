package schedule

import "math"

// moment is what the local clock makes of one local time.
type moment struct {
	// first and last are the instants of the first and last pass; equal if there is one.
	first, last int64
	// gap tells that the local time does not exist. Then first and last are the instant at
	// which the gap ends, and shifted lies as far after it as the time lies in the gap.
	gap     bool
	shifted int64
}

// momentOf resolves a local time, in seconds as if it were UTC, to Unix seconds.
func (z *zoned) momentOf(local int64) moment {
	m := moment{first: math.MinInt64}
	var before period
	for p := z.periodAt(local - reach); ; p = z.periodAt(p.end) {
		switch instant := local - p.offset; {
		case instant < p.start && m.first == math.MinInt64:
			// The clock is past this time and never showed it.
			return moment{first: p.start, last: p.start, gap: true, shifted: local - before.offset}
		case p.start <= instant && instant < p.end:
			if m.first == math.MinInt64 {
				m.first = instant
			}
			m.last = instant
		}
		if p.end > local+reach {
			return m
		}
		before = p
	}
}

// pick returns the pass that the rule asks for.
func (m moment) pick(overlap Overlap) int64 {
	if overlap == OverlapFirst {
		return m.first
	}
	return m.last
}
