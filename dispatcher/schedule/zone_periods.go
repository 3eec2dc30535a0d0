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

// timeZone is a zone cut into periods. Those of tabled years are kept, because finding one in
// a time.Location takes several times as long.
type timeZone struct {
	loc   *time.Location
	table func() []period // in order, without holes; built at first use
}

// The years for which periods are kept: those that most schedules are asked about.
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

// find asks the location.
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
		// On 31 December of leap years after 2037 Go's ZoneBounds ends the period on that very
		// day, before its own argument (seen with Go 1.26). Its periods end with the year in
		// any case, so the next year is a safe end. Without this, next would never end.
		found.end = yearStart(t.UTC().Year() + 1)
	}
	return found
}
