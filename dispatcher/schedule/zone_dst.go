package schedule

import (
	"math"
	"sort"
	"sync"
	"time"
)

// zoned turns the local times of a wall clock into instants, in Unix seconds. Only this file
// knows about daylight saving.
//
// Zone rules cut time into periods of constant offset. Inside a period both clocks run
// in parallel; at its end the local clock jumps forward (a gap) or back (an overlap).
type zoned struct {
	wall    *wallClock
	zone    *timeZone
	gap     Gap
	overlap Overlap
}

// reach exceeds the difference of any two offsets of one zone, in seconds. A jump of the local
// clock does not affect instants that are farther away than this.
const reach = 48 * 3600

func (z *zoned) periodAt(instant int64) period { return z.zone.at(instant) }

// zoneSteps is the cost, in steps, of resolving a local time in its zone.
const zoneSteps = 4

// next returns the first instant of the schedule at or after from. Each round moves from forward,
// either past a jump of the clock or close to the next local time.
func (z *zoned) next(from int64, steps int) (at int64, left int, ok bool) {
	for steps >= 0 {
		steps--
		p := z.periodAt(from)
		if z.gap == GapNext && p.start == from {
			var skipped bool
			if skipped, steps = z.skippedBefore(p, steps); skipped {
				return from, steps, true
			}
		}
		local, left, ok := z.wall.next(from+p.offset-1, steps)
		steps = left
		if ok && local-p.offset < p.end {
			instant := local - p.offset
			retry, repeated := z.superseded(local, instant, p)
			if !repeated {
				return instant, steps, true
			}
			from = retry
			continue
		}
		if p.end-from > reach {
			// The schedule has no local time before the next jump, and none that the jump could repeat.
			if !ok {
				return from, steps, false
			}
			if far := local - p.offset - reach; far > p.end {
				from = far
				continue
			}
		}
		if p.end > math.MaxInt64/4 {
			return from, steps, false
		}
		from = p.end
	}
	return from, steps, false
}

// skippedBefore reports whether the jump at the start of p skips a local time of the schedule.
func (z *zoned) skippedBefore(p period, steps int) (skipped bool, left int) {
	local, left, ok := z.wall.next(p.start+z.periodAt(p.start-1).offset-1, steps)
	return ok && local < p.start+p.offset, left
}

// superseded reports whether the overlap rule chooses another pass of a local time than the one
// at instant, which lies in p. If so, retry is the first instant at which that may change.
func (z *zoned) superseded(local, instant int64, p period) (retry int64, repeated bool) {
	switch z.overlap {
	case OverlapLast:
		for q := p; q.end-instant <= reach; {
			q = z.periodAt(q.end)
			// Go's periods overlap at the ends of years. The same offset gives the same instant,
			// which is not another pass.
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

// moment holds the instants, in Unix seconds, at which the local clock shows one local time.
type moment struct {
	// first and last are the first and the last pass. They are equal if there is only one.
	first, last int64
	// gap is set if the local time does not exist. Then first and last are the end of the gap,
	// and shifted is as long after it as the local time is after the beginning of the gap.
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
			// The clock has passed this time without showing it.
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

// pick returns the pass that an overlap rule chooses.
func (m moment) pick(overlap Overlap) int64 {
	if overlap == OverlapFirst {
		return m.first
	}
	return m.last
}

// period is a stretch of time, from start (inclusive) to end (exclusive), during which
// local time is UTC plus offset. All in seconds.
type period struct{ start, end, offset int64 }

// forever is the period of a zone that never changes.
var forever = period{math.MinInt64 / 2, math.MaxInt64 / 2, 0}

// timeZone divides a zone into periods. It keeps a table of the periods of the most used years,
// because finding a period in a time.Location takes several times as long.
type timeZone struct {
	loc   *time.Location
	table func() []period // in order, without gaps; built at first use
}

// The years in the table, which schedules need most.
const (
	tabledFrom  = 1_577_836_800 // 2020-01-01
	tabledUntil = 2_524_608_000 // 2050-01-01
)

func newTimeZone(loc *time.Location) *timeZone {
	z := &timeZone{loc: loc}
	z.table = sync.OnceValue(func() []period {
		var table []period
		for at := int64(tabledFrom); at < tabledUntil; at = table[len(table)-1].end {
			table = append(table, z.find(at))
		}
		return table
	})
	return z
}

func (z *timeZone) at(instant int64) period {
	if z.loc == time.UTC {
		return forever
	}
	if instant < tabledFrom || instant >= tabledUntil {
		return z.find(instant)
	}
	table := z.table()
	return table[sort.Search(len(table), func(i int) bool { return instant < table[i].end })]
}

// find returns the period of an instant from the location.
func (z *timeZone) find(instant int64) period {
	t := time.Unix(instant, 0).In(z.loc)
	_, offset := t.Zone()
	start, end := t.ZoneBounds()
	found := forever
	found.offset = int64(offset)
	if !start.IsZero() {
		found.start = start.Unix()
	}
	if !end.IsZero() {
		found.end = end.Unix()
	}
	if found.end <= instant {
		// On 31 December of leap years after 2037, ZoneBounds of Go returns an end on that day,
		// which is before its own argument (seen with Go 1.26). Its periods end with the year
		// anyway, so the start of the next year is a safe end. Otherwise next would never return.
		found.end = yearStart(t.UTC().Year() + 1)
	}
	return found
}
