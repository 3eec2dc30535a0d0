package schedule

import (
	"math"
	"sort"
	"sync"
	"time"
)

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

// The years in the table, which are those that schedules need most.
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

// at returns the period that an instant lies in.
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
