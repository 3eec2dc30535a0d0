package schedule

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorhill/cronexpr"
)

// wallClock finds the next local time that a cron expression describes. Local times are
// seconds since 1970-01-01T00:00:00 on the wall clock, as if it were UTC.
//
// This file is the only user of gorhill/cronexpr, which is right about wall-clock arithmetic
// and wrong about much else: in a zone it steps backwards, on reversed ranges it panics, and
// Next writes to the expression. So it is given sorted lists of validated numbers, times in
// UTC only, and a copy of the expression at each call. It does months and times of day;
// days are ours (see dayRule), because Quartz's L-n, W and # differ from its own. So are
// years, which it knows only up to 2099: each is evaluated in refYear of the same length.
type wallClock struct {
	fields fields
	// expr is built at first use: checking an expression then costs nothing of it.
	expr func() *cronexpr.Expression
}

func newWallClock(f fields) *wallClock {
	w := &wallClock{fields: f}
	w.expr = sync.OnceValue(func() *cronexpr.Expression {
		lists := [...]string{csv(f.second, 0, 59), csv(f.minute, 0, 59), csv(f.hour, 0, 23), "*", csv(f.month, 1, 12), "*", "*"}
		return cronexpr.MustParse(strings.Join(lists[:], " "))
	})
	return w
}

// next returns the first matching local time strictly after the given one. It looks at each
// month at most once, so it is bounded by the 230 years an expression can name.
func (w *wallClock) next(after int64) (int64, bool) {
	from := time.Unix(after, 0).UTC()
	startYear := from.Year()
	for y, ok := w.fields.year.next(startYear - firstYear); ok; y, ok = w.fields.year.next(y + 1) {
		year := y + firstYear
		shift := yearStart(refYear(year)) - yearStart(year)
		begin := after + shift
		if year != startYear {
			begin = yearStart(refYear(year)) - 1
		}
		if t, ok := w.nextInYear(time.Unix(begin, 0).UTC(), year); ok {
			return t.Unix() - shift, true
		}
	}
	return 0, false
}

// nextInYear is next within one year; from and the answer are moved to refYear(year).
func (w *wallClock) nextInYear(from time.Time, year int) (time.Time, bool) {
	expr := *w.expr()
	for {
		t := expr.Next(from)
		if t.Year() != refYear(year) {
			return time.Time{}, false
		}
		month, day := t.Month(), t.Day()
		days := w.fields.days.mask(year, month)
		if days>>day&1 == 1 {
			return t, true
		}
		// The day does not match: continue at the next one that does, or in the next month.
		for day++; day <= 31 && days>>day&1 == 0; day++ {
		}
		if day > 31 {
			month, day = month+1, 1
		}
		from = time.Date(t.Year(), month, day, 0, 0, -1, 0, time.UTC)
	}
}

// refYear returns a year as long as the given one, in the middle of cronexpr's range.
func refYear(year int) int {
	if leapYear(year) {
		return 2000
	}
	return 2001
}

// yearStart returns the first second of a year.
func yearStart(year int) int64 {
	y := int64(year - 1)
	const daysBefore1970 = 719_162
	return (y*365 + y/4 - y/100 + y/400 - daysBefore1970) * 86_400
}

// csv writes a set of numbers from low to high as cronexpr reads it.
func csv(s set, low, high int) string {
	if s == all(low, high) {
		return "*" // the same list, without the cost of parsing it
	}
	var parts []string
	for _, v := range s.list() {
		parts = append(parts, strconv.Itoa(v))
	}
	return strings.Join(parts, ",")
}
