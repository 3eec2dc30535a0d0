package schedule

import "math"

// zoned turns the local times of a wall clock into instants, in Unix seconds. It is the one
// place that knows about daylight saving.
//
// Zone rules cut time into periods of constant offset. Inside a period the two clocks run
// side by side; at its end the local clock jumps forward (a gap) or back (an overlap).
type zoned struct {
	wall    *wallClock
	zone    *timeZone
	gap     Gap
	overlap Overlap
}

// reach is more than any two offsets of one zone differ. Instants that are farther than
// this from a jump of the local clock are not concerned by it.
const reach = 48 * 3600

func (z *zoned) periodAt(instant int64) period { return z.zone.at(instant) }

// next returns the first instant of the schedule at or after from. Each round moves from
// forward, past a jump of the clock at least or to the eve of the next local time.
func (z *zoned) next(from int64) (int64, bool) {
	for {
		p := z.periodAt(from)
		if z.gap == GapNext && p.start == from && z.skippedBefore(p) {
			return from, true
		}
		local, ok := z.wall.next(from + p.offset - 1)
		if ok && local-p.offset < p.end {
			instant := local - p.offset
			retry, repeated := z.superseded(local, instant, p)
			if !repeated {
				return instant, true
			}
			from = retry
			continue
		}
		if p.end-from > reach {
			// No local time before the next jump, and none that it could repeat.
			if !ok {
				return 0, false
			}
			if far := local - p.offset - reach; far > p.end {
				from = far
				continue
			}
		}
		if p.end > math.MaxInt64/4 {
			return 0, false
		}
		from = p.end
	}
}

// skippedBefore tells whether the jump at the start of p skips a local time of the schedule.
func (z *zoned) skippedBefore(p period) bool {
	local, ok := z.wall.next(p.start + z.periodAt(p.start-1).offset - 1)
	return ok && local < p.start+p.offset
}

// superseded tells whether the overlap rule gives a local time to another of its passes
// than the one at instant, which lies in p. If so, retry is the first instant at which this
// is no longer certain.
func (z *zoned) superseded(local, instant int64, p period) (retry int64, repeated bool) {
	switch z.overlap {
	case OverlapLast:
		for q := p; q.end-instant <= reach; {
			q = z.periodAt(q.end)
			// The same offset gives the same instant, which is no other pass: Go's periods
			// overlap at the ends of years.
			if other := local - q.offset; other > instant && q.start <= other && other < q.end {
				return instant + min(p.end-instant, q.end-other), true
			}
		}
	case OverlapFirst:
		for q := p; instant-q.start <= reach; {
			q = z.periodAt(q.start - 1)
			if other := local - q.offset; other < instant && q.start <= other && other < q.end {
				return instant + min(p.end-instant, q.end-other), true
			}
		}
	}
	return 0, false
}
